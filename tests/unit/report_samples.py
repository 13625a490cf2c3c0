"""A made-up but coherent run for the tests of `dpa.report`: snapshots as a driver feeds them, and the report after.

Four reducers (or more) share a skewed stream; reducer 1 is overloaded until redistributions relieve it. Arithmetic
only: the same numbers on every machine.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from dpa.balance.decision import Decision, Outcome
from dpa.config import parse
from dpa.driver.summary import versions, with_figures
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import LoadSample, Snapshot, StageSnapshot, TaskChange, TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.result import (
    GroupingReport,
    HotKey,
    KeyDistribution,
    LatencyReport,
    OutputReport,
    ReferenceReport,
    Report,
    Seconds,
    SkewReport,
    StageReport,
)

ROWS = 20_000_000
SECONDS = 5.0


def decision(
    at: float = 1.0, reducer: int = 1, outcome: Outcome = Outcome.APPLIED, version: int | None = 1, **changes: Any
) -> Decision:
    """A decision with plausible words; `changes` replace fields."""
    reason = "queue of 131,072 exceeds 1.2 times the second longest, 40,960 of task 0; gives up 32 of its 64 tokens"
    if outcome is not Outcome.APPLIED:
        version, reason = None, "queue of 41,000 does not exceed 1.2 times the second longest, 40,960 of task 0"
    made = Decision(at, reducer, outcome, reason, (40_960, 131_072, 9_000, 12_500), version, 1)
    return replace(made, **changes)


@functools.cache
def decisions(rounds: int = 4) -> tuple[Decision, ...]:
    """`rounds` redistributions, each after a refusal."""
    made: list[Decision] = []
    for number in range(1, rounds + 1):
        at = SECONDS * 0.8 * number / (rounds + 1)
        made.append(decision(at - 0.1, outcome=Outcome.BELOW_THRESHOLD))
        made.append(decision(at, version=number, reducer=(1, 1, 3, 0)[number % 4], round=number))
    return tuple(made)


def moved() -> TaskChange:
    """A reducer moved by hand."""
    return TaskChange(1, 1.5, REDUCER, started=(4,), stopped=(0,), moved=((0, 4),), seconds=1.2, reason="asked for")


def grown() -> TaskChange:
    """Two more reducers, started for the load."""
    why = "busy 97% of the time for 2.0 s"
    return TaskChange(2, 4.0, REDUCER, started=(5, 6), stopped=(), moved=(), seconds=1.3, reason=why)


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
    """The run as it stands at `at` seconds of the stream; `changes` replace fields of its reduce stage."""
    share = min(at / SECONDS, 1.0)
    known = tuple(found for found in decisions(rounds) if found.at <= at)
    applied = sum(found.outcome is Outcome.APPLIED for found in known)
    weights = [2.5 if reducer == 1 else 1.0 + reducer % 3 / 10 for reducer in range(reducers)]
    queues = [queue(reducer, at) for reducer in range(reducers)]
    emitted = round(ROWS * 1.2 * share)
    processed = max(emitted - sum(queues), 0)
    mapper_tasks = tuple(
        TaskStats(
            MAPPER,
            index,
            read=round(ROWS * share / 2),
            mapped=emitted // 2,
            emitted=(emitted // 2,),
            busy_seconds=0.55 * at,
            blocked_seconds=0.31 * at,
        )
        for index in range(2)
    )
    reducer_tasks = tuple(
        TaskStats(
            REDUCER,
            index,
            queue=queues[index],
            peak_queue=max(_peak(index, round(at * 20)), queues[index]),
            processed=round(processed * weights[index] / sum(weights)),
            forwarded=12_345 * applied if index == 1 else 0,
            busy_seconds=at * (0.62 + index / 50),
            version=applied,
            latency_p99=0.05 + index,
        )
        for index in range(reducers)
    )
    counts = {"applied": applied, "below_threshold": round(at * 30), "rounds_used_up": round(at)}
    stages = (
        StageSnapshot(MAPPER, "streaming", mapper_tasks, began=0.02, ended=0.9 * SECONDS),
        replace(StageSnapshot(REDUCER, "streaming", reducer_tasks, applied, known, counts, began=0.1), **changes),
    )
    return Snapshot(phase="stream", at=at, rows=ROWS, stages=stages, edges=((MAPPER, REDUCER),))


def with_stage(made: Snapshot, stage: str, **changes: Any) -> Snapshot:
    """The same snapshot with fields of one stage replaced."""
    return replace(made, stages=tuple(replace(each, **changes) if each.name == stage else each for each in made.stages))


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


STARTED = Report(
    "ok",
    "job",
    seconds=Seconds(2.31, 1.08, SECONDS, 0.42, 6.2, 15.3, 3.6),
    config=parse({}).config.resolved(),
    versions=versions(),
)
STAGE_FIELDS = {field.name for field in fields(StageReport)} - {field.name for field in fields(Report)}


def report(reducers: int = 4, rounds: int = 4, **changes: Any) -> Report:
    """The report after the run; `changes` replace fields, of the reduce stage those that only a stage has."""
    last = snapshot(SECONDS, reducers, rounds)
    last = with_stage(last, REDUCER, samples=() if "samples" in changes else load_samples(reducers, rounds))
    made = with_figures(STARTED, last, {}, {})
    tasks = tuple(replace(task, keys=200_000 // reducers + task.id) for task in made.main.tasks)
    reduced = replace(
        made.main,
        tasks=tasks,
        skew=SkewReport(dpa=0.034, static=0.412, spark=0.398),
        grouping=GroupingReport("ring", 1.02),
        latency=LatencyReport(0.0312, 0.41, 1.12, 2.5, 0.105),
        stage_latency=LatencyReport(0.0291, 0.38, 1.05, 2.3, 0.098),
        hot_keys=hot_keys(),
        key_distribution=key_distribution(),
        output=OutputReport("out/wordcount/result", 200_000, tuple(f"part-{part:05}.parquet" for part in range(4))),
    )
    own = {name: value for name, value in changes.items() if name in STAGE_FIELDS}
    job: dict[str, Any] = {
        "name": "wordcount",
        "reference": ReferenceReport(checked=True, matches=True, rows=200_000),
        "config": {
            "name": "wordcount",
            "seed": 0,
            "input": {"format": "parquet", "path": "data/words.parquet"},
            "parallelism": {"mappers": 2, "reducers": reducers},
            "balance": {"strategy": "halving", "tau": 0.2, "max_rounds": 4, "initial_tokens": 64},
        },
        "versions": {"dpa": "0.1.0", "python": "3.11.2", "pyspark": "4.3.0", "ray": "2.57.0"},
        **{name: value for name, value in changes.items() if name not in STAGE_FIELDS},
    }
    return replace(made, **{"stages": (*made.stages[:-1], replace(reduced, **own)), **job})


@functools.cache
def load_samples(reducers: int, rounds: int) -> tuple[LoadSample, ...]:
    """The queues at 121 moments of the run."""
    return tuple(
        LoadSample(
            found.at,
            tuple(stats.queue for stats in found[REDUCER].tasks),
            tuple(stats.processed for stats in found[REDUCER].tasks),
        )
        for found in snapshots(reducers, 120, rounds)
    )


def empty_report(**changes: Any) -> Report:
    """A job that ended before anything happened."""
    return replace(Report("ok", "empty"), **changes)


CHAIN = (("trades", "vwap"), ("vwap", "ranked"))
"""A source and two stages."""
DIAMOND = (
    ("trades", "big"),
    ("trades", "small"),
    ("quotes", "priced"),
    ("big", "priced"),
    ("small", "audited trades of the day"),
    ("priced", "bargains"),
    ("audited trades of the day", "bargains"),
    ("trades", "bargains"),
)
"""Seven stages: two sources, a fan-out, two fan-ins, and an edge that passes three layers."""


def stages_of(edges: Sequence[tuple[str, str]]) -> list[str]:
    """The stages that edges join, each after those that feed it."""
    left, placed = list(dict.fromkeys(name for edge in edges for name in edge)), []
    while left:
        ready = [name for name in left if all(source in placed for source, target in edges if target == name)]
        placed += ready
        left = [name for name in left if name not in ready]
    return placed


def graph_snapshot(
    edges: Sequence[tuple[str, str]] = DIAMOND, at: float = 3.0, limit: str = "priced", tasks: int = 3
) -> Snapshot:
    """A graph of stages at `at` seconds of the stream, in which all that feed the stage `limit` wait for it."""
    names = stages_of(edges)
    fed = {target for _, target in edges}
    upstream = {limit}
    for _ in names:
        upstream |= {source for source, target in edges if target in upstream}
    emitted = {name: round(1_000_000 * at / (1 + 3 * place)) for place, name in enumerate(names)}
    stages = []
    for place, name in enumerate(names):
        outs = [target for source, target in edges if source == name]
        taken = sum(emitted[source] for source, target in edges if target == name)
        made = tuple(
            TaskStats(
                name,
                index,
                read=0 if name in fed else emitted[name] // tasks,
                mapped=emitted[name] // tasks if outs else 0,
                emitted=tuple(emitted[name] // tasks for _ in outs),
                queue=(30_000 if name == limit else 700 + 10 * place) if name in fed else 0,
                peak_queue=(131_072 if name == limit else 1_500 + 10 * index) if name in fed else 0,
                processed=taken // tasks - 100 * index if name in fed else 0,
                busy_seconds=at * ((0.97 - 0.3 * index) if name == limit else 0.2),
                blocked_seconds=at * (0.62 if name in upstream and name != limit else 0.01),
            )
            for index in range(tasks)
        )
        own = decisions(2) if name == limit else ()
        counts = {"applied": 2, "below_threshold": 7} if own else {}
        spans = {"began": at * place / 20, "ended": at * (1 - (len(names) - place) / 30)}
        stages.append(StageSnapshot(name, "streaming", made, len(own) // 2, own, counts, **spans))
    return Snapshot("stream", at, ROWS, tuple(stages), tuple(edges))


def graph_report(edges: Sequence[tuple[str, str]] = DIAMOND, limit: str = "priced", **changes: Any) -> Report:
    """The report of a run of such a graph."""
    found = graph_snapshot(edges, SECONDS, limit)
    last = found.stages[-1].name
    use = {
        Address(stage.name, task.index): TaskUse("n1", (180 + 40 * place + task.index) * 2**20)
        for place, stage in enumerate(found.stages)
        for task in stage.tasks
    }
    output = {"reference": ReferenceReport(True, True, 20), "output": OutputReport("out/last", 20)}
    made = with_figures(replace(STARTED, stages=(StageReport(last, "operator", **output),)), found, {}, use)
    keyed = {"latency": LatencyReport(0.03, 0.41, 1.12, 2.5, 0.1), "hot_keys": hot_keys()}
    stages = tuple(
        replace(stage, **keyed, key_distribution=key_distribution()) if stage.kind == "operator" else stage
        for stage in made.stages
    )
    return replace(made, **{"name": "bargains", "stages": stages, **changes})


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
