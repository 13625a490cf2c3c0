"""A job whose tasks come, move and go without end, and how large what is kept and sent of it becomes.

`python tests/protocol/endless_job.py 2000 160000` prints the sizes of a job of so many changes, which is asked for so
many redistributions, at its quarters: that takes some minutes.
"""

from __future__ import annotations

import pickle
import sys
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from builders import receiver

from dpa.balance.options import BY_STRATEGY
from dpa.execution.mapping import MapTask
from dpa.executors import Reducer
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.history.recording import Segment
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import MoveTasks, Redistribute, Rescale, TaskRequest
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import Network, SimulatedJob, SimulatedRun

PACE = 0.02
"""Virtual seconds from one change to the next."""


class SumAlone(Reducer[int, int]):
    """Its states do not grow with the records."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        return state + value

    def finish(self, state: int) -> dict[str, Any]:
        return {"sum": state}


class Sum(SumAlone):
    """The same of a key that may have several states."""

    def merge(self, left: int, right: int) -> int:
        return left + right


def endless(changes: int, mode: str = "merge", strategy: str = "halving", redistributions: int = 0) -> SimulatedJob:
    """A job of two mappers and three reducers whose tasks come, move and go again, eight changes a round."""
    rows = int(3000 * (changes * PACE + 0.3))
    table = pa.table({"key": [f"key {row * row % 997 % 40}" for row in range(rows)], "number": list(range(rows))})
    job = map_reduce_job(
        memory_splits(table, 100),
        MapTask(None, "key", ("number",), receiver(Sum() if mode == "merge" else SumAlone()), False, 0, 10, 1.0),
        mappers=2,
        reducers=3,
        map_seconds=0.001,
        service_seconds=lambda index: 0.0006,
        network=Network(0.0001, 0.0005, duplicates=0.05),
        ticks=None,
        tick_seconds=0.05,
        balance=BY_STRATEGY[strategy](),
        consistency=mode,
        drain_seconds=0.001,
    )
    there = {MAPPER: [0, 1], REDUCER: [0, 1, 2]}
    following = {MAPPER: 2, REDUCER: 3}
    requests: list[tuple[float, TaskRequest | Redistribute]] = []
    for number in range(changes):
        stage = (REDUCER, MAPPER)[number // 2 % 2]
        request: TaskRequest
        if number % 2:  # the one that is there for longest moves
            request = MoveTasks(number, stage, (there[stage].pop(0),))
        elif number % 8 < 4:
            request = Rescale(number, stage, len(there[stage]) + 1)
        else:  # the newest goes
            there[stage].pop()
            request = Rescale(number, stage, len(there[stage]))
        if number % 2 or number % 8 < 4:
            there[stage].append(following[stage])
            following[stage] += 1
        at = 0.02 + number * PACE
        requests.append((at, request))
        asked = redistributions // changes
        requests += [(at + PACE * part / asked, Redistribute(REDUCER, there[REDUCER][0])) for part in range(asked)]
    return replace(job, requests=tuple(requests))


@dataclass
class Sizes:
    """Bytes, of what is pickled, at the moments when a job had carried out so many changes.

    Attributes:
        machines: the coordinator, the load balancer, and the largest task of each stage.
        messages: the largest of each kind since the last moment.
        snapshots: without and with their history.
    """

    machines: list[dict[str, int]] = field(default_factory=list)
    messages: list[dict[str, int]] = field(default_factory=list)
    snapshots: list[tuple[int, int]] = field(default_factory=list)


def size_of(thing: Any) -> int:
    return len(pickle.dumps(thing, protocol=5))


class Measured:
    """A run that is measured after so many changes."""

    def __init__(self, job: SimulatedJob, moments: tuple[int, ...], seed: int = 1) -> None:
        self.sizes = Sizes()
        self.cluster = SimulatedCluster(job, seed, watch=self._look)
        self._left = list(moments)
        self._messages_from = 0
        self.run: SimulatedRun = self.cluster.run(10_000_000)
        refused = [answer.text for answer in self.run.answers.values() if answer.refused]
        assert not self._left and not refused

    def _look(self, cluster: SimulatedCluster) -> None:
        if self._left and len(cluster.answers) >= self._left[0]:
            self._left.pop(0)
            self._measure()

    def _measure(self) -> None:
        machines: dict[str, int] = defaultdict(int)
        for address in (COORDINATOR, BALANCER, *self.cluster.coordinator.present):
            segment = Segment.begin(self.cluster.machines[address])
            shared = sum(map(size_of, segment.shared))
            machines[address.stage] = max(machines[address.stage], len(segment.pickled) + shared)
        messages: dict[str, int] = defaultdict(int)
        for _, _, event in self.cluster.log[self._messages_from :]:
            if isinstance(event, Envelope):
                kind = type(event.message).__name__
                messages[kind] = max(messages[kind], size_of(event))
        self._messages_from = len(self.cluster.log)
        coordinator = self.cluster.coordinator
        self.sizes.machines.append(dict(machines))
        self.sizes.messages.append(dict(messages))
        self.sizes.snapshots.append((size_of(coordinator.snapshot(history=False)), size_of(coordinator.snapshot())))


def main() -> None:
    """Print the sizes of a long job."""
    changes, redistributions = map(int, sys.argv[1:3])
    for mode, strategy in (("merge", "halving"), ("migrate", "adaptive")):
        moments = tuple(changes * quarter // 4 for quarter in (1, 2, 3, 4))
        measured = Measured(endless(changes, mode, strategy, redistributions), moments)
        counts = measured.run.snapshot[REDUCER].decision_counts
        print(f"{mode}, {strategy}: {len(measured.run.answers)} changes, {sum(counts.values())} decisions: {counts}")
        found = measured.sizes
        for moment, machines, messages, snapshots in zip(
            moments, found.machines, found.messages, found.snapshots, strict=True
        ):
            largest = max(messages, key=messages.__getitem__)
            print(f"  after {moment}: {machines}; snapshots {snapshots}; {largest} {messages[largest]}")


if __name__ == "__main__":
    main()
