"""The records of a stage, counted: what was emitted to it, and what it has read, processed and emitted."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from dpa.errors import ProtocolError
from dpa.protocol.coordinator._roster import Roster
from dpa.protocol.wire.metrics import TaskStats

_LOST_SECONDS = 60.0
"""A record unaccounted for this long (seconds), with all senders done and all queues empty, is considered lost."""


class Ledger:
    """Sums over all tasks that a stage has had, as far as they have reported. They are kept, as they are asked for with
    every message while a cut is made.

    Attributes:
        read: rows read.
        processed: records processed.
        began_at: when it was known to have processed its first record, a source to have read its first row; None
            before.
        drained_at: when all its records were processed, of a source when all rows were read and all records emitted;
            None before.
        changed_at: when it was last known to have come further; lost records are missed from then on.
        last_task: the task that was the last to have come further.
    """

    def __init__(self, stage: str, roster: Roster, feeders: Iterable[tuple[Ledger, int]]) -> None:
        """`feeders`: for each edge that enters the stage, who feeds it, and the edge's position among those that leave
        the feeder."""
        self.began_at: float | None = None
        self.drained_at: float | None = None
        self.changed_at = 0.0
        self.last_task = 0
        self.read = self.processed = 0
        self._emitted: tuple[int, ...] = ()
        self._stage = stage
        self._roster = roster
        self._feeders = [*feeders]
        self._started_at = 0.0

    @property
    def emitted_to(self) -> int:
        """Records emitted to the stage, on all edges that enter it; final once those that feed it are done."""
        return sum(feeder.emitted_on(position) for feeder, position in self._feeders)

    def emitted_on(self, position: int) -> int:
        """Records emitted on the edge at this position among those that leave the stage; final once it is done."""
        return self._emitted[position] if self._emitted else 0

    @property
    def is_settled(self) -> bool:
        """Whether all that was emitted to the stage is processed; to be asked when what feeds it emits no more.

        Raises:
            ProtocolError: more was processed than was emitted.
        """
        emitted, processed = self.emitted_to, self.processed
        if processed > emitted:
            raise ProtocolError(f"{self._stage}: {processed} records were processed, but only {emitted} were emitted")
        return processed == emitted

    def start(self, now: float) -> None:
        self._started_at = self.changed_at = now

    def moment(self, now: float) -> tuple[float, int]:
        """Seconds since the stream began, and the records processed by now."""
        return self.since_start(now), self.processed

    def since_start(self, at: float) -> float:
        return at - self._started_at

    @property
    def span(self) -> tuple[float | None, float | None]:
        """`began_at` and `drained_at` in seconds since the stream began."""
        began, drained = (None if at is None else self.since_start(at) for at in (self.began_at, self.drained_at))
        return began, drained

    def note(self, stats: TaskStats, now: float) -> None:
        before = self._roster.tasks[stats.index]
        if stats.processed > before.processed:
            self.changed_at, self.last_task = now, stats.index
        self.read += stats.read - before.read
        self.processed += stats.processed - before.processed
        if stats.emitted != before.emitted:
            more = (new - old for new, old in zip_longest(stats.emitted, before.emitted, fillvalue=0))
            self._emitted = tuple(map(sum, zip_longest(self._emitted, more, fillvalue=0)))
        if self.began_at is None and (stats.read or stats.processed):
            self.began_at = now
        self._roster.note(stats, now)

    def watch(self, now: float, *, is_draining: bool) -> None:
        """Fail rather than wait for ever for records that were lost: nobody has any, yet some are not processed. A task
        that reports nothing may have them: user code that holds the interpreter keeps reports from being sent. While
        tasks change, a stage waits for more than for records.

        Raises:
            ProtocolError: records are lost.
        """
        roster = self._roster
        if not is_draining or roster.change is not None or any(stats.queue for stats in roster.tasks.values()):
            self.changed_at = now
        elif roster.heard_at - self.changed_at > _LOST_SECONDS:
            lost = f"{self.emitted_to - self.processed} of {self.emitted_to} records to {self._stage} were lost"
            raise ProtocolError(f"{lost}: no task has had any for {_LOST_SECONDS:g} s")
