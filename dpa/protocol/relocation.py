"""The placement of a running job, looked at again at the ticks of the coordinator: `dpa.placement.online` decides."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

import numpy as np

from dpa.measure.traffic import Traffic
from dpa.placement.online import Deployment, Look, OnlinePlacement, policy_of
from dpa.protocol.addresses import Address
from dpa.protocol.events import MoveTasks
from dpa.protocol.metrics import PlacementLook, PlanStep
from dpa.protocol.stage_progress import StageProgress
from dpa.protocol.use import TaskUse

Use = Mapping[Address, TaskUse]

_LOOKS_KEPT = 512


class Relocation:
    """All stages of a job.

    Attributes:
        looks: the last of them.
        counts: how often it was decided not to move anything, by reason.
    """

    def __init__(self, stages: Mapping[str, StageProgress], online: OnlinePlacement) -> None:
        self.looks: deque[PlacementLook] = deque(maxlen=_LOOKS_KEPT)
        self.counts: Counter[str] = Counter()
        self._stages = stages
        self._online = online
        self._policy = policy_of(online)
        self._tasks = [address for stage in stages.values() for address in stage.addresses]
        self._before: Use = {}
        self._looked_at: float | None = None

    def changed(self, step: PlanStep) -> None:
        """The tasks of a stage have changed. One that takes another's place is the same to the policy; where others
        came or went, it knows nothing of before."""
        self._looked_at = None
        became = {Address(step.stage, old): Address(step.stage, new) for old, new in step.moved}
        self._tasks = [became.get(task, task) for task in self._tasks]
        if len(step.moved) < max(len(step.started), len(step.stopped)):
            self._tasks = [address for stage in self._stages.values() for address in stage.addresses]
            self._policy = policy_of(self._online)

    def tick(self, now: float, use: Use, seconds_left: float | None) -> list[MoveTasks]:
        """The moves to make, if it is time to look and there are some. Called when the tasks of no stage change.

        Args:
            now: seconds.
            use: what tasks have used so far.
            seconds_left: until the stream would end at the present rate; None: nobody knows.
        """
        if self._looked_at is None or not self._before.keys() >= set(self._tasks):
            self._looked_at, self._before = now, dict(use)
            return []
        seconds = now - self._looked_at
        if seconds < self._online.options.seconds:
            return []
        deployment = self._measured(use, seconds)
        self._looked_at, self._before = now, dict(use)
        if deployment is None:
            self.counts["on a node that may not be used"] += 1
            return []
        if seconds_left is not None and seconds_left < self._online.options.seconds:
            self.counts["nearly done"] += 1
            return []
        look = self._policy.look(deployment)
        if not look.moves:
            self.counts[look.kind] += 1
        busiest = float(deployment.busy(self._online.cluster, deployment.homes).max())
        crossing = deployment.crossing(deployment.homes)
        self.looks.append(PlacementLook(now, busiest, crossing, len(look.moves), look.kind, look.reason))
        return self._requests(look)

    def _measured(self, use: Use, seconds: float) -> Deployment | None:
        """What tasks did in the last seconds; None if one is on a node that is none of the placement's."""
        number = {node: at for at, node in enumerate(self._online.ids)}
        if not all(use[task].node in number for task in self._tasks):
            return None
        tasks, before = self._tasks, self._before
        costs = [(use[task].cpu_seconds - before[task].cpu_seconds) / seconds for task in tasks]
        traffic = [[_bytes(use, one, other) - _bytes(before, one, other) for other in tasks] for one in tasks]
        stages = [self._stages[task.stage] for task in tasks]
        return Deployment(
            tasks=tuple((task.stage, task.index) for task in tasks),
            homes=np.array([number[use[task].node] for task in tasks], dtype=np.int64),
            costs=np.maximum(costs, 0.0),
            traffic=np.array(traffic, dtype=float).reshape(len(tasks), len(tasks)) / seconds,
            queues=np.array([stage.used_queue(task.index) for stage, task in zip(stages, tasks, strict=True)]),
            movable=np.array([stage.why_fixed is None and stage.is_running for stage in stages], dtype=bool),
        )

    def _requests(self, look: Look) -> list[MoveTasks]:
        """The moves of each stage together."""
        moves: dict[str, list[tuple[int, str]]] = {}
        for at, node in look.moves:
            task = self._tasks[at]
            moves.setdefault(task.stage, []).append((task.index, self._online.ids[node]))
        return [
            MoveTasks(None, stage, tuple(task for task, _ in pairs), tuple(node for _, node in pairs), look.reason)
            for stage, pairs in moves.items()
        ]


def _bytes(use: Use, one: Address, other: Address) -> int:
    """What one task has sent the other so far."""
    return use[one].sent.get(other, Traffic()).bytes
