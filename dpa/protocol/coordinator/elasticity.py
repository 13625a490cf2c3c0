"""Stages whose number of tasks follows their work, looked at in the ticks of the coordinator: `demand` measures,
`dpa.balance.elastic` decides."""

import math
from collections import Counter
from collections.abc import Callable, Mapping

from dpa.balance.elastic import ElasticPolicy, StageWork
from dpa.protocol.coordinator._demand import StageRates, TrueRates
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import Graph
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import Rescale
from dpa.protocol.wire.metrics import TaskChange

_LOOK_SECONDS = 0.5
"""From one look to the next: tasks report about twice meanwhile."""

_GAP = 2.0
"""Seconds without a look, as while tasks change, after which what was seen before counts no more."""

_HELD = 0.25
"""A task that is blocked for this part of the time is held back."""

_MUCH = 1.0
"""Seconds of work that wait for a task which does not keep up."""


class Elasticity:
    """All elastic stages of a job. Each stage's number of tasks is decided independently."""

    def __init__(self, graph: Graph, stages: Mapping[str, StageProgress]) -> None:
        self._graph = graph
        self._stages = stages
        self._demand = TrueRates(graph, stages)
        self._policies = {
            stage.name: ElasticPolicy(stage.elastic) for stage in graph.in_order if stage.elastic is not None
        }
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in self._policies}
        self._looked_at = -math.inf
        self._behind_since: dict[str, dict[Address, float]] = {name: {} for name in self._policies}
        self._blocked: dict[Address, float] = {}

    def counts_of(self, stage: str) -> dict[str, int]:
        return dict(self._counts.get(stage, {}))

    def changed(self, step: TaskChange) -> None:
        for task in step.stopped:
            self._blocked.pop(Address(step.stage, task), None)
        if step.stage in self._policies:
            self._policies[step.stage].changed(step.seconds, started=bool(step.started))
            self._behind_since[step.stage].clear()

    def abandoned(self, stage: str) -> None:
        self._counts[stage]["a task did not start"] += 1
        for policy in self._policies.values():
            policy.forget()

    def tick(
        self, now: float, cores_busy: float, seconds_left: Callable[[str], float | None], *, can_change: bool
    ) -> list[Rescale]:
        """The changes to ask for, if it is time to look; `cores_busy` and `seconds_left` as in `StageWork`."""
        if not self._policies or not can_change or now - self._looked_at < _LOOK_SECONDS:
            return []
        gap, self._looked_at = now - self._looked_at, now
        found = self._demand.look(now)
        if gap > _GAP:
            self._begin_again()
            return []
        requests = (self._decide(name, found[name], now, cores_busy, seconds_left(name)) for name in self._policies)
        return [request for request in requests if request is not None]

    def _begin_again(self) -> None:
        self._blocked.clear()
        for since in self._behind_since.values():
            since.clear()
        for policy in self._policies.values():
            policy.forget()

    def _decide(
        self, name: str, rates: StageRates, now: float, cores_busy: float, seconds_left: float | None
    ) -> Rescale | None:
        stage = self._stages[name]
        if stage.is_changing or not stage.is_running or (stage.ledger.began_at is None and not stage.is_source):
            return None
        work = StageWork(
            len(stage.members),
            rates.offered,
            rates.rate,
            rates.backlog,
            processed=rates.processed,
            behind_seconds=self._behind_seconds(name, rates.rate or 0.0, now),
            running=rates.running,
            cores_busy=0.0 if stage.spec.has_processors else cores_busy,
            seconds_left=seconds_left,
        )
        decision = self._policies[name].look(work, now)
        if decision.tasks != work.tasks:
            return Rescale(None, name, decision.tasks, reason=decision.reason)
        self._counts[name][decision.kind] += 1
        return None

    def _behind_seconds(self, name: str, rate: float, now: float) -> float:
        """For how long a task of a stage has had much to do at every look, or a task that feeds this stage alone has
        been held back; `rate`: records a second of one task."""
        stage, since = self._stages[name], self._behind_since[name]
        behind = {task for task in stage.addresses if stage.tasks[task.index].queue > _MUCH * rate}
        for feeder in self._graph.upstream(name):
            if len(self._graph.out_of(feeder.name)) == 1:
                behind |= {task for task in self._stages[feeder.name].addresses if self._was_held(task)}
        self._behind_since[name] = {task: since.get(task, now) for task in behind}
        return now - min(self._behind_since[name].values(), default=now)

    def _was_held(self, task: Address) -> bool:
        """Whether a task has been blocked for much of the time since the last look."""
        blocked = self._stages[task.stage].tasks[task.index].blocked_seconds
        before, self._blocked[task] = self._blocked.get(task, blocked), blocked
        return blocked - before >= _HELD * _LOOK_SECONDS
