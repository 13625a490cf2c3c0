"""The reducer's state machine: a bounded queue, forwarding of what it no longer owns, and the final merge of states."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt

from dpa.balance.delegation import Delegation, DelegationOptions
from dpa.balance.load import KeySample, Load
from dpa.balance.measure.latency import LatencySketch
from dpa.balance.measure.meter import LoadMeter
from dpa.balance.measure.service_time import ServiceTime
from dpa.errors import ProtocolError
from dpa.execution.block import Block
from dpa.execution.states import StatePart
from dpa.protocol.aggregation import Exchange
from dpa.protocol.machine import (
    Finish,
    FinishDone,
    Machine,
    Pack,
    PackDone,
    Process,
    ProcessDone,
    Tick,
    Write,
    WriteDone,
)
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
    WriteResult,
    Written,
    mapper,
    reducer,
)
from dpa.protocol.metrics import ReducerStats
from dpa.protocol.slices import SliceSizer
from dpa.routing.groupings.ring import RingGrouping
from dpa.routing.spreader import Spreader
from dpa.routing.table import RoutingTable, Spread


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
        measure: whether to report the load by token and by hot key too, then at every `report_seconds`, idle or not.
        half_life: seconds after which what was measured counts half.
        hot_keys: how many keys a report names at most.
        delegation: how it judges its load for the mappers, or None if they do not listen.
    """

    report_every: int | None = 20_000
    report_seconds: float | None = 0.5
    report_when_idle: bool = True
    eager: bool = True
    slice_records: int = 262_144
    slice_seconds: float = 0.1
    measure: bool = False
    half_life: float = 1.0
    hot_keys: int = 32
    delegation: DelegationOptions | None = None

    @property
    def reports(self) -> bool:
        """Whether any load is reported."""
        return self.measure or self.report_every is not None


_SAMPLED = 1_024
"""Rows of a block that are looked at to measure it: one in 256 of the largest, every one of the small ones."""


@dataclass(eq=False)
class Queued:
    """Records of one push that are still to be processed: those from `start` on."""

    push: Push
    start: int = 0
    measured: KeySample | None = None

    @property
    def block(self) -> Block:
        """The records."""
        return self.push.block.slice(self.start, self.push.block.rows)

    def sample(self, random: np.random.Generator) -> KeySample:
        """What keys they have, measured once for the whole push."""
        if self.measured is None:
            self.measured = self.push.block.sample(_SAMPLED, random)
        left = 1 - self.start / self.push.block.rows
        return replace(self.measured, records=self.measured.records * left) if self.start else self.measured


