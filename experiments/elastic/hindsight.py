"""The schedule of least cost of who knows the whole load beforehand, if tasks and changes cost what the policy takes
them to cost. It is given as long to answer as the policy needs to see a rise and to start tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.elastic.loads import Load


@dataclass(frozen=True)
class Hindsight:
    """The best schedule: how many changes it has, and how many tasks on average."""

    changes: int
    tasks: float


def best(load: Load, most: int, busy: float, change_seconds: float, delay_seconds: int) -> Hindsight:
    """The schedule of the least cost.

    Args:
        load: all of it.
        most: tasks at most.
        busy: the share of its time for which a task may be busy, on average over the last `delay_seconds`.
        change_seconds: a change costs as much as the tasks before or after it, whichever are more, in this time.
    """
    loads = load.tasks(np.arange(load.seconds) + 0.5)
    means = [loads[max(0, at + 1 - delay_seconds) : at + 1].mean() for at in range(len(loads))]
    sizes = np.arange(1, most + 1)
    change = change_seconds * np.maximum.outer(sizes, sizes) * ~np.eye(most, dtype=bool)  # from row to column
    cost = np.where(sizes == load.begins, 0.0, np.inf)
    before = []
    for mean in means:
        through = cost[:, None] + change
        before.append(through.argmin(axis=0))
        cost = through.min(axis=0) + np.where(busy * sizes >= mean, sizes, np.inf)
    place = int(cost.argmin())
    places = [place]
    for column in reversed(before):
        places.append(int(column[places[-1]]))
    schedule = sizes[places[::-1]]
    return Hindsight(int(np.count_nonzero(np.diff(schedule))), float(schedule[1:].mean()))
