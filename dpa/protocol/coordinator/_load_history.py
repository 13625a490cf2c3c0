"""Queue lengths over time, in bounded memory: when there are too many samples, every other one goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from dpa.protocol.wire.metrics import LoadSample, TaskStats

_MAX_SAMPLES = 1_024


class LoadHistory:
    """Keeps at most `_MAX_SAMPLES` samples, evenly spaced over the time so far, each of the tasks that there were."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, dict[int, tuple[int, int]]]] = []
        self._every = 1
        self._seen = 0

    def add(self, at: float, tasks: Sequence[TaskStats]) -> None:
        if self._seen % self._every == 0:
            self._samples.append((at, {stats.index: (stats.queue, stats.processed) for stats in tasks}))
        self._seen += 1
        if len(self._samples) > _MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2

    def samples(self, tasks: Mapping[int, TaskStats]) -> tuple[LoadSample, ...]:
        """The samples kept, in order, each with as many numbers: of these tasks, by ascending number, as far as there
        were any. A task had no records before it came; once it is gone it has none queued, and has
        processed what it had in all."""
        newest = list(accumulate((max(found, default=-1) for _, found in self._samples), max))
        shown = [stats for index, stats in tasks.items() if newest and index <= newest[-1]]
        made = []
        for (at, found), came in zip(self._samples, newest, strict=True):
            numbers = [found.get(stats.index, (0, stats.processed * (stats.index <= came))) for stats in shown]
            made.append(LoadSample(at, tuple(queue for queue, _ in numbers), tuple(done for _, done in numbers)))
        return tuple(made)
