"""Which requests for other tasks need no change, and which cannot be carried out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from dpa._util.words import plural
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.wire.events import Rescale, TaskRequest
from dpa.protocol.wire.instructions import Answer
from dpa.routing.members import MOST_TASKS


def without_change(request: TaskRequest, stages: Mapping[str, StageProgress]) -> Answer | None:
    """The answer to a request for which nothing is to be done, or nothing can be; None if it is to be carried out."""
    stage = stages.get(request.stage)
    if stage is not None and isinstance(request, Rescale) and request.tasks == len(stage.members):
        return Answer(request.request, f"{stage.name} has {plural(request.tasks, 'task')} already")
    why = unknown(request.stage, stages) if stage is None else _why_not(request, stage)
    return None if why is None else Answer(request.request, why, refused=True)


def unknown(stage: str, stages: Iterable[str]) -> str:
    return f"there is no stage {stage!r}; the stages are {', '.join(stages)}"


def _why_not(request: TaskRequest, stage: StageProgress) -> str | None:
    if stage.spec.why_fixed is not None:
        return f"the tasks of {stage.name} stay: {stage.spec.why_fixed}"
    if stage.has_nothing_left:
        return f"nothing was changed: {stage.why_over}"
    if isinstance(request, Rescale):
        if request.tasks > 1 and stage.spec.why_one is not None:
            return f"{stage.name} keeps its one task: {stage.spec.why_one}"
        within = 1 <= request.tasks <= MOST_TASKS
        return None if within else f"{stage.name} can have 1 to {MOST_TASKS} tasks, not {request.tasks}"
    twice = sorted(task for task, times in Counter(request.tasks).items() if times > 1)
    if twice:
        return f"{stage.name} {twice[0]} is named more than once"
    missing = sorted(set(request.tasks) - set(stage.members))
    if missing or not request.tasks:
        there = ", ".join(map(str, sorted(stage.members)))
        return f"{stage.name} has no task {', '.join(map(str, missing))}; it has {there}"
    return None
