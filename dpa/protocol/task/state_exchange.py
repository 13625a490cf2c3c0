"""All-to-all exchange of states between the tasks of a stage, as one task sees it.

Several tasks may process records of one key. In an exchange, which ends an epoch, each task sends its state of a key to
the key's owner by the newest table, which is frozen meanwhile. After the last exchange the tasks finish. After the
others, which happen at cuts of the stream, they close windows and publish results (periodic aggregation: consistent
grouping paper, section V-C). The next exchange begins only when every task has what all others had, so two never
mix."""

from typing import ClassVar

from dpa.errors import ProtocolError
from dpa.execution.states import StatePart
from dpa.protocol.rules import Rule, RuledMachine, State, on, when
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.record_queue import RecordQueue
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.events import ExtractDone, PublishDone
from dpa.protocol.wire.instructions import Extract, Publish
from dpa.protocol.wire.messages.exchange import BeginExchange, Published, StateTransfer


class ExchangeState(State):
    """The steps of an exchange."""

    IDLE = "idle"
    DUE = "due"
    EXTRACTING = "extracting"
    COLLECTING = "collecting"
    PUBLISHING = "publishing"
    OVER = "over"


class StateExchange(RuledMachine):
    """User code extracts or merges states between two quanta of records."""

    def __init__(self, task: TaskMachine, queue: RecordQueue) -> None:
        super().__init__(ExchangeState.IDLE)
        self._task = task
        self._queue = queue
        self._current: BeginExchange | None = None
        self._ended = 0
        self._epoch: int | None = None
        self._parts: dict[int, StatePart | None] = {}
        self._others: list[Address] = []
        self._handed_over = 0
        self._seconds = 0.0

    @property
    def is_idle(self) -> bool:
        return self.state in (ExchangeState.IDLE, ExchangeState.OVER) and not self._parts

    @property
    def occupies_user_code(self) -> bool:
        return self.state in (ExchangeState.EXTRACTING, ExchangeState.PUBLISHING)

    @property
    def is_over(self) -> bool:
        return self.state is ExchangeState.OVER

    def taken(self) -> tuple[StatePart, ...]:
        """The states that others sent in the last exchange; empties the list."""
        parts, self._parts = self._in_order(), {}
        return parts

    def _in_order(self) -> tuple[StatePart, ...]:
        in_order = (self._parts[index] for index in sorted(self._parts))
        return tuple(part for part in in_order if part is not None)

    def _extract(self) -> State | None:
        current, own, owners = self._exchange, self._task.address, self._queue.table
        if current.version > owners.version:  # the table comes on another channel
            return None
        if not current.transfer:
            self._others = []
            return ExchangeState.COLLECTING
        self._others = [Address(own.stage, index) for index in owners.members if index != own.index]
        self._task.instruct(Extract(owners))
        return ExchangeState.EXTRACTING

    def _end(self) -> State | None:
        if len(self._parts) < len(self._others):
            return None
        if self._exchange.last:
            return ExchangeState.OVER
        current = self._exchange
        self._task.instruct(Publish(self._in_order(), current.epoch, current.closes, current.publishes))
        return ExchangeState.PUBLISHING

    @property
    def _exchange(self) -> BeginExchange:
        assert self._current is not None
        return self._current

    def _begin(self, sender: Address, message: BeginExchange) -> State:
        if message.epoch <= self._ended or self._epoch not in (None, message.epoch):
            raise ProtocolError(
                f"{self._task.address} is to end epoch {message.epoch} after {self._epoch or self._ended}"
            )
        self._epoch, self._current = message.epoch, message
        return ExchangeState.DUE

    def _transferred(self, sender: Address, message: StateTransfer) -> None:
        # The states of a task that was asked earlier may come before this task is asked.
        expected = self._epoch or max(message.epoch, self._ended + 1)
        if message.epoch != expected or sender.index in self._parts:
            raise ProtocolError(f"{self._task.address} cannot take states of epoch {message.epoch} from {sender}")
        self._epoch = expected
        self._parts[sender.index] = message.part

    def _extracted(self, sender: Address, event: ExtractDone) -> State:
        self._handed_over = sum(len(part.keys) for part in event.parts.values())
        self._seconds = event.seconds
        for other in self._others:
            self._task.send(other, StateTransfer(self._exchange.epoch, event.parts.get(other.index)))
        return ExchangeState.COLLECTING

    def _published(self, sender: Address, event: PublishDone) -> State:
        ended = self._ended = self._exchange.epoch
        self._parts, self._epoch, self._current = {}, None, None
        seconds, self._seconds = self._seconds + event.seconds, 0.0
        self._task.keep(event.blocks, self._task.now)
        self._task.has_closed(event.opens)
        if event.failed is not None:
            self._task.report_failed(event.failed)
        share = Published(ended, event.staged, self._handed_over, seconds, self._task.stats, event.rows)
        self._task.send(COORDINATOR, share)
        self._handed_over = 0
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
            "extract, if anything moves, once its table has arrived",
            (None, ExchangeState.EXTRACTING, ExchangeState.COLLECTING),
        ),
        on(ExtractDone, ExchangeState.EXTRACTING, _extracted, "send each task its states", ExchangeState.COLLECTING),
        when(
            ExchangeState.COLLECTING,
            _end,
            "after the last task's states, close windows and publish; the last exchange is over",
            (None, ExchangeState.PUBLISHING, ExchangeState.OVER),
        ),
        on(
            PublishDone,
            ExchangeState.PUBLISHING,
            _published,
            "emit what the windows gave, report the share",
            ExchangeState.IDLE,
        ),
    )
