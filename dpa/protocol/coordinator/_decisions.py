"""The decisions about one stage, as the coordinator keeps them for reports."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from dpa.balance.decision import Decision

_REFUSALS_KEPT = 2_000
"""Refusals kept in full; all are counted."""

_APPLIED_KEPT = 1_000
"""The same of applied decisions."""

_RECENT = 100
"""Applied decisions in a snapshot without history."""


class Decisions:
    """Applied decisions and refusals.

    Attributes:
        version: of the newest routing table that they published.
        counts: all of them, by outcome.
    """

    def __init__(self) -> None:
        self.version = 0
        self.counts: Counter[str] = Counter()
        self._applied: deque[Decision] = deque(maxlen=_APPLIED_KEPT)
        self._refused: deque[Decision] = deque(maxlen=_REFUSALS_KEPT)

    def note(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self.counts[decision.outcome.value] += 1
            if decision.version is None:
                self._refused.append(decision)
            else:
                self.version = decision.version
                self._applied.append(decision)

    def kept(self, *, history: bool) -> tuple[Decision, ...]:
        """Those that are kept, in order; without `history` the newest applied ones alone."""
        kept = [*self._applied, *self._refused] if history else [*self._applied][-_RECENT:]
        return tuple(sorted(kept, key=lambda decision: decision.at))
