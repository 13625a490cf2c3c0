"""What source and operator tasks have in common: they emit records along edges, a step at a time, and report
statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dpa.errors import ProtocolError
from dpa.execution.block import Block
from dpa.measure.latency import LatencySketch
from dpa.measure.timing import RowWaits, Supply
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, on_each, when
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import ProcessDone, StepDone, Tick
from dpa.protocol.wire.instructions import NextStep, OpenResult, OpenSplit
from dpa.protocol.wire.messages.cuts import Pause, Paused
from dpa.protocol.wire.messages.data import Ack, CreditTransfer, Push
from dpa.protocol.wire.messages.end import Progress, RecordsFailed
from dpa.protocol.wire.messages.members import Flush, Flushed
from dpa.protocol.wire.messages.migration import Marker
from dpa.protocol.wire.messages.tables import CurrentTable, OfferedReport, TableUpdate
from dpa.protocol.wire.metrics import TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.tolerance import Failed

_TURN = (5**0.5 - 1) / 2  # multiples of the golden ratio are spread evenly modulo 1


class ProductionState(State):
    """The states of a production."""

    CLOSED = "closed"
    READY = "ready"
    STEPPING = "stepping"


class Production(RuledMachine):
    """Rows that become records: those of a split, or of a stage's own result. The next step is taken when the
    emitters take further blocks."""

    def __init__(self, task: TaskMachine) -> None:
        super().__init__(ProductionState.CLOSED)
        self._task = task
        self._step_began = self._read_began = 0.0
        self.is_held = False

    def open(self, instruction: OpenSplit | OpenResult) -> None:
        self.dispatch(self._task.address, self._task.address, instruction)

    @property
    def is_closed(self) -> bool:
        return self.state is ProductionState.CLOSED

    @property
    def is_stepping(self) -> bool:
        return self.state is ProductionState.STEPPING

    def _open(self, sender: Address, instruction: OpenSplit | OpenResult) -> State:
        self._read_began = self._task.now
        self._task.supply.begin(self._task.now)
        self._task.instruct(instruction)
        return ProductionState.READY

    def _step(self) -> State | None:
        if self.is_held or not self._task.is_open:
            return None
        self._step_began = self._task.now
        self._task.instruct(NextStep(self._task.step_rows, self._task.read_at))
        return ProductionState.STEPPING

    def _step_done(self, sender: Address, event: StepDone) -> State:
        task = self._task
        task.worked(event)
        task.event_time = event.event_time
        if event.step is None:
            task.supply.end(task.now)
            return ProductionState.CLOSED
        if event.step.read:  # else its records are of rows that an earlier step has read
            self._read_began = self._step_began
        task.waits.read(event.step.read, self._step_began)
        task.read += event.step.read
        task.mapped += event.step.mapped
        task.supply.made(event.step.mapped, task.now)
        task.kept += max((block.rows for _, block in event.step.blocks), default=0)
        task.keep(event.step.blocks, self._read_began)
        return ProductionState.READY

    RULES: ClassVar[tuple[Rule, ...]] = (
        *on_each((OpenSplit, OpenResult), [ProductionState.CLOSED], _open, "open it", ProductionState.READY),
        when(ProductionState.READY, _step, "take a step, if records may be emitted", (None, ProductionState.STEPPING)),
        on(
            StepDone,
            ProductionState.STEPPING,
            _step_done,
            "keep the records, or close after the last",
            (ProductionState.READY, ProductionState.CLOSED),
        ),
    )


class TaskMachine(Machine):
    """A task of a stage.

    Attributes:
        emitters: one for each edge that leaves the stage, in the graph's order.
        read, mapped, dead, busy_seconds, running_seconds, blocked_seconds, waiting_seconds: as in `TaskStats`.
        supply: what it makes of rows while nothing holds it back.
        waits: of the rows read since it paused last.
        kept: records made of the rows read for one edge, in each step the one with most.
        event_time, opens: as in `TaskStats`.
        report_seconds: least time from a tick at which it reports to the next; 0: it reports at each.
    """

    def __init__(self, address: Address, emitters: Sequence[Emitter], state: State) -> None:
        super().__init__(address, state)
        self.emitters = tuple(emitters)
        self.read = self.mapped = self.kept = self.dead = 0
        self.busy_seconds = self.running_seconds = self.blocked_seconds = self.waiting_seconds = 0.0
        self.supply = Supply()
        self.waits = RowWaits()
        self.event_time: int | None = None
        self.opens: int | None = None
        self._given_open: int | None = None
        self.report_seconds = 0.0
        self._report_at: float | None = None
        self._use: TaskUse | None = None
        self._blocked_since: float | None = None
        self._waiting_since: float | None = None
        self._is_pausing = False
        self._production = Production(self)
        self.include(self._production)

    @property
    def stats(self) -> TaskStats:
        blocked = 0.0 if self._blocked_since is None else self.now - self._blocked_since
        waiting = 0.0 if self._waiting_since is None else self.now - self._waiting_since
        return TaskStats(
            self.address.stage,
            self.address.index,
            at=self.now,
            read=self.read,
            mapped=self.mapped,
            emitted=tuple(emitter.made for emitter in self.emitters),
            credit_seconds=tuple(emitter.credit_seconds for emitter in self.emitters),
            regrouped=sum(emitter.regrouped for emitter in self.emitters),
            busy_seconds=self.busy_seconds,
            running_seconds=self.running_seconds,
            blocked_seconds=self.blocked_seconds + blocked,
            waiting_seconds=self.waiting_seconds + waiting,
            dead=self.dead,
            supply=self.supply.rate,
            event_time=self.event_time,
            opens=self.opens,
        )

    @property
    def is_open(self) -> bool:
        return all(emitter.is_open for emitter in self.emitters)

    @property
    def step_rows(self) -> int:
        """Rows for the next step to read, to make as many records as the emitters ask for."""
        records = min(emitter.step_records for emitter in self.emitters)
        return max(1, round(records * self.read / self.kept)) if self.kept and self.read else records

    @property
    def read_at(self) -> int:
        """The read time of the next step's rows, in microseconds since 1970; 0 for rows of a result."""
        return 0

    @property
    def has_emitted_all(self) -> bool:
        return self._production.is_closed and self._has_pushed_all

    @property
    def is_blocked(self) -> bool:
        return not self._production.is_stepping and not self._has_pushed_all

    @property
    def is_waiting(self) -> bool:
        """Whether it has no work until more input comes."""
        return False

    def unreported_latency(self) -> LatencySketch | None:
        """As of `Progress`."""
        return None

    @property
    def _in_flight(self) -> int:
        return sum(emitter.in_flight for emitter in self.emitters)

    @property
    def _has_pushed_all(self) -> bool:
        return not any(emitter.held for emitter in self.emitters)

    def has_open(self, first: int | None) -> None:
        """`first`: the end of the first open window, in microseconds since 1970; None without any."""
        said = (first, self._given_open)
        self.opens = min((end for end in said if end is not None), default=None)

    def has_given(self) -> None:
        """Other tasks have some of its states now. Until windows are closed this task answers for those states too: the
        others report later, and on another channel."""
        self._given_open = self.opens

    def has_closed(self, first: int | None) -> None:
        """All tasks have closed their windows, and no states are in flight; `first` as in `has_open`."""
        self._given_open, self.opens = None, first

    def keep(self, blocks: Sequence[tuple[int, Block]], read_at: float) -> None:
        for position, block in blocks:
            self.emitters[position].keep(block, read_at, self.now)

    def states(self) -> dict[str, object]:
        tables = {f"routing table of {emitter.stage}": emitter.table.version for emitter in self.emitters}
        return {**super().states(), **tables}

    def settle(self) -> None:
        for emitter in self.emitters:
            for receiver, push in emitter.release(self.now):
                self.send(receiver, push)
        if self.emitters:
            self._production.advance()
        self.advance()
        self._note_blocked()
        self._note_waiting()

    def report_progress(self, *, done: bool = False) -> None:
        """Report statistics, and to the load balancer what was offered, unless that waits for the next report."""
        self.send(COORDINATOR, Progress(self.stats, done))
        if done or not self.report_seconds:
            self._report_offered(done=done)

    def reports_at(self, tick: Tick) -> bool:
        """Returns whether a report was due."""
        self._use = self._use if tick.use is None else tick.use
        if self._report_at is None:
            self._report_at = self.now + self.address.index * _TURN % 1 * self.report_seconds
        if self.now < self._report_at:
            return False
        self._report_at = self.now + self.report_seconds
        self.send(COORDINATOR, Progress(self.stats, use=self._use, latency=self.unreported_latency()))
        self._use = None
        self._report_offered(done=False)
        return True

    def _report_offered(self, *, done: bool) -> None:
        for emitter in self.emitters:
            offered = emitter.offered(self.now, ended=done)
            if offered is not None:
                self.send(BALANCER, OfferedReport(emitter.stage, emitter.edge, offered))

    def worked(self, event: StepDone | ProcessDone, push: Push | None = None) -> None:
        """User code has returned: report what it failed on among the records of `push`."""
        awaited = event.awaited if isinstance(event, StepDone) else 0.0
        self.busy_seconds += event.seconds - awaited
        self.waiting_seconds += awaited
        self.running_seconds += event.ran
        if event.failed is not None:
            self.dead += event.dead if isinstance(event, ProcessDone) else 0
            self.report_failed(event.failed, push)

    def report_failed(self, failed: Failed, push: Push | None = None) -> None:
        of = () if push is None else (push.origin, push.edge, push.number)
        self.send(COORDINATOR, Progress(self.stats, failed=RecordsFailed(failed, *of)))

    def _pause_now(self, sender: Address | None = None, message: Pause | None = None) -> None:
        self._is_pausing = False
        self.send(COORDINATOR, Paused(self.stats, self.waits.taken(self.now)))

    def _acknowledged(self, sender: Address, message: Ack) -> None:
        for emitter in self.emitters:
            if emitter.edge == message.edge:
                emitter.acknowledged(sender, message)
                return
        raise ProtocolError(f"{self.address} got credit back for edge {message.edge}, which does not leave it")

    def _credit_transferred(self, sender: Address, message: CreditTransfer) -> None:
        for emitter in self.emitters:
            if emitter.edge == message.edge:
                emitter.forwarded(sender, message)

    def _update_emitters(self, sender: Address, message: TableUpdate) -> None:
        marked: set[int] = set()
        for emitter in self.emitters:
            if emitter.stage == message.stage:
                marked |= emitter.update(message.change)
        for receiver in sorted(marked):  # once all edges to the stage go by the new table
            self.send(Address(message.stage, receiver), Marker(message.change.version))

    def _flush_others(self, sender: Address, message: Flush) -> None:
        self.send(sender, Flushed())

    def _restart_emitters(self, sender: Address, message: CurrentTable) -> None:
        for emitter in self.emitters:
            if emitter.stage == message.stage:
                emitter.adopt(message.table)

    def _note_waiting(self) -> None:
        if self.is_waiting:
            self._waiting_since = self.now if self._waiting_since is None else self._waiting_since
        elif self._waiting_since is not None:
            self.waiting_seconds += self.now - self._waiting_since
            self._waiting_since = None

    def _note_blocked(self) -> None:
        if self.is_blocked:
            if self._blocked_since is None:
                self._blocked_since = self.now
                self.supply.hold(self.now)
        elif self._blocked_since is not None:
            self.blocked_seconds += self.now - self._blocked_since
            self._blocked_since = None
            if not self._production.is_closed:
                self.supply.begin(self.now)
