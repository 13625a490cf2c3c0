"""From what the runtime gives back to the report of a run: shares, skew, hot keys and times, each computed here
once."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpa.balance.decision import Outcome
from dpa.balance.skew import skew
from dpa.execution.key_stats import KeyStats
from dpa.protocol.metrics import Snapshot
from dpa.result import (
    HotKey,
    KeyDistribution,
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
    stats: KeyStats | None = None,
    spark_skew: float | None = None,
    reference: ReferenceReport | None = None,
    output: OutputReport | None = None,
    error: str | None = None,
) -> Report:
    """The report of a run that ended well or not; `keys` is the number of result rows of each reducer."""
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
            )
            for reducer in reducers
        ),
        skew=SkewReport(dpa=skew(processed), static=skew(static), spark=spark_skew),
        redistributions=tuple(decision for decision in decisions if decision.outcome is Outcome.APPLIED),
        decisions=decisions,
        decision_counts=snapshot.decision_counts if snapshot else {},
        reference=reference or ReferenceReport(),
        seconds=seconds,
        records_per_second=records.mapped / seconds.stream if seconds.stream else 0.0,
        hot_keys=hot_keys(stats) if stats else (),
        key_distribution=_distribution(stats) if stats else KeyDistribution(),
        output=output or OutputReport(),
        config=config,
        versions=versions(),
        samples=snapshot.samples if snapshot else (),
        error=error,
    )


def hot_keys(stats: KeyStats) -> tuple[HotKey, ...]:
    """The most frequent keys. They are counted exactly, one count a state, so the bounds are tight."""
    named = stats.top[:_HOT_KEYS]
    return tuple(HotKey(key, count, count / stats.mapped, count, count) for key, count in named)


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
