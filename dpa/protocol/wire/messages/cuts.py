"""A cut of the stream: between the coordinator, source tasks, operator tasks and the load balancer."""

from dataclasses import dataclass, field

from dpa.measure.timing import Waited
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.metrics import TaskStats


@dataclass(frozen=True)
class Pause(Message):
    """A task is to emit no more. A source task reads to the end of the row that it is at, and gives back the rest of
    its split; what it asks for next is granted when the cut is over. An operator that emits its result keeps the rest
    until it may go on."""


@dataclass(frozen=True)
class Paused(Message):
    """The task has stopped, and all records that it has made are pushed. A source has given back what it has not read
    of its split. `waited`: of a source, the rows that it has read since it paused last."""

    stats: TaskStats
    waited: Waited = field(default_factory=Waited)


@dataclass(frozen=True)
class TakeSnapshot(Message, Instruction):
    """An operator task has processed all records before the cut and gets none after it yet, so its states are those of
    the cut. It has its user code mark all of them, and write them as they are now for this slot of the store's chain,
    while other user code runs. Answered by `SnapshotMarked`, and, when they are written, by `SnapshotDone`."""

    slot: int


@dataclass(frozen=True)
class SnapshotTaken(Message):
    """The states of an operator task are marked: later records may change them, and those of the cut are written."""

    stats: TaskStats


@dataclass(frozen=True, eq=False)
class SnapshotWritten(Message):
    """They are written; what the driver's archive gave for them."""

    written: object


@dataclass(frozen=True)
class GoOn(Message):
    """The cut is over. `draining`: whether the stages that feed the task are done, so that it is to report whenever its
    queue is empty."""

    draining: bool


@dataclass(frozen=True)
class Thaw(Message):
    """The load balancer may publish tables of a stage again."""

    stage: str
