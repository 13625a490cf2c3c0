"""What a run came to: its changes, how late records were, and what its tasks cost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.elastic.loads import Floats, Load

_LATE = 1.0
"""Seconds after which a record that is due is late."""

_NEAR = 1
"""A stage has about the ideal number of tasks if it is so near."""


@dataclass(frozen=True)
class Change:
    """A change of the stage's tasks: when it was decided, how long it took, in seconds, how many there are then, and
    why."""

    at: float
    seconds: float
    tasks: int
    reason: str


@dataclass(frozen=True)
class Outcome:
    """A run.

    Attributes:
        load, queues, method, seed: which one.
        changes: of the number of tasks.
        late: seconds in which records were late.
        longest: the longest time without a break in which they were.
        task_seconds: of all tasks together.
        direct: rises and falls of the load after which there was more than one change, or after which the number was
            not about the ideal one in the end; -1 where the load has no plateaus.
        undone: changes that took back what the one before had done, though the load had not changed its direction.
        turns: how often the load changed its direction.
    """

    load: str
    queues: str
    method: str
    seed: int
    changes: tuple[Change, ...]
    late: float
    longest: float
    task_seconds: float
    off: int
    undone: int
    turns: int


def outcome_of(
    load: Load,
    names: tuple[str, str, int],
    changes: Sequence[Change],
    processed: tuple[Floats, Floats],
    service_seconds: float,
    target: float,
) -> Outcome:
    """What a run came to.

    Args:
        load: what was due.
        names: how queues were bounded, the method, and the seed.
        changes: of its tasks, in order.
        processed: moments, and how many records had been processed by each; shape (moments,) both.
        service_seconds: what a record takes.
        target: the share of its time for which an ideal task is busy.
    """
    at, done = processed
    due = np.searchsorted(load.due(service_seconds), at - _LATE, side="right")
    is_late = np.append(done < due, False)
    widths = np.append(np.diff(at), 0.0)
    longest = since = 0.0
    for moment, late in zip(np.append(at, at[-1]), is_late, strict=True):
        since = since if late else moment
        longest = max(longest, moment - since)
    return Outcome(
        load.name,
        *names,
        tuple(changes),
        late=float(widths[is_late[:-1]].sum()),
        longest=float(longest),
        task_seconds=_task_seconds(load, changes, at[-1]),
        off=_off(load, changes, target),
        undone=_undone(load, changes),
        turns=len(load.turns),
    )


def tasks_at(load: Load, changes: Sequence[Change], moment: float) -> int:
    """How many tasks there are at a moment, those that are starting not counted."""
    return next((change.tasks for change in reversed(changes) if change.at + change.seconds <= moment), load.begins)


def _task_seconds(load: Load, changes: Sequence[Change], until: float) -> float:
    """Tasks that start are paid for from then on."""
    moments = [0.0, *(change.at for change in changes), until]
    numbers = [load.begins, *(change.tasks for change in changes)]
    stretches = zip(numbers, itertools.pairwise(moments), strict=True)
    return float(sum(number * (end - begin) for number, (begin, end) in stretches))


def _off(load: Load, changes: Sequence[Change], target: float) -> int:
    """The stretches from one turn to the next that took more than one change, or did not come near the ideal."""
    ideal, found = load.ideal(target), 0
    for begin, end in zip(load.turns, (*load.turns[1:], load.seconds), strict=True):
        within = [change for change in changes if begin <= change.at < end]
        distance = abs(tasks_at(load, changes, end) - ideal[min(int(end), len(ideal)) - 1])
        found += len(within) > 1 or distance > _NEAR
    return found


def _undone(load: Load, changes: Sequence[Change]) -> int:
    """Changes back without a turn of the load since the one before."""
    found = 0
    numbers = [load.begins, *(change.tasks for change in changes)]
    for place in range(1, len(changes)):
        before, now, after = numbers[place - 1 : place + 2]
        turned = any(changes[place - 1].at < turn <= changes[place].at for turn in load.turns)
        found += (now - before) * (after - now) < 0 and not turned
    return found
