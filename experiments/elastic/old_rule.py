"""The rule that is compared with: more tasks while those there are have been busy, fewer while they have been idle, by
the share of their time in which user code works. That is at most 1, and a backlog does not count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from dpa.placement.online import OnlinePlacement
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.coordinator.planners import Planners
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import Graph
from dpa.protocol.wire.events import Rescale
from dpa.protocol.wire.metrics import TaskChange

_BUSY, _IDLE, _SECONDS, _LOOK_SECONDS, _FIRST_COST = 0.9, 0.4, 2.0, 1.0, 2.0


class _OldRule(Planners):
    """Of the one elastic stage of a job."""

    def __init__(self, graph: Graph, stages: Mapping[str, StageProgress]) -> None:
        super().__init__(graph, stages)
        (self._stage,) = (stages[stage.name] for stage in graph.stages if stage.elastic is not None)
        (self._options,) = (stage.elastic for stage in graph.stages if stage.elastic is not None)
        self._counted: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        self._cost = _FIRST_COST
        self._looked: float | None = None
        self._busy: dict[int, float] = {}

    def scaling_counts(self, stage: str) -> dict[str, int]:
        return dict(self._counted) if stage == self._stage.name else {}

    def changed(self, step: TaskChange) -> None:
        self._looked, self._cost = None, step.seconds
        self._since.clear()

    def _rescales(self, now: float, cores_busy: float) -> list[Rescale]:
        stage = self._stage
        if stage.is_changing or not stage.is_running or stage.ledger.began_at is None:
            return []
        busy = {index: stage.roster.tasks[index].busy_seconds for index in stage.roster.members}
        before, then = self._busy, self._looked
        if then is None or before.keys() != busy.keys():
            self._looked, self._busy = now, busy
            return []
        if now - then < _LOOK_SECONDS:
            return []
        self._looked, self._busy = now, busy
        share = min(sum(busy[index] - before[index] for index in busy) / (len(busy) * (now - then)), 1.0)
        wanted = self._wanted(share, now, cores_busy, self._seconds_left(now, stage.name))
        if wanted == len(busy):
            return []
        return [Rescale(None, stage.name, wanted, reason=f"busy {share:.0%} of the time")]

    def _wanted(self, share: float, now: float, cores_busy: float, left: float | None) -> int:
        tasks, options = len(self._stage.roster.members), self._options
        is_busy, is_idle = share >= _BUSY, share <= _IDLE
        held = self._held("busy", is_busy, now), self._held("idle", is_idle, now)
        if not (is_busy or is_idle) or max(held) < (_SECONDS if is_busy else 2 * _SECONDS):
            self._counted["not for long enough" if is_busy or is_idle else "within bounds"] += 1
            return tasks
        fitting = math.ceil(tasks * share / ((_BUSY + _IDLE) / 2) - 1e-9)
        wanted = max(fitting, tasks + 1) if is_busy else min(fitting, tasks - 1)
        assert options is not None
        wanted = min(max(wanted, options.min_tasks), options.max_tasks)
        gain = math.inf if left is None else left * (1 - tasks / wanted)
        if wanted > tasks and (cores_busy >= 0.95 or gain <= self._cost):
            return tasks
        return wanted

    def _held(self, what: str, holds: bool, now: float) -> float:
        if not holds:
            self._since.pop(what, None)
            return 0.0
        return now - self._since.setdefault(what, now)


class OldCoordinator(CoordinatorMachine):
    """The coordinator, with the rule that is compared with."""

    def __init__(self, graph: Graph, online: OnlinePlacement | None = None) -> None:
        super().__init__(graph, online)
        self._planners = _OldRule(graph, self.stages)
