"""The state machine of an operator task: a bounded queue, forwarding of what the task no longer owns, the exchange of
states, and the share of the stage's result."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from dpa.balance.delegation import Delegation
from dpa.errors import ProtocolError
from dpa.measure.latency import LatencySketch
from dpa.protocol.flow_control import QuantumSizer
from dpa.protocol.graph import Stage
from dpa.protocol.rules import Rule, State, on, on_each, when
from dpa.protocol.task._credit import ActiveSenders
from dpa.protocol.task._load_reporter import LoadReporter
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.hand_over import Migration
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.record_queue import Forwards, MigratingQueue, RecordQueue
from dpa.protocol.task.state_exchange import StateExchange
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import FinishDone, ProcessDone, SnapshotDone, SnapshotMarked, Tick, WriteDone
from dpa.protocol.wire.instructions import Finish, OpenResult, ProcessBlocks
from dpa.protocol.wire.messages.cuts import GoOn, Pause, SnapshotTaken, SnapshotWritten, TakeSnapshot
from dpa.protocol.wire.messages.data import Ack, CreditTransfer, Push
from dpa.protocol.wire.messages.end import Deliver, Drain, Finished
from dpa.protocol.wire.messages.exchange import BeginExchange
from dpa.protocol.wire.messages.members import Flush, Flushed, Left
from dpa.protocol.wire.messages.tables import CurrentTable, LoadReport, TableUpdate
from dpa.protocol.wire.metrics import TaskStats
from dpa.routing.table import RoutingTable


class OperatorState(State):
    """The states of an operator task."""

    STREAMING = "streaming"
    EXCHANGING = "exchanging"
    FINISHING = "finishing"
    FINISHED = "finished"
    DELIVERING = "delivering"
    DONE = "done"
    LEAVING = "leaving"
    LEFT = "left"


_HAVE_TABLES = (OperatorState.STREAMING, OperatorState.EXCHANGING, OperatorState.LEAVING, OperatorState.LEFT)
"""States in which a task takes tables of its own stage."""

_SILENT = (OperatorState.FINISHED, OperatorState.DONE, OperatorState.LEAVING, OperatorState.LEFT)
"""States in which it has nothing to report."""


class OperatorMachine(TaskMachine):
    """Streams until the stage has processed all its records and the coordinator begins the last exchange. Then the task
    merges, finishes, waits for the schema of all shares, and delivers its own: it writes the share and, if stages
    follow, emits its rows as a source does.

    At a cut of the stream the task has processed all records before the cut, and none after it. It closes windows,
    emits and publishes results, and writes its states. A task that emits its result at the end pauses.

    A task that is no longer a member of its stage hands over everything, and has then left."""

    def __init__(
        self,
        address: Address,
        emitters: Sequence[Emitter],
        stage: Stage,
        senders: tuple[Address, ...],
        delegation: Delegation | None = None,
    ) -> None:
        """Start with the stage's first table and an empty queue. `senders`: who emits records to the task."""
        super().__init__(address, emitters, OperatorState.STREAMING)
        self.processed = 0
        self._ring_table = stage.ring_table()
        self._goes_by_table = stage.grouping.is_ring
        self._quantum = QuantumSizer(stage.flow)
        self._flow = stage.flow
        self._senders = ActiveSenders()
        self._reporter = LoadReporter(stage.balance.reports, delegation)
        self.working_on: Sequence[Push] = ()
        self._work_began = self._ready_seconds = 0.0
        self._unflushed: set[Address] = set()
        self._draining = self._had_records = False
        self._is_written = self._is_marking = False
        self._reports_next = True
        self._closed = stage.reached.closed
        self.queue: RecordQueue
        if stage.migrates:
            self.queue = MigratingQueue(address.index, stage.first_table())
        else:
            # Where senders do not choose tasks by its table: the grouping by which they choose among its members.
            regroup = None if stage.grouping.is_ring else partial(stage.grouping.create, source=address.index)
            eager = stage.balance.forwards_eagerly
            self.queue = RecordQueue(address.index, stage.first_table(), eager=eager, regroup=regroup)
        self._exchange = StateExchange(self, self.queue)
        self.include(self._exchange)
        self._migration = Migration(self, self.queue, stage, senders, self._forward)

    @property
    def table(self) -> RoutingTable:
        return self.queue.table

    def states(self) -> dict[str, object]:
        return {**super().states(), f"routing table of {self.address.stage}": self.table.version}

    @property
    def stats(self) -> TaskStats:
        queue = self.queue
        return replace(
            super().stats,
            queue=queue.length,
            peak_queue=queue.peak,
            processed=self.processed,
            ready_seconds=self._ready_seconds,
            work_seconds=self._reporter.work_seconds,
            forwarded=queue.forwarded_out,
            version=queue.table.version,
            latency_p99=self._reporter.latency.quantile(0.99) if self.processed else None,
        )

    @property
    def idle(self) -> bool:
        return super().idle and not self.has_records and self._exchange.is_idle and self._migration.is_idle

    @property
    def has_records(self) -> bool:
        return not self.queue.is_empty or bool(self.working_on)

    @property
    def is_blocked(self) -> bool:
        if self.state is OperatorState.STREAMING:
            return self.queue.has_next and self._is_free and not self.is_open
        return self._is_written and super().is_blocked

    @property
    def _is_free(self) -> bool:
        if self.working_on or self._is_marking:
            return False
        return not (self._exchange.occupies_user_code or self._migration.occupies_user_code)

    def _stream(self) -> State | None:
        moves_states = not self._migration.is_settled
        if moves_states:
            self._migration.advance(is_free=self._is_free, has_work=self.queue.has_next and self.is_open)
        self._process_next()
        if moves_states:
            self._migration.end()
        if self._reporter.is_due:
            self._report_load()
        if self._had_records and self.queue.length == 0:
            self._had_records = False
            self._report_empty()
        if self._migration.has_left and self.has_emitted_all and not self._in_flight:
            return self._flush()
        return None

    def _go_on(self) -> State | None:
        self._exchange.advance()
        if not self._exchange.is_over:
            return None
        self.instruct(Finish(self._exchange.taken(), None if self._processed_by_ring else self._ring_table))
        return OperatorState.FINISHING

    def _pause(self, sender: Address, message: Pause) -> None:
        self._production.is_held = self._is_pausing = True

    def _over(self, sender: Address, message: GoOn) -> None:
        self._draining, self._production.is_held = message.draining, False
        self._reports_next = not self.report_seconds  # of many tasks some report soon anyway

    def _end_if_emitted(self) -> State | None:
        if self._is_pausing and not self._production.is_stepping and self._has_pushed_all:
            self._pause_now()
        if not (self._is_written and self.has_emitted_all):
            return None
        self.report_progress(done=True)
        return OperatorState.DONE

    def _process_next(self) -> None:
        """Hand out the next quantum of owned records; forward the others before them."""
        if self._is_free:
            self._exchange.advance()
        if not self._is_free or not self.is_open:
            return
        self.working_on, forwards = self.queue.take(self._quantum.size, self._quantum.together)
        self._forward(forwards)
        if self.working_on:
            self._reporter.began(self.now)
            self._work_began = self.now
            blocks = tuple(push.block for push in self.working_on)
            self.instruct(ProcessBlocks(blocks, self.working_on[0].version, self._closed))
        elif forwards:  # the queue had records of others alone: a task that leaves may go on with that
            self._migration.advance(is_free=True, has_work=False)

    def _forward(self, forwards: Forwards) -> None:
        """Also reports to those who emitted the records where their credit is now."""
        moved: Counter[tuple[Address, int, int]] = Counter()
        for owner, push in forwards:
            self.send(Address(self.address.stage, owner), push)
            self._reporter.dequeued(push.block.rows)
            moved[push.origin, push.edge, owner] += push.block.rows
        for (origin, edge, owner), records in moved.items():
            self.send(origin, CreditTransfer(edge, records, owner))

    def _pushed(self, sender: Address, push: Push) -> None:
        self._had_records = True
        if not push.hops:
            self._senders.sent(push.origin, push.edge, self.now)
        self._reporter.arriving(push.block.rows, self.queue.length, self.now)
        self._forward(self.queue.accept(push))

    def _updated(self, sender: Address, message: TableUpdate) -> None:
        if message.stage != self.address.stage:
            self._update_emitters(sender, message)
            return
        if self.state not in _HAVE_TABLES:
            raise ProtocolError(f"{self.address} got a routing table of its own stage while {self.state.value}")
        self._migration.adopt(message.change.apply(self.table), message.senders)

    def _restarted(self, sender: Address, message: CurrentTable) -> None:
        if message.stage != self.address.stage:
            self._restart_emitters(sender, message)
        else:
            if message.closed is not None and (self._closed is None or message.closed > self._closed):
                self._closed = message.closed  # an exchange may have come before, on another channel
            self._migration.restart(message.table, message.senders)

    def _flush(self) -> State:
        if self._reporter.reports_when_idle:
            self._report_load()  # the last: what it has forwarded is on no way any more
        members = (Address(self.address.stage, index) for index in self.table.members)
        self._unflushed = {*members, *self._migration.senders}
        for other in sorted(self._unflushed):
            self.send(other, Flush())
        return OperatorState.LEAVING

    def _flushed(self, sender: Address, message: Flushed) -> None:
        self._unflushed.discard(sender)

    def _leave_if_flushed(self) -> State | None:
        if self._unflushed:
            return None
        latency, stage_latency = self._reporter.latency, self._reporter.stage_latency
        self.send(COORDINATOR, Left(self.stats, latency, stage_latency, self.sent(BALANCER)))
        return OperatorState.LEFT

    def _process_done(self, sender: Address, event: ProcessDone) -> None:
        pushes, self.working_on = self.working_on, ()
        if not pushes:
            raise ProtocolError(f"{self.address} processed a block that it was not given")
        records = sum(push.block.rows for push in pushes)
        self._reporter.processed(pushes, event, self.queue.length, began=self._work_began, now=self.now)
        pace, seconds = self._reporter.pace, event.seconds - event.tried  # else ever fewer are tried together
        self._quantum.observe(records, seconds, pace)
        self._ready_seconds += self.now - self._work_began
        self.queue.processed(records)
        self.processed += records
        self.has_open(event.opens)
        self.keep(event.blocks, min(push.read_at for push in pushes))
        # This may report: what is processed, and what was emitted for it, go together.
        self.worked(event, pushes[0] if len(pushes) == 1 else None)
        if self._reports_next:
            self._reports_next = False
            self.report_progress()
        window = self._flow.window(pace.seconds, self._senders.number, pace)
        for push in pushes:
            self.send(push.origin, Ack(push.edge, push.block.rows, window, self._reporter.signal))

    def _report_load(self) -> None:
        self.send(BALANCER, LoadReport(self._reporter.report(self.queue, self.now)))

    def unreported_latency(self) -> LatencySketch | None:
        return self._reporter.unreported_latency(self.now)

    def _report_empty(self) -> None:
        if self._reporter.reports_when_idle:
            self._report_load()
        if self._draining:
            self.report_progress()

    def _drain(self, sender: Address, message: Drain) -> None:
        self._draining = True
        self.report_progress()

    def _take_snapshot(self, sender: Address, message: TakeSnapshot) -> None:
        self._require_quiet("write its states")
        self._is_marking = True
        self.instruct(message)

    def _marked(self, sender: Address, event: SnapshotMarked) -> None:
        self._is_marking = False
        self.send(COORDINATOR, SnapshotTaken(self.stats))

    def _snapshot_done(self, sender: Address, event: SnapshotDone) -> None:
        self.send(COORDINATOR, SnapshotWritten(event.written))

    def _begin_exchange(self, sender: Address, message: BeginExchange) -> State | None:
        self._require_quiet("finish" if message.last else "publish")
        self._closed = self._closed if message.closes is None else message.closes
        self.hand_on(sender, message)
        return OperatorState.EXCHANGING if message.last else None

    def _require_quiet(self, what: str) -> None:
        """Raises ProtocolError unless all records before the end or the cut are processed, and no states move."""
        if not self._migration.is_idle:
            raise ProtocolError(f"{self.address} is to {what} before table {self.table.version} is settled")
        if self.has_records or not self._is_free:
            raise ProtocolError(f"{self.address} is to {what} with {self.queue.length} records in its queue")

    def _finish_done(self, sender: Address, event: FinishDone) -> State:
        reporter, load, own = self._reporter, event.initial_load, self.address.index
        if self._processed_by_ring:
            load = tuple(self.processed if index == own else 0 for index in range(self.table.reducers))
        self.send(COORDINATOR, Finished(self.stats, reporter.latency, reporter.stage_latency, event.schema, load))
        return OperatorState.FINISHED

    @property
    def _processed_by_ring(self) -> bool:
        return self._goes_by_table and self.table is self._ring_table

    def _deliver(self, sender: Address, message: Deliver) -> State:
        self.instruct(message)
        return OperatorState.DELIVERING

    def _write_done(self, sender: Address, event: WriteDone) -> None:
        self._is_written = True
        if self.emitters:
            self._production.open(OpenResult())

    def _tick(self, sender: Address, event: Tick) -> None:
        reports = self.reports_at(event)
        self._reporter.ticked(event.cores_busy)
        streaming = reports and self.state is OperatorState.STREAMING
        if streaming and self._reporter.is_due_at(self.now, queued=self.queue.length > 0):
            self._report_load()

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(Push, OperatorState.STREAMING, _pushed, "queue it, or hold it for its table"),
        on(ProcessDone, OperatorState.STREAMING, _process_done, "acknowledge, take the next"),
        on(Drain, OperatorState.STREAMING, _drain, "report whenever the queue is empty"),
        on(TakeSnapshot, OperatorState.STREAMING, _take_snapshot, "mark the states, begin to write them"),
        on(SnapshotMarked, OperatorState.STREAMING, _marked, "report it, take records"),
        on(SnapshotDone, OperatorState, _snapshot_done, "report what was written"),
        on(Pause, OperatorState.DELIVERING, _pause, "stop emitting the result; answer after this step"),
        on(Pause, OperatorState.DONE, TaskMachine._pause_now, "answer"),
        on(GoOn, [OperatorState.STREAMING, OperatorState.DELIVERING, OperatorState.DONE], _over, "emit again"),
        on(TableUpdate, OperatorState, _updated, "adopt, forward what moved"),
        on(CurrentTable, [OperatorState.STREAMING, OperatorState.EXCHANGING], _restarted, "start with it"),
        on(
            BeginExchange,
            OperatorState.STREAMING,
            _begin_exchange,
            "exchange states; stop streaming if it is the last exchange",
            (None, OperatorState.EXCHANGING),
        ),
        on(FinishDone, OperatorState.FINISHING, _finish_done, "report the share's columns", OperatorState.FINISHED),
        on(Deliver, OperatorState.FINISHED, _deliver, "write the share", OperatorState.DELIVERING),
        on(WriteDone, OperatorState.DELIVERING, _write_done, "emit the share if stages follow"),
        on(Ack, OperatorState, TaskMachine._acknowledged, "return credit, push what waits"),
        on(CreditTransfer, OperatorState, TaskMachine._credit_transferred, "move credit with what was forwarded"),
        on(Tick, [state for state in OperatorState if state not in _SILENT], _tick, "report"),
        on(Tick, _SILENT, TaskMachine._ignore, "ignore"),
        *on_each((Drain, GoOn), [OperatorState.LEAVING, OperatorState.LEFT], TaskMachine._ignore, "ignore"),
        on(Flush, OperatorState, TaskMachine._flush_others, "answer: all before it has arrived"),
        on(Flushed, OperatorState.LEAVING, _flushed, "note"),
        when(
            OperatorState.STREAMING,
            _stream,
            "process the next records, exchange or move states, report the load; leave when all is handed over",
            (None, OperatorState.LEAVING),
        ),
        when(OperatorState.EXCHANGING, _go_on, "exchange; finish when it is over", (None, OperatorState.FINISHING)),
        when(
            OperatorState.DELIVERING,
            _end_if_emitted,
            "pause if asked; be done when all is emitted",
            (None, OperatorState.DONE),
        ),
        when(OperatorState.LEAVING, _leave_if_flushed, "be gone when all have answered", (None, OperatorState.LEFT)),
    )
