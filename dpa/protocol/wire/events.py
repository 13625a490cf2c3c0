"""What drivers give machines besides envelopes: tasks start and die, user code has returned, time has passed, or
somebody asks for something."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from dpa.execution.block import Block
from dpa.execution.mapping import Emitted
from dpa.execution.reduce_task import Piece
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import StatePart
from dpa.protocol.wire.addresses import Address, Present
from dpa.protocol.wire.use import TaskUse
from dpa.sources.feed import Position
from dpa.sources.splits import Split
from dpa.tolerance import Failed


class Event:
    """Base of all events, among which is `dpa.protocol.wire.envelopes.Envelope`."""


class UserCodeDone(Event):
    """Base of what answers an instruction: user code has returned."""


@dataclass(frozen=True)
class Start(Event):
    """Coordinator: the job begins."""


@dataclass(frozen=True)
class TaskStarted(Event):
    """Coordinator: a task is up and can be sent messages."""

    address: Address


@dataclass(frozen=True)
class StartFailed(Event):
    """Coordinator: of tasks that were to be started together, one could not be; none of them is there."""

    reason: str


class FailureKind(Enum):
    """How a task has ended before its time."""

    DIED = "died"
    """Its process, or its node, is gone."""

    RAISED = "raised"
    """User code or the task itself has raised an error, which the task could still report."""


@dataclass(frozen=True)
class TaskDied(Event):
    """Coordinator: a task has ended before its time. `what`: what has happened to a task that died."""

    address: Address
    kind: FailureKind
    cause: str
    what: str = "died"

    def in_words(self, place: str = "") -> str:
        """Who and why, for the user; `place`: where the task was, to be named too."""
        who = f"{self.address} on {place}" if place else str(self.address)
        return f"{who}: {self.cause}" if self.kind is FailureKind.RAISED else f"{who} {self.what}: {self.cause}"


@dataclass(frozen=True)
class TasksGone(Event):
    """Tasks of a stage have ended. Nothing they sent matters any more, and nothing may be sent to them."""

    present: Present


@dataclass(frozen=True)
class Tick(Event):
    """Some time has passed: statistics may be due. Ticks need not be regular.

    Attributes:
        cores_busy: the part of the node's processor time that was used since the last tick, by whomever, 0 to 1; 0
            where that is not known.
        use: what the task has used so far, if it is time to say so.
        cuts: at the coordinator, whether the next cut is due at once, and that is all.
    """

    cores_busy: float = 0.0
    use: TaskUse | None = field(default=None, repr=False)
    cuts: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class Redistribute(Event):
    """Load balancer: relieve a task of a stage, even if its load is low (`redistribute(node_id)` of the DPA paper,
    section 4.2)."""

    stage: str
    node_id: int


@dataclass(frozen=True)
class Rescale(Event):
    """Coordinator: a stage is to have another number of tasks.

    Attributes:
        request: the number of the `Answer`; None: no caller waits for one.
        tasks: how many, at least 1.
        nodes: the nodes of new tasks, in turn; empty: the driver chooses.
    """

    request: int | None
    stage: str
    tasks: int
    nodes: tuple[str, ...] = ()
    reason: str = "asked for"


@dataclass(frozen=True)
class MoveTasks(Event):
    """Coordinator: replace each of these tasks of a stage with a new one. `request`: the number of the `Answer`; None:
    no caller waits for one. `nodes`: the node of each new task; empty: the driver chooses."""

    request: int | None
    stage: str
    tasks: tuple[int, ...]
    nodes: tuple[str, ...] = ()
    reason: str = "asked for"


def moves_by_stage(moves: Iterable[tuple[Address, str]], reason: str) -> list[MoveTasks]:
    """Move tasks to these nodes: a request for each stage, without an answer."""
    of: dict[str, list[tuple[int, str]]] = {}
    for task, node in moves:
        of.setdefault(task.stage, []).append((task.index, node))
    return [
        MoveTasks(None, stage, tuple(task for task, _ in pairs), tuple(node for _, node in pairs), reason)
        for stage, pairs in of.items()
    ]


TaskRequest: TypeAlias = Rescale | MoveTasks
"""A change of tasks that the coordinator may be asked for while records flow."""


@dataclass(frozen=True)
class CancelChange(Event):
    """Coordinator: make no change of a stage's tasks that waits, or whose new tasks are not up yet."""

    request: int
    stage: str


