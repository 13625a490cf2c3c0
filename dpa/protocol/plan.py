"""What a backend needs to know to run a job, and what it gives back: plain data, nothing read from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeAlias

from annotated_types import Ge, Gt

from dpa._util.bounds import FINITE
from dpa._util.words import plural
from dpa.protocol.graph import Graph
from dpa.protocol.recovery import CheckpointOptions, Death, RecoveryOptions
from dpa.protocol.task.delivery import Delivery, TaskOutput
from dpa.protocol.task.flow_control import FlowControl
from dpa.protocol.task.user_code import Archive, StageTask, UserCode, no_archive
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, TaskRequest
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.use import TaskUse

STUCK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class JobLimits(FlowControl):
    """Bounds on memory, and on how long a task works before it reads its messages."""

    split_records: Annotated[int, Ge(1)] = 1_000_000
    """Input rows, about, that a mapper is given at a time."""
    start_seconds: Annotated[float, Gt(0), FINITE] = 120.0
    """Most seconds that a task may take to start while records flow; after that the stage keeps the tasks it has."""


@dataclass(frozen=True, kw_only=True)
class SlowTasks:
    """Tasks that are slow on purpose: a cluster of unequal machines on one machine, for experiments and tests."""

    slow_factor: list[Annotated[float, Ge(1), FINITE]] = field(default_factory=list)
    """Factor by which user code takes longer on each task, in their order."""
    cpu_contention: list[Annotated[int, Ge(0)]] = field(default_factory=list)
    """Numbers of the tasks that share one processor with a busy process, each once; Linux only."""

    def require_tasks(self, tasks: int) -> None:
        """Check that the section fits a stage of `tasks` tasks.

        Raises:
            ValueError: it does not.
        """
        if self.slow_factor and len(self.slow_factor) != tasks:
            given = f"{len(self.slow_factor)} for {plural(tasks, 'task')}"
            raise ValueError(f"slow_factor needs a factor for each task, or none at all, not {given}")
        for number in self.cpu_contention:
            if number >= tasks:
                raise ValueError(f"cpu_contention names task {number}, and the last one is {tasks - 1}")
            if self.cpu_contention.count(number) > 1:
                raise ValueError(f"cpu_contention names task {number} more than once")


@dataclass(frozen=True)
class RunPlan:
    """One run.

    Attributes:
        graph: stages and edges, with the input's splits.
        tasks: what the tasks of each stage do.
        frozen: the same, pickled before user code ran in this process, in place of `tasks`; None: they are as they are.
        deliveries: where the tasks of each stage that is no source deliver their shares of results.
        python_path: directories that the actors add to their module search path.
        testing: for each stage, the tasks that are slow on purpose.
        name: of the job.
        limits: of the job.
        stuck_seconds: a task that works on one step for this long reports on what, and again after as long.
        recovery: what becomes of the job when one of its processes dies.
        checkpoint: the checkpoints with which it is begun again; None: it is begun at the start of the input.
        generation: which life of the graph this is, from 0.
        log_level: the level at which tasks log, as a number of `logging`; None: they log nothing.
    """

    graph: Graph
    tasks: Mapping[str, StageTask]
    deliveries: Mapping[str, Delivery]
    python_path: tuple[str, ...] = ()
    testing: Mapping[str, SlowTasks] = field(default_factory=dict)
    name: str = "job"
    limits: JobLimits = field(default_factory=JobLimits)
    stuck_seconds: float = STUCK_SECONDS
    log_level: int | None = None
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)
    checkpoint: CheckpointOptions | None = None
    generation: int = 0
    frozen: bytes | None = None

    def without_user_code(self) -> RunPlan:
        """The same plan for a process that runs no user code, and may not be able to import it."""
        rounds = {name: Delivery(rounds=to.rounds) for name, to in self.deliveries.items() if to.rounds is not None}
        return replace(self, tasks={}, deliveries=rounds, frozen=None)

    def user_code(self, address: Address, clock: Callable[[], float], archive: Archive = no_archive) -> UserCode:
        """The user code of a task; `clock` gives seconds, and `archive` writes its snapshots."""
        return UserCode(self.tasks[address.stage], address.index, clock, self.deliveries.get(address.stage), archive)

    @property
    def rows(self) -> int:
        """Input rows in all."""
        return self.graph.rows


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
        restart: called when a death has ended a generation of which no process is left, before the next one begins.
    """

    observe: Callable[[Snapshot], None] = _ignore
    warn: Callable[[str], None] = _ignore
    restart: Callable[[Death], None] = _ignore


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
