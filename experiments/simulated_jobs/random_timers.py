"""Random small jobs with timers of event time for the simulator, each made of a seed alone, and the check of what they
give.

A row is a number with a time, and sets an alarm some seconds after or before that; some alarms set another. Each gives
a row with the numbers of its key that happened by then. Some times are whole seconds, so that alarms are due when rows
happen. A second stage may collect these in windows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of
from dpa.execution.reduce_task import ReduceStage
from dpa.execution.windowing import Assign, Windowing
from dpa.executors import Process, Record
from dpa.operators import RowKind, RowOperator
from dpa.protocol.graph import ClosingWindows, Edge, Graph, Stage, StageInput
from dpa.sources.event_time import SourceTime
from dpa.windows.options import END, START, Windows
from dpa.windows.times import EventTime, since_1970
from experiments.simulated_jobs.map_reduce import stage_options
from experiments.simulated_jobs.random_jobs import Collect, random_network, random_stage_options
from experiments.simulated_jobs.random_windows import Row, random_splits
from experiments.simulated_jobs.runs import run_made
from experiments.simulation.job import SimulatedJob, SimulatedRun
from experiments.simulation.violation import InvariantViolationError

_STEP = 1_000_000
"""Microseconds of event time from one row of a channel to the next, about."""

_ON_EDGES = 0.25
"""How often times of rows are whole seconds."""

_AGAIN = timedelta(seconds=7)
"""From an alarm to the one that it sets."""

_WINDOWS = Windows(size=20)


@dataclass
class Alarmed:
    """A key's state: its numbers by their times, and the alarms that are set, each with its number."""

    seen: dict[int, datetime] = field(default_factory=dict)
    alarms: list[tuple[datetime, int, bool]] = field(default_factory=list)


@dataclass
class Alarms(Process[Alarmed, Record]):
    """Sets alarms. One that `forgets` has no state of a key whose alarms are over, and does not say what was before."""

    forgets: bool
    least: int

    def zero(self) -> Alarmed:
        return Alarmed()

    def process(self, key: str, state: Alarmed, value: Record) -> tuple[Alarmed, list[Record]]:
        number, at = value["number"], value["at"]
        state.seen[number] = at
        state.alarms.append((at + timedelta(microseconds=delay_of(number, self.least)), number, False))
        return state, []

    def timer(self, key: str, state: Alarmed) -> datetime | None:
        return min(state.alarms)[0] if state.alarms else None

    def on_time(self, key: str, state: Alarmed, time: datetime) -> tuple[Alarmed | None, list[Record]]:
        due, number, again = alarm = min(state.alarms)
        if due != time:
            raise ValueError(f"an alarm that was due at {due} was called at {time}")
        state.alarms.remove(alarm)
        seen = [] if self.forgets else sorted(other for other, at in state.seen.items() if at <= time)
        if number % 3 == 0 and not again:
            state.alarms.append((time + _AGAIN, number, True))
        row = {"key": key, "number": number, "again": again, "due": time, "seen": seen}
        return None if self.forgets and not state.alarms else state, [row]


def delay_of(number: int, least: int) -> int:
    """From a row to its alarm, in microseconds; at least `least` seconds."""
    return (number * 7919 % 25 + least) * _STEP


@dataclass(frozen=True)
class RandomTimers:
    """A job, and what its timers must give.

    Attributes:
        rows: the input.
        process: what sets the alarms.
        collects: whether the second stage does.
        is_kept: whether rows are as little out of order as the sources promise.
    """

    job: SimulatedJob
    rows: tuple[Row, ...]
    process: Alarms
    collects: bool
    is_kept: bool

    def check(self, run: SimulatedRun, history: Callable[[], list[str]]) -> None:
        """Every alarm comes once, after all that happened until it is due, where rows are as little out of order as was
        promised."""
        due = [*self._alarms()]
        given = [row for share in run.shares["first"] for row in share.table.to_pylist()]
        found = Counter((row["key"], row["number"], row["again"], since_1970(row["due"])) for row in given)
        if found != Counter(due):
            missing, more = Counter(due) - found, found - Counter(due)
            raise InvariantViolationError(f"wrong alarms: {[*missing]} are missing, {[*more]} too many", history())
        for row in given if self.is_kept and not self.process.forgets else ():
            before = [
                other.number for other in self.rows if other.key == row["key"] and other.at <= since_1970(row["due"])
            ]
            if row["seen"] != before:
                raise InvariantViolationError(f"{row} should have seen {before}", history())
        if self.collects:
            self._check_second(run, due, history)

    def _alarms(self) -> Any:
        for row in self.rows:
            at = row.at + delay_of(row.number, self.process.least)
            yield row.key, row.number, False, at
            if row.number % 3 == 0:
                yield row.key, row.number, True, at + _AGAIN // timedelta(microseconds=1)

    def _check_second(
        self, run: SimulatedRun, due: list[tuple[str, int, bool, int]], history: Callable[[], list[str]]
    ) -> None:
        size = _WINDOWS.size_us
        expected = Counter((f"key {number % 3}", at - at % size + size, number) for _, number, _, at in due)
        found: Counter[tuple[str, int, int]] = Counter()
        for row in (row for share in run.shares["second"] for row in share.table.to_pylist()):
            found.update((row["key"], since_1970(row[END]), number) for number in row["records"])
        if found - expected or (self.is_kept and (found != expected or run.late["second"])):
            wrong = f"{[*(found - expected)]} too many, {[*(expected - found)]} missing, late {run.late}"
            raise InvariantViolationError(f"wrong windows of alarms: {wrong}", history())


