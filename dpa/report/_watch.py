"""What the live views derive from the snapshots of a run: totals, rates, and which redistributions are new.

No clock and no output: time is the snapshots' own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dpa.balance.decision import Decision, Outcome
from dpa.protocol.metrics import ReducerStats, Snapshot

RATE_SECONDS = 3.0
"""Rates are means over about this much of the stream."""


@dataclass(frozen=True)
class Totals:
    """A run so far, summed over tasks; rates in records/s over the last few seconds, `at` in seconds of the stream."""

    at: float = 0.0
    rows: int = 0
    read: int = 0
    mapped: int = 0
    emitted: int = 0
    processed: int = 0
    forwarded: int = 0
    mapped_rate: float = 0.0
    processed_rate: float = 0.0
    redistributions: int = 0
    longest: ReducerStats | None = None

    @property
    def share_read(self) -> float | None:
        """Of the input rows, the share read (0 to 1); None while their number is not known."""
        return min(self.read / self.rows, 1.0) if self.rows else None

    @property
    def all_read(self) -> bool:
        """Whether no input is left to read, as far as its size is known."""
        return 0 < self.rows <= self.read

    @property
    def share_processed(self) -> float:
        """Of the records emitted so far, the share processed (0 to 1)."""
        return min(self.processed / self.emitted, 1.0) if self.emitted else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all records are processed; None before that can be estimated.

        The slower of two: the rows left, at the mean rate of reading; and the records left, those of unread rows
        included, at the latest rate of processing.
        """
        share = self.share_read
        if not share or self.at < 1 or not self.processed_rate:
            return None
        reading = self.at * (1 / share - 1)
        processing = (self.emitted / share - self.processed) / self.processed_rate
        return max(reading, processing)

    @property
    def in_flight(self) -> int:
        """Records emitted and not yet processed."""
        return max(self.emitted - self.processed, 0)


class Watch:
    """Folds snapshots, oldest first, into `Totals` and news."""

    def __init__(self) -> None:
        self.totals = Totals()
        self._epoch = -1
        self._seen = 0
        self._history: deque[Totals] = deque()

    def update(self, snapshot: Snapshot) -> list[Decision]:
        """Take in a snapshot; the applied redistributions that no earlier snapshot held, in order."""
        news = [
            decision
            for decision in snapshot.decisions
            if decision.outcome is Outcome.APPLIED and decision.epoch is not None and decision.epoch > self._epoch
        ]
        if news:
            self._epoch = max(decision.epoch for decision in news if decision.epoch is not None)
        self._seen += len(news)
        self.totals = self._sum(snapshot)
        self._history.append(self.totals)
        while len(self._history) > 2 and self.totals.at - self._history[1].at >= RATE_SECONDS:
            self._history.popleft()
        return news

    def _sum(self, snapshot: Snapshot) -> Totals:
        mapped = sum(mapper.mapped for mapper in snapshot.mappers)
        processed = sum(reducer.processed for reducer in snapshot.reducers)
        since = self._history[0] if self._history else Totals()
        elapsed = snapshot.at - since.at
        longest = max(snapshot.reducers, key=lambda reducer: reducer.queue, default=None)
        return Totals(
            at=snapshot.at,
            rows=snapshot.rows,
            read=sum(mapper.read for mapper in snapshot.mappers),
            mapped=mapped,
            emitted=sum(mapper.emitted for mapper in snapshot.mappers),
            processed=processed,
            forwarded=sum(reducer.forwarded for reducer in snapshot.reducers),
            # A recovery rolls counts back, and a rate below zero helps nobody.
            mapped_rate=max(mapped - since.mapped, 0) / elapsed if elapsed > 0 else self.totals.mapped_rate,
            processed_rate=max(processed - since.processed, 0) / elapsed if elapsed > 0 else self.totals.processed_rate,
            redistributions=max(snapshot.decision_counts.get(Outcome.APPLIED.value, 0), self._seen),
            longest=longest if longest is not None and longest.queue > 0 else None,
        )
