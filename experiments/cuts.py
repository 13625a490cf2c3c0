"""How long a cut of the stream takes where one key has 60 % of the records, beside even keys, in virtual time: the
plain cut of the engine, and barriers that are aligned, as in the comparison of CheckMate (Siachamis et al., ICDE 2024).

At a plain cut sources wait until all that they have emitted is processed. With aligned barriers they go on: each sends
a barrier to every reducer behind its records, and a reducer takes no more from a sender whose barrier has come until it
has all of them. Both take as long as the longest queue: what differs between keys is how long that is. Barriers are a
model of their own here (`Aligned`), as the engine has none; plain cuts are those of the machines of a real job.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpa import Flow
from dpa.aggregates import Count
from dpa.protocol.graph import CheckpointTimes
from experiments.harness import Findings, at_most, main, markdown_table, plan_of, progress
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob

REDUCERS, MAPPERS = 4, 2
SERVICE_SECONDS = 0.002
"""Of a record, in a reducer."""

SOURCE_SECONDS = 0.00001
"""Of a record, in a mapper: sources are as fast as they may."""

HOT_SHARE, KEYS = 0.6, 10_000
RECORDS, QUICK_RECORDS = 40_000, 8_000
BLOCK, IN_FLIGHT = 50, 2_000
"""Records in a block, and of one mapper in flight at most: 2 s of work for each reducer, where keys are even."""

QUEUE_SECONDS = 0.5
EVERY, QUICK_EVERY = 4.0, 1.0
"""Seconds between cuts."""

BALANCE: dict[str, dict[str, Any]] = {
    "none": {},
    "adaptive": {"check_seconds": 0.25, "measure_seconds": 0.25},
}
ALIGNED = "aligned barriers"

WIDEST = 1.5
"""How many times as long as with even keys a cut may take."""


def keys_of(share: float, records: int, seed: int) -> pa.Array:
    """Keys, of which one has that share of all, and the others are drawn evenly."""
    random = np.random.default_rng(seed)
    cold = random.integers(1, KEYS, records)
    return pa.array(np.where(random.random(records) < share, 0, cold))


@dataclass(frozen=True)
class Cuts:
    """Those of one run.

    Attributes:
        number: how many.
        seconds: that one took, in the mean.
        longest: of one.
        all_seconds: of the run.
    """

    number: int
    seconds: float
    longest: float
    all_seconds: float


def plain(keys: pa.Array, strategy: str, queue_seconds: float | None, every: float, seed: int) -> Cuts:
    """Cuts of the engine, `every` some seconds; `seed` is the scheduler's."""
    limits = {"batch_records": BLOCK, "in_flight_records": IN_FLIGHT, "queue_seconds": queue_seconds}
    flow = Flow("cuts", limits={**limits, "quantum_seconds": 0.05, "split_records": 1_000})
    rows = flow.read(pa.table({"key": keys}), parallelism=MAPPERS).key_by("key", value=[])
    rows.reduce(Count(), parallelism=REDUCERS, balance={"strategy": strategy, **BALANCE[strategy]})
    plan = plan_of(flow.job())
    job = SimulatedJob(
        replace(plan.graph, checkpoints=CheckpointTimes(every)),
        plan.tasks,
        step_seconds=lambda stage: SOURCE_SECONDS,
        service_seconds=lambda stage, index: SERVICE_SECONDS,
        write_seconds=0.0,
        ticks=None,
    )
    cluster = SimulatedCluster(job, seed)
    epochs = cluster.run().snapshot.epochs
    began, ended = cluster.coordinator.started_at, cluster.coordinator.stream_ended_at
    assert began is not None and ended is not None
    _require_some(epochs.number)
    return Cuts(epochs.number, epochs.seconds / epochs.number, epochs.longest, ended - began)


