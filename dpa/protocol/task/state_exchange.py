"""All-to-all exchange of states between the tasks of a stage, as one task sees it.

Records of one key may be processed by several tasks. In an exchange each of them sends what it has of a key to the
key's owner. Two uses: rounds of periodic aggregation while records flow (consistent grouping paper, section V-C), by
the first routing table, which all tasks know; and the last exchange, by the last table. A round ends when every task
has what all others had, and the next one begins only then, so two exchanges never mix.
"""

from __future__ import annotations

from typing import ClassVar

from dpa.errors import ProtocolError
from dpa.execution.states import StatePart
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, when
from dpa.protocol.task._record_queue import RecordQueue
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.events import ExtractDone, MergeDone
from dpa.protocol.wire.instructions import Extract, MergeStates
from dpa.protocol.wire.messages.exchange import BeginExchange, RoundDone, StateTransfer


class ExchangeState(State):
    """The steps of an exchange."""

    IDLE = "idle"
    DUE = "due"
    EXTRACTING = "extracting"
    COLLECTING = "collecting"
    MERGING = "merging"
    OVER = "over"


class StateExchange(RuledMachine):
    """User code takes turns: it extracts or merges between two quanta of records, never while it processes any."""

    def __init__(self, task: Machine, queue: RecordQueue) -> None:
        """Of a task with this queue, which holds the first table still."""
        super().__init__(ExchangeState.IDLE)
        self._task = task
        self._queue = queue
        self._first_table = queue.table
        self._current: BeginExchange | None = None
        self._number = 0
        self._parts: dict[int, StatePart | None] = {}
        self._others: list[Address] = []
        self._handed_over = 0
        self._seconds = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no exchange is in progress, and none has begun elsewhere."""
        return self.state in (ExchangeState.IDLE, ExchangeState.OVER) and not self._parts

    @property
    def occupies_user_code(self) -> bool:
        """Whether user code extracts or merges now."""
        return self.state in (ExchangeState.EXTRACTING, ExchangeState.MERGING)

    @property
    def is_over(self) -> bool:
        """Whether the last exchange is complete."""
        return self.state is ExchangeState.OVER

    def taken(self) -> tuple[StatePart, ...]:
        """The states that others have sent in the last exchange, once."""
        parts, self._parts = self._in_order(), {}
        return parts

    def _in_order(self) -> tuple[StatePart, ...]:
        """The states that others have sent, in the order of their senders."""
        in_order = (self._parts[index] for index in sorted(self._parts))
        return tuple(part for part in in_order if part is not None)

    def _extract(self) -> State | None:
        current, own = self._exchange, self._task.address
        if current.version > self._queue.table.version:
            return None
        if not current.transfer:
            self._others = []
            return ExchangeState.COLLECTING
        owners = self._queue.table if current.last else self._first_table
        self._others = [Address(own.stage, index) for index in owners.members if index != own.index]
        self._task.instruct(Extract(owners))
        return ExchangeState.EXTRACTING

    def _merge(self) -> State | None:
        if len(self._parts) < len(self._others):
            return None
        if self._exchange.last:
            return ExchangeState.OVER
        self._task.instruct(MergeStates(self._first_table, self._in_order(), self._exchange.number))
        return ExchangeState.MERGING

    @property
    def _exchange(self) -> BeginExchange:
        assert self._current is not None
        return self._current

    def _begin(self, sender: Address, message: BeginExchange) -> State:
        if message.number != self._number + 1:
            raise ProtocolError(f"{self._task.address} is to begin exchange {message.number} after {self._number}")
        self._number, self._current = message.number, message
        return ExchangeState.DUE

    def _transferred(self, sender: Address, message: StateTransfer) -> None:
        expected = self._number + (self.state is ExchangeState.IDLE)
        if message.number != expected or sender.index in self._parts:
            raise ProtocolError(f"{self._task.address} cannot take states of exchange {message.number} from {sender}")
        self._parts[sender.index] = message.part

    def _extracted(self, sender: Address, event: ExtractDone) -> State:
        self._handed_over = sum(len(part.keys) for part in event.parts.values())
        self._seconds = event.seconds
        for other in self._others:
            self._task.send(other, StateTransfer(self._number, event.parts.get(other.index)))
        return ExchangeState.COLLECTING

    def _merged(self, sender: Address, event: MergeDone) -> State:
        self._parts, self._current = {}, None
        done = RoundDone(self._number, event.rows, self._handed_over, self._seconds + event.seconds)
        self._task.send(COORDINATOR, done)
        return ExchangeState.IDLE

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(BeginExchange, ExchangeState.IDLE, _begin, "extract at the next turn", ExchangeState.DUE),
        on(
            StateTransfer,
            [ExchangeState.IDLE, ExchangeState.DUE, ExchangeState.EXTRACTING, ExchangeState.COLLECTING],
            _transferred,
            "keep",
        ),
        when(
            ExchangeState.DUE,
            _extract,
            "extract, if anything moves, once the table has come by which it does",
            (None, ExchangeState.EXTRACTING, ExchangeState.COLLECTING),
        ),
        on(ExtractDone, ExchangeState.EXTRACTING, _extracted, "send each task its states", ExchangeState.COLLECTING),
        when(
            ExchangeState.COLLECTING,
            _merge,
            "with the states of the last other task, merge; the last exchange is over",
            (None, ExchangeState.MERGING, ExchangeState.OVER),
        ),
        on(MergeDone, ExchangeState.MERGING, _merged, "report the round's share", ExchangeState.IDLE),
    )
