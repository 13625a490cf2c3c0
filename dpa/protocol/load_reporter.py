"""What an operator task measures of its own load, and when it reports that to the load balancer."""

from __future__ import annotations

from collections.abc import Iterable

from dpa.balance.delegation import Delegation, DelegationOptions
from dpa.balance.options import LoadReportOptions
from dpa.measure.latency import LatencySketch
from dpa.measure.load import KeySample, Load
from dpa.measure.meter import LoadMeter
from dpa.measure.service_time import ServiceTime
from dpa.routing.groupings.signal import Signal
from dpa.routing.table import RoutingTable


class LoadReporter:
    """One task's measurements.

    Attributes:
        latency: from source to processed.
        stage_latency: from emitted to processed.
        is_due: whether dequeued records call for a report.
    """

    def __init__(
        self, table: RoutingTable, options: LoadReportOptions | None, delegation: DelegationOptions | None = None
    ) -> None:
        """Of a task that starts with this table. `options`: what the load balancer wants to know, None if nothing;
        `delegation`: how the task judges its load for its senders, None if they do not listen."""
        self.latency = LatencySketch()
        self.stage_latency = LatencySketch()
        self.is_due = False
        self._options = options
        self._service_time = ServiceTime(1.0 if options is None else options.half_life)
        self._delegation = None if delegation is None else Delegation(delegation)
        self._meter: LoadMeter | None = None
        if options is not None and options.hot_keys is not None:
            self._meter = LoadMeter(table, half_life=options.half_life, hot_keys=options.hot_keys)
        self._dequeued = 0
        self._reported_at = 0.0

    @property
    def measures_keys(self) -> bool:
        """Whether samples of keys are wanted."""
        return self._meter is not None

    @property
    def signal(self) -> Signal | None:
        """The last finding of the task's load, for senders that listen."""
        return None if self._delegation is None else self._delegation.signal

    def arriving(self, records: int, queue: int, now: float) -> None:
        """Records come, while `queue` records are waiting."""
        if self._delegation is not None:
            self._delegation.advance(now, queue)
            self._delegation.arrived(records)

    def emitted_to(self, sample: KeySample, now: float) -> None:
        """Records with these keys came straight from a sender upstream."""
        if self._meter is not None:
            self._meter.arrived(sample, now)

    def processed(self, records: int, seconds: float, queue: int, now: float) -> None:
        """User code took `seconds` for `records` records, with `queue` records waiting, these included."""
        self._service_time.observe(records, seconds)
        if self._delegation is not None:
            self._delegation.worked(records, seconds)
            self._delegation.advance(now, queue)

    def dequeued(self, records: int) -> None:
        """Records have left the queue; forwarded ones count too (as in the DPA authors' code)."""
        every = None if self._options is None else self._options.report_every
        if every is not None and records:
            before, self._dequeued = self._dequeued, self._dequeued + records
            self.is_due |= before // every != self._dequeued // every

    def retable(self, table: RoutingTable, now: float) -> None:
        """Measure by the next table."""
        if self._meter is not None:
            self._meter.rebase(table, now)

    def end(self) -> None:
        """No more records will come from senders."""
        if self._meter is not None:
            self._meter.end()

    def is_due_at(self, now: float, *, queued: bool) -> bool:
        """Whether a report is due at a tick."""
        options = self._options
        if options is None or options.report_seconds is None:
            return False
        return (queued or self.measures_keys) and now - self._reported_at >= options.report_seconds

    @property
    def reports_when_idle(self) -> bool:
        """Whether a report is due when the queue has run empty."""
        return self._options is not None and self._options.report_when_idle

    def report(
        self, queue: int, version: int, forwarded: tuple[int, int], samples: Iterable[KeySample], now: float
    ) -> Load:
        """The load at `now`; `forwarded` is the number of records forwarded out and in."""
        self.is_due = False
        self._reported_at = now
        return Load(
            queue=queue,
            version=version,
            service_seconds=self._service_time.seconds,
            evidence=self._service_time.evidence,
            forwarded_out=forwarded[0],
            forwarded_in=forwarded[1],
            by_token=None if self._meter is None else self._meter.measure(list(samples), now),
        )
