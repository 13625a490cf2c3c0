"""The inputs of a job that are open: when they are closed, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.sources.splits import Split
from dpa.sources.until import Until


class OpenInputs:
    """Those of all sources, closed together, but for those that end by themselves.

    Attributes:
        were_open: whether any was when the job began, or the number of its rows was not known.
    """

    def __init__(self, stages: Iterable[StageProgress], until: Until, read_before: int) -> None:
        """`read_before`: rows that were read before the checkpoint with which the job begins."""
        self._sources = [stage for stage in stages if stage.is_source]
        self._until = until
        self._read_before = self._read = read_before
        self._changed_at = 0.0
        self.were_open = any(stage.splits.position is not None for stage in self._sources)
        self._open = [stage for stage in self._sources if not stage.spec.ends]

    @property
    def are_open(self) -> bool:
        """Whether more may come from any until somebody closes it."""
        return any(stage.splits.position is not None for stage in self._open)

    @property
    def given(self) -> Mapping[str, tuple[Split, ...]]:
        return {stage.name: tuple(stage.splits.given) for stage in self._sources if stage.splits.given is not None}

    def close(self) -> None:
        for stage in self._open:
            stage.splits.close()

    def tick(self, now: float, started_at: float) -> None:
        until = self._until
        if until == Until() or not self.are_open:
            return
        read = self._read_before + sum(stage.ledger.read for stage in self._sources)
        if read != self._read or not all(stage.splits.is_caught_up for stage in self._sources):
            self._read, self._changed_at = read, now
        is_over = until.seconds is not None and now - started_at >= until.seconds
        has_enough = until.records is not None and read >= until.records
        is_idle = until.idle is not None and now - max(started_at, self._changed_at) >= until.idle
        if is_over or has_enough or is_idle:
            self.close()
