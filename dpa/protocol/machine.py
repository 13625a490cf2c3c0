"""What all state machines share: events in, instructions out.

A machine knows no Ray, no clock and no thread. A driver hands it events, one at a time, with the current time in
seconds, and carries out the instructions that come back, in order. `handle` is the only way in, so a history of
events is enough to replay a machine exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from dpa.execution.block import Block
from dpa.execution.emission import Step
from dpa.execution.reduce_task import Piece
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import StatePart
from dpa.protocol.addresses import Address
from dpa.protocol.channel import Inbox, Outbox
from dpa.protocol.messages import Envelope, Message
from dpa.protocol.rules import RuledMachine, State
from dpa.protocol.use import TaskUse
from dpa.routing.table import RoutingTable
from dpa.sources.splits import Split

# Instructions: send a message, start a task, or run user code. A task runs one piece of user code at a time; its end is
# an event.


@dataclass(frozen=True, eq=False)
class Send:
    """Deliver an envelope to its receiver, at any time and in any order."""

    envelope: Envelope


@dataclass(frozen=True)
class StartTasks:
    """Coordinator: start these tasks; answered by a `TaskStarted` for each."""

    addresses: tuple[Address, ...]


@dataclass(frozen=True, eq=False)
class OpenSplit:
    """Source: begin to read a split. No event answers it."""

    split: Split


@dataclass(frozen=True)
class OpenResult:
    """Operator: begin to read the rows of the written share. No event answers it."""


@dataclass(frozen=True)
class NextStep:
    """Make records of the next rows of what was opened last, of about `rows` of them at most; answered by
    `StepDone`."""

    rows: int


@dataclass(frozen=True, eq=False)
class Process:
    """Operator: process a block, all its keys owned here by the table of this version; answered by `ProcessDone`."""

    block: Block
    version: int


@dataclass(frozen=True, eq=False)
class Extract:
    """Operator: take out the states that the table gives to others; answered by `ExtractDone`."""

    table: RoutingTable


@dataclass(frozen=True, eq=False)
class ExtractRanges:
    """Operator: take out states of the ranges that the table takes from this task, of about `most` keys, or what is
    left of them; answered by `RangesExtracted`."""

    table: RoutingTable
    most: int


@dataclass(frozen=True, eq=False)
class InstallStates:
    """Operator: take in the states of ranges that others gave to this task, which has none of their keys yet; answered
    by `StatesInstalled`."""

    parts: tuple[StatePart, ...]


@dataclass(frozen=True, eq=False)
class MergeStates:
    """Operator: merge states that others extracted in a round of aggregation. The keys that the table gives to this
    task are then its share of the partial results; publish it, if the job publishes them. Answered by `MergeDone`."""

    table: RoutingTable
    parts: tuple[StatePart, ...]
    round: int


@dataclass(frozen=True, eq=False)
class Finish:
    """Operator: merge states that others extracted, and make this task's share of the result; answered by
    `FinishDone`.

    Attributes:
        first_table: the table by which the initial load is to be counted; None where it is what was processed.
    """

    parts: tuple[StatePart, ...]
    first_table: RoutingTable | None


@dataclass(frozen=True, eq=False)
class Write:
    """Operator: bring the share into this schema, which all shares have, and write it if the stage has a sink; None if
    all shares are empty. Answered by `WriteDone`."""

    schema: pa.Schema | None


@dataclass(frozen=True)
class Commit:
    """Coordinator: all shares of a round are complete; show them to readers, if the job publishes them. No event
    answers it.

    Attributes:
        stage: whose round it is.
        round: number of the round.
        at: seconds from the beginning of the stream to that of the round.
        rows: keys that each task published.
    """

    stage: str
    round: int
    at: float
    rows: tuple[int, ...]


@dataclass(frozen=True)
class JobDone:
    """Coordinator: the result is complete."""


@dataclass(frozen=True)
class JobFailed:
    """Coordinator: the job cannot go on."""

    reason: str


Instruction = (
    Send
    | StartTasks
    | OpenSplit
    | OpenResult
    | NextStep
    | Process
    | Extract
    | ExtractRanges
    | InstallStates
    | MergeStates
    | Finish
    | Write
    | Commit
    | JobDone
    | JobFailed
)

# Events besides envelopes: tasks start and die, user code has returned, or some time has passed.


@dataclass(frozen=True)
class Start:
    """Coordinator: the job begins."""


@dataclass(frozen=True)
class TaskStarted:
    """Coordinator: a task is up and can be sent messages."""

    address: Address


@dataclass(frozen=True)
class TaskDied:
    """Coordinator: a task, or the task's node, is gone or has failed."""

    address: Address
    reason: str


