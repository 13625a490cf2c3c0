"""What the tasks of a stage did with their time: since the stream began, as in the report, and lately, as in the live
views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpa.measure.bottleneck import StageLoad
from dpa.measure.lives import mean_part, part_of
from dpa.protocol.wire.metrics import StageSnapshot, TaskStats


def load_of(stage: StageSnapshot, seconds: float) -> StageLoad:
    """The load in a stream of `seconds` seconds, of all tasks that there have been; those that are forgotten count as
    one, which is not named as the busiest."""
    lived = [stage.life(task.index).seconds(seconds) for task in stage.tasks]
    if stage.forgotten is not None:
        lived.append(stage.forgotten.seconds)
    return _load(stage.name, stage.every_task, lived, seconds, len(stage.tasks))


def load_since(stage: StageSnapshot, before: StageSnapshot | None, at: float, elapsed: float) -> StageLoad:
    """The load in the last `elapsed` seconds, of the tasks that there are.

    Args:
        stage: `at` seconds after the stream began.
        before: `elapsed` seconds earlier; None: nothing had been done.
        at: in seconds.
        elapsed: in seconds.
    """
    known = {} if before is None else {task.index: task for task in before.tasks}
    tasks = [_since(task, known.get(task.index)) for task in stage.tasks if task.index in stage.present]
    lived = [min(stage.life(task.index).seconds(at), elapsed) for task in tasks]
    return _load(stage.name, tasks, lived, elapsed, len(tasks))


def _since(task: TaskStats, before: TaskStats | None) -> TaskStats:
    """With the time that was spent since an earlier moment."""
    if before is None:
        return task
    names = ("busy_seconds", "blocked_seconds", "waiting_seconds")
    return replace(task, **{name: max(getattr(task, name) - getattr(before, name), 0.0) for name in names})


def _load(stage: str, tasks: Sequence[TaskStats], lived: Sequence[float], seconds: float, named: int) -> StageLoad:
    """The load of a stage whose tasks took part for `lived` of `seconds` seconds; of the first `named` of them one is
    named as the busiest."""
    busy = [task.busy_seconds for task in tasks]
    parts = list(map(part_of, busy, lived))
    return StageLoad(
        stage,
        busy=mean_part(busy, lived, seconds),
        blocked=mean_part([task.blocked_seconds for task in tasks], lived, seconds),
        waiting=mean_part([task.waiting_seconds for task in tasks], lived, seconds),
        busiest=max(parts, default=0.0),
        task=tasks[max(range(named), key=parts.__getitem__)].index if named else 0,
    )
