"""What a backend needs to know to run a job, and what it gives back: plain data, nothing read from outside."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Gt

from dpa._util.durations import FINITE, Duration
from dpa._util.words import plural
from dpa.execution.spill.room import Room
from dpa.execution.trials import Trial
from dpa.protocol.flow_control import FlowControl
from dpa.protocol.graph import Graph
from dpa.protocol.recovery import Death, RecoveryOptions, SavedJob
from dpa.protocol.task.delivery import Delivery, TaskOutput
from dpa.protocol.task.user_code import Archive, StageTask, UserCode, no_archive
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, CloseFeeds, TaskRequest
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.use import TaskUse
from dpa.sinks.sink import EpochLogOptions, Sink
from dpa.sources.feed import Feed, never
from dpa.sources.splits import Split
from dpa.tolerance import Letter

STUCK_SECONDS = 60.0

SPLIT_RECORDS = 1_000_000
"""Input rows that a mapper gets at a time, where the job does not say."""


@dataclass(frozen=True, kw_only=True)
class JobLimits(FlowControl):
    """Bounds on memory, and on how long a task works before it reads its messages."""

    split_records: Annotated[int, Ge(1)] | None = None
    """Input rows that a mapper gets at a time, about. Null: 1,000,000; of files read in place twice as many, where that
    is at most a quarter of what each mapper reads."""
    start_seconds: Annotated[float, Gt(0), FINITE] = 120.0
    """Most seconds that a new task may take to start while records flow; after that the stage keeps its present tasks.
    """
    patience: Annotated[Duration, Gt(0)] | None = None
    """Seconds for which a running job waits for an input, output or checkpoint storage that does not answer, before it
    fails. Null: without limit."""
    state_mb: Annotated[int, Ge(1)] | Literal["auto"] | None = None
    """MiB of memory for the states of each task; the least recently used states are spilled to local disk. `auto`: half
    of what Ray may use of its node, divided by the tasks there that keep states. Null: all states stay in memory."""
    spill_path: str | None = None
    """Directory on a local disk of each machine for spilled states; null: the machine's temporary directory."""

    @property
    def split_rows(self) -> int:
        return self.split_records or SPLIT_RECORDS

    def room(self, seed: int, auto_mb: int | None = None, dumps: Callable[[Any], bytes] = pickle.dumps) -> Room | None:
        """What a task has for its states; None: as much as they need.

        Args:
            seed: of the hashes of keys.
            auto_mb: what `auto` stands for; None: as much as they need.
            dumps: pickles what `pickle` cannot.
        """
        found = auto_mb if self.state_mb == "auto" else self.state_mb
        return None if found is None else Room(found * 2**20, seed, self.spill_path, dumps)


@dataclass(frozen=True, kw_only=True)
class SlowTasks:
    """Tasks that are slow on purpose: a cluster of unequal machines on one machine, for experiments and tests."""

    slow_factor: list[Annotated[float, Ge(1), FINITE]] = field(default_factory=list)
    """Factor by which user code takes longer, for each task in order."""

    def require_tasks(self, tasks: int) -> None:
        """Check that the section fits a stage of `tasks` tasks. Raises ValueError if it does not."""
        if self.slow_factor and len(self.slow_factor) != tasks:
            given = f"{len(self.slow_factor)} for {plural(tasks, 'task')}"
            raise ValueError(f"slow_factor needs a factor for each task, or none at all, not {given}")


