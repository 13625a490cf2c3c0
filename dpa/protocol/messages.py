"""Messages exchanged between tasks. Each travels in an envelope, numbered within its (sender, receiver) channel.

Load signals and credits ride on one message, the acknowledgement; routing tables carry their own number, the version.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from dpa.balance.decision import Decision
from dpa.execution.block import Block
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import StatePart
from dpa.measure.latency import LatencySketch
from dpa.measure.load import Load, Offered
from dpa.protocol.addresses import Address
from dpa.protocol.change_messages import (
    ChangeMembers,
    Flush,
    Flushed,
    Leave,
    Left,
    MembersChanged,
    SplitReturned,
    Unsubscribe,
    Unsubscribed,
)
from dpa.protocol.metrics import TaskStats
from dpa.protocol.use import TaskUse
from dpa.routing.change import TableChange
from dpa.routing.groupings.signal import Signal
from dpa.routing.hashing import ALL_HASHES, Interval
from dpa.routing.table import RoutingTable
from dpa.sources.splits import Split

# coordinator -> source, and back


@dataclass(frozen=True)
class Begin:
    """All tasks are up: ask for the first split."""


@dataclass(frozen=True)
class SplitRequest:
    """A source task has nothing left to read."""


@dataclass(frozen=True)
class SplitGrant:
    """The next split for a source task, or None if there is none left."""

    split: Split | None


# any task -> coordinator


@dataclass(frozen=True)
class Progress:
    """A task's statistics; `done` once it has emitted its last record and, where its stage has a sink, written its
    share. `use`: what the task has used so far, about once a second."""

    stats: TaskStats
    done: bool = False
    use: TaskUse | None = field(default=None, repr=False)


# task -> task downstream, task -> task of the same stage, and back


@dataclass(frozen=True, eq=False)
class Push:
    """Records for a task.

    Attributes:
        block: the records, at least one.
        version: of the routing table by which the receiver was chosen.
        origin: the task that emitted the records and gets their credit back.
        edge: number of the edge on which they were emitted.
        read_at: their source time, in seconds: when the source task began the step that read their rows, or when a
            reduce stage finished the rows; forwarding and later stages keep it.
        emitted_at: when `origin` pushed them, in seconds; forwarding keeps it.
        hops: how often they have been forwarded.
    """

    block: Block
    version: int
    origin: Address
    edge: int
    read_at: float
    emitted_at: float
    hops: int = 0


@dataclass(frozen=True)
class Ack:
    """Records have been processed, so the task that emitted them gets their credit back.

    Attributes:
        edge: number of the edge on which they were emitted.
        records: the number of processed records.
        window: records that the receiver of this may have in flight towards the sender; None: as before.
        signal: the sender's last finding of its load, where the grouping listens.
    """

    edge: int
    records: int
    window: int | None = None
    signal: Signal | None = None


@dataclass(frozen=True)
class CreditTransfer:
    """Records have been forwarded: the credit that they hold counts towards another task of the stage.

    Attributes:
        edge: number of the edge on which they were emitted.
        records: the number of forwarded records.
        receiver: number of the task that has them now.
    """

    edge: int
    records: int
    receiver: int


# task and sender -> load balancer, load balancer -> tasks of the stage and its senders, load balancer -> coordinator


@dataclass(frozen=True)
class LoadReport:
    """A task's load."""

    load: Load


@dataclass(frozen=True, eq=False)
class OfferedReport:
    """What a task has offered a stage on one edge."""

    stage: str
    edge: int
    offered: Offered


@dataclass(frozen=True, eq=False)
class TableUpdate:
    """The difference between a stage's next routing table and the one before it. `senders`: who emits records to the
    stage from now on; None: as before."""

    stage: str
    change: TableChange
    senders: tuple[Address, ...] | None = None


@dataclass(frozen=True, eq=False)
class CurrentTable:
    """A stage's newest routing table, for a task that was started after the job; what follows are changes of it.
    `senders` as in `TableUpdate`."""

    stage: str
    table: RoutingTable
    senders: tuple[Address, ...]


@dataclass(frozen=True)
class DecisionReport:
    """The decisions about a stage since the last report, in order."""

    stage: str
    decisions: tuple[Decision, ...]


# an exchange of states: coordinator -> tasks of the stage, task -> task, task -> coordinator


