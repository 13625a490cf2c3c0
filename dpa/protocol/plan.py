"""What a backend needs to know to run a job, and what it gives back: plain data, nothing read from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from dpa.execution.key_stats import KeyStats
from dpa.protocol.graph import Graph
from dpa.protocol.task.user_code import StageTask
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, TaskRequest
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.use import TaskUse
from dpa.sources.splits import total_rows

START_SECONDS = 120.0

STUCK_SECONDS = 60.0


@dataclass(frozen=True)
class RunPlan:
    """One run.

    Attributes:
        graph: stages and edges, with the input's splits.
        tasks: what the tasks of each stage do.
        frozen: the same, pickled before user code ran in this process, in place of `tasks`; None: they are as they are.
        empty_results: for each stage that is no source, the columns of its result if that has no rows.
        results: the stages whose result is wanted, each with an existing directory to which tasks write their share as
            Parquet, or None to keep it in memory.
        partial_results: for each stage that publishes rounds of aggregation, the directory.
        counted: the stages whose tasks also give back the number of records of every key.
        python_path: directories that the actors add to their module search path.
        slow_factor: for each stage that is slowed down, the factor by which user code takes longer on each task.
        cpu_contention: for each stage, the numbers of the tasks that share a processor with a busy process.
        name: of the job.
        start_seconds: how long a task may take to start while records flow.
        stuck_seconds: a task that works on one step for this long reports on what, and again after as long.
        log_level: the level at which tasks log, as a number of `logging`; None: they log nothing.
    """

    graph: Graph
    tasks: Mapping[str, StageTask]
    empty_results: Mapping[str, pa.Schema]
    results: Mapping[str, str | None]
    partial_results: Mapping[str, str] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    python_path: tuple[str, ...] = ()
    slow_factor: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    cpu_contention: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    name: str = "job"
    start_seconds: float = START_SECONDS
    stuck_seconds: float = STUCK_SECONDS
    log_level: int | None = None
    frozen: bytes | None = None

    def without_user_code(self) -> RunPlan:
        """The same plan for a process that runs no user code, and may not be able to import it."""
        return replace(self, tasks={}, empty_results={}, frozen=None)

    @property
    def rows(self) -> int:
        """Input rows in all."""
        return sum(total_rows(stage.splits) for stage in self.graph.stages)


@dataclass(frozen=True)
class CancelJob:
    """The whole job is to end, without a result. `request`: a number by which the `Answer` is known."""

    request: int


Request: TypeAlias = TaskRequest | CancelChange | CancelJob
"""What a running job may be asked for from outside."""


def _ignore(what: object) -> None:
    """Ignore what a run says."""


@dataclass(frozen=True)
class RunHooks:
    """What a run calls while it goes on, in the thread that runs it.

    Attributes:
        observe: receives statistics now and then, and at the end of a run that does not fail.
        warn: receives what the user should know meanwhile.
    """

    observe: Callable[[Snapshot], None] = _ignore
    warn: Callable[[str], None] = _ignore


@dataclass(frozen=True, eq=False)
class TaskOutput:
    """One task's share of its stage's result.

    Attributes:
        rows: rows in it.
        states: the most keys that it held before other tasks' states were merged in.
        file: name of the Parquet file in the stage's output directory, or None.
        table: the share itself if it is wanted and was kept in memory, or None.
        stats: how often its keys came.
        key_counts: table of `key` and `records` (processed records), if the plan asks for it.
    """

    rows: int
    states: int
    file: str | None
    table: pa.Table | None
    stats: KeyStats
    key_counts: pa.Table | None


@dataclass(frozen=True)
class Times:
    """Wall-clock moments of a run, in seconds since the epoch."""

    started: float
    stream_started: float
    first_record: float | None
    stream_ended: float
    merged: float


@dataclass(frozen=True)
class RunOutcome:
    """What a run gives back: every task's share of each operator stage's result, the last statistics, the moments, and
    what each task used, where tasks are processes."""

    outputs: Mapping[str, tuple[TaskOutput, ...]]
    snapshot: Snapshot
    times: Times
    use: Mapping[Address, TaskUse] = field(default_factory=dict)
