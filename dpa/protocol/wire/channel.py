"""Channels: one for each (sender, receiver), delivering each message once and in the order in which it was sent.

Ray's concurrent actors keep no call order and may run a retried call twice; the numbers restore both. Loss is not
repaired: an actor that died takes its messages with it, and ends its generation."""

from collections.abc import Iterable, Iterator

from dpa.errors import ProtocolError
from dpa.protocol.wire.addresses import Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.messages import Message


class Outbox:
    """The sending ends of one task's channels."""

    def __init__(self, sender: Address, generation: int = 0) -> None:
        self._sender = sender
        self._generation = generation
        self._next: dict[Address, int] = {}

    def envelope(self, receiver: Address, message: Message) -> Envelope:
        seq = self._next.get(receiver, 0)
        self._next[receiver] = seq + 1
        return Envelope(self._sender, receiver, seq, message, self._generation)

    def sent(self, receiver: Address) -> int:
        return self._next.get(receiver, 0)

    def forget(self, present: Present) -> None:
        self._next = {to: seq for to, seq in self._next.items() if not present.has_gone(to)}


class Inbox:
    """The receiving ends of one task's channels. It drops duplicates, and messages that an older generation sent."""

    def __init__(self, generation: int = 0) -> None:
        self._generation = generation
        self._present: dict[str, Present] = {}
        self._expected: dict[Address, int] = {}
        self._early: dict[Address, dict[int, Message]] = {}

    def accept(self, envelope: Envelope) -> Iterable[Message]:
        """The messages that this one makes deliverable, in order, to be taken in at once: none if it is early, outdated
        or was seen before. `expected` counts each one as it is given. Raises ProtocolError if its sender belongs to a
        newer generation."""
        sender, seq = envelope.sender, envelope.seq
        if envelope.generation > self._generation:
            newer = f"generation {envelope.generation} of {sender}"
            raise ProtocolError(f"{envelope.receiver} of generation {self._generation} got a message from {newer}")
        expected = self._expected.get(sender, 0)
        is_old = envelope.generation < self._generation or seq < expected
        if is_old or (not expected and self._has_gone(sender)):
            return ()
        if seq == expected and not self._early.get(sender):
            self._expected[sender] = seq + 1
            return (envelope.message,)
        self._early.setdefault(sender, {})[seq] = envelope.message
        return self._due(sender, expected)

    def _due(self, sender: Address, expected: int) -> Iterator[Message]:
        early = self._early[sender]
        while expected in early:
            message = early.pop(expected)
            expected += 1
            self._expected[sender] = expected
            yield message

    def expected(self, sender: Address) -> int:
        """The number of the next message that the sender's channel will deliver: all before it have been."""
        return self._expected.get(sender, 0)

    def forget(self, present: Present) -> None:
        """Close the channels from the tasks of a stage that are gone: what comes from them is a copy."""
        before = self._present.get(present.stage, present)
        self._present[present.stage] = max(before, present, key=lambda known: (known.following, -len(known.tasks)))
        self._expected = {of: seq for of, seq in self._expected.items() if not present.has_gone(of)}
        self._early = {of: early for of, early in self._early.items() if not present.has_gone(of)}

    def _has_gone(self, sender: Address) -> bool:
        present = self._present.get(sender.stage)
        return present is not None and present.has_gone(sender)

    @property
    def empty(self) -> bool:
        return not any(self._early.values())
