"""Which jobs are so small that they run in the process that asks for them, without Ray."""

import os
import sys

import pyarrow as pa
from pydantic import BaseModel

from dpa.driver.outputs import written
from dpa.driver.spec import JobSpec

_FEW_ROWS = 10_000
"""Starting processes for fewer takes longer than to process them, unless a record takes milliseconds."""

_OF_PROCESSES = frozenset(
    ("balance", "checkpoint", "epoch_log", "grouping", "placement", "ray", "recovery", "resources", "testing")
)
"""Keys of job files that say how tasks in processes are to behave."""


def runs_here(spec: JobSpec) -> bool:
    """Whether a job is so small that its tasks run in this process by themselves: its inputs are few rows in memory, it
    sets nothing about processes, publishes at its end alone, and this process has no Ray."""
    ray = sys.modules.get("ray")
    if os.environ.get("DPA_BACKEND", "auto") != "auto" or (ray is not None and ray.is_initialized()):
        return False
    sections = (spec.config, *spec.config.stages.values())
    if any(map(_says_how, sections)) or any(output.publish for _, output in written(spec.file)):
        return False
    rows = 0
    for source in spec.sources:
        table = spec.objects.get(spec.input_of(source)[0])
        if not isinstance(table, pa.Table):
            return False
        rows += len(table)
    return rows <= _FEW_ROWS


def _says_how(section: BaseModel) -> bool:
    """Whether a section sets, to anything but its default, how tasks in processes are to behave."""
    fields = type(section).model_fields
    return any(
        getattr(section, name) != fields[name].get_default(call_default_factory=True)
        for name in _OF_PROCESSES & fields.keys()
    )
