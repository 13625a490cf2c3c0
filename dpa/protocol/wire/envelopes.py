"""Envelopes: messages in transit."""

from dataclasses import dataclass

from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import Event
from dpa.protocol.wire.messages import Message


@dataclass(frozen=True, eq=False)
class Envelope(Event):
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
