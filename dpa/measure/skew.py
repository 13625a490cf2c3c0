"""Skew and imbalance, each metric of the papers defined once, and the time in which tasks took part in their stage.

Tasks come and go while a job runs. So a task is judged by the time in which it took part, not by the whole stream."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

EVEN, UNEVEN = 0.05, 0.2  # S below the first is called even, above the second uneven


def skew(loads: Sequence[int], even: Sequence[Fraction] | None = None) -> float:
    """The skew S of the DPA paper (equation 2), from 0 (even) to 1 (all on one task).

    S = (W - U) / (M - U), with M the sum of `loads` (records processed by each task), W their maximum and
    U = ceil(M / R) the even share. Where M = U (no records, one record, or one task) nothing can be uneven: S is 0.

    Tasks that come and go have even shares of their own: `even`, one for each of `loads`, as `even_shares` gives them.
    Then S is the greatest excess of a task over its own, by the same formula:

        S = max over tasks i of (x_i - U_i) / (M - U_i), with x_i the load of i and U_i its even share, rounded up

    which is the paper's where all shares are M / R.
    """
    total = sum(loads)
    if even is None:
        excess = [(max(loads, default=0), -(-total // len(loads)) if loads else 0)]
    else:
        excess = [(load, math.ceil(share)) for load, share in zip(loads, even, strict=True)]
    return max(0.0, *((load - share) / (total - share) for load, share in excess if total > share), 0.0)


@dataclass(frozen=True)
class Life:
    """When a task took part: while the stage's members included it.

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
        """Of a stream of `stream` seconds, those in which it took part."""
        end = stream if self.went is None else min(self.went, stream)
        return max(end - self.came, 0.0)

    def includes(self, since: int, until: int) -> bool:
        """Whether it took part while the stage processed its records from number `since` to `until`."""
        ended = self.processed_until
        return self.processed_before <= since and (ended is None or until <= ended)


def part_of(spent: float, lived: float) -> float:
    """The part (0 to 1) of `lived` seconds. User code may outlast its task, so `spent` counts as `lived` at most."""
    return min(spent / lived, 1.0) if lived > 0 else 0.0


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
    """The same lives with the even share of the first `processed` records of their stage. A task that took part in
    these records alone can be forgotten."""
    shares = even_shares(lives, processed)
    return [
        replace(life, processed_before=max(life.processed_before, processed), even=share)
        for life, share in zip(lives, shares, strict=True)
    ]
