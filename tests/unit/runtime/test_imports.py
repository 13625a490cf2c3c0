"""What processes import that start by the dozen, and what users wait for: the command, its completion, and `Flow`."""

import subprocess
import sys

import pytest

LATE = {
    "dpa.runtime.actors.actor": (
        "dpa.placement",
        "dpa.protocol.coordinator.machine",
        "dpa.protocol.balancer.machine",
        "pandas",
        "polars",
    ),
    "dpa": ("numpy", "pyarrow", "pydantic", "yaml"),
    "dpa.command": ("numpy", "pyarrow", "rich", "yaml"),
    "dpa.run": ("dpa.config", "numpy", "pyarrow", "rich", "yaml"),
    "dpa.control": ("dpa.protocol", "numpy", "pyarrow", "rich", "yaml"),
    "dpa.flow": (
        *("dpa.driver.forecast", "dpa.driver.run", "dpa.local", "dpa.placement.profile", "dpa.protocol.coordinator"),
        *("dpa.report", "pandas", "polars", "pyspark", "ray", "matplotlib"),
    ),
    "dpa.driver.run": ("pandas", "polars", "pyspark", "ray", "matplotlib"),
}


@pytest.mark.parametrize("module", LATE)
def test_what_only_some_processes_need_is_imported_by_those(module: str) -> None:
    program = f"import sys, {module}; print(*(name for name in {LATE[module]!r} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert found.split() == []
