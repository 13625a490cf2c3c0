"""The state machine of a source task: asks for splits, makes records of their rows, and emits them as credit allows."""

from collections.abc import Sequence
from typing import ClassVar

from dpa.measure.latency import LatencySketch
from dpa.protocol.rules import Rule, State, on, when
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import Tick
from dpa.protocol.wire.instructions import CloseSplit, OpenSplit
from dpa.protocol.wire.messages.cuts import Pause
from dpa.protocol.wire.messages.data import Ack, CreditTransfer
from dpa.protocol.wire.messages.members import Flush, Leave, Left
from dpa.protocol.wire.messages.splits import Begin, SplitGrant, SplitRequest, SplitReturned
from dpa.protocol.wire.messages.tables import CurrentTable, TableUpdate
from dpa.windows.options import micros


class SourceState(State):
    """The states of a source task."""

    STARTING = "starting"
    REQUESTING = "requesting"
    READING = "reading"
    DONE = "done"
    LEFT = "left"


class SourceMachine(TaskMachine):
    """Reads one step ahead, and asks for the next split once all records of the last are pushed."""

    def __init__(self, address: Address, emitters: Sequence[Emitter]) -> None:
        super().__init__(address, emitters, SourceState.STARTING)
        self._is_leaving = self._gives_back = False
        self._read_before = self._not_before = 0

    @property
    def is_waiting(self) -> bool:
        return self.state is SourceState.REQUESTING and not self.is_blocked

    @property
    def read_at(self) -> int:
        """The time on its clock, but never before the time that came with its split."""
        return max(micros(self.now), self._not_before)

    def _next_split(self) -> State | None:
        if not self.has_emitted_all:
            return None
        if self._gives_back:
            self._gives_back = False
            self.send(COORDINATOR, SplitReturned(self.read - self._read_before, self.event_time))
        if self._is_pausing:
            self._pause_now()
        return self._request()

    def _go(self) -> State | None:
        if not self._is_leaving or self._in_flight:
            return None
        self.send(COORDINATOR, Left(self.stats, LatencySketch(), LatencySketch(), self.sent(BALANCER)))
        return SourceState.LEFT

    def _leave(self, sender: Address, message: Leave) -> None:
        self._is_leaving = True
        if self.state is SourceState.READING:
            self._give_back()

    def _give_back(self) -> None:
        self._gives_back = True
        self.instruct(CloseSplit())

    def _pause(self, sender: Address, message: Pause) -> None:
        self._is_pausing = True
        self._give_back()

    def _begin(self, sender: Address, message: Begin) -> State:
        return self._request()

    def _request(self) -> State:
        self.send(COORDINATOR, SplitRequest(self.event_time, self.read))
        self.event_time = None
        return SourceState.REQUESTING

    def _granted(self, sender: Address, message: SplitGrant) -> State:
        if message.split is None:
            self.report_progress(done=True)
            return SourceState.DONE
        self._read_before, self._not_before = self.read, message.not_before
        self._production.open(OpenSplit(message.split))
        return SourceState.READING

    def _tick(self, sender: Address, event: Tick) -> None:
        self.reports_at(event)

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(Begin, SourceState.STARTING, _begin, "ask for a split", SourceState.REQUESTING),
        on(SplitGrant, SourceState.REQUESTING, _granted, "open it or be done", (SourceState.READING, SourceState.DONE)),
        when(
            SourceState.READING,
            _next_split,
            "ask for a split when all records are pushed; give back the rest of this one if asked to leave",
            (None, SourceState.REQUESTING),
        ),
        when(SourceState.DONE, _go, "leave if asked, once all it emitted is processed", (None, SourceState.LEFT)),
        on(Flush, SourceState, TaskMachine._flush_others, "answer: all before it has arrived"),
        on(Pause, SourceState.READING, _pause, "stop reading; answer when all records are pushed"),
        on(Pause, [SourceState.STARTING, SourceState.REQUESTING, SourceState.DONE], TaskMachine._pause_now, "answer"),
        on(Leave, SourceState, _leave, "stop reading; leave when all is processed"),
        on(Ack, SourceState, TaskMachine._acknowledged, "return credit, push what waits"),
        on(CreditTransfer, SourceState, TaskMachine._credit_transferred, "move credit with what was forwarded"),
        on(TableUpdate, SourceState, TaskMachine._update_emitters, "adopt"),
        on(CurrentTable, SourceState.STARTING, TaskMachine._restart_emitters, "start with it"),
        on(Tick, [SourceState.STARTING, SourceState.REQUESTING, SourceState.READING], _tick, "report"),
        on(Tick, [SourceState.DONE, SourceState.LEFT], TaskMachine._ignore, "ignore"),
    )
