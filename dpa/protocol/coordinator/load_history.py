"""Queue lengths over time, in bounded memory: when there are too many samples, every other one goes."""

from __future__ import annotations

from collections.abc import Sequence

from dpa.protocol.wire.metrics import LoadSample, TaskStats

_MAX_SAMPLES = 1_024


class LoadHistory:
    """Keeps at most `_MAX_SAMPLES` samples, evenly spaced over the time so far."""

    def __init__(self) -> None:
        self._samples: list[LoadSample] = []
        self._every = 1
        self._seen = 0

    def add(self, at: float, tasks: Sequence[TaskStats]) -> None:
        """Note all queues at `at` seconds."""
        if self._seen % self._every == 0:
            queues = tuple(stats.queue for stats in tasks)
            self._samples.append(LoadSample(at, queues, tuple(stats.processed for stats in tasks)))
        self._seen += 1
        if len(self._samples) > _MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2

    @property
    def samples(self) -> tuple[LoadSample, ...]:
        """The samples kept, in order; all with as many numbers: a task that was not there yet had no records."""
        tasks = max((len(sample.queues) for sample in self._samples), default=0)
        return tuple(sample.of(tasks) for sample in self._samples)
