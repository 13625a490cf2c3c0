"""All-to-all exchange of states between the tasks of a stage, as one task sees it.

Records of one key may be processed by several tasks. In an exchange each of them sends what it has of a key to the
key's owner. Two uses: rounds of periodic aggregation while records flow (consistent grouping paper, section V-C), by
the first routing table, which all tasks know; and the last exchange, by the last table. A round ends when every task
has what all others had, and the next one begins only then, so two exchanges never mix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from dpa.errors import ProtocolError
from dpa.execution.states import StatePart
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.events import ExtractDone, MergeDone
from dpa.protocol.wire.instructions import Extract, MergeStates
from dpa.protocol.wire.messages.exchange import BeginExchange, RoundDone, StateTransfer
from dpa.routing.table import RoutingTable


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

    def __init__(self, task: Machine, first_table: RoutingTable, begin_last: Callable[[], None]) -> None:
        """Of a task that starts with `first_table`; `begin_last` is called when the last exchange begins."""
        super().__init__(ExchangeState.IDLE)
        self._task = task
        self._first_table = first_table
        self._begin_last = begin_last
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

    def advance(self, table: RoutingTable) -> None:
        """Let user code extract or merge if that is due; `table` is the newest that the task holds. Called when user
        code is free."""
        current = self._current
        if current is None:
            return
        if self.state is ExchangeState.DUE and current.version <= table.version:
            self._extract(current, table)
        if self.is_complete and not current.last:
            self.state = ExchangeState.MERGING
            self._task.instruct(MergeStates(self._first_table, self._in_order(), current.number))

    @property
    def is_complete(self) -> bool:
        """Whether every other task has sent what it had."""
        if self._current is None or self.state is not ExchangeState.COLLECTING:
            return False
        return len(self._parts) == len(self._others)

    def end(self) -> tuple[StatePart, ...]:
        """The last exchange is complete: take in nothing more. Returns the states that others have sent."""
        self.state, parts, self._parts = ExchangeState.OVER, self._in_order(), {}
        return parts

    def _in_order(self) -> tuple[StatePart, ...]:
        """The states that others have sent, in the order of their senders."""
        in_order = (self._parts[index] for index in sorted(self._parts))
        return tuple(part for part in in_order if part is not None)

    def _extract(self, current: BeginExchange, table: RoutingTable) -> None:
        owners, own = table if current.last else self._first_table, self._task.address
        if current.transfer:
            self.state = ExchangeState.EXTRACTING
            self._others = [Address(own.stage, index) for index in owners.members if index != own.index]
            self._task.instruct(Extract(owners))
        else:
            self.state, self._others = ExchangeState.COLLECTING, []

    def _begin(self, sender: Address, message: BeginExchange) -> None:
        if message.number != self._number + 1:
            raise ProtocolError(f"{self._task.address} is to begin exchange {message.number} after {self._number}")
        self.state, self._number, self._current = ExchangeState.DUE, message.number, message
        if message.last:
            self._begin_last()

    def _transferred(self, sender: Address, message: StateTransfer) -> None:
        expected = self._number + (self.state is ExchangeState.IDLE)
        if message.number != expected or sender.index in self._parts:
            raise ProtocolError(f"{self._task.address} cannot take states of exchange {message.number} from {sender}")
        self._parts[sender.index] = message.part

    def _extracted(self, sender: Address, event: ExtractDone) -> None:
        self.state = ExchangeState.COLLECTING
        self._handed_over = sum(len(part.keys) for part in event.parts.values())
        self._seconds = event.seconds
        for other in self._others:
            self._task.send(other, StateTransfer(self._number, event.parts.get(other.index)))

    def _merged(self, sender: Address, event: MergeDone) -> None:
        self.state, self._parts, self._current = ExchangeState.IDLE, {}, None
        done = RoundDone(self._number, event.rows, self._handed_over, self._seconds + event.seconds)
        self._task.send(COORDINATOR, done)

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(BeginExchange, ExchangeState.IDLE, _begin, "extract at the next turn"),
        on(
            StateTransfer,
            [ExchangeState.IDLE, ExchangeState.DUE, ExchangeState.EXTRACTING, ExchangeState.COLLECTING],
            _transferred,
            "keep",
        ),
        on(ExtractDone, ExchangeState.EXTRACTING, _extracted, "send each task its states, then collect"),
        on(MergeDone, ExchangeState.MERGING, _merged, "report the round's share"),
    )
