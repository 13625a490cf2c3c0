"""In virtual time: a job in a closed loop, whose rate the busiest node limits, and one policy that moves its tasks.

Two bolts, as in the paper: every task of the first sends as much to every task of the second. *Compute-bound*: the
first bolt bears nine tenths of the cost; a third of its tasks are dear, and at first they share nodes; at two moments
others become dear. *Communication-bound*: tasks cost little, so one node could bear all of them. What is measured
varies from cycle to cycle, as on a real cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpa.placement.model import Cluster
from dpa.placement.online import Deployment
from dpa.placement.scores import Floats
from experiments.otd.methods import Method

CYCLES = 120
SHIFTS = (40, 80)
"""Cycles at which other tasks become dear."""

SHAPES: dict[str, tuple[int, int]] = {
    "2 x 4": (2, 4),
    "2 x 2": (2, 2),
    "4 x 2": (4, 2),
    "8 x 2": (8, 2),
    "16 x 2": (16, 2),
}
"""Nodes and processors of each: the paper's two nodes of four workers, then 2 to 16 nodes."""

OFFERED = 0.85
"""Processors that a compute-bound job would use at full rate, by those that there are."""
DEAR = 4.0
"""What a third of the first bolt's tasks cost, in that of the others: about a processor at full rate."""
VARIES = 0.05
"""By how much, either way, what is measured differs from what is."""
BYTES = 100e6
"""A second, between all tasks at full rate."""


@dataclass
class Job:
    """Tasks of two bolts on nodes, round robin at first, as Storm places them.

    Attributes:
        cluster: the nodes.
        first: how many tasks the first bolt has.
        costs: of each task, processors at full rate; shape (tasks,).
        traffic: bytes/s at full rate; shape (tasks, tasks).
        homes: the node of each task.
    """

    cluster: Cluster
    first: int
    costs: Floats
    traffic: Floats
    homes: np.ndarray[tuple[int], np.dtype[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        self.homes = np.arange(len(self.costs), dtype=np.int64) % len(self.cluster.nodes)

    @property
    def rate(self) -> float:
        """Of the full one, what the busiest node lets through."""
        return float(min(1.0, 1.0 / self._busy().max()))

    @property
    def cpu(self) -> float:
        """Mean use of all processors at that rate."""
        return float(self.rate * self._busy().mean())

    @property
    def crossing(self) -> float:
        """The part of all traffic that is between nodes."""
        apart = self.homes[:, None] != self.homes[None, :]
        return float(self.traffic[apart].sum() / self.traffic.sum())

    def measured(self, random: np.random.Generator) -> Deployment:
        """What a cycle would measure. A node's queues are full where it limits the rate."""
        rate, busy = self.rate, self._busy()
        limits = (busy >= 1 / rate - 1e-9) & (rate < 1)
        tasks = [("first", task) for task in range(self.first)]
        tasks += [("second", task) for task in range(len(self.costs) - self.first)]
        return Deployment(
            tuple(tasks),
            self.homes.copy(),
            rate * self.costs * random.uniform(1 - VARIES, 1 + VARIES, len(self.costs)),
            rate * self.traffic * random.uniform(1 - VARIES, 1 + VARIES, self.traffic.shape),
            np.where(limits[self.homes], 1.0, 0.0),
            np.ones(len(self.costs), dtype=bool),
        )

    def shift(self, random: np.random.Generator) -> None:
        """Others of the first bolt's tasks become dear."""
        self.costs[: self.first] = random.permutation(self.costs[: self.first])

    def _busy(self) -> Floats:
        rooms = [node.room for node in self.cluster.nodes]
        part: Floats = np.bincount(self.homes, self.costs, len(rooms)) / rooms
        return part


@dataclass
class Course:
    """What the cycles of a policy made of a job: figures before each cycle, and the tasks that each moved.

    Attributes:
        cpu: mean use of all processors, 0 to 1.
        crossing: the part of all traffic between nodes.
        rate: of the full one.
        moves: tasks moved.
        kinds: why, or why none.
    """

    cpu: list[float] = field(default_factory=list)
    crossing: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def cycles_until(self, reached: Callable[[int], bool]) -> int | None:
        """The first cycle before which something holds; None if it never does."""
        return next((cycle for cycle in range(len(self.cpu)) if reached(cycle)), None)


def compute_bound(nodes: int, processors: int) -> Job:
    """Its first bolt has a task and a half a processor, its second one three."""
    first, second = _tasks(nodes, processors)
    dear = sorted(range(first), key=lambda task: (task % nodes, task))[: first // 3]
    shares = np.ones(first)
    shares[dear] = DEAR
    costs = np.concatenate([0.9 * shares / shares.sum(), np.full(second, 0.1 / second)])
    return Job(Cluster.alike(nodes, processors), first, OFFERED * nodes * processors * costs, _between(first, second))


def communication_bound(nodes: int, processors: int) -> Job:
    """Every task costs so little that one node could bear all; but none may have much more than its share."""
    first, second = _tasks(nodes, processors)
    costs = np.full(first + second, 0.15 * nodes * processors / (first + second))
    return Job(Cluster.alike(nodes, processors), first, costs, _between(first, second))


KINDS: dict[str, Callable[[int, int], Job]] = {"compute": compute_bound, "communication": communication_bound}


def course(job: Job, method: Method, cycles: int, shifts: Sequence[int], seed: int) -> Course:
    """Let a policy work for some cycles."""
    policy, found = method.made(job.cluster), Course()
    random, noise = np.random.default_rng(seed + 1), np.random.default_rng(seed + 2)
    for cycle in range(cycles):
        if cycle in shifts:
            job.shift(random)
        found.cpu.append(job.cpu)
        found.crossing.append(job.crossing)
        found.rate.append(job.rate)
        look = policy.look(job.measured(noise))
        found.moves.append(len(look.moves))
        found.kinds.append(look.kind)
        for task, node in look.moves:
            job.homes[task] = node
    return found


def _tasks(nodes: int, processors: int) -> tuple[int, int]:
    return 3 * nodes * processors // 2, 3 * nodes * processors


def _between(first: int, second: int) -> Floats:
    traffic = np.zeros((first + second, first + second))
    traffic[:first, first:] = BYTES / (first * second)
    return traffic