@dataclass(frozen=True, eq=False)
class StepDone(UserCodeDone):
    """A step, or None where nothing is left to read.

    Attributes:
        ran: for how many of them user code was on a processor.
        awaited: for how many it waited for its input.
        event_time: the greatest of the rows that were read since the split was opened, in microseconds, if they have
            any.
    """

    step: Emitted | None
    seconds: float = 0.0
    ran: float = 0.0
    awaited: float = 0.0
    failed: Failed | None = None
    event_time: int | None = None


@dataclass(frozen=True, eq=False)
class ProcessDone(UserCodeDone):
    """The block handed out last has been processed in `seconds`.

    Attributes:
        blocks: records that were emitted meanwhile, each block with the position of its edge.
        tried: how many of the seconds it was tried in another process, which takes long for one record too.
        waited: how many of the others user code waited for a processor.
        ran: how many of them it was on one.
        dead: how many of its records were left out, as user code raised on them.
        opens: the end of the first of its windows that are open, in microseconds since 1970; None: none is.
    """

    seconds: float
    blocks: tuple[tuple[int, Block], ...] = ()
    waited: float = 0.0
    ran: float = 0.0
    dead: int = 0
    failed: Failed | None = None
    opens: int | None = None
    tried: float = 0.0


@dataclass(frozen=True, eq=False)
class ExtractDone(UserCodeDone):
    """The extracted states, by the task that owns them, and how many seconds it took to extract them."""

    parts: dict[int, StatePart]
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class RangesExtracted(UserCodeDone):
    """A piece of the states that others get."""

    piece: Piece


@dataclass(frozen=True)
class StatesInstalled(UserCodeDone):
    """The states given to user code last are in its store; `opens` as in `ProcessDone`."""

    opens: int | None = None


@dataclass(frozen=True)
class SnapshotMarked(UserCodeDone):
    """The task's states are marked, and user code may change them."""


@dataclass(frozen=True, eq=False)
class SnapshotDone(Event):
    """The task's states are written, beside user code; what the driver's archive gave for them."""

    written: object


@dataclass(frozen=True)
class CheckpointWritten(Event):
    """Coordinator: the checkpoint is complete, and what it holds is found after a failure.

    Attributes:
        slot: of the next.
        size: bytes that were written.
        letters: how many dead letters, the first ones, lie there now; the coordinator need not keep them.
    """

    slot: int
    size: int = 0
    letters: int = 0


@dataclass(frozen=True, eq=False)
class PollDone(Event):
    """Coordinator: what a poll of a source's open input gave. `splits`: those that have come, in the order of their
    rows. `position`: where the next poll continues; None: no more come. `for_lag`: it was a poll for the lag alone;
    `behind`: rows by channel that have come after the position, None: unknown."""

    stage: str
    splits: tuple[Split, ...]
    position: Position | None
    for_lag: bool = False
    behind: Mapping[str, int] | None = None


@dataclass(frozen=True)
class CloseFeeds(Event):
    """Coordinator: close open inputs. What was polled is still read. `request`: the number of the `Answer`; None: no
    caller waits for one."""

    request: int | None = None


@dataclass(frozen=True)
class CheckpointFailed(Event):
    """Coordinator: it could not be written, and the one before it is the newest. `slot`: of the next."""

    reason: str
    slot: int


@dataclass(frozen=True)
class Committed(Event):
    """Coordinator: what the tasks of a stage had staged of an epoch for an output is there for readers."""

    stage: str
    epoch: int
    output: int = 0


@dataclass(frozen=True)
class PublishDone(UserCodeDone):
    """Windows are closed, and the task's share of the results is staged.

    Attributes:
        staged: what the sink of each output gave for it, by the number of the output.
        blocks: records of the results of windows, as in `ProcessDone`.
        opens, failed: as there.
    """

    staged: Mapping[int, Any] = field(default_factory=dict)
    seconds: float = 0.0
    blocks: tuple[tuple[int, Block], ...] = ()
    opens: int | None = None
    rows: int = 0
    failed: Failed | None = None


@dataclass(frozen=True, eq=False)
class FinishDone(UserCodeDone):
    """This task's share of the result is complete. `schema`: its columns; None if it is empty. `initial_load`: as in
    the message `Finished`."""

    schema: ShareSchema | None
    initial_load: tuple[int, ...] = ()


@dataclass(frozen=True)
class WriteDone(UserCodeDone):
    """This task's share of the result is written."""
