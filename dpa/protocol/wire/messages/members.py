"""Tasks of a stage that come and go while a job runs: between the coordinator, the load balancer, tasks that leave, and
the others of their stage."""

from dataclasses import dataclass

from dpa.measure.latency import LatencySketch
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.metrics import TaskStats
from dpa.routing.members import MemberChange


@dataclass(frozen=True)
class ChangeMembers(Message):
    """Tasks of a stage come and go: those that come are up, and those that leave still are. Of a source none has a
    place in a routing table. `closed`: windows that end by this event time, in microseconds, are closed."""

    stage: str
    change: MemberChange
    closed: int | None = None


@dataclass(frozen=True)
class MembersChanged(Message):
    """The load balancer's answer: all that tasks which leave had is with others."""

    stage: str


@dataclass(frozen=True)
class Leave(Message):
    """A source task is to leave: it reads no further, and is gone when what it has emitted has been processed."""


@dataclass(frozen=True)
class Flush(Message):
    """The last message of a task that leaves to another of its stage, or to a sender: say that it has come."""


@dataclass(frozen=True)
class Flushed(Message):
    """All messages of a task that leaves have come."""


@dataclass(frozen=True, eq=False)
class Left(Message):
    """A task that leaves has nothing any more: its records and states have come to others, and what it has emitted has
    been processed. So nothing of it is on its way, which may be lost when its process ends. Its statistics as in
    `Finished`; `reports`: how many messages it has sent to the load balancer."""

    stats: TaskStats
    latency: LatencySketch
    stage_latency: LatencySketch
    reports: int = 0


@dataclass(frozen=True)
class Unsubscribe(Message):
    """This task has left: no table is for it any more. `reports` as in `Left`."""

    task: Address
    reports: int = 0


@dataclass(frozen=True)
class Unsubscribed(Message):
    """The load balancer's answer: nothing waits for this task any more."""

    task: Address
