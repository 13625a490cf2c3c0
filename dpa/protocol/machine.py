"""What all state machines share: events in, instructions out, and the dispatch between them.

A machine knows no Ray, no clock and no thread. A driver hands it events, one at a time, with the current time in
seconds, and carries out the instructions that come back, in order. `handle` is the only way in, so a history of
events is enough to replay a machine exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpa.errors import ProtocolError
from dpa.execution.block import Block
from dpa.execution.mapping import Mapped
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import StatePart
from dpa.protocol.channel import Inbox, Outbox
from dpa.protocol.messages import Address, Envelope, Message
from dpa.routing.table import RoutingTable
from dpa.splits import Split

# Instructions: send a message, or let user code run. A task runs one piece of user code at a time; its end is an event.


@dataclass(frozen=True, eq=False)
class Send:
    """Deliver an envelope to its receiver, at any time and in any order."""

    envelope: Envelope


@dataclass(frozen=True, eq=False)
class OpenSplit:
    """Mapper: begin to read a split. No event answers it."""

    split: Split


@dataclass(frozen=True)
class MapNext:
    """Mapper: take the next step of the open split; answered by `MapDone`."""


@dataclass(frozen=True, eq=False)
class Process:
    """Reducer: fold a block, all its keys owned here by table `epoch`, into the states; answered by `ProcessDone`."""

    block: Block
    epoch: int


@dataclass(frozen=True, eq=False)
class Pack:
    """Reducer: take out the states that the table gives to others; answered by `PackDone`."""

    table: RoutingTable


@dataclass(frozen=True, eq=False)
class Fold:
    """Reducer: fold in what other reducers had in round `round`. What the table gives to this reducer is then its share
    of the results so far: publish it, if the job publishes them. Answered by `FoldDone`."""

    home: RoutingTable
    parts: tuple[StatePart, ...]
    round: int


@dataclass(frozen=True, eq=False)
class Finish:
    """Reducer: fold in what other reducers had, and make this reducer's share of the result; answered by
    `FinishDone`."""

    parts: tuple[StatePart, ...]


@dataclass(frozen=True, eq=False)
class Write:
    """Reducer: write the share in this schema, which all shares have; None if all are empty. Answered by
    `WriteDone`."""

    schema: pa.Schema | None


@dataclass(frozen=True)
class Commit:
    """Coordinator: all shares of a round are complete; let readers see them, if the job publishes them. No event
    answers it.

    Attributes:
        round: number of the round.
        at: seconds from the beginning of the stream to that of the round.
        rows: keys that each reducer published.
    """

    round: int
    at: float
    rows: tuple[int, ...]


@dataclass(frozen=True)
class JobDone:
    """Coordinator: the result is complete."""


Instruction = Send | OpenSplit | MapNext | Process | Pack | Fold | Finish | Write | Commit | JobDone

# Events besides envelopes: user code has returned, or some time has passed.


@dataclass(frozen=True)
class Start:
    """All tasks are up."""


@dataclass(frozen=True)
class Tick:
    """Some time has passed: statistics may be due. Carries no promise of regularity."""


@dataclass(frozen=True)
class Redistribute:
    """Load balancer: relieve a reducer whatever its load."""

    node_id: int


@dataclass(frozen=True, eq=False)
class MapDone:
    """A step of the open split, or None when the split is exhausted."""

    step: Mapped | None


@dataclass(frozen=True)
class ProcessDone:
    """The block handed out last has been folded in, which took so many seconds."""

    seconds: float


@dataclass(frozen=True, eq=False)
class PackDone:
    """The states of other reducers' keys, by owner, and how many seconds it took to take them out."""

    parts: dict[int, StatePart]
    seconds: float = 0.0


@dataclass(frozen=True)
class FoldDone:
    """This reducer's share of a round is complete: how many keys it published, and how many seconds that took."""

    rows: int
    seconds: float


@dataclass(frozen=True, eq=False)
class FinishDone:
    """This reducer's share of the result is complete, with these columns; None if it is empty."""

    schema: ShareSchema | None


@dataclass(frozen=True)
class WriteDone:
    """This reducer's share of the result is written."""


Event = Envelope | Start | Tick | Redistribute | MapDone | ProcessDone | PackDone | FoldDone | FinishDone | WriteDone


class Machine:
    """Base of the four machines: channels, dispatch by type, and a list of instructions under construction."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.now = 0.0
        self._outbox = Outbox(address)
        self._inbox = Inbox()
        self._instructions: list[Instruction] = []
        self.state = ""
        self._handlers: dict[type, tuple[Callable[[Address, Any], None], tuple[str, ...]]] = {}

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take in one event at time `now` (seconds, never decreasing) and say what is to be done, in order.

        Raises:
            ProtocolError: the event cannot come in the machine's present state.
        """
        self.now = max(self.now, now)
        if isinstance(event, Envelope):
            for message in self._inbox.accept(event):
                self._dispatch(event.sender, message)
        else:
            self._dispatch(self.address, event)
        instructions, self._instructions = self._instructions, []
        return instructions

    def on(self, kind: type, handler: Callable[[Address, Any], None], *states: str) -> None:
        """Let `handler(sender, message)` take the messages or events of one type, in these states or, without any, in
        all."""
        self._handlers[kind] = (handler, states)

    def send(self, receiver: Address, message: Message) -> None:
        """Instruct to send a message."""
        self._instructions.append(Send(self._outbox.envelope(receiver, message)))

    def instruct(self, instruction: Instruction) -> None:
        """Add an instruction."""
        self._instructions.append(instruction)

    def delivered(self, sender: Address) -> int:
        """How many messages of the sender have been taken in."""
        return self._inbox.expected(sender)

    @property
    def idle(self) -> bool:
        """Whether no received message waits for an earlier one."""
        return self._inbox.empty

    def _dispatch(self, sender: Address, message: Message | Event) -> None:
        handler, states = self._handlers.get(type(message), (None, ()))
        if handler is None or (states and self.state not in states):
            state = f" while {self.state}" if self.state else ""
            raise ProtocolError(f"{self.address} cannot take a {type(message).__name__} from {sender}{state}")
        handler(sender, message)
