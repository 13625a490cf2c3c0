"""From what the runtime gives back to the report of a run: shares, skew, hot keys and times, each computed here
once."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpa.balance.decision import Outcome
from dpa.balance.measure.latency import LatencySketch
from dpa.balance.skew import skew
from dpa.execution.key_stats import KeyStats
from dpa.protocol.metrics import Snapshot
from dpa.result import (
    GroupingReport,
    HotKey,
    KeyDistribution,
    LatencyReport,
    OutputReport,
    RecordCounts,
    ReducerReport,
    ReferenceReport,
    Report,
    Seconds,
    SkewReport,
)

_HOT_KEYS = 10
_PACKAGES = ("dpa", "ray", "pyspark", "pyarrow", "polars", "numpy", "mmh3")


def report_of(
    *,
    status: str,
    name: str,
    config: dict[str, Any],
    snapshot: Snapshot | None,
    seconds: Seconds,
    keys: Sequence[int] = (),
    states: Sequence[int] = (),
    stats: KeyStats | None = None,
    spark_skew: float | None = None,
    reference: ReferenceReport | None = None,
    output: OutputReport | None = None,
    error: str | None = None,
) -> Report:
    """The report of a run that ended well or not; `keys` are the result rows of each reducer, `states` the
    keys that it held before states were merged."""
    mappers, reducers = (snapshot.mappers, snapshot.reducers) if snapshot else ((), ())
    processed = [reducer.processed for reducer in reducers]
    total = sum(processed)
    records = RecordCounts(
        read=sum(mapper.read for mapper in mappers),
        mapped=sum(mapper.mapped for mapper in mappers),
        emitted=sum(mapper.emitted for mapper in mappers),
        processed=total,
        forwarded=sum(reducer.forwarded for reducer in reducers),
    )
    static = [
        sum(loads) for loads in zip(*(mapper.static_load for mapper in mappers if mapper.static_load), strict=True)
    ]
    decisions = snapshot.decisions if snapshot else ()
    return Report(
        status=status,
        name=name,
        records=records,
        reducers=tuple(
            ReducerReport(
                id=reducer.reducer,
                processed=reducer.processed,
                share=reducer.processed / total if total else 0.0,
                forwarded=reducer.forwarded,
                peak_queue=reducer.peak_queue,
                keys=keys[reducer.reducer] if keys else 0,
                busy_seconds=reducer.busy_seconds,
                latency_p99=reducer.latency_p99,
                states=states[reducer.reducer] if states else 0,
            )
            for reducer in reducers
        ),
        skew=SkewReport(dpa=skew(processed), static=skew(static), spark=spark_skew),
        grouping=GroupingReport(
            kind=config["grouping"]["kind"],
            replication=_replication(snapshot, states, stats),
            moved=sum(mapper.regrouped for mapper in mappers),
        ),
        redistributions=tuple(decision for decision in decisions if decision.outcome is Outcome.APPLIED),
        decisions=decisions,
        decision_counts=snapshot.decision_counts if snapshot else {},
        reference=reference or ReferenceReport(),
        seconds=seconds,
        records_per_second=records.mapped / seconds.stream if seconds.stream else 0.0,
        latency=latency(snapshot.latency) if snapshot and snapshot.latency else None,
        hot_keys=hot_keys(stats) if stats else (),
        key_distribution=_distribution(stats) if stats else KeyDistribution(),
        output=output or OutputReport(),
        config=config,
        versions=versions(),
        samples=snapshot.samples if snapshot else (),
        aggregation=snapshot.aggregation if snapshot else None,
        error=error,
    )


def hot_keys(stats: KeyStats) -> tuple[HotKey, ...]:
    """The most frequent keys. They are counted exactly, one count a state, so the bounds are tight."""
    named = stats.top[:_HOT_KEYS]
    return tuple(HotKey(key, count, count / stats.mapped, count, count) for key, count in named)


def latency(sketch: LatencySketch) -> LatencyReport | None:
    """The latencies in a sketch; None if there are none."""
    if not sketch.records:
        return None
    p50, p95, p99 = (sketch.quantile(share) for share in (0.5, 0.95, 0.99))
    return LatencyReport(p50, p95, p99, sketch.max, sketch.mean)


def _replication(snapshot: Snapshot | None, states: Sequence[int], stats: KeyStats | None) -> float | None:
    """On how many reducers a key was on average. A round of aggregation takes states away and brings others, so what
    reducers then hold does not tell."""
    rounds = snapshot.aggregation.rounds if snapshot and snapshot.aggregation else 0
    return sum(states) / stats.distinct if stats and stats.distinct and not rounds else None


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _distribution(stats: KeyStats) -> KeyDistribution:
    return KeyDistribution(stats.distinct, *stats.cumulative())
