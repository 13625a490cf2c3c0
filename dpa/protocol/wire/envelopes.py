"""Envelopes: messages in transit, and all messages that there are."""

from __future__ import annotations

from dataclasses import dataclass

from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages.cuts import Pause, Paused, SnapshotTaken, TakeSnapshot, Thaw
from dpa.protocol.wire.messages.data import Ack, CreditTransfer, Push
from dpa.protocol.wire.messages.end import Deliver, Drain, Finished, Freeze, LastTable, Progress
from dpa.protocol.wire.messages.exchange import BeginExchange, RoundDone, StateTransfer
from dpa.protocol.wire.messages.members import (
    ChangeMembers,
    Flush,
    Flushed,
    Leave,
    Left,
    MembersChanged,
    Unsubscribe,
    Unsubscribed,
)
from dpa.protocol.wire.messages.migration import Marker, PassedMarkers, RangeTransfer, Settled
from dpa.protocol.wire.messages.splits import Begin, SplitGrant, SplitRequest, SplitReturned
from dpa.protocol.wire.messages.tables import CurrentTable, DecisionReport, LoadReport, OfferedReport, TableUpdate

Message = (
    Begin
    | SplitRequest
    | SplitGrant
    | SplitReturned
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
    | Marker
    | RangeTransfer
    | PassedMarkers
    | Settled
    | ChangeMembers
    | MembersChanged
    | Leave
    | Flush
    | Flushed
    | Left
    | Unsubscribe
    | Unsubscribed
    | Progress
    | Pause
    | Paused
    | TakeSnapshot
    | SnapshotTaken
    | Thaw
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
        generation: which life of the graph the sender belongs to, from 0.
    """

    sender: Address
    receiver: Address
    seq: int
    message: Message
    generation: int = 0