@dataclass(frozen=True)
class RunPlan:
    """One run.

    Attributes:
        graph: stages and edges, with the input's splits.
        tasks: what the tasks of each stage do.
        frozen: the same, pickled before user code ran in this process, in place of `tasks`; None: they are as they are.
        feeds: the open inputs of sources, which the coordinator polls.
        deliveries: where the tasks of each stage that is no source deliver their shares of results.
        python_path: directories that the actors add to their module search path.
        testing: for each stage, the tasks that are slow on purpose.
        stuck_seconds: a task that works on one step for this long reports on what, and again after as long.
        recovery: what becomes of the job when one of its processes dies.
        saved: where the checkpoints are with which it is begun again; None: it is begun at the start of the input.
        epoch_log: where the log by epoch is; None: there is none.
        generation: which life of the graph this is, from 0.
        tries: the stages whose tasks try what they are to process, as two of them have died.
        attempts_left: how often it is begun again after this, if no checkpoint comes before.
        log_level: the level at which tasks log, as a number of `logging`; None: they log nothing.
    """

    graph: Graph
    tasks: Mapping[str, StageTask]
    deliveries: Mapping[str, Delivery]
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    python_path: tuple[str, ...] = ()
    testing: Mapping[str, SlowTasks] = field(default_factory=dict)
    name: str = "job"
    limits: JobLimits = field(default_factory=JobLimits)
    stuck_seconds: float = STUCK_SECONDS
    log_level: int | None = None
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)
    saved: SavedJob | None = None
    epoch_log: EpochLogOptions | None = None
    generation: int = 0
    tries: frozenset[str] = frozenset()
    attempts_left: int = 0
    frozen: bytes | None = None

    def without_user_code(self) -> RunPlan:
        """The same plan for a process that runs no user code, and may not be able to import it."""
        by_epoch = {
            name: Delivery(to.by_epoch, publishes=to.publishes)
            for name, to in self.deliveries.items()
            if to.first is not None
        }
        return replace(self, tasks={}, feeds={}, deliveries=by_epoch, frozen=None)

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return tuple(sink for to in self.deliveries.values() for sink in to.by_epoch if sink is not None)

    def sink_of(self, commit: Commit) -> Sink | None:
        """The one to which an epoch is committed; None: it is published nowhere."""
        return self.deliveries[commit.stage].by_epoch[commit.output] if commit.stage in self.deliveries else None

    @property
    def given(self) -> Mapping[str, tuple[Split, ...]]:
        return {of.name: of.input.splits for of in self.graph.stages if of.input.given is not None}

    def is_begun_again(self, has_progressed: bool) -> bool:
        """Whether another generation follows a death; `has_progressed`: this one has added a checkpoint."""
        return (self.recovery.attempts if has_progressed else self.attempts_left) > 0

    def slow_factor(self, task: Address) -> float:
        slow = self.testing.get(task.stage, SlowTasks())
        return dict(enumerate(slow.slow_factor)).get(task.index, 1.0)  # later tasks have none

    def user_code(
        self,
        address: Address,
        clock: Callable[[], float],
        archive: Archive = no_archive,
        trial: Trial | None = None,
        room: Callable[[int], Room | None] | None = None,
    ) -> UserCode:
        """The user code of a task. `archive` writes its snapshots, `trial` tries what it is to process, and `room`
        gives the memory for its states, by the seed of their keys; by default `JobLimits.room`."""
        has = (room or self.limits.room)(self.graph[address.stage].balance.hash_seed)
        task, delivery = self.tasks[address.stage], self.deliveries.get(address.stage)
        return UserCode(task, address.index, clock, delivery, archive, trial, has)

    @property
    def rows(self) -> int:
        return self.graph.rows


@dataclass(frozen=True)
class CancelJob:
    """The whole job is to end, without a result.

    Attributes:
        request: a number by which the `Answer` is known.
        saves: whether to end with a last checkpoint, if the job makes any.
    """

    request: int
    saves: bool = False


Request: TypeAlias = TaskRequest | CancelChange | CancelJob | CloseFeeds
"""What a running job may be asked for from outside."""


def _ignore(what: object) -> None:
    """Ignore what a run says."""


Bear: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Does something that may be done twice, and again while a place does not answer; returns what it gives."""


@dataclass(frozen=True)
class RunHooks:
    """What a run calls, in the thread that runs it.

    Attributes:
        observe: receives statistics now and then, and at the end of a run that does not fail.
        warn: receives what the user should know meanwhile.
        restart: called after a death, when no process of the generation is left and before the next one begins.
        closes: whether to close open inputs now; asked a few times a second.
        commit: called with each epoch that this process commits.
        bear: runs an idempotent action, and retries it while a place does not answer.
    """

    observe: Callable[[Snapshot], None] = _ignore
    warn: Callable[[str], None] = _ignore
    restart: Callable[[Death], None] = _ignore
    closes: Callable[[], bool] = never
    commit: Callable[[Commit], None] = _ignore
    bear: Bear = lambda action: action()


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
    """What a run gives back.

    Attributes:
        outputs: by operator stage, each task's share of the result.
        use: what each task used, if tasks are processes.
        given: by source, what polls of an open input gave, if that is kept.
        staged: by stage and output, results of epochs to commit with the last one.
        epoch: the number of that epoch.
    """

    outputs: Mapping[str, tuple[TaskOutput, ...]]
    snapshot: Snapshot
    times: Times
    use: Mapping[Address, TaskUse] = field(default_factory=dict)
    letters: Iterable[Letter] = ()
    given: Mapping[str, tuple[Split, ...]] = field(default_factory=dict)
    staged: Mapping[tuple[str, int], tuple[Any, ...]] = field(default_factory=dict)
    epoch: int = 1