def random_timers(seed: int) -> RandomTimers:
    """The job of a seed: one or two sources of one to three channels, a process, and maybe a stage in windows."""
    draw = random.Random(f"timers {seed}")
    disorder = draw.choice([0, 5, 20]) * _STEP
    is_kept = draw.random() < 0.7 or not disorder
    instants, edge = random.Random(f"instants of {seed}"), None
    if instants.random() < _ON_EDGES:
        edge, disorder, is_kept = _STEP, instants.choice([0, 0, _STEP]), True
    time = SourceTime(EventTime("at"), out_of_order=disorder if is_kept else disorder // 4)
    rows: list[Row] = []
    keys, sources, collects = draw.randint(1, 8), draw.choice(["a", "a", "ab"]), draw.random() < 0.5
    process = Alarms(draw.random() < 0.4, 0 if collects else -10)
    stages = [
        Stage(
            f"source {name}", draw.randint(1, 3), StageInput(random_splits(draw, rows, disorder, keys, edge), time=time)
        )
        for name in sources
    ]
    batch, every = draw.choice([1, 3, 10]), draw.choice([0.003, 0.02])
    for name in ("first", "second")[: 1 + collects]:
        options = random_stage_options(draw, batch, migrates=name == "first")
        closing = ClosingWindows(every=every)
        stages.append(Stage(name, draw.randint(1, 4), windows=closing, **stage_options(**options)))
    alarms = receiver_of(process)
    leaf = MapTask(None, "key", ("number", "at"), alarms, False, 0, batch, 1.0)
    work: dict[str, Any] = {f"source {name}": Emission((leaf,), (), time=time) for name in sources}
    edges, emission = [Edge(f"source {name}", "first") for name in sources], None
    if collects:
        windowed = receiver_of(Collect())
        windowed = type(windowed)(windowed.executor, windowing=Windowing(_WINDOWS))
        key = ("key", START, END)
        rekey = RowOperator(RowKind.MAP, _by_number)
        assign = RowOperator(RowKind.MAP, Assign(_WINDOWS, EventTime("due")), on_batches=True)
        emission = Emission((MapTask(None, key, ("number",), windowed, False, 0, batch, 1.0),), (rekey, assign))
        work["second"] = ReduceStage(windowed, key)
        edges.append(Edge("first", "second"))
    work["first"] = ReduceStage(alarms, "key", emission)
    network = random_network(draw, seed)
    job = SimulatedJob(
        Graph(tuple(stages), tuple(edges)),
        work,
        step_seconds=lambda stage: 0.001,
        service_seconds=lambda stage, index: 0.004 if stage == "first" and index == 0 else 0.0005,
        network=network,
        ticks=None,
        tick_seconds=max(draw.choice([0.01, 0.05]), network.mean_delay),
    )
    return RandomTimers(job, tuple(rows), process, collects, is_kept)


def _by_number(row: Record) -> Record:
    return {"key": f"key {row['number'] % 3}", "number": row["number"], "due": row["due"]}


def run_random_timers(seed: int, max_steps: int = 1_000_000, **options: Any) -> SimulatedRun:
    """Run the job of a seed, and check its alarms; the rest as for `run_made`.

    Raises:
        InvariantViolationError: an invariant was broken, the job could not end, or its alarms are wrong.
    """
    return run_made(random_timers(seed), seed, max_steps, **options)