class Aligned:
    """Aligned barriers: keys stay where a hash puts them, each sender has a channel to each reducer, which holds as
    many records as the mapper may have in flight to it, and a sender with a full channel waits. A record in a channel
    is 1, and a barrier 0."""

    def __init__(self, keys: pa.Array, queue_seconds: float | None, every: float) -> None:
        """As in `plain`."""
        owners = np.random.default_rng(0).permutation(KEYS)[keys.to_numpy()] % REDUCERS
        self._rows = [deque(part.tolist()) for part in np.array_split(owners, MAPPERS)]
        queue = IN_FLIGHT if queue_seconds is None else int(queue_seconds / SERVICE_SECONDS / MAPPERS)
        self._room, self._credit = queue, [IN_FLIGHT] * MAPPERS
        self._channels: list[list[deque[int]]] = [[deque() for _ in range(MAPPERS)] for _ in range(REDUCERS)]
        self._came: list[set[int]] = [set() for _ in range(REDUCERS)]
        self._is_busy = [False] * REDUCERS
        self._turns = [deque(range(MAPPERS)) for _ in range(REDUCERS)]
        self._events: list[tuple[float, int, int, int, int]] = []
        self._order = itertools.count()
        self._left = REDUCERS
        self._every = every
        self._began, self._due, self._now = 0.0, every, 0.0
        self._found: list[float] = []

    def run(self) -> Cuts:
        """All records, with a barrier every few seconds."""
        self._emit()
        while self._events:
            self._now, _, reducer, sender, records = heapq.heappop(self._events)
            self._is_busy[reducer] = False
            self._credit[sender] += records
            if self._now >= self._due:
                self._cut()
            self._emit()
            for each in range(REDUCERS):
                self._work(each)
        _require_some(len(self._found))
        return Cuts(len(self._found), float(np.mean(self._found)), max(self._found), self._now)

    def _cut(self) -> None:
        """Send barriers."""
        self._began, self._due, self._left = self._now, float("inf"), REDUCERS
        for channels in self._channels:
            for channel in channels:
                channel.append(0)

    def _emit(self) -> None:
        """Let each mapper push blocks until one has no room."""
        for sender, rows in enumerate(self._rows):
            while rows and self._credit[sender] > 0:
                channel = self._channels[rows[0]][sender]
                if len(channel) >= self._room:
                    break
                channel.append(1)
                rows.popleft()
                self._credit[sender] -= 1
        for reducer in range(REDUCERS):
            self._work(reducer)

    def _work(self, reducer: int) -> None:
        """Let a reducer begin with what has come by the channels that it may take from, in turn."""
        if self._is_busy[reducer]:
            return
        for sender in tuple(self._turns[reducer]):
            channel = self._channels[reducer][sender]
            while channel and channel[0] == 0 and sender not in self._came[reducer]:
                channel.popleft()
                self._align(reducer, sender)
            if channel and sender not in self._came[reducer]:
                records = 0
                while channel and channel[0] and records < BLOCK:
                    records += channel.popleft()
                if records:
                    self._turns[reducer].rotate(-1)
                    self._is_busy[reducer] = True
                    event = (self._now + records * SERVICE_SECONDS, next(self._order), reducer, sender, records)
                    heapq.heappush(self._events, event)
                    return

    def _align(self, reducer: int, sender: int) -> None:
        """A barrier has come."""
        self._came[reducer].add(sender)
        if len(self._came[reducer]) == MAPPERS:
            self._came[reducer].clear()
            self._left -= 1
            if self._left == 0:
                self._found.append(self._now - self._began)
                self._due = self._now + self._every


def measure(options: argparse.Namespace) -> Findings:
    """Every way, with even keys and a hot one."""
    records, every = (QUICK_RECORDS, QUICK_EVERY) if options.quick else (options.records, EVERY)
    rows, targets = [], []
    for queue_seconds, way in itertools.product((QUEUE_SECONDS, None), (*BALANCE, ALIGNED)):
        even, hot = (
            _cuts(way, keys_of(share, records, options.seed), queue_seconds, every, options.seed)
            for share in (0.0, HOT_SHARE)
        )
        times, shown = hot.seconds / even.seconds, "null" if queue_seconds is None else f"{queue_seconds:g}"
        progress(f"queue_seconds {shown}, {way}: {even.seconds:.2f} s, {hot.seconds:.2f} s with a hot key")
        name = way if way == ALIGNED else f"plain, `{way}`"
        rows.append((shown, name, even.seconds, hot.seconds, hot.longest, times, even.all_seconds, hot.all_seconds))
        if way != ALIGNED:
            what = f"seconds of a cut, one key at {HOT_SHARE:.0%} to even keys, queue_seconds {shown}, {way}"
            targets.append(at_most(what, times, WIDEST))
    head = ("queue_seconds", "cut", "even keys, s", "hot key, s", "longest", "times", "job, even, s", "job, hot, s")
    return Findings(
        data={"records": records, "rows": rows},
        targets=targets,
        text=f"{records:,} records, as fast as {REDUCERS} reducers take them, each of which does "
        f"{1 / SERVICE_SECONDS:,.0f} a second; {MAPPERS} mappers, a cut {every:g} s after the one before. Virtual "
        "time.\n\n" + markdown_table(head, rows),
    )


def _require_some(cuts: int) -> None:
    if not cuts:
        raise ValueError("the stream ended before a cut, so none can be measured: more --records")


def _cuts(way: str, keys: pa.Array, queue_seconds: float | None, every: float, seed: int) -> Cuts:
    if way == ALIGNED:
        return Aligned(keys, queue_seconds, every).run()
    return plain(keys, way, queue_seconds, every, seed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=RECORDS)
    main("cuts", parser, measure)
