"""Frozen statistics that tasks report and the coordinator gathers: plain numbers, safe to send and to keep."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpa.balance.decision import Decision
from dpa.balance.measure.latency import LatencySketch


@dataclass(frozen=True)
class MapperStats:
    """One mapper so far.

    Attributes:
        read: input rows read.
        mapped: records that the mapper executor made.
        emitted: records pushed to reducers; fewer than `mapped` if a combiner folds them.
        static_load: of the emitted records, how many the first routing table gives to each reducer.
        regrouped: how often its grouping has given a part of the keys to another reducer because of signals.
    """

    mapper: int
    read: int = 0
    mapped: int = 0
    emitted: int = 0
    static_load: tuple[int, ...] = ()
    regrouped: int = 0


@dataclass(frozen=True)
class ReducerStats:
    """One reducer so far.

    Attributes:
        queue: records accepted and not yet processed.
        peak_queue: the longest that the queue has been, in records.
        processed: records processed here.
        forwarded: records passed on to the reducer that owns them now.
        busy_seconds: time spent in user code.
        epoch: number of the routing table held.
        latency_p99: seconds from source to processed that 99 % of the records processed here did not exceed; None
            before the first.
    """

    reducer: int
    queue: int = 0
    peak_queue: int = 0
    processed: int = 0
    forwarded: int = 0
    busy_seconds: float = 0.0
    epoch: int = 0
    latency_p99: float | None = None


@dataclass(frozen=True)
class AggregationStats:
    """All completed rounds of aggregation: how many there were, the seconds that user code of all reducers spent
    packing, folding and publishing, and the states that reducers handed to their homes."""

    rounds: int = 0
    seconds: float = 0.0
    states: int = 0


@dataclass(frozen=True)
class LoadSample:
    """All queues at one moment: `at` in seconds since the stream began, then a number for each reducer."""

    at: float
    queues: tuple[int, ...]
    processed: tuple[int, ...]


@dataclass(frozen=True)
class Snapshot:
    """What the coordinator knows now; the live view and the report are drawn from it.

    Attributes:
        phase: `startup`, `stream`, `merge`, `done` or `failed`.
        at: seconds since the stream began.
        rows: input rows in all.
        decisions: applied decisions and refusals in order, as many as are kept.
        decision_counts: decisions by outcome, all of them.
        samples: queue lengths over time, thinned to a bounded number.
        latency: seconds from source to processed of all records of the reducers that have merged; None if it was left
            out.
        aggregation: the rounds of aggregation so far; None if the job has none.
    """

    phase: str
    at: float
    rows: int
    mappers: tuple[MapperStats, ...]
    reducers: tuple[ReducerStats, ...]
    epoch: int
    decisions: tuple[Decision, ...]
    decision_counts: dict[str, int]
    samples: tuple[LoadSample, ...]
    latency: LatencySketch | None = field(default=None, compare=False)
    aggregation: AggregationStats | None = None
