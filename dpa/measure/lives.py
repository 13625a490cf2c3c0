"""When tasks took part in their stage, and what follows for their shares of its time and its records.

Tasks come and go while a job runs. So a task is judged by the time in which it took part, not by the whole stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise


@dataclass(frozen=True)
class Life:
    """When a task took part: from the moment from which the stage's members include it, until they no longer do.

    Attributes:
        came: in seconds since the stream began; 0 of a first task.
        went: the same of its end; None of a task that still takes part.
        processed_before: records that all tasks of the stage had processed when it came.
        processed_until: records that they had processed when it went; None of a task that still takes part.
        even: its even share of records before those; 0 where `processed_before` says when it came.
    """

    came: float = 0.0
    went: float | None = None
    processed_before: int = 0
    processed_until: int | None = None
    even: Fraction = Fraction(0)

    def seconds(self, stream: float) -> float:
        """The part of a stream of `stream` seconds in which it took part, in seconds."""
        end = stream if self.went is None else min(self.went, stream)
        return max(end - self.came, 0.0)

    def includes(self, since: int, until: int) -> bool:
        """Whether it took part while the stage processed its records from number `since` to number `until`."""
        ended = self.processed_until
        return self.processed_before <= since and (ended is None or until <= ended)


def part_of(spent: float, lived: float) -> float:
    """The part (0 to 1) of `lived` seconds that `spent` seconds are; user code may run on after its task's end, and
    counts as no more than all of it."""
    return min(spent / lived, 1.0) if lived > 0 else 0.0


def mean_part(spent: Sequence[float], lived: Sequence[float], stream: float) -> float:
    """The mean over tasks of the part (0 to 1) of their time that they spent on something, weighted by that time:

        sum(spent) / sum(lived)

    so it is never above the greatest `part_of` a task. All are in seconds, one for each task; `stream`: of the whole
    stream, which is what each lived where tasks do not change.
    """
    tasks = sum(each / stream for each in lived) if stream > 0 else 0.0  # on average over the stream
    return part_of(sum(spent) / tasks, stream) if tasks > 0 else 0.0


def even_shares(lives: Sequence[Life], processed: int) -> list[Fraction]:
    """The records that each task of a stage would have processed if, at any moment, all that took part had processed
    equally many; of `processed` records in all.

    Between two changes of its tasks, n_k tasks processed m_k records. So the even share of task i is

        U_i = sum of m_k / n_k over all k in which i took part

    Where tasks are busy throughout, that is in proportion to the time that each took part. Where they do not change it
    is M / R, as in the DPA paper.
    """
    changes = {min(life.processed_before, processed) for life in lives}
    changes |= {min(life.processed_until, processed) for life in lives if life.processed_until is not None}
    shares = [life.even for life in lives]
    for since, until in pairwise(sorted({0, *changes, processed})):
        there = [index for index, life in enumerate(lives) if life.includes(since, until)]
        for index in there:
            shares[index] += Fraction(until - since, len(there))
    return shares


def settled(lives: Sequence[Life], processed: int) -> list[Life]:
    """The same lives with the even share of the first `processed` records of their stage: tasks that took part in these
    alone need not be known any more."""
    shares = even_shares(lives, processed)
    return [
        replace(life, processed_before=max(life.processed_before, processed), even=share)
        for life, share in zip(lives, shares, strict=True)
    ]
