"""The event time that each stage has reached: no later row is earlier, if the inputs keep to their declared delay.

A stage passes on its watermark, or with windows the earliest time that they may still emit. A stage reaches the least
that its feeders pass on. Feeders that are done, idle or without event time do not count."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpa.protocol.coordinator._event_times import WatermarkHolder
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.wire.metrics import EventTimeStats
from dpa.protocol.wire.snapshots import TimeReached

_UNKNOWN = -(2**63)  # microseconds: before all rows


@dataclass(frozen=True)
class _Passed:
    """The watermark that a stage passes on, and the source that holds it back."""

    time: int
    source: str
    held: WatermarkHolder | None


class Watermarks:
    """Those of all stages. They never go back."""

    def __init__(self, stages: Mapping[str, StageProgress]) -> None:
        """`stages`: each after those that feed it."""
        self._stages = stages
        self._windowed = [stage for stage in stages.values() if stage.spec.windows is not None]
        self._timed: set[str] = set()
        self._before: dict[str, set[str]] = {}  # a stage is before itself, too
        for name, stage in stages.items():
            self._before[name] = {name}.union(*(self._before[feeder] for feeder in stage.feeders))
            if stage.spec.input.time is not None or not self._timed.isdisjoint(stage.feeders):
                self._timed.add(name)

    def advance(self) -> None:
        """Sources have paused, so all that they have read is known: stages reach what that allows."""
        for name, (reached, _) in self._now().items():
            self._stages[name].time.reached = reached

    def closing(self) -> bool:
        """Whether a cut now would close windows of any stage that may close windows again."""
        due = [stage for stage in self._windowed if stage.may_close]
        if not due:
            return False
        now = self._now()
        return any(stage.closes_by(now[stage.name][0].closed) for stage in due)

    def closes(self, stage: StageProgress) -> bool:
        # Windows that close upstream emit rows, which may come into windows of this stage in the same cut.
        now = self._now()
        return any(
            each.is_running and each.closes_by(now[each.name][0].closed)
            for each in self._windowed
            if each.name in self._before[stage.name]
        )

    def stats(self) -> dict[str, EventTimeStats]:
        found = {}
        for name, (reached, low) in self._now().items():
            if name in self._timed:
                stage = self._stages[name]
                found[name] = self._stats(EventTimeStats(reached.watermark, stage.time.closed, stage.opens), low)
        return found

    def _stats(self, reached: EventTimeStats, low: _Passed | None) -> EventTimeStats:
        if low is None or self._stages[low.source].splits.goes_by_clock:  # no input holds the clock back
            return reached
        channel = task = None
        if low.held is not None:
            channel = low.held.channel
            task = None if low.held.split is None else self._stages[low.source].splits.reader(low.held.split)
        return replace(reached, source=low.source, channel=channel, task=task)

    def _now(self) -> dict[str, tuple[TimeReached, _Passed | None]]:
        """What each stage would have reached if sources paused now, and what holds it back; None: nothing does."""
        found: dict[str, tuple[TimeReached, _Passed | None]] = {}
        passed: dict[str, _Passed | None] = {}
        for name, stage in self._stages.items():
            if stage.is_source:
                held = stage.held
                low = None if held is None else _Passed(_known(held.watermark), name, held)
            else:
                feeding = [passed[feeder] for feeder in sorted(stage.feeders) if not self._stages[feeder].is_done]
                low = min((each for each in feeding if each is not None), key=lambda each: each.time, default=None)
            reached = _later(stage, low)
            found[name] = reached, low
            passed[name] = _passes(stage, reached, low) if name in self._timed else None
        return found


def _later(stage: StageProgress, low: _Passed | None) -> TimeReached:
    known, windows = stage.time.reached, stage.spec.windows
    watermark = known.watermark
    if low is not None and low.time != _UNKNOWN:
        watermark = low.time if watermark is None else max(watermark, low.time)
    closed = known.closed
    if windows is not None and watermark is not None:
        closed = watermark - windows.lateness if closed is None else max(closed, watermark - windows.lateness)
    return replace(known, watermark=watermark, closed=closed)


def _passes(stage: StageProgress, reached: TimeReached, low: _Passed | None) -> _Passed | None:
    """What a stage passes on; None: it is idle."""
    windows = stage.spec.windows
    if low is None:
        is_open = windows is not None and stage.opens is not None
        if stage.is_source or not (stage.is_fed or is_open):
            return None
        low = _Passed(_UNKNOWN, stage.name, None)
    time = reached.watermark
    if windows is not None:
        time = None if reached.closed is None else reached.closed - windows.back
    return replace(low, time=_UNKNOWN if stage.spec.emits_at_end else _known(time))


def _known(time: int | None) -> int:
    return _UNKNOWN if time is None else time
