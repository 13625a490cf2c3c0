"""States that migrate: sender to the task that gives ranges, that to the task that takes them, tasks to the load
balancer."""

from dataclasses import dataclass

from dpa.execution.publishing import EmittedRows
from dpa.execution.states import StatePart
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages import Message
from dpa.routing.hashing import ALL_HASHES, Interval


@dataclass(frozen=True)
class Marker(Message):
    """Whatever the sender pushes from now on goes by the table of this version, or a newer one."""

    version: int


@dataclass(frozen=True, eq=False)
class RangeTransfer(Message):
    """States of the ranges that the table of this version gives from the sender to the receiver. The records of these
    keys that the sender had or still gets follow.

    Attributes:
        part: the states; None if there are none.
        interval: hashes; the receiver has all states now that it gets of these.
        is_last: whether it has all states that it gets from the sender.
        rows: of the sender's share, where it leaves: those that it has emitted.
    """

    version: int
    part: StatePart | None
    interval: Interval = ALL_HASHES
    is_last: bool = True
    rows: tuple[EmittedRows, ...] = ()


@dataclass(frozen=True)
class PassedMarkers(Message):
    """Nothing that `senders` pushed by older tables than that of this version will come through the sender of this any
    more, of the keys whose states it has sent so far."""

    version: int
    senders: tuple[Address, ...]


@dataclass(frozen=True)
class Settled(Message):
    """A task has given all the ranges that the table of this version takes from it, and has taken over all those that
    the table gives to it."""

    version: int
