"""The policies of a job that ask for changes of its tasks, looked at in the ticks of the coordinator: how many tasks
each elastic stage has (`_demand` measures, `dpa.balance.elastic` decides), and on which nodes tasks are."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dpa.balance.elastic import ElasticPolicy, StageWork
from dpa.placement.online import OnlinePlacement
from dpa.protocol.coordinator._demand import TrueRates
from dpa.protocol.coordinator._relocation import Relocation
from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import Graph
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import Rescale, TaskRequest
from dpa.protocol.wire.metrics import PlacementLook, TaskChange
from dpa.protocol.wire.use import TaskUse

_REST_SECONDS = 60.0
"""Seconds without requests after one whose tasks could not be started: most likely they would not start again."""

_NOT_STARTED = "a task did not start"

_LOOK_SECONDS = 0.5  # from one look at elastic stages to the next: tasks report about twice meanwhile
_GAP = 2.0  # seconds without a look, as while tasks change, after which what was seen before counts no more
_HELD = 0.25  # a task that is blocked for this part of the time is held back
_MUCH = 1.0  # seconds of work that wait for a task which does not keep up


class Planners:
    """They ask while no other change is under way. Each elastic stage's number of tasks is decided independently."""

    def __init__(
        self, graph: Graph, stages: Mapping[str, StageProgress], online: OnlinePlacement | None = None
    ) -> None:
        self._graph = graph
        self._stages = stages
        self._relocation = None if online is None else Relocation(stages, online)
        self._rest_until = self._looked_at = -math.inf
        self._demand = TrueRates(graph, stages)
        self._policies = {
            stage.name: ElasticPolicy(stage.elastic) for stage in graph.in_order if stage.elastic is not None
        }
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in self._policies}
        self._behind_since: dict[str, dict[Address, float]] = {name: {} for name in self._policies}
        self._blocked: dict[Address, float] = {}

    def scaling_counts(self, stage: str) -> dict[str, int]:
        """How often the number of a stage's tasks stayed, by reason."""
        return dict(self._counts.get(stage, {}))

    @property
    def placement_counts(self) -> dict[str, int]:
        """How often no task was moved, by reason."""
        return {} if self._relocation is None else dict(self._relocation.counts)

    def placement_looks(self, started_at: float) -> tuple[PlacementLook, ...]:
        looks = () if self._relocation is None else self._relocation.looks
        return tuple(replace(look, at=look.at - started_at) for look in looks)

    def tick(self, now: float, cores_busy: float, membership: Membership) -> None:
        """Ask for the changes that are due; `cores_busy` as in `StageWork`."""
        if now < self._rest_until or not membership.is_idle:
            return
        for request in self._rescales(now, cores_busy):
            membership.ask(request)
        if self._relocation is not None and membership.is_idle:
            for move in self._relocation.tick(now, self._seconds_left_of_job(now)):
                membership.ask(move)

    def used(self, task: Address, use: TaskUse, now: float) -> None:
        if self._relocation is not None:
            self._relocation.used(task, use, now)

    def changed(self, step: TaskChange) -> None:
        for task in step.stopped:
            self._blocked.pop(Address(step.stage, task), None)
        if step.stage in self._policies:
            self._policies[step.stage].changed(step.seconds, started=bool(step.started))
            self._behind_since[step.stage].clear()
        if self._relocation is not None:
            self._relocation.changed(step)

    def abandoned(self, request: TaskRequest, now: float) -> None:
        """Tasks could not be started for a request: if a policy made it, all rest."""
        if request.request is not None:
            return
        self._rest_until = now + _REST_SECONDS
        if isinstance(request, Rescale):
            self._counts[request.stage][_NOT_STARTED] += 1
            self._forget()
        elif self._relocation is not None:
            self._relocation.abandoned(_NOT_STARTED)

    def _forget(self) -> None:
        for policy in self._policies.values():
            policy.forget()

    def _rescales(self, now: float, cores_busy: float) -> Iterable[Rescale]:
        """The changes of elastic stages, if it is time to look at these."""
        if not self._policies or now - self._looked_at < _LOOK_SECONDS:
            return []
        gap, self._looked_at = now - self._looked_at, now
        found = self._demand.look(now)
        if gap > _GAP:
            self._blocked.clear()
            self._behind_since = {name: {} for name in self._policies}
            self._forget()
            return []
        requests = [self._decide(name, found[name], now, cores_busy) for name in self._policies]
        return [request for request in requests if request is not None]

    def _decide(self, name: str, measured: StageWork, now: float, cores_busy: float) -> Rescale | None:
        stage = self._stages[name]
        if stage.is_changing or not stage.is_running or (stage.ledger.began_at is None and not stage.is_source):
            return None
        work = replace(
            measured,
            behind_seconds=self._behind_seconds(name, measured.rate or 0.0, now),
            cores_busy=0.0 if stage.spec.has_processors else cores_busy,
            seconds_left=self._seconds_left(now, name),
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
        behind = {task for task in stage.addresses if stage.roster.tasks[task.index].queue > _MUCH * rate}
        for feeder in self._graph.upstream(name):
            if len(self._graph.out_of(feeder.name)) == 1:
                behind |= {task for task in self._stages[feeder.name].addresses if self._was_held(task)}
        self._behind_since[name] = {task: since.get(task, now) for task in behind}
        return now - min(self._behind_since[name].values(), default=now)

    def _was_held(self, task: Address) -> bool:
        """Whether a task has been blocked for much of the time since the last look."""
        blocked = self._stages[task.stage].roster.tasks[task.index].blocked_seconds
        before, self._blocked[task] = self._blocked.get(task, blocked), blocked
        return blocked - before >= _HELD * _LOOK_SECONDS

    def _seconds_left(self, now: float, name: str) -> float | None:
        """Until a stage ends if the input is read at the same rate; None: not known, as for one fed by an operator."""
        if not all(self._graph.is_source(feeder.name) for feeder in self._graph.upstream(name)):
            return None
        read = sum(stage.ledger.read for stage in self._stages.values() if stage.is_source)
        if not read:
            return None
        return self._stages[name].ledger.since_start(now) * max(self._graph.rows - read, 0) / read

    def _seconds_left_of_job(self, now: float) -> float | None:
        left = [self._seconds_left(now, stage.name) for stage in self._graph.queue_fed()]
        return None if None in left else max((seconds for seconds in left if seconds is not None), default=None)
