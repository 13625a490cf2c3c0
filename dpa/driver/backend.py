"""Where the tasks of a run are: the one interface that `dpa.driver.run` has to Ray, to the simulator, and to this
process."""

import os
import sys
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol

import pyarrow as pa
from pydantic import BaseModel

from dpa.driver.outputs import written
from dpa.driver.spec import JobSpec
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.wire.nodes import Placer

_FEW_ROWS = 10_000
"""Starting processes for fewer takes longer than to process them, unless a record takes milliseconds."""

_OF_PROCESSES = frozenset({"balance", "checkpoint", "epoch_log", "grouping", "placement", "ray", "recovery", "testing"})
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


class Runner(Protocol):
    """Runs a plan."""

    @property
    def is_ready(self) -> bool:
        """Whether a plan would be begun with at once: what takes a moment until then costs no time."""
        ...

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        """Run a plan to its end: whether this returns or raises, no task is at work then. Shares of results are staged
        by the sinks of `plan.deliveries`; `hooks` are called meanwhile. DpaError if the job fails."""
        ...


class Backend(Protocol):
    """A place for tasks. `dpa.runtime.backend.RayBackend`, `experiments.simulation.backend.SimulatedBackend` and
    `dpa.local.backend.LocalBackend` are backends.

    Attributes:
        name: what reports call it.
        samples: whether first routing tables are to be planned from a sample, which runs user code in this process, and
            depends on how fast that is; and whether a job begins while its input is staged, which ends when it may.
    """

    name: ClassVar[str]
    samples: ClassVar[bool]

    def prepared(self, tasks: int, placer: Placer | None = None) -> AbstractContextManager[Runner]:
        """A block in which one plan can be run. What takes time to start is started with the block, without waiting
        until the plan is there: `run` raises what went wrong meanwhile. However the block ends, no task is left.

        Args:
            tasks: how many the plan's stages will have.
            placer: chooses their nodes, once the backend knows them; `run` raises its errors. A backend without nodes
                does not ask.
        """
        ...
