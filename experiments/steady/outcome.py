"""What a run came to: the figures that both virtual and real runs have."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpa.balance.decision import Decision
from experiments.steady.methods import METHODS


@dataclass(frozen=True)
class Outcome:
    """One run of a scenario with a method.

    Attributes:
        part: `virtual`, or what kind of real run it was.
        seconds: of the stream.
        ideal: the least seconds it could take; NaN where that is not known.
        skew: S of the records that each reducer processed, 0 to 1.
        redistributions: the moment of each, in seconds since the stream began.
        forwarded: records passed from one reducer to another, as a share of all, each time counted.
        p50, p99: seconds from source to processed.
        processor: seconds of processor time of all actors in the stream; NaN in virtual time.
        reasons: of each redistribution.
    """

    part: str
    scenario: str
    method: str
    seconds: float
    ideal: float
    skew: float
    redistributions: tuple[float, ...]
    forwarded: float
    p50: float
    p99: float
    processor: float
    reasons: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Makespan by the ideal."""
        return self.seconds / self.ideal

    @property
    def last(self) -> float:
        """The moment of the last redistribution; 0 without any."""
        return max(self.redistributions, default=0.0)


@dataclass(frozen=True)
class Outcomes:
    """Runs, and what to ask them."""

    runs: tuple[Outcome, ...] = ()

    def of(self, part: str, scenario: str | None = None, method: str | None = None) -> Outcomes:
        """Those of a part, and of a scenario and a method if they are named."""
        return Outcomes(
            tuple(
                run
                for run in self.runs
                if run.part == part and scenario in (None, run.scenario) and method in (None, run.method)
            )
        )

    @property
    def parts(self) -> list[str]:
        """The parts, in the order in which they were run."""
        return list(dict.fromkeys(run.part for run in self.runs))

    @property
    def scenarios(self) -> list[str]:
        """The scenarios, in the order in which they were run."""
        return list(dict.fromkeys(run.scenario for run in self.runs))

    @property
    def methods(self) -> list[str]:
        """The methods, in the order of `METHODS`."""
        return [method for method in METHODS if any(run.method == method for run in self.runs)]

    def median(self, figure: Callable[[Outcome], float]) -> float:
        """The median of a figure of all runs."""
        return statistics.median(figure(run) for run in self.runs)

    def worst(self, figure: Callable[[Outcome], float]) -> float:
        """The greatest of a figure of all runs."""
        return max(figure(run) for run in self.runs)

    def plain(self) -> list[dict[str, Any]]:
        """All runs as plain data."""
        return [asdict(run) for run in self.runs]


def applied(decisions: Iterable[Decision]) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """The moment and the reason of each decision that published a table."""
    found: Sequence[Decision] = [decision for decision in decisions if decision.version is not None]
    return tuple(round(decision.at, 3) for decision in found), tuple(decision.reason for decision in found)
