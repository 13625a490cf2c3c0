"""What tasks say to each other. Every message travels in an envelope, numbered within its (sender, receiver) channel.

Load signals and credits ride on one message, the acknowledgement; routing tables carry their own number, the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from dpa.balance.decision import Decision
from dpa.balance.load import Load
from dpa.balance.measure.latency import LatencySketch
from dpa.execution.block import Block
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import StatePart
from dpa.protocol.metrics import MapperStats, ReducerStats
from dpa.routing.change import TableChange
from dpa.routing.groupings.signal import Signal
from dpa.splits import Split


class Role(str, Enum):
    """The kinds of tasks."""

    COORDINATOR = "coordinator"
    BALANCER = "balancer"
    MAPPER = "mapper"
    REDUCER = "reducer"


@dataclass(frozen=True, slots=True)
class Address:
    """Whom a message is for."""

    role: Role
    index: int = 0

    def __str__(self) -> str:
        return self.role.value if self.role in (Role.COORDINATOR, Role.BALANCER) else f"{self.role.value} {self.index}"


COORDINATOR = Address(Role.COORDINATOR)
BALANCER = Address(Role.BALANCER)


def mapper(index: int) -> Address:
    """The address of a mapper."""
    return Address(Role.MAPPER, index)


def reducer(index: int) -> Address:
    """The address of a reducer."""
    return Address(Role.REDUCER, index)


# mapper -> coordinator and back


@dataclass(frozen=True)
class SplitRequest:
    """A mapper has nothing left to read."""


@dataclass(frozen=True)
class SplitGrant:
    """The next split for a mapper, or None if there is none left."""

    split: Split | None


@dataclass(frozen=True)
class MapperReport:
    """A mapper's statistics; `done` once it has emitted its last record."""

    stats: MapperStats
    done: bool = False


# mapper -> reducer, reducer -> reducer, and back


@dataclass(frozen=True, eq=False)
class Push:
    """Records for a reducer.

    Attributes:
        block: the records, at least one.
        epoch: number of the routing table that chose the receiver.
        mapper: who emitted the records and gets their credit back.
        read_at: when the mapper began the step that read their rows, in seconds: their source time, which forwarding
            keeps.
        hops: how often they have been forwarded.
    """

    block: Block
    epoch: int
    mapper: int
    read_at: float
    hops: int = 0


@dataclass(frozen=True)
class Ack:
    """Records have been processed: as many credits for the mapper that emitted them.

    Attributes:
        records: how many records were processed.
        signal: what the reducer last found of its load, where the grouping listens.
    """

    records: int
    signal: Signal | None = None


# reducer -> load balancer, load balancer -> mappers and reducers, load balancer -> coordinator


@dataclass(frozen=True)
class LoadReport:
    """A reducer's load."""

    load: Load


@dataclass(frozen=True, eq=False)
class TableUpdate:
    """What makes the next routing table of the one before it."""

    change: TableChange


@dataclass(frozen=True)
class DecisionReport:
    """What the load balancer has decided since its last report, in order."""

    decisions: tuple[Decision, ...]


# reducer -> coordinator


@dataclass(frozen=True)
class ReducerReport:
    """A reducer's statistics."""

    stats: ReducerStats


# a round of aggregation: coordinator -> reducers, reducer -> reducer, reducer -> coordinator


@dataclass(frozen=True)
class Aggregate:
    """Round `round` begins: hand the states of keys to their homes. The first round is 1."""

    round: int


@dataclass(frozen=True, eq=False)
class Partial:
    """The states that the sender had of the receiver's home keys when it packed; None if there were none. One from each
    reducer to each other in a round."""

    round: int
    part: StatePart | None


@dataclass(frozen=True)
class Aggregated:
    """A reducer's share of a round is complete.

    Attributes:
        round: number of the round.
        rows: keys that were published.
        states: states that the sender handed over.
        seconds: time that the sender's user code spent in the round.
    """

    round: int
    rows: int
    states: int
    seconds: float


# the end: coordinator -> load balancer and back, coordinator -> reducers, reducer -> reducer, reducer -> coordinator


@dataclass(frozen=True)
class Drain:
    """All mappers are done: report statistics whenever the queue is empty."""


@dataclass(frozen=True)
class Freeze:
    """Publish no more tables."""


@dataclass(frozen=True, eq=False)
class LastTable:
    """The load balancer's answer to `Freeze`: the number of the newest table."""

    epoch: int


@dataclass(frozen=True, eq=False)
class Merge:
    """Every record has been processed: hand each state to the reducer that owns its key in the table of this number.

    `exchange` is False if every state already is where it belongs: no other table was ever used, nor a grouping that
    sends a key to several reducers.
    """

    epoch: int
    exchange: bool


@dataclass(frozen=True, eq=False)
class Handover:
    """The states that the sender had of the receiver's keys; None if there were none. One from each reducer to each
    other."""

    part: StatePart | None


@dataclass(frozen=True, eq=False)
class Merged:
    """A reducer has finished its share of the result, and waits to hear which schema to write it in.

    Attributes:
        stats: its statistics, which no longer change.
        latency: of all records that it processed.
        schema: what columns its share has; None if the share is empty.
    """

    stats: ReducerStats
    latency: LatencySketch
    schema: ShareSchema | None


@dataclass(frozen=True, eq=False)
class WriteResult:
    """All reducers write their shares, in this schema; None if all shares are empty."""

    schema: pa.Schema | None


@dataclass(frozen=True)
class Written:
    """A reducer has written its share of the result."""


Message = (
    SplitRequest
    | SplitGrant
    | MapperReport
    | Push
    | Ack
    | LoadReport
    | TableUpdate
    | DecisionReport
    | ReducerReport
    | Aggregate
    | Partial
    | Aggregated
    | Drain
    | Freeze
    | LastTable
    | Merge
    | Handover
    | Merged
    | WriteResult
    | Written
)


@dataclass(frozen=True, eq=False)
class Envelope:
    """A message under way.

    Attributes:
        sender, receiver: the channel.
        seq: the message's number in the channel, from 0 without gaps.
    """

    sender: Address
    receiver: Address
    seq: int
    message: Message
