"""What an operator task measures of its own load, and when it reports that to the load balancer."""

import math
from collections.abc import Sequence

import numpy as np

from dpa.balance.delegation import Delegation
from dpa.balance.options import LoadReportOptions
from dpa.measure.key_costs import KeyCosts
from dpa.measure.latency import LatencySketch
from dpa.measure.load import Load
from dpa.measure.timing import BusyTime, ServicePace, ServiceTime
from dpa.protocol.task.record_queue import RecordQueue
from dpa.protocol.wire.events import ProcessDone
from dpa.protocol.wire.messages.data import Push
from dpa.routing.groupings.base import Signal

_MEASURED_RECORDS = 8_192
"""Larger quanta are not explained by their keys: one record costs so little then that counting keys would cost more."""

_LATENCY_SECONDS = 1.0  # the least time from one report of latencies to the next
_NEWEST = 0.5  # the weight of the newest tick in the mean of how busy processors are


class LoadReporter:
    """One task's measurements.

    Attributes:
        stage_latency: from emitted to processed.
        work_seconds: as in `TaskStats`.
        is_due: whether dequeued records call for a report.
        pace: the time that a record takes now.
    """

    def __init__(self, options: LoadReportOptions, delegation: Delegation | None = None) -> None:
        """`options`: what the load balancer asks for; `delegation`: how the task judges its load for its
        senders, or None if they do not listen."""
        # A record is added once. What is new is merged into all, and into what is reported next, a few times a second.
        self._latency, self._unreported, self._new = LatencySketch(), LatencySketch(), LatencySketch()
        self._latency_at = -math.inf
        self.stage_latency = LatencySketch()
        self.work_seconds = 0.0
        self.is_due = False
        self._options = options
        self._service_time = ServiceTime()
        self._delegation = delegation
        self._costs = KeyCosts() if options.measures_keys else None
        self._dequeued = 0
        self._reported_at = -math.inf
        self._busy = BusyTime()
        self.pace = ServicePace()
        self._cores_busy: float | None = None

    @property
    def signal(self) -> Signal | None:
        return None if self._delegation is None else self._delegation.signal

    def ticked(self, cores_busy: float) -> None:
        before = cores_busy if self._cores_busy is None else self._cores_busy
        self._cores_busy = before + _NEWEST * (cores_busy - before)

    def arriving(self, records: int, queue: int, now: float) -> None:
        self._busy.arrived(now)
        if self._delegation is not None:
            self._delegation.advance(now, queue)
            self._delegation.arrived(records)

    def began(self, now: float) -> None:
        self._busy.began(now)

    def processed(self, pushes: Sequence[Push], done: ProcessDone, queue: int, *, began: float, now: float) -> None:
        blocks, seconds = [push.block for push in pushes], done.seconds
        records = sum(block.rows for block in blocks)
        self._service_time.observe(records, seconds)
        own = seconds - done.tried
        self.pace.observe(records, own, done.waited)
        self._busy.ended(now, done.waited)
        if self._costs is not None and records <= _MEASURED_RECORDS:
            counts = np.concatenate([block.counts() for block in blocks]).astype(np.float64)
            self._costs.observe(np.concatenate([block.hashes for block in blocks]), counts, own - done.waited)
        if self._delegation is not None:
            self._delegation.worked(records, seconds)
            self._delegation.advance(now, queue)
        for push in pushes:
            self._new.add(now - push.read_at, push.block.rows)
            self.stage_latency.add(now - push.emitted_at, push.block.rows)
        self.work_seconds += records * (now - began)
        self.dequeued(records)

    @property
    def latency(self) -> LatencySketch:
        """From source to processed."""
        self._latency.merge(self._new)
        self._unreported.merge(self._new)
        self._new = LatencySketch()
        return self._latency

    def unreported_latency(self, now: float) -> LatencySketch | None:
        """The same of the records since it was last given; None if that is not long ago, or there are none."""
        if now - self._latency_at < _LATENCY_SECONDS or not self.latency.records:
            return None
        found, self._unreported, self._latency_at = self._unreported, LatencySketch(), now
        return found if found.records else None

    def dequeued(self, records: int) -> None:
        """Forwarded records count too (as in the DPA authors' code)."""
        every = self._options.report_every
        if every is not None and records:
            before, self._dequeued = self._dequeued, self._dequeued + records
            self.is_due |= before // every != self._dequeued // every

    def is_due_at(self, now: float, *, queued: bool) -> bool:
        options = self._options
        if options.report_seconds is None:
            return False
        return (queued or options.measures_keys) and now - self._reported_at >= options.report_seconds

    @property
    def reports_when_idle(self) -> bool:
        return self._options.report_when_idle

    def report(self, queue: RecordQueue, now: float) -> Load:
        usual, costs = (None, {}) if self._costs is None else self._costs.found()
        busy, waited = self._busy.report(now)
        self.is_due = False
        self._reported_at = now
        return Load(
            queue=queue.length,
            version=queue.table.version,
            service_seconds=self._service_time.seconds,
            error=self._service_time.error,
            evidence=self._service_time.evidence,
            busy=busy,
            waited=waited,
            cores_busy=self._cores_busy or 0.0,
            forwarded_out=queue.forwarded_out,
            forwarded_in=queue.forwarded_in,
            queued=None if self._costs is None else queue.sample(),
            usual_seconds=usual,
            costs=costs,
        )
