"""A made-up but coherent run for the tests of `dpa.report`: snapshots as a driver feeds them, and the report after.

Four reducers (or more) share a skewed stream; reducer 1 is overloaded until redistributions relieve it. Arithmetic
only: the same numbers on every machine.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from dpa.balance.decision import Decision, Outcome
from dpa.protocol.metrics import LoadSample, MapperStats, ReducerStats, Snapshot
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

ROWS = 20_000_000
SECONDS = 5.0


def decision(
    at: float = 1.0, reducer: int = 1, outcome: Outcome = Outcome.APPLIED, epoch: int | None = 1, **changes: Any
) -> Decision:
    """A decision with plausible words; `changes` replace fields."""
    reason = "queue of 131,072 exceeds 1.2 times the second longest, 40,960 of reducer 0; gives up 32 of its 64 tokens"
    if outcome is not Outcome.APPLIED:
        epoch, reason = None, "queue of 41,000 does not exceed 1.2 times the second longest, 40,960 of reducer 0"
    made = Decision(at, reducer, outcome, reason, (40_960, 131_072, 9_000, 12_500), epoch, 1)
    return replace(made, **changes)


@functools.cache
def decisions(rounds: int = 4) -> tuple[Decision, ...]:
    """`rounds` redistributions, each after a refusal."""
    made: list[Decision] = []
    for number in range(1, rounds + 1):
        at = SECONDS * 0.8 * number / (rounds + 1)
        made.append(decision(at - 0.1, outcome=Outcome.BELOW_THRESHOLD))
        made.append(decision(at, epoch=number, reducer=(1, 1, 3, 0)[number % 4], round=number))
    return tuple(made)


def queue(reducer: int, at: float) -> int:
    """The queue of a reducer at a moment: reducer 1 grows until it is relieved, all run empty at the end."""
    drain = max(0.0, 1 - at / SECONDS) ** 0.5
    if reducer == 1:
        return round(131_072 * drain * (0.55 + 0.45 * math.sin(min(at, 4.0) * 2.2)))
    return round((30_000 + 6_000 * (reducer % 5)) * drain * (0.6 + 0.4 * math.sin(at * 3 + reducer)))


@functools.cache
def _peak(reducer: int, twentieths: int) -> int:
    return max(queue(reducer, twentieths / 20), _peak(reducer, twentieths - 1) if twentieths else 0)


def snapshot(at: float, reducers: int = 4, rounds: int = 4, **changes: Any) -> Snapshot:
    """The run as it stands at `at` seconds of the stream."""
    share = min(at / SECONDS, 1.0)
    known = tuple(found for found in decisions(rounds) if found.at <= at)
    applied = sum(found.outcome is Outcome.APPLIED for found in known)
    weights = [2.5 if reducer == 1 else 1.0 + reducer % 3 / 10 for reducer in range(reducers)]
    queues = [queue(reducer, at) for reducer in range(reducers)]
    emitted = round(ROWS * 1.2 * share)
    processed = max(emitted - sum(queues), 0)
    made = Snapshot(
        phase="stream",
        at=at,
        rows=ROWS,
        mappers=tuple(
            MapperStats(mapper, round(ROWS * share / 2), emitted // 2, emitted // 2, ()) for mapper in range(2)
        ),
        reducers=tuple(
            ReducerStats(
                reducer,
                queue=queues[reducer],
                peak_queue=max(_peak(reducer, round(at * 20)), queues[reducer]),
                processed=round(processed * weights[reducer] / sum(weights)),
                forwarded=12_345 * applied if reducer == 1 else 0,
                epoch=applied,
            )
            for reducer in range(reducers)
        ),
        epoch=applied,
        decisions=known,
        decision_counts={"applied": applied, "below_threshold": round(at * 30), "rounds_used_up": round(at)},
        samples=(),
    )
    return replace(made, **changes)


def snapshots(reducers: int = 4, steps: int = 50, rounds: int = 4) -> list[Snapshot]:
    """The whole run, `steps` snapshots and the one at the start."""
    return [snapshot(SECONDS * step / steps, reducers, rounds) for step in range(steps + 1)]


def hot_keys(keys: Sequence[Any] = ("the", "of", "and", "to", "données", "東京")) -> tuple[HotKey, ...]:
    """The most frequent of 200,000 Zipf(1) keys, each with bounds."""
    shares = [1 / rank / _harmonic(200_000) for rank in range(1, len(keys) + 1)]
    return tuple(
        HotKey(key, round(24e6 * share), share, round(24e6 * share) - 900, round(24e6 * share) + 1_100)
        for key, share in zip(keys, shares, strict=True)
    )


def key_distribution(distinct: int = 200_000) -> KeyDistribution:
    """Of Zipf(1) keys, the cumulative share by rank, at ranks that grow geometrically."""
    ranks = tuple(sorted({round(distinct ** (step / 40)) for step in range(41)}))
    return KeyDistribution(distinct, ranks, tuple(_harmonic(rank) / _harmonic(distinct) for rank in ranks))


def _harmonic(number: int) -> float:
    return math.log(number) + 0.57722 + 1 / (2 * number) - 1 / (12 * number**2)


def report(reducers: int = 4, rounds: int = 4, **changes: Any) -> Report:
    """The report after the run; `changes` replace fields."""
    last = snapshot(SECONDS, reducers, rounds)
    processed = sum(found.processed for found in last.reducers)
    forwarded = sum(found.forwarded for found in last.reducers)
    made = Report(
        status="ok",
        name="wordcount",
        records=RecordCounts(ROWS, round(ROWS * 1.2), processed, processed, forwarded),
        reducers=tuple(
            ReducerReport(
                found.reducer,
                found.processed,
                found.processed / processed,
                found.forwarded,
                found.peak_queue,
                200_000 // reducers + found.reducer,
                3.1 + found.reducer / 10,
                0.05 + found.reducer,
            )
            for found in last.reducers
        ),
        skew=SkewReport(dpa=0.034, static=0.412, spark=0.398),
        grouping=GroupingReport("ring", 1.02),
        redistributions=tuple(found for found in last.decisions if found.outcome is Outcome.APPLIED),
        decisions=last.decisions,
        decision_counts=last.decision_counts,
        reference=ReferenceReport(checked=True, matches=True, rows=200_000),
        seconds=Seconds(2.31, 1.08, SECONDS, 0.42, 6.2, 15.3, 3.6),
        records_per_second=ROWS * 1.2 / SECONDS,
        latency=LatencyReport(0.0312, 0.41, 1.12, 2.5, 0.105),
        hot_keys=hot_keys(),
        key_distribution=key_distribution(),
        output=OutputReport("out/wordcount/result", 200_000, tuple(f"part-{part:05}.parquet" for part in range(4))),
        config={
            "name": "wordcount",
            "seed": 0,
            "input": {"format": "parquet", "path": "data/words.parquet"},
            "parallelism": {"mappers": 2, "reducers": reducers},
            "balance": {"strategy": "halving", "tau": 0.2, "max_rounds": 4, "initial_tokens": 64},
        },
        versions={"dpa": "0.1.0", "python": "3.11.2", "pyspark": "4.3.0", "ray": "2.57.0"},
        samples=() if "samples" in changes else load_samples(reducers, rounds),
    )
    return replace(made, **changes)


@functools.cache
def load_samples(reducers: int, rounds: int) -> tuple[LoadSample, ...]:
    """The queues at 121 moments of the run."""
    return tuple(
        LoadSample(
            found.at,
            tuple(stats.queue for stats in found.reducers),
            tuple(stats.processed for stats in found.reducers),
        )
        for found in snapshots(reducers, 120, rounds)
    )


def empty_report(**changes: Any) -> Report:
    """A job that ended before anything happened."""
    made = Report(
        status="ok",
        name="empty",
        records=RecordCounts(),
        reducers=(),
        skew=SkewReport(0.0, 0.0),
        grouping=GroupingReport("ring"),
        redistributions=(),
        decisions=(),
        decision_counts={},
        reference=ReferenceReport(),
        seconds=Seconds(),
        records_per_second=0.0,
        latency=None,
        hot_keys=(),
        key_distribution=KeyDistribution(),
        output=OutputReport(),
        config={},
        versions={},
    )
    return replace(made, **changes)


NASTY_KEYS: tuple[Any, ...] = (
    "[bold red]markup[/bold red] [/] :smile:",
    "two\nlines\tand\x1b[31m\x1b[2Jred\x07",
    "<script>alert('x')</script>&amp;",
    "right\u202eto left\u200b",
    "x" * 5_000,
    "東京特許許可局" * 30,
    "$\\frac{1}{2}$ ${env.HOME} %s {0}",
    "\ud800 alone",
    "",
    "5",
    "null",
    None,
    -7,
    b"\xff\x00<b>",
    True,
    "true",
    date(2026, 1, 31),
    datetime(2026, 1, 31, 12, tzinfo=timezone.utc),
    Decimal("1.50"),
    ("DE", date(2026, 1, 31), None),
    ("a, b", "c"),
    ("a", "b, c"),
    ("two\nlines)", "x" * 5_000),
)
"""Keys that break careless screens: markup, controls, escapes, very long, wide, and every type there is."""
