"""The cells of Table 1: what the paper prints, and what ran on Ray and in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.letters import Race, Run, spread

PAPER = {
    ("wl1", "halving"): 0.08,
    ("wl1", "doubling"): 0.20,
    ("wl2", "halving"): 0.00,
    ("wl2", "doubling"): 0.08,
    ("wl3", "halving"): 1.00,
    ("wl3", "doubling"): 0.75,
    ("wl4", "halving"): 0.52,
    ("wl4", "doubling"): 0.11,
    ("wl5", "halving"): 0.20,
    ("wl5", "doubling"): 0.12,
    ("wl1", "none"): 0.00,
    ("wl1", "none, 1 token"): 1.00,
    ("wl2", "none"): 0.00,
    ("wl2", "none, 1 token"): 0.00,
    ("wl3", "none"): 1.00,
    ("wl3", "none, 1 token"): 1.00,
    ("wl4", "none"): 0.80,
    ("wl4", "none, 1 token"): 0.49,
    ("wl5", "none"): 0.20,
    ("wl5", "none, 1 token"): 0.55,
}
"""S in the paper's Table 1, by workload and method."""

IMPOSSIBLE = {("wl5", "none, 1 token"): 0.52}
"""What follows from the workload where the paper prints something else: wl5 has each letter 4 times, so that the
most that a reducer can have is a multiple of 4, which 0.55 is not made of."""

MAP_SECONDS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2)
REPORT_EVERY = (5, 10, 18, 20, 40)
"""The sweep: what a letter takes a mapper, and dequeued letters between two reports of a reducer. The paper's is 20."""


@dataclass(frozen=True)
class Swept:
    """The simulated runs of a workload and method that had the same race."""

    workload: str
    method: str
    race: Race
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Cell:
    """One cell of Table 1: a workload and method, what the paper has, and the runs on Ray and in virtual time."""

    workload: str
    method: str
    ray: tuple[Run, ...]
    swept: tuple[Swept, ...]

    @property
    def paper(self) -> float | None:
        """S in the paper, or None for a method that is not the paper's."""
        return PAPER.get((self.workload, self.method))

    @property
    def simulated(self) -> list[Run]:
        """The simulated runs with the paper's report period and swift mappers."""
        return [run for swept in self.swept if swept.race == Race(report_every=20) for run in swept.runs]

    @property
    def all_swept(self) -> list[Run]:
        """The simulated runs of the whole sweep."""
        return [run for swept in self.swept for run in swept.runs]

    @property
    def on_ray(self) -> bool:
        """Whether the paper's S lies within the range seen on Ray."""
        return self.paper is not None and _within(self.paper, self.ray)

    @property
    def in_sweep(self) -> bool:
        """Whether the paper's S lies within the range of the sweep."""
        return self.paper is not None and _within(self.paper, self.all_swept)

    @property
    def best(self) -> tuple[Run, ...]:
        """The runs on Ray, or the simulated ones where there are none."""
        return self.ray or tuple(self.simulated)

    @property
    def static(self) -> float:
        """S without balancing: the paper's, or what follows from the workload where the paper's is impossible."""
        place = self.workload, self.method
        return IMPOSSIBLE.get(place, PAPER[place])

    def plain(self) -> dict[str, Any]:
        """As the result keeps it."""
        return {
            "workload": self.workload,
            "method": self.method,
            "paper": self.paper,
            "inside_range_on_ray": self.on_ray,
            "inside_sweep": self.in_sweep,
            "sweep": [{**asdict(swept.race), **spread(swept.runs)} for swept in self.swept],
        }


def _within(skew: float, runs: Sequence[Run]) -> bool:
    """Whether S lies in the range of some runs, as precisely as the paper prints it."""
    return bool(runs) and round(min(run.skew for run in runs), 2) <= skew <= round(max(run.skew for run in runs), 2)
