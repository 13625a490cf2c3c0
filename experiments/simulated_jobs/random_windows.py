"""Random small jobs with windows for the simulator, each made of a seed alone, and the check of what their windows
have.

A row is a number, with a time of its own, or that at which it is read. Some times are all where windows end, many rows
have the same, and sessions are among the windows then. The first stage collects numbers by key and
window, and where there is a second one, it collects them by other keys and longer windows, in which the times are the
ends of the first ones.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of
from dpa.execution.reduce_task import ReduceStage
from dpa.execution.windowing import Assign, Windowing
from dpa.executors import Record
from dpa.operators import RowKind, RowOperator
from dpa.protocol.graph import ClosingWindows, Edge, Graph, Publishing, Stage, StageInput
from dpa.protocol.task.delivery import Delivery
from dpa.sinks.memory import Memory
from dpa.sources.event_time import SourceTime
from dpa.sources.splits import MemorySplit
from dpa.windows.options import END, START, Windows
from dpa.windows.times import EventTime
from experiments.simulated_jobs.map_reduce import stage_options
from experiments.simulated_jobs.random_changes import with_open_inputs
from experiments.simulated_jobs.random_jobs import Collect, CollectAlone, random_network, random_stage_options
from experiments.simulated_jobs.runs import run_made
from experiments.simulation.job import SimulatedJob, SimulatedRun
from experiments.simulation.violation import InvariantViolationError

_STEP = 1_000_000
"""Microseconds of event time from one row of a channel to the next, about."""

_BY_CLOCK = 0.25
"""How often rows have processing time."""

_CLOCK = 0.001
"""How much smaller windows of virtual time are: a row is read in about a millisecond of it."""

_ON_EDGES = 0.25
"""How often times of rows are where windows end."""

_EDGE = 10 * _STEP
"""Microseconds from one such time to the next."""

_KEY = ("key", START, END)

_Window: TypeAlias = tuple[str, int]
"""A key, and the end of a window in microseconds."""


@dataclass(frozen=True)
class Keyed:
    """Rows of the first stage as rows of numbers and their keys at the second one."""

    keys: int

    def __call__(self, record: Record) -> list[Record]:
        """A row for each number."""
        return [
            {"key": f"key {number % self.keys}", "number": number, "ended": record[END]} for number in record["records"]
        ]


@dataclass(frozen=True)
class Row:
    """A number, its key, and its time in microseconds."""

    number: int
    key: str
    at: int


@dataclass(frozen=True)
class RandomWindows:
    """A job, and what its windows must have.

    Attributes:
        rows: the input.
        windows: of each stage.
        keys: how many the second stage has.
        is_kept: whether rows are as little out of order as the sources promise.
        by_clock: whether their time is when they are read, so that none is late.
        on_edges: whether all times are where windows end.
    """

    job: SimulatedJob
    rows: tuple[Row, ...]
    windows: tuple[Windows, ...]
    keys: int
    is_kept: bool
    by_clock: bool = False
    on_edges: bool = False

    def check(self, run: SimulatedRun, history: Callable[[], list[str]]) -> None:
        """Every window has its records, each once, and is there once; but for those that came too late, where more rows
        are late than was promised."""
        _check_published(run, history)
        found = [_found(run, stage, history) for stage in ("first", "second")[: len(self.windows)]]
        rows = _as_read(self.rows, found[0], self.windows[0]) if self.by_clock else self.rows
        first = _in_windows(rows, self.windows[0])
        if _too_many(found[0], first) or (self.is_kept and (found[0] != first or run.late["first"])):
            raise InvariantViolationError(f"wrong windows: {_difference(found[0], first)}, late {run.late}", history())
        if len(found) > 1:
            ended = [Row(number, f"key {number % self.keys}", end - 1) for (_, end), number in found[0].elements()]
            second = _in_windows(ended, self.windows[1])
            if found[1] != second or run.late["second"]:
                wrong = _difference(found[1], second)
                raise InvariantViolationError(f"wrong windows of the second stage: {wrong}, late {run.late}", history())


_Found: TypeAlias = Counter[tuple[_Window, int]]
"""How often each number is in each window."""


def _in_windows(rows: Iterable[Row], windows: Windows) -> _Found:
    found: _Found = Counter()
    if windows.is_session:
        for key in sorted({row.key for row in rows}):
            found += _in_sessions([row for row in rows if row.key == key], windows.size_us)
        return found
    for row in rows:
        start = row.at - (row.at - windows.offset_us) % windows.slide_us
        while start + windows.size_us > row.at:
            found[(row.key, start + windows.size_us), row.number] += 1
            start -= windows.slide_us
    return found


def _in_sessions(rows: Iterable[Row], gap: int) -> _Found:
    """Those of one key: a row that is no further than the gap from the one before is in its session."""
    sessions: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.at):
        if not sessions or row.at > sessions[-1][-1].at + gap:
            sessions.append([])
        sessions[-1].append(row)
    return Counter(((row.key, session[-1].at + gap), row.number) for session in sessions for row in session)


def _as_read(rows: Iterable[Row], found: _Found, windows: Windows) -> Iterator[Row]:
    """Rows at a time at which they may have been read, by the windows that have them: the last moment before the first
    of these ends, or another begins. What is in none has been read at no time that is right."""
    ends: dict[int, list[int]] = defaultdict(list)
    for (_, end), number in found.elements():
        ends[number].append(end)
    for row in rows:
        of = ends.get(row.number, [0])
        yield replace(row, at=min(*of, max(of) - windows.size_us + windows.slide_us) - 1)


def _found(run: SimulatedRun, stage: str, history: Callable[[], list[str]]) -> _Found:
    found: _Found = Counter()
    seen: Counter[_Window] = Counter()
    published = [rows for of_epoch in run.finals.get(stage, {}).values() for rows in of_epoch]
    for table in (*published, *(share.table for share in run.shares[stage] if share.table.num_rows)):
        ends = table[END].cast(pa.int64()).to_pylist()
        for key, end, numbers in zip(table["key"].to_pylist(), ends, table["records"].to_pylist(), strict=True):
            seen[key, end] += 1
            found.update(((key, end), number) for number in numbers)
    twice = [window for window, times in seen.items() if times > 1]
    if twice:
        raise InvariantViolationError(f"{stage} gives {twice[0]} more than once", history())
    return found


def _check_published(run: SimulatedRun, history: Callable[[], list[str]]) -> None:
    """As many rows of closed windows are counted as were published, whatever was begun again."""
    for stage in run.snapshot.stages:
        published = sum(rows.num_rows for of_epoch in run.finals.get(stage.name, {}).values() for rows in of_epoch)
        counted = published if stage.aggregation is None or stage.name not in run.finals else stage.aggregation.rows
        if counted != published:
            why = f"{stage.name} counts {counted} published rows, not {published}"
            raise InvariantViolationError(why, history())


def _too_many(found: _Found, expected: _Found) -> bool:
    return bool(found - expected)


def _difference(found: _Found, expected: _Found) -> str:
    return f"{sorted((found - expected).elements())} too many, {sorted((expected - found).elements())} missing"


def random_windows(seed: int) -> RandomWindows:
    """The job of a seed: one or two sources of one to three channels, and one or two stages with windows."""
    draw, by_clock = random.Random(f"windows {seed}"), random.Random(f"{seed} by clock").random() < _BY_CLOCK
    disorder = draw.choice([0, 5, 20, 20]) * _STEP
    is_kept = draw.random() < 0.5 or not disorder
    instants = random.Random(f"instants of {seed}")
    on_edges = not by_clock and instants.random() < _ON_EDGES
    if on_edges:
        disorder, is_kept = instants.choice([0, 0, _EDGE]), True
    time = SourceTime(EventTime("at"), out_of_order=disorder if is_kept else disorder // 4)
    if by_clock:
        time, is_kept = SourceTime(EventTime("at"), is_added=True), True
    rows: list[Row] = []
    keys = draw.randint(1, 4 if on_edges else 8)
    stages, sources = [], draw.choice(["a", "a", "ab"])
    for source in sources:
        splits = random_splits(draw, rows, disorder, keys, edge=_EDGE if on_edges else None)
        splits = tuple(map(_untimed, splits)) if by_clock else splits
        stages.append(Stage(f"source {source}", draw.randint(1, 3), StageInput(splits, time=time)))
    windows = [_windows(draw, 10, disorder)]
    if draw.random() < 0.6:
        windows.append(_windows(draw, 30, disorder))
    windows = [*map(_smaller, windows)] if by_clock else windows
    windows = [_on_edges(instants) for _ in windows] if on_edges else windows
    batch, names = draw.choice([1, 3, 10]), ("first", "second")[: len(windows)]
    may_migrate = {name: draw.random() < 0.3 for name in names}
    migrates = {name: may_migrate[name] and not kind.is_session for name, kind in zip(names, windows, strict=True)}
    for name, kind in zip(names, windows, strict=True):
        options = random_stage_options(draw, batch, migrates=migrates[name])
        closing = ClosingWindows(kind.lateness_us, kind.past_end_us, every=draw.choice([0.003, 0.02]))
        stages.append(Stage(name, draw.randint(1, 4), windows=closing, **stage_options(**options)))
    edges = [Edge(f"source {source}", "first") for source in sources]
    receivers = {
        name: replace(receiver_of(CollectAlone() if migrates[name] else Collect()), windowing=Windowing(kind))
        for name, kind in zip(names, windows, strict=True)
    }
    combine = {name: not migrates[name] and draw.random() < 0.3 for name in names}

    def emission(to: str, kind: Windows, time: EventTime, *before: RowOperator) -> Emission:
        assign = RowOperator(RowKind.MAP, Assign(kind, time), on_batches=True)
        leaf = MapTask(None, _KEY, ("number",), receivers[to], combine[to], 0, batch, 1.0)
        return Emission((leaf,), (*before, assign))

    work: dict[str, Any] = {
        f"source {source}": replace(emission("first", windows[0], EventTime("at")), time=time) for source in sources
    }
    work["first"] = ReduceStage(receivers["first"], _KEY)
    other = draw.randint(1, 5)
    if len(windows) > 1:
        edges.append(Edge("first", "second"))
        ended = emission(
            "second", windows[1], EventTime("ended", is_end=True), RowOperator(RowKind.FLAT_MAP, Keyed(other))
        )
        work["first"] = replace(work["first"], emission=ended)
        work["second"] = ReduceStage(receivers["second"], _KEY)
    slow, network = draw.choice(names), random_network(draw, seed)
    job = SimulatedJob(
        Graph(tuple(stages), tuple(edges)),
        work,
        step_seconds=lambda stage: 0.001,
        service_seconds=lambda stage, index: 0.004 if stage == slow and index == 0 else 0.0005,
        network=network,
        ticks=None,
        tick_seconds=max(draw.choice([0.01, 0.05]), network.mean_delay),
    )
    return RandomWindows(job, tuple(rows), tuple(windows), other, is_kept, by_clock, on_edges)


def _windows(draw: random.Random, size: int, disorder: int) -> Windows:
    length = size * draw.choice([1, 2, 5])
    every = draw.choice([None, None, length // 2, length // 3 + 1])
    offset = draw.choice([0, 1])
    return Windows(size=length, every=every, offset=offset, lateness=draw.choice([0, 0, disorder // _STEP // 2]))


def _on_edges(draw: random.Random) -> Windows:
    """Windows whose ends are where rows may be, sessions with gaps that rows may be apart."""
    edge = _EDGE / _STEP
    sessions = [Windows(gap=edge), Windows(gap=edge), Windows(gap=edge, lateness=edge)]
    return draw.choice([*sessions, Windows(size=edge), Windows(size=2 * edge, every=edge)])


def _smaller(windows: Windows) -> Windows:
    assert windows.size is not None
    every = None if windows.every is None else windows.every * _CLOCK
    return Windows(
        size=windows.size * _CLOCK, every=every, offset=windows.offset * _CLOCK, lateness=windows.lateness * _CLOCK
    )


def random_splits(
    draw: random.Random, rows: list[Row], disorder: int, keys: int, edge: int | None = None
) -> tuple[MemorySplit, ...]:
    """The splits of a source, of one to three channels of which each is in order; adds their rows to `rows`. `edge`:
    microseconds of which all times are multiples, and the latest rows as much out of order as may be."""
    waiting: list[list[MemorySplit]] = []
    for channel in range(draw.choice([1, 1, 2, 3])):
        now, own = draw.randint(0, 100) * _STEP if edge is None else draw.randint(0, 3) * edge, []
        for _ in range(draw.randint(0, 60)):
            if edge is None:
                now += int(draw.expovariate(1 / _STEP)) if draw.random() > 0.02 else 100 * _STEP
            else:
                now += draw.choice([0, 0, 0, 0, 0, 1, 1, 2]) * edge
            key = f"key {int(draw.expovariate(1.0)) % keys}"
            behind = draw.randint(0, disorder) if edge is None else draw.choice([0, disorder])
            own.append(Row(len(rows), key, now - behind))
            rows.append(own[-1])
        size = draw.choice([1, 7, 20])
        waiting.append([_split(own[start : start + size], str(channel)) for start in range(0, len(own), size)])
    splits = [_split([], str(channel)) for channel in range(len(waiting))]  # so that they are known
    while any(waiting):
        splits.append(draw.choice([channel for channel in waiting if channel]).pop(0))
    return tuple(splits)


def _untimed(split: MemorySplit) -> MemorySplit:
    """A split whose rows have no time yet."""
    return replace(split, table=split.table.drop_columns(["at"]))


def _split(rows: list[Row], channel: str) -> MemorySplit:
    columns = {
        "key": pa.array([row.key for row in rows]),
        "number": pa.array([row.number for row in rows], pa.int64()),
        "at": pa.array([row.at for row in rows], pa.timestamp("us")),
    }
    return MemorySplit(pa.table(columns), channel)


def endless_windows(seed: int) -> RandomWindows:
    """The job of a seed with inputs that are open, and results that are published by epoch, as if they were final."""
    made, draw = random_windows(seed), random.Random(f"endless {seed}")

    def publishing(stage: Stage) -> Stage:
        if stage.windows is None:
            return stage
        closed = draw.random() < 0.7
        return replace(stage, publishing=(Publishing(draw.choice([math.inf, 0.002, 0.02]), closed=closed),))

    graph = replace(made.job.graph, stages=tuple(map(publishing, made.job.graph.stages)))
    return replace(made, job=with_open_inputs(replace(made.job, graph=graph), seed))


def with_finals(made: RandomWindows, seed: int, *, cuts: bool, faults: bool = False) -> RandomWindows:
    """The job, some of whose stages publish the rows of closed windows into a sink by epoch, and no others (`publish:
    final`); `cuts`: some with checkpoints, as there are some; `faults`: all."""
    draw, job = random.Random(f"finals of {seed}"), made.job
    chosen = {
        stage.name: replace(
            stage,
            publishing=(
                Publishing(draw.choice([0.002, 0.02, 0.1]), faults or (cuts and draw.random() < 0.4), closed=True),
            ),
        )
        for stage in job.graph.stages
        if stage.windows is not None and draw.random() < 0.7
    }
    work = {
        name: replace(task, publishes=("final",)) if name in chosen and isinstance(task, ReduceStage) else task
        for name, task in job.work.items()
    }
    graph = replace(job.graph, stages=tuple(chosen.get(stage.name, stage) for stage in job.graph.stages))
    deliveries = dict.fromkeys(chosen, Delivery((Memory(),), publishes=("final",)))
    return replace(made, job=replace(job, graph=graph, work=work, deliveries=deliveries))


def run_random_windows(
    seed: int, max_steps: int = 1_000_000, *, cuts: bool = False, finals: bool = False, **options: Any
) -> SimulatedRun:
    """Run the job of a seed, in at most so many steps, and check its windows; `finals`: as `with_finals` makes it, the
    rest as for `run_made`.

    Raises:
        InvariantViolationError: an invariant was broken, the job could not end, or its windows are wrong.
    """
    made = random_windows(seed)
    made = with_finals(made, seed, cuts=cuts) if finals else made
    return run_made(made, seed, max_steps, cuts=cuts, **options)
