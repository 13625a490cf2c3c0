"""What processes import that start by the dozen: each tenth of a second is one of every task."""

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
    "dpa.driver.run": ("pandas", "polars", "pyspark", "ray", "matplotlib"),
}


@pytest.mark.parametrize("module", LATE)
def test_what_only_some_processes_need_is_imported_by_those(module: str) -> None:
    program = f"import sys, {module}; print(*(name for name in {LATE[module]!r} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert found.split() == []