class ReducerMachine(Machine):
    """States: streaming, packing, collecting, finishing, merged, writing, finished. What each message does in each:

    | message       | streaming                                | packing | collecting            | finishing |
    | ------------- | ---------------------------------------- | ------- | --------------------- | --------- |
    | `Push`        | queue it, or hold it for its table       | -       | -                     | -         |
    | `ProcessDone` | acknowledge, take the next               | -       | -                     | -         |
    | `Drain`       | report statistics when the queue empties | -       | -                     | -         |
    | `Merge`       | with that table: pack states, or collect | -       | -                     | -         |
    | `PackDone`    | in a round                               | hand over, then collect | -     | -         |
    | `Handover`    | keep                                     | keep    | keep; finish with all | -         |
    | `FinishDone`  | -                                        | -       | -                     | merged    |
    | `TableUpdate` | adopt, forward what moved, merge if told | -       | -                     | -         |

    After these only `WriteResult` comes while merged, and `WriteDone` while writing: all shares are written in one
    schema, which the coordinator finds once it knows the columns of every share.

    While streaming it also takes part in rounds of aggregation, whose messages are the `Exchange`'s.
    What stands as `-` cannot come: tables reach each task in order, and none is published once merging begins. A
    `Tick` has statistics reported until they no longer change, and the load if it is due.

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
        self.taken_over = 0
        self._slices = SliceSizer(options.slice_records, options.slice_seconds)
        self._spreader = Spreader(index)
        self._service_time = ServiceTime(options.half_life)
        self._delegation = Delegation(options.delegation) if options.delegation else None
        self._latency = LatencySketch()
        self._random = np.random.default_rng(index)
        self._meter: LoadMeter | None = None
        if options.measure:
            self._meter = LoadMeter(table, half_life=options.half_life, hot_keys=options.hot_keys)
        self._queue: deque[Queued] = deque()
        self._held: list[Queued] = []
        self._working_on: Push | None = None
        self._dequeued = 0
        self._reported_at = 0.0
        self._load_due = False
        self._busy_seconds = 0.0
        self._draining = False
        self._nonempty = False
        self._merge_at: Merge | None = None
        self._expected_parts = 0
        self._parts: dict[int, StatePart | None] = {}
        self._exchange = Exchange(self, table, self._take_next)
        self.state = "streaming"
        self.on(Push, self._push, "streaming")
        self.on(ProcessDone, self._process_done, "streaming")
        self.on(Drain, self._drain, "streaming")
        self.on(Merge, self._merge, "streaming")
        self.on(PackDone, self._pack_done, "streaming", "packing")
        self.on(Handover, self._handover, "streaming", "packing", "collecting")
        self.on(FinishDone, self._finish_done, "finishing")
        self.on(WriteResult, self._write_result, "merged")
        self.on(WriteDone, self._write_done, "writing")
        self.on(TableUpdate, self._table_update, "streaming")
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
            self._latency.quantile(0.99) if self.processed else None,
        )

    @property
    def idle(self) -> bool:
        """Whether nothing is queued, held, being processed or waiting for an earlier message, and no round is in
        progress."""
        return super().idle and not self.has_records and self._exchange.idle

    @property
    def has_records(self) -> bool:
        """Whether any record is queued, held or being processed."""
        return bool(self._queue or self._held or self._working_on)

    def _push(self, sender: Address, push: Push) -> None:
        self._nonempty = True
        if self._delegation is not None:
            self._delegation.at(self.now, self.queue_length)
            self._delegation.arrived(push.block.rows)
        self.queue_length += push.block.rows
        queued = Queued(push)
        if push.hops:
            self.taken_over += push.block.rows
        elif self._meter is not None:
            self._meter.arrived(queued.sample(self._random), self.now)
        if push.epoch > self.table.epoch:
            self.peak_queue = max(self.peak_queue, self.queue_length)
            self._held.append(queued)
            return
        if self._options.eager and push.epoch < self.table.epoch:
            self._queue.extend(self._keep_owned(queued))
        else:
            self._queue.append(queued)
        self._take_next()

    def _table_update(self, sender: Address, message: TableUpdate) -> None:
        self.table = message.change.apply(self.table)
        self._spreader.forget(self.table.spreads)
        if self._meter is not None:
            self._meter.rebase(self.table, self.now)
        self._queue.extend(queued for queued in self._held if queued.push.epoch <= self.table.epoch)
        self._held = [queued for queued in self._held if queued.push.epoch > self.table.epoch]
        if self._options.eager:
            self._queue = deque(kept for queued in self._queue for kept in self._keep_owned(queued))
        self._take_next()
        self._begin_merge()

    def _take_next(self) -> None:
        """Let user code have the next records that are owned here; forward the others that come before them.

        Every change of the queue ends here, so what it calls for is reported here too, once for each event.
        """
        while self._working_on is None and not self._exchange.takes_turn() and self._queue:
            for queued in self._keep_owned(self._queue.popleft()):
                push, start, stop = queued.push, queued.start, queued.start + self._slices.size
                if push.block.rows > stop:
                    queued.start = stop
                    self._queue.appendleft(queued)
                self._working_on = replace(push, block=push.block.slice(start, stop))
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
        for owner, block in queued.block.route(RingGrouping(self.table, deal=partial(self._deal, push.epoch))):
            part = replace(push, block=block, epoch=self.table.epoch)
            if owner == self.index:
                kept.append(Queued(part))
                continue
            self.send(reducer(owner), replace(part, hops=push.hops + 1))
            self.queue_length -= block.rows
            self.forwarded += block.rows
            self._count_dequeued(block.rows)
        return kept

    def _deal(self, epoch: int, spread: Spread, records: int) -> npt.NDArray[np.int64]:
        """Deal records that were routed by an older table. Those that were dealt to this reducer by the same spread
        stay."""
        if spread.since <= epoch and self.index in spread.reducers:
            return np.array([records if index == self.index else 0 for index in spread.reducers])
        return self._spreader.deal(spread, records, self.index)

    def _process_done(self, sender: Address, event: ProcessDone) -> None:
        push, self._working_on = self._working_on, None
        if push is None:
            raise ProtocolError(f"{self.address} processed a block that it was not given")
        rows = push.block.rows
        first = self.processed == 0
        self._slices.observe(rows, event.seconds)
        self._service_time.observe(rows, event.seconds)
        self._busy_seconds += event.seconds
        signal = None
        if self._delegation is not None:
            self._delegation.worked(rows, event.seconds)
            self._delegation.at(self.now, self.queue_length)
            signal = self._delegation.signal
        self._latency.add(self.now - push.read_at, rows)
        self.queue_length -= rows
        self.processed += rows
        if first:
            self.send(COORDINATOR, ReducerReport(self.stats))
        self.send(mapper(push.mapper), Ack(rows, signal))
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
        load = Load(
            queue=self.queue_length,
            epoch=self.table.epoch,
            service_seconds=self._service_time.seconds,
            evidence=self._service_time.evidence,
            sent_on=self.forwarded,
            taken_over=self.taken_over,
        )
        if self._meter is not None:
            queue = [queued.sample(self._random) for queued in chain(self._queue, self._held)]
            load = replace(load, by_token=self._meter.measure(queue, self.now))
        self.send(BALANCER, LoadReport(load))

    def _ran_empty(self) -> None:
        if self._options.report_every is not None and self._options.report_when_idle:
            self._report_load()
        if self._draining:
            self.send(COORDINATOR, ReducerReport(self.stats))

    def _drain(self, sender: Address, message: Drain) -> None:
        self._draining = True
        if self._meter is not None:
            self._meter.end()
        self.send(COORDINATOR, ReducerReport(self.stats))

    def _merge(self, sender: Address, message: Merge) -> None:
        if self.has_records:
            raise ProtocolError(f"{self.address} is to merge with {self.queue_length} records in its queue")
        if not self._exchange.idle:
            raise ProtocolError(f"{self.address} is to merge in a round of aggregation")
        self._merge_at = message
        self._begin_merge()

    def _begin_merge(self) -> None:
        """Merge if that has been asked for and the last table has come."""
        if self._merge_at is None or self._merge_at.epoch > self.table.epoch:
            return
        if self._merge_at.exchange:
            self.state = "packing"
            self._expected_parts = self.table.reducers - 1
            self.instruct(Pack(self.table))
        else:
            self._collect()

    def _pack_done(self, sender: Address, event: PackDone) -> None:
        if self.state == "streaming":
            self._exchange.packed(event)
            return
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
        self.state = "merged"
        self.send(COORDINATOR, Merged(self.stats, self._latency, event.schema))

    def _write_result(self, sender: Address, message: WriteResult) -> None:
        self.state = "writing"
        self.instruct(Write(message.schema))

    def _write_done(self, sender: Address, event: WriteDone) -> None:
        self.state = "finished"
        self.send(COORDINATOR, Written())

    def _tick(self, sender: Address, event: Tick) -> None:
        if self.state not in ("merged", "writing", "finished"):
            self.send(COORDINATOR, ReducerReport(self.stats))
        seconds = self._options.report_seconds
        if seconds is None or not self._options.reports or self.state != "streaming":
            return
        if (self.queue_length or self._options.measure) and self.now - self._reported_at >= seconds:
            self._report_load()
