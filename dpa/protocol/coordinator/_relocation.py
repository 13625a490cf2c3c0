"""The placement of a running job, looked at again at the ticks of the coordinator: `dpa.placement.online` decide."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpa.execution.failures import USER_ERRORS, executor_error
from dpa.placement.online import Deployment, Look, OnlinePlacement, policy_of
from dpa.placement.scores import Floats
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import MoveTasks, moves_by_stage
from dpa.protocol.wire.metrics import PlacementLook, TaskChange
from dpa.protocol.wire.use import TaskUse

_LOOKS_KEPT = 512


@dataclass(frozen=True)
class _Reported:
    """What a task had used at a moment."""

    use: TaskUse
    at: float

    def by_seconds(self, before: _Reported) -> float:
        """What makes a rate of what has been used since another report; 0 if this is the same one."""
        return 1 / (self.at - before.at) if self.at > before.at else 0.0

    def processors(self, before: _Reported) -> float:
        """That it has kept busy since another report."""
        return (self.use.cpu_seconds - before.use.cpu_seconds) * self.by_seconds(before)


_NOTHING = _Reported(TaskUse(), 0.0)  # of a task that was done before it could say anything


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
        self._tasks = self._all_tasks()
        self._now: dict[Address, _Reported] = {}
        self._before: dict[Address, _Reported] = {}
        self._looked_at: float | None = None

    def used(self, task: Address, use: TaskUse, now: float) -> None:
        self._now[task] = _Reported(use, now)

    def changed(self, step: TaskChange) -> None:
        """The tasks of a stage have changed. One that takes another's place is the same to the policy; where others
        came or went, it knows nothing of before."""
        self._looked_at = None
        became = {Address(step.stage, old): Address(step.stage, new) for old, new in step.moved}
        self._tasks = [became.get(task, task) for task in self._tasks]
        if len(step.moved) < max(len(step.started), len(step.stopped)):
            self._tasks = self._all_tasks()
            self._policy = policy_of(self._online)
        for task in step.stopped:
            self._now.pop(Address(step.stage, task), None)

    def abandoned(self, why: str) -> None:
        self.counts[why] += 1
        self._looked_at = None

    def tick(self, now: float, seconds_left: float | None) -> list[MoveTasks]:
        """The moves to make, if it is time to look; called while no tasks change. `seconds_left`: until the stream
        ends at the present rate; None: not known."""
        if self._looked_at is None:
            if all(task in self._now for task in self._running()):
                self._looked_at, self._before = now, dict(self._now)
            return []
        if not self._is_due(now - self._looked_at):
            return []
        deployment = self._measured()
        self._looked_at, self._before = now, dict(self._now)
        if deployment is None:
            self.counts["on a node that may not be used"] += 1
            return []
        if seconds_left is not None and seconds_left < self._online.options.seconds:
            self.counts["nearly done"] += 1
            return []
        look = self._looked(deployment, now)
        moves = ((self._tasks[at], self._online.ids[node]) for at, node in look.moves)
        return moves_by_stage(moves, look.reason)

    def _all_tasks(self) -> list[Address]:
        return [address for stage in self._stages.values() for address in stage.addresses]

    def _running(self) -> list[Address]:
        stages = [(task, self._stages[task.stage]) for task in self._tasks]
        return [task for task, stage in stages if stage.is_running and task.index not in stage.roster.ended]

    def _is_due(self, waited: float) -> bool:
        # User code that holds the interpreter keeps a task from reporting: then the look waits twice as long.
        seconds = self._online.options.seconds
        reported = all(self._now[task].at > self._before[task].at for task in self._running())
        return waited >= seconds and (reported or waited >= 2 * seconds)

    def _looked(self, deployment: Deployment, now: float) -> Look:
        try:
            look = self._policy.look(deployment)
        except USER_ERRORS as error:
            raise executor_error(self._policy, "look", "the tasks, as `placement.online.policy`", error) from None
        if not look.moves:
            self.counts[look.kind] += 1
        busiest = float(deployment.busy(self._online.cluster, deployment.node_of_task).max())
        crossing = deployment.crossing(deployment.node_of_task)
        self.looks.append(PlacementLook(now, busiest, crossing, len(look.moves), look.kind, look.reason))
        return look

    def _measured(self) -> Deployment | None:
        """What tasks did since the last look; None if one is on a node that is none of the placement's."""
        number = {node: at for at, node in enumerate(self._online.ids)}
        if not all(self._now[task].use.node in number for task in self._running()):
            return None
        tasks = self._tasks
        pairs = [(self._before.get(task, _NOTHING), self._now.get(task, _NOTHING)) for task in tasks]
        stages = [self._stages[task.stage] for task in tasks]
        return Deployment(
            tasks=tuple((task.stage, task.index) for task in tasks),
            node_of_task=np.array([number.get(now.use.node, 0) for _, now in pairs], dtype=np.int64),
            costs=np.array([max(0.0, now.processors(before)) for before, now in pairs]),
            traffic=np.stack([self._sent(before, now) for before, now in pairs]),
            queues=np.array([_used_queue(stage, task.index) for stage, task in zip(stages, tasks, strict=True)]),
            movable=np.array([stage.spec.why_fixed is None and stage.is_running for stage in stages], dtype=bool),
        )

    def _sent(self, before: _Reported, now: _Reported) -> Floats:
        """Bytes a second that a task has sent each task, shape (tasks,)."""
        place = {task: at for at, task in enumerate(self._tasks)}
        sent = np.zeros(len(place))
        for sign, reported in ((1, now), (-1, before)):
            for receiver, traffic in reported.use.sent.items():
                if receiver in place:
                    sent[place[receiver]] += sign * traffic.bytes
        rate: Floats = sent * now.by_seconds(before)
        return rate


def _used_queue(stage: StageProgress, index: int) -> float:
    """The used part of a task's queue, 0 to 1, by time where queues are held at one, else by records."""
    stats, flow = stage.roster.tasks[index], stage.spec.flow
    if flow.queue_seconds is None:
        return min(1.0, stats.queue / flow.in_flight_records)
    seconds = stats.busy_seconds / max(stats.processed, 1)
    return min(1.0, stats.queue * seconds / flow.queue_seconds)
