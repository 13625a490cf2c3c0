"""Records and credit: a task to one downstream or to another of its stage, and back."""

from dataclasses import dataclass

from dpa.execution.block import Block
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages import Message
from dpa.routing.groupings.base import Signal


@dataclass(frozen=True, eq=False)
class Push(Message):
    """Records for a task.

    Attributes:
        version: of the routing table by which the receiver was chosen.
        origin: the task that emitted the records and gets their credit back.
        edge: number of the edge on which they were emitted.
        read_at: their source time, in seconds: when the source task began the step that read their rows, or when a
            reduce stage finished the rows; forwarding and later stages keep it.
        emitted_at: when `origin` pushed them, in seconds; forwarding keeps it.
        number: of the block that they are part of, in the order in which `origin` made those of the edge.
    """

    block: Block
    version: int
    origin: Address
    edge: int
    read_at: float
    emitted_at: float
    hops: int = 0
    number: int = 0


@dataclass(frozen=True)
class Ack(Message):
    """Records have been processed, so the task that emitted them gets their credit back. `window`: records that the
    receiver of this may have in flight towards the sender; None: as before. `signal`: the sender's last finding of its
    load, where the grouping listens."""

    edge: int
    records: int
    window: int | None = None
    signal: Signal | None = None


@dataclass(frozen=True)
class CreditTransfer(Message):
    """Records have been forwarded: the credit that they hold counts towards another task of the stage. `receiver`:
    number of the task that has them now."""

    edge: int
    records: int
    receiver: int
