"""Which tasks move when, as the N-Storm paper's experiments do it (5.1, 5.2): every minute some tasks, drawn at random,
go to other workers, and all workers have as many tasks as before, if that can be."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpa.protocol.graph import REDUCER
from dpa.protocol.wire.events import MoveTasks


@dataclass(frozen=True)
class Layout:
    """The nodes, the workers of each (processes), and the tasks that are moved; first spread evenly.

    The paper's cluster by default, with the 24 tasks of its second operator.
    """

    nodes: int = 2
    workers: int = 4
    tasks: int = 24

    @property
    def all_workers(self) -> int:
        """The workers of all nodes."""
        return self.nodes * self.workers

    @property
    def first(self) -> tuple[int, ...]:
        """The worker of each task before anything moves."""
        return tuple(task % self.all_workers for task in range(self.tasks))

    def node_of(self, worker: int) -> int:
        """The node of a worker."""
        return worker // self.workers


PUBLISHED_LAYOUT = Layout()


@dataclass(frozen=True)
class Redeployment:
    """A plan is published at a moment.

    Attributes:
        at: when, in seconds.
        before, after: the worker of each task by the last plan and by this one.
    """

    at: float
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def moved(self) -> tuple[int, ...]:
        """The tasks that move, in order."""
        return tuple(task for task, worker in enumerate(self.before) if worker != self.after[task])


def redeployments(layout: Layout, moved: int, moments: Sequence[float], seed: int) -> Iterator[Redeployment]:
    """A redeployment of so many tasks at each moment.

    Raises:
        ValueError: there are not so many tasks.
    """
    if moved > layout.tasks:
        raise ValueError(f"{moved} of {layout.tasks} tasks cannot move")
    draw, before = random.Random(seed), layout.first
    for at in moments:
        after = _moved(before, moved, layout.all_workers, draw)
        yield Redeployment(at, before, after)
        before = after


def _moved(before: tuple[int, ...], moved: int, workers: int, draw: random.Random) -> tuple[int, ...]:
    """Another worker for so many tasks: one after the other leaves one of the workers that have most for one of those
    that have fewest."""
    after, stay = list(before), set(range(len(before)))
    for _ in range(moved):
        have = Counter(after)
        most = max(have[before[task]] for task in stay)
        task = draw.choice([task for task in sorted(stay) if have[before[task]] == most])
        others = [worker for worker in range(workers) if worker != before[task]]
        least = min(have[worker] for worker in others)
        after[task] = draw.choice([worker for worker in others if have[worker] == least])
        stay.discard(task)
    return tuple(after)


def requests_of(plans: Sequence[Redeployment]) -> Iterator[MoveTasks]:
    """What the coordinator is asked for. A task that moves is a new one, with the next number."""
    numbers = list(range(len(plans[0].before)))
    following = len(numbers)
    for request, plan in enumerate(plans, start=1):
        yield MoveTasks(request, REDUCER, tuple(numbers[task] for task in plan.moved))
        for task in plan.moved:
            numbers[task], following = following, following + 1
