"""The policies of a job that ask for changes of its tasks: how many each stage has, and on which nodes they are."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from dpa.placement.online import OnlinePlacement
from dpa.protocol.coordinator._relocation import Relocation
from dpa.protocol.coordinator.elasticity import Elasticity
from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import Graph
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import Rescale, TaskRequest
from dpa.protocol.wire.metrics import PlacementLook, TaskChange
from dpa.protocol.wire.use import TaskUse

_REST_SECONDS = 60.0
"""Seconds without requests after one whose tasks could not be started: most likely they would not start again."""


class Planners:
    """They ask while no other change is under way."""

    def __init__(self, graph: Graph, stages: Mapping[str, StageProgress], online: OnlinePlacement | None) -> None:
        self._graph = graph
        self._stages = stages
        self._elastic = Elasticity(graph, stages)
        self._relocation = None if online is None else Relocation(stages, online)
        self._rest_until = -math.inf

    def scaling_counts(self, stage: str) -> dict[str, int]:
        """How often the number of a stage's tasks stayed, by reason."""
        return self._elastic.counts_of(stage)

    @property
    def placement_counts(self) -> dict[str, int]:
        """How often no task was moved, by reason."""
        return {} if self._relocation is None else dict(self._relocation.counts)

    def placement_looks(self, started_at: float) -> tuple[PlacementLook, ...]:
        looks = () if self._relocation is None else self._relocation.looks
        return tuple(replace(look, at=look.at - started_at) for look in looks)

    def tick(self, now: float, cores_busy: float, membership: Membership) -> None:
        """Ask for the changes that are due; `cores_busy` as in `StageWork`."""
        if now < self._rest_until:
            return
        left = partial(self._seconds_left, now)
        for request in self._elastic.tick(now, cores_busy, left, can_change=membership.is_idle):
            membership.ask(request)
        if self._relocation is not None and membership.is_idle:
            for move in self._relocation.tick(now, self._seconds_left_of_job(now)):
                membership.ask(move)

    def used(self, task: Address, use: TaskUse, now: float) -> None:
        if self._relocation is not None:
            self._relocation.used(task, use, now)

    def changed(self, step: TaskChange) -> None:
        self._elastic.changed(step)
        if self._relocation is not None:
            self._relocation.changed(step)

    def abandoned(self, request: TaskRequest, now: float) -> None:
        """Tasks could not be started for a request: if a policy made it, all rest."""
        if request.request is not None:
            return
        self._rest_until = now + _REST_SECONDS
        if isinstance(request, Rescale):
            self._elastic.abandoned(request.stage)
        elif self._relocation is not None:
            self._relocation.abandoned()

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
