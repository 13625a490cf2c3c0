"""What a run came to: throughput, the seconds in which it was degraded, delays, and gaps."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.redeploy.course import Gap
from experiments.redeploy.plans import Redeployment
from experiments.redeploy.schemes import PUBLISHED, Durations

NONE = "none"
"""Nothing moves."""

LEVELS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Parts of the throughput that are lost: the paper counts the seconds of each (5.2.1)."""

_WARM_UP = 10
"""Seconds in which the first windows of credit are found."""


@dataclass(frozen=True)
class Case:
    """A run: a scheme, how many tasks move at a time, and what the scheme takes."""

    scheme: str
    moved: int = 0
    durations: Durations = PUBLISHED


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        rates: records processed in each second.
        p50, p99: seconds from source to processed; None of a model that has no delays.
        gaps: of each task at each redeployment that moved it: the longest time in which nobody worked on its keys,
            though it was away or had records that waited, in seconds.
        others: the longest such time of tasks that stayed.
    """

    case: Case
    rates: tuple[float, ...]
    p50: float | None
    p99: float | None
    gaps: tuple[float, ...]
    others: float

    @property
    def rate(self) -> float:
        """Records a second, on average."""
        return statistics.fmean(self.rates)

    @property
    def usual_rate(self) -> float:
        """The same, without the first seconds: what others are compared with where nothing moves."""
        return statistics.fmean(self.rates[_WARM_UP:])

    @property
    def longest_gap(self) -> float:
        """Of all tasks that moved; 0 where none did."""
        return max(self.gaps, default=0.0)

    @property
    def mean_gap(self) -> float:
        """Of all tasks that moved; 0 where none did."""
        return statistics.fmean(self.gaps) if self.gaps else 0.0

    def degraded(self, level: float, usual: float) -> int:
        """The seconds in which at least this part of the usual throughput was lost."""
        return sum(rate <= (1 - level) * usual for rate in self.rates)

    def plain(self, usual: float) -> dict[str, Any]:
        """For a result file."""
        degraded = {f"{level:.0%}": self.degraded(level, usual) for level in LEVELS}
        rates = [round(rate, 1) for rate in self.rates]
        gaps = {"tasks": len(self.gaps), "mean": self.mean_gap, "longest": self.longest_gap}
        return {**asdict(self), "rates": rates, "gaps": gaps, "degraded": degraded, "to_usual": self.rate / usual}


def longest_gaps(
    gaps: Mapping[int, Iterable[Gap]], plans: Sequence[Redeployment], until: float
) -> tuple[tuple[float, ...], float]:
    """Of each task that moves, at each redeployment, its longest gap until the next one; and the longest of all
    others."""
    moved, stayed = [], 0.0
    ends = [*(plan.at for plan in plans), until][1:]
    for plan, end in zip(plans, ends, strict=True):
        for task, found in gaps.items():
            longest = max((gap.seconds for gap in found if plan.at < gap.end and gap.begin < end), default=0.0)
            if task in plan.moved:
                moved.append(longest)
            else:
                stayed = max(stayed, longest)
    return tuple(moved), stayed
