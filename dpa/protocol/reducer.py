"""The reducer's state machine: a bounded queue, forwarding of what it no longer owns, and the final merge of states."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from dpa.errors import ProtocolError
from dpa.execution.block import Block
from dpa.execution.states import StatePart
from dpa.protocol.machine import Finish, FinishDone, Machine, Pack, PackDone, Process, ProcessDone, Tick
from dpa.protocol.messages import (
    BALANCER,
    COORDINATOR,
    Ack,
    Address,
    Drain,
    Handover,
    LoadReport,
    Merge,
    Merged,
    Push,
    ReducerReport,
    TableUpdate,
    mapper,
    reducer,
)
from dpa.protocol.metrics import ReducerStats
from dpa.protocol.slices import SliceSizer
from dpa.routing.table import RoutingTable


@dataclass(frozen=True)
class ReducerOptions:
    """How a reducer behaves.

    Attributes:
        report_every: dequeued records between two load reports; None reports none.
        report_seconds: also report at the first tick so many seconds after the last report, if anything is queued;
            None: no.
        report_when_idle: whether to report an empty queue too.
        eager: whether to forward queued records as soon as a table moves them, or when they reach the head.
        slice_records: most records processed at a time.
        slice_seconds: about how long that may take.
    """

    report_every: int | None = 20_000
    report_seconds: float | None = 0.5
    report_when_idle: bool = True
    eager: bool = True
    slice_records: int = 262_144
    slice_seconds: float = 0.1


@dataclass(frozen=True, eq=False)
class Queued:
    """Records of one push that are still to be processed: those from `start` on."""

    push: Push
    start: int = 0

    @property
    def block(self) -> Block:
        """The records."""
        return self.push.block.slice(self.start, self.push.block.rows)


class ReducerMachine(Machine):
    """States: streaming, packing, collecting, finishing, finished. What each message does in each:

    | message       | streaming                                | packing | collecting            | finishing |
    | ------------- | ---------------------------------------- | ------- | --------------------- | --------- |
    | `Push`        | queue it, or hold it for its table       | -       | -                     | -         |
    | `ProcessDone` | acknowledge, take the next               | -       | -                     | -         |
    | `Drain`       | report statistics when the queue empties | -       | -                     | -         |
    | `Merge`       | pack states for others, or collect       | -       | -                     | -         |
    | `PackDone`    | -                                        | hand over, then collect | -     | -         |
    | `Handover`    | keep                                     | keep    | keep; finish with all | -         |
    | `FinishDone`  | -                                        | -       | -                     | finished  |
    | `TableUpdate` | adopt if newer, forward what moved       | ignore, here and later: the last table is set |

    What stands as `-` cannot come. A `Tick` has statistics reported in every state but finished, and the load if it
    is due.

    A forwarded record was admitted once and never waits for credit again, so reducers that forward to each other cannot
    block each other; its mapper's credit is in use until some reducer has processed it.
    """

    def __init__(self, index: int, table: RoutingTable, options: ReducerOptions) -> None:
        """Start with routing table 0 and an empty queue."""
        super().__init__(reducer(index))
        self.index = index
        self.table = table
        self.queue_length = 0
        self.peak_queue = 0
        self.processed = 0
        self.forwarded = 0
        self._options = options
        self._slices = SliceSizer(options.slice_records, options.slice_seconds)
        self._queue: deque[Queued] = deque()
        self._held: list[Push] = []
        self._working_on: Push | None = None
        self._dequeued = 0
        self._reported_at = 0.0
        self._load_due = False
        self._busy_seconds = 0.0
        self._draining = False
        self._nonempty = False
        self._expected_parts = 0
        self._parts: dict[int, StatePart | None] = {}
        self.state = "streaming"
        self.on(Push, self._push, "streaming")
        self.on(ProcessDone, self._process_done, "streaming")
        self.on(Drain, self._drain, "streaming")
        self.on(Merge, self._merge, "streaming")
        self.on(PackDone, self._pack_done, "packing")
        self.on(Handover, self._handover, "streaming", "packing", "collecting")
        self.on(FinishDone, self._finish_done, "finishing")
        self.on(TableUpdate, self._table_update)
        self.on(Tick, self._tick)

    @property
    def stats(self) -> ReducerStats:
        """Statistics so far."""
        return ReducerStats(
            self.index,
            self.queue_length,
            self.peak_queue,
            self.processed,
            self.forwarded,
            self._busy_seconds,
            self.table.epoch,
        )

    @property
    def idle(self) -> bool:
        """Whether nothing is queued, held, being processed or waiting for an earlier message."""
        return super().idle and not self.has_records

    @property
    def has_records(self) -> bool:
        """Whether any record is queued, held or being processed."""
        return bool(self._queue or self._held or self._working_on)

    def _push(self, sender: Address, push: Push) -> None:
        self._nonempty = True
        self.queue_length += push.block.rows
        if push.epoch > self.table.epoch:
            self.peak_queue = max(self.peak_queue, self.queue_length)
            self._held.append(push)
            return
        if self._options.eager and push.epoch < self.table.epoch:
            self._queue.extend(self._keep_owned(Queued(push)))
        else:
            self._queue.append(Queued(push))
        self._take_next()

    def _table_update(self, sender: Address, message: TableUpdate) -> None:
        if self.state != "streaming" or message.table.epoch <= self.table.epoch:
            return
        self.table = message.table
        current = [Queued(push) for push in self._held if push.epoch <= self.table.epoch]
        self._held = [push for push in self._held if push.epoch > self.table.epoch]
        self._queue.extend(current)
        if self._options.eager:
            self._queue = deque(kept for queued in self._queue for kept in self._keep_owned(queued))
        self._take_next()

    def _take_next(self) -> None:
        """Let user code have the next records that are owned here; forward the others that come before them.

        Every change of the queue ends here, so what it calls for is reported here too, once for each event.
        """
        while self._queue and self._working_on is None:
            for queued in self._keep_owned(self._queue.popleft()):
                push, stop = queued.push, queued.start + self._slices.size
                if push.block.rows > stop:
                    self._queue.appendleft(replace(queued, start=stop))
                self._working_on = replace(push, block=push.block.slice(queued.start, stop))
                self.instruct(Process(self._working_on.block, push.epoch))
        self.peak_queue = max(self.peak_queue, self.queue_length)
        if self._load_due:
            self._report_load()
        if self._nonempty and self.queue_length == 0:
            self._nonempty = False
            self._ran_empty()

    def _keep_owned(self, queued: Queued) -> list[Queued]:
        """Forward what belongs to others by the table held here; return the rest, marked as of its epoch."""
        push = queued.push
        if push.epoch == self.table.epoch:
            return [queued]
        kept = []
        for owner, block in queued.block.route(self.table):
            part = replace(push, block=block, epoch=self.table.epoch)
            if owner == self.index:
                kept.append(Queued(part))
                continue
            self.send(reducer(owner), replace(part, hops=push.hops + 1))
            self.queue_length -= block.rows
            self.forwarded += block.rows
            self._count_dequeued(block.rows)
        return kept

    def _process_done(self, sender: Address, event: ProcessDone) -> None:
        push, self._working_on = self._working_on, None
        if push is None:
            raise ProtocolError(f"{self.address} processed a block that it was not given")
        rows = push.block.rows
        first = self.processed == 0
        self._slices.observe(rows, event.seconds)
        self._busy_seconds += event.seconds
        self.queue_length -= rows
        self.processed += rows
        if first:
            self.send(COORDINATOR, ReducerReport(self.stats))
        self.send(mapper(push.mapper), Ack(rows, self.queue_length, self.table.epoch))
        self._count_dequeued(rows)
        self._take_next()

    def _count_dequeued(self, rows: int) -> None:
        """Report the load at every `report_every`-th dequeued record; forwarded ones count (as in the authors'
        code)."""
        every = self._options.report_every
        if every is None:
            return
        before, self._dequeued = self._dequeued, self._dequeued + rows
        self._load_due |= before // every != self._dequeued // every

    def _report_load(self) -> None:
        self._load_due = False
        self._reported_at = self.now
        self.send(BALANCER, LoadReport(self.queue_length, self.table.epoch))

    def _ran_empty(self) -> None:
        if self._options.report_every is not None and self._options.report_when_idle:
            self._report_load()
        if self._draining:
            self.send(COORDINATOR, ReducerReport(self.stats))

    def _drain(self, sender: Address, message: Drain) -> None:
        self._draining = True
        self.send(COORDINATOR, ReducerReport(self.stats))

    def _merge(self, sender: Address, message: Merge) -> None:
        if self.has_records:
            raise ProtocolError(f"{self.address} is to merge with {self.queue_length} records in its queue")
        self.table = message.table
        if message.exchange:
            self.state = "packing"
            self._expected_parts = message.table.reducers - 1
            self.instruct(Pack(message.table))
        else:
            self._collect()

    def _pack_done(self, sender: Address, event: PackDone) -> None:
        for other in range(self.table.reducers):
            if other != self.index:
                self.send(reducer(other), Handover(event.parts.get(other)))
        self._collect()

    def _handover(self, sender: Address, message: Handover) -> None:
        if sender.index in self._parts:
            raise ProtocolError(f"{self.address} got states from {sender} twice")
        self._parts[sender.index] = message.part
        if self.state == "collecting":
            self._collect()

    def _collect(self) -> None:
        """Finish once every other reducer has handed over."""
        self.state = "collecting"
        if len(self._parts) == self._expected_parts:
            self.state = "finishing"
            in_order = [self._parts[index] for index in sorted(self._parts)]
            self.instruct(Finish(tuple(part for part in in_order if part is not None)))

    def _finish_done(self, sender: Address, event: FinishDone) -> None:
        self.state = "finished"
        self.send(COORDINATOR, Merged(self.stats))

    def _tick(self, sender: Address, event: Tick) -> None:
        if self.state != "finished":
            self.send(COORDINATOR, ReducerReport(self.stats))
        seconds = self._options.report_seconds
        if self._options.report_every is None or seconds is None or not self.queue_length:
            return
        if self.now - self._reported_at >= seconds:
            self._report_load()
