"""Rounds of periodic aggregation (consistent grouping paper, section V-C), as the coordinator sees them."""

from __future__ import annotations

from dpa.errors import ProtocolError
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.messages.exchange import BeginExchange, RoundDone
from dpa.protocol.wire.metrics import AggregationStats


class Rounds:
    """When a round of a stage is due, whose share is still to come, and the sums over all rounds.

    Attributes:
        in_progress: whether a round has begun and not ended.
        number: of the newest round; 0 before the first.
    """

    def __init__(self, stage: str, seconds: float | None, tasks: int) -> None:
        """A round is due `seconds` after the last one ended, or the stream began; None: never."""
        self._stage = stage
        self._seconds = seconds
        self._tasks = tasks
        self.number = 0
        self._started_at = self._began_at = self._ended_at = 0.0
        self._shares: dict[int, RoundDone] = {}
        self._stats = AggregationStats()
        self.in_progress = False

    @property
    def stats(self) -> AggregationStats | None:
        """The completed rounds; None if there are to be none."""
        return None if self._seconds is None else self._stats

    def start(self, now: float) -> None:
        """The stream begins."""
        self._started_at = self._ended_at = now

    def due(self, now: float) -> bool:
        """Whether a round should begin."""
        return self._seconds is not None and not self.in_progress and now - self._ended_at >= self._seconds

    def begin(self, now: float) -> BeginExchange:
        """Begin the next round; returns the message for all tasks."""
        self.in_progress = True
        self.number += 1
        self._began_at = now
        self._shares = {}
        return BeginExchange(self.number, version=0)

    def note(self, sender: Address, share: RoundDone, now: float) -> Commit | None:
        """Note that a task's share is complete; with the last one the round has ended.

        Raises:
            ProtocolError: that share cannot come.
        """
        if not self.in_progress or share.number != self.number or sender.index in self._shares:
            raise ProtocolError(f"{sender} reports a share of round {share.number}, which nobody expects")
        self._shares[sender.index] = share
        if len(self._shares) < self._tasks:
            return None
        self.in_progress = False
        self._ended_at = now
        shares = [self._shares[index] for index in range(self._tasks)]
        self._stats = AggregationStats(
            self.number,
            self._stats.seconds + sum(share.seconds for share in shares),
            self._stats.states + sum(share.states for share in shares),
        )
        rows = tuple(share.rows for share in shares)
        return Commit(self._stage, self.number, self._began_at - self._started_at, rows)