@dataclass(frozen=True)
class BeginExchange:
    """Exchange number `number`, from 1, begins: each task extracts the states that a table gives to others, sends them
    there and merges what it receives.

    Attributes:
        version: of the routing table that says who owns a key. A round of aggregation goes by table 0, which all tasks
            know; the last exchange by the last table.
        last: whether the stage has processed all its records: after this exchange its tasks finish.
        transfer: whether states move at all; False if every state already is with its owner.
    """

    number: int
    version: int
    last: bool = False
    transfer: bool = True


@dataclass(frozen=True, eq=False)
class StateTransfer:
    """The states that the sender extracted for the receiver; None if there were none. One from each task of a stage to
    each other in an exchange."""

    number: int
    part: StatePart | None


@dataclass(frozen=True)
class RoundDone:
    """A task's share of a round of aggregation is complete.

    Attributes:
        number: of the exchange.
        rows: keys that were published.
        states: states that the sender handed over.
        seconds: time that the sender's user code spent in the round.
    """

    number: int
    rows: int
    states: int
    seconds: float


# states that migrate: sender -> task that gives ranges -> task that takes them over; task -> load balancer


@dataclass(frozen=True)
class Marker:
    """Whatever the sender pushes from now on goes by the table of this version, or a newer one."""

    version: int


@dataclass(frozen=True, eq=False)
class RangeTransfer:
    """States of the ranges that the table of this version gives from the sender to the receiver. The records of these
    keys that the sender had or still gets follow.

    Attributes:
        version: of the table.
        part: the states; None if there are none.
        interval: hashes; the receiver has all states now that it gets of these.
        is_last: whether it has all states that it gets from the sender.
        rows: of the sender's share, where it leaves: those that it has emitted.
    """

    version: int
    part: StatePart | None
    interval: Interval = ALL_HASHES
    is_last: bool = True
    rows: tuple[pa.RecordBatch, ...] = ()


@dataclass(frozen=True)
class PassedMarkers:
    """Nothing that `senders` pushed by older tables than that of this version will come through the sender of this any
    more, of the keys whose states it has sent so far."""

    version: int
    senders: tuple[Address, ...]


@dataclass(frozen=True)
class Settled:
    """A task has given all the ranges that the table of this version takes from it, and has taken over all those that
    the table gives to it."""

    version: int


# the end of a stage: coordinator -> load balancer and back, coordinator -> tasks, task -> coordinator


@dataclass(frozen=True)
class Drain:
    """All senders are done: report statistics whenever the queue is empty."""


@dataclass(frozen=True)
class Freeze:
    """Publish no more tables of a stage."""

    stage: str


@dataclass(frozen=True)
class LastTable:
    """The load balancer's answer to `Freeze`: the version of the stage's newest table."""

    stage: str
    version: int


@dataclass(frozen=True, eq=False)
class Finished:
    """A task has finished its share of the stage's result, and waits for the schema that all shares will have.

    Attributes:
        stats: its statistics.
        latency: from source to processed, of all records that it processed.
        stage_latency: from emitted to processed, of the same records.
        schema: the columns of its share; None if the share is empty.
        initial_load: of the processed records, how many each task would have had by the plain ring; shape
            (tasks,), or empty where that is not known.
    """

    stats: TaskStats
    latency: LatencySketch
    stage_latency: LatencySketch
    schema: ShareSchema | None
    initial_load: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Deliver:
    """Write the share, and emit it where stages follow, in this schema; None if all shares are empty: then the one that
    `is_first` writes the columns."""

    schema: pa.Schema | None
    is_first: bool = False


Message = (
    Begin
    | SplitRequest
    | SplitGrant
    | SplitReturned
    | Progress
    | Push
    | Ack
    | CreditTransfer
    | LoadReport
    | OfferedReport
    | TableUpdate
    | CurrentTable
    | DecisionReport
    | BeginExchange
    | StateTransfer
    | RoundDone
    | ChangeMembers
    | MembersChanged
    | Leave
    | Flush
    | Flushed
    | Left
    | Unsubscribe
    | Unsubscribed
    | Marker
    | RangeTransfer
    | PassedMarkers
    | Settled
    | Drain
    | Freeze
    | LastTable
    | Finished
    | Deliver
)


@dataclass(frozen=True, eq=False)
class Envelope:
    """A message in transit.

    Attributes:
        sender, receiver: the channel.
        seq: the message's number in the channel, from 0 without gaps.
    """

    sender: Address
    receiver: Address
    seq: int
    message: Message