@dataclass(frozen=True)
class Tick:
    """Some time has passed: statistics may be due. Ticks need not be regular.

    Attributes:
        cores_busy: the part of the node's processor time that was used since the last tick, by whomever, 0 to 1; 0
            where that is not known.
        use: what the task has used so far, if it is time to say so.
    """

    cores_busy: float = 0.0
    use: TaskUse | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Redistribute:
    """Load balancer: relieve a task of a stage whatever its load (`redistribute(node_id)` of the DPA paper, section
    4.2)."""

    stage: str
    node_id: int


@dataclass(frozen=True, eq=False)
class StepDone:
    """A step, which took `seconds`, or None where nothing is left to read."""

    step: Step | None
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class ProcessDone:
    """The block handed out last has been processed in `seconds`.

    Attributes:
        blocks: records that were emitted meanwhile, each block with the position of its edge.
        waited: how many of the seconds user code waited for a processor.
    """

    seconds: float
    blocks: tuple[tuple[int, Block], ...] = ()
    waited: float = 0.0


@dataclass(frozen=True, eq=False)
class ExtractDone:
    """The extracted states, by the task that owns them, and how many seconds it took to extract them."""

    parts: dict[int, StatePart]
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class RangesExtracted:
    """A piece of the states that others get."""

    piece: Piece


@dataclass(frozen=True)
class StatesInstalled:
    """The states given to user code last are in its store."""


@dataclass(frozen=True)
class MergeDone:
    """This task's share of a round is complete: how many keys it published, and how many seconds that took."""

    rows: int
    seconds: float


@dataclass(frozen=True, eq=False)
class FinishDone:
    """This task's share of the result is complete.

    Attributes:
        schema: its columns; None if it is empty.
        initial_load: as in the message `Finished`.
    """

    schema: ShareSchema | None
    initial_load: tuple[int, ...] = ()


@dataclass(frozen=True)
class WriteDone:
    """This task's share of the result is written."""


UserCodeDone = (
    StepDone | ProcessDone | ExtractDone | RangesExtracted | StatesInstalled | MergeDone | FinishDone | WriteDone
)
"""What answers an instruction: user code has returned."""

Event = Envelope | Start | TaskStarted | TaskDied | Tick | Redistribute | UserCodeDone


class Machine(RuledMachine):
    """Base of all machines: channels, parts with rules of their own, and a list of instructions under construction."""

    def __init__(self, address: Address, state: State) -> None:
        super().__init__(state)
        self.address = address
        self.now = 0.0
        self._outbox = Outbox(address)
        self._inbox = Inbox()
        self._instructions: list[Instruction] = []
        self._part_of: dict[type, RuledMachine] = {}

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take in one event at time `now` (seconds, never decreasing) and return what is to be done, in order.

        Raises:
            ProtocolError: the event cannot come in the machine's present state.
        """
        self.now = max(self.now, now)
        if isinstance(event, Envelope):
            for message in self._inbox.accept(event):
                self._take(event.sender, message)
        else:
            self._take(self.address, event)
        instructions, self._instructions = self._instructions, []
        return instructions

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

    def include(self, part: RuledMachine) -> None:
        """Let a part take the events that its rules name."""
        self._part_of |= {rule.kind: part for rule in part.RULES}

    def settle(self) -> None:
        """Start whatever the last event has made due; called after each."""

    def _take(self, sender: Address, event: Message | Event) -> None:
        self._part_of.get(type(event), self).dispatch(self.address, sender, event)
        self.settle()
