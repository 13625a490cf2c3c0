"""What all state machines share: events in, instructions out.

A machine knows no Ray, no clock and no thread. A driver hands it events, one at a time, with the current time in
seconds, and carries out the instructions that come back, in order. `handle` is the only way in, so a history of events
is enough to replay a machine exactly."""

from collections.abc import Mapping
from typing import Any

from dpa.errors import ProtocolError
from dpa.protocol.rules import RuledMachine, State
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.channel import Inbox, Outbox
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, TasksGone
from dpa.protocol.wire.instructions import Instruction, Send
from dpa.protocol.wire.messages import Message


class Machine(RuledMachine):
    """Base of all machines: channels, parts with rules of their own, and a list of instructions under construction.

    Attributes:
        stages: the parts that look after one stage each, of a machine that has such.
    """

    stages: Mapping[str, RuledMachine]

    def __init__(self, address: Address, state: State) -> None:
        super().__init__(state)
        self.address = address
        self.now = 0.0
        self.live_in(0)
        self._instructions: list[Instruction] = []
        self._part_of: dict[type, RuledMachine] = {}

    def live_in(self, generation: int) -> None:
        """Belong to this life of the graph; called before the first event."""
        self.generation = generation
        self._outbox = Outbox(self.address, generation)
        self._inbox = Inbox(generation)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take in one event at time `now` (seconds, never decreasing) and return the instructions, in order. Raises
        ProtocolError if the event cannot come in the machine's present state."""
        self.now = max(self.now, now)
        if isinstance(event, Envelope):
            for message in self._inbox.accept(event):
                self._take(event.sender, message)
        elif isinstance(event, TasksGone):
            self._inbox.forget(event.present)
            self._outbox.forget(event.present)
        else:
            self._take(self.address, event)
        instructions, self._instructions = self._instructions, []
        return instructions

    def send(self, receiver: Address, message: Message) -> None:
        self._instructions.append(Send(self._outbox.envelope(receiver, message)))

    def instruct(self, instruction: Instruction) -> None:
        self._instructions.append(instruction)

    def sent(self, receiver: Address) -> int:
        return self._outbox.sent(receiver)

    def delivered(self, sender: Address) -> int:
        return self._inbox.expected(sender)

    def states(self) -> dict[str, object]:
        """What has a state, and its state: the machine, its stages, and the versions of its routing tables."""
        return {"state": self.state.value}

    @property
    def idle(self) -> bool:
        return self._inbox.empty

    def include(self, part: RuledMachine) -> None:
        """Let a part take the events that its rules name; those that the machine's rules name too it must `hand_on`.
        ProtocolError if another part takes one of them."""
        for kind in part.KINDS:
            if kind in self._part_of:
                both = f"{type(self._part_of[kind]).__name__} and {type(part).__name__}"
                raise ProtocolError(f"{self.address} has two parts that take a {kind.__name__}: {both}")
            self._part_of[kind] = part

    def hand_on(self, sender: Address, event: Message | Event) -> None:
        self._part_of[type(event)].dispatch(self.address, sender, event)

    def for_senders_stage(self, sender: Address, event: Any) -> None:
        self.stages[sender.stage].dispatch(sender.stage, sender, event)

    def for_named_stage(self, sender: Address, event: Any) -> None:
        self.stages[event.stage].dispatch(event.stage, sender, event)

    def settle(self) -> None:
        """Start whatever the last event has made due; called after each."""
        self.advance()

    def _take(self, sender: Address, event: Message | Event) -> None:
        kind = type(event)
        taker = self if kind in self.KINDS else self._part_of.get(kind, self)
        taker.dispatch(self.address, sender, event)
        self.settle()
