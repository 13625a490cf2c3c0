"""OTD: one task moves a cycle, to relieve a node or to keep traffic inside one (N-Storm, section 4). Each node is one
worker. A job file names it as `experiments.otd.policy:OneTaskACycle`.

A step is arithmetic on what was measured. Constants say what the paper leaves open. Where traffic is perfectly
even every first move is worth nothing, which a threshold would take for the end. Then a pair of moves to one node is
looked for: the first is made now, and the second is worth more in the next cycle.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from dpa.placement.online import Deployment, Look, OnlinePlacement
from dpa.placement.scores import Floats, rooms

Ints = npt.NDArray[np.int64]


_HIGH = 0.8  # used part of the processor, or of the queue, from which a load is high
_LOW_CPU, _LOW_QUEUE = 0.5, 0.2  # used parts up to which it is low, both
_MIN_GAIN = 0.01  # what an optimising move must keep inside nodes, as part of all traffic of the task that moves


class Case(Enum):
    """The rows of the cycle's table, by whether workers of high and of low load exist."""

    BALANCE = "high and low load: relieve the most loaded worker"
    LACKING = "high load, none low: resources are lacking"
    OPTIMISE = "low load, none high: keep traffic inside nodes"
    QUIET = "neither high nor low load"


@dataclass(frozen=True)
class TaskMove:
    """A task goes to a worker; `gain` bytes a second fewer cross between nodes (ASC, equation 5)."""

    task: int
    worker: int
    gain: float


@dataclass(frozen=True)
class CycleStep:
    """What one cycle decides, and why."""

    case: Case
    reason: str
    migration: TaskMove | None = None


@dataclass(frozen=True)
class Measured:
    """What was measured in a cycle.

    Attributes:
        traffic: tasks x tasks, bytes a second from the one to the other.
        task_cpu: what each task keeps busy of one worker's processor.
        cpu: used part of each worker's processor.
        queues: used part of each worker's queue.
    """

    traffic: Floats
    task_cpu: Floats
    cpu: Floats
    queues: Floats


class OnlineTaskDeployment:
    """Decides on one migration a cycle at most. Call `step` only when none is under way.

    Args:
        smoothing: cycles whose mean is judged.
        rest: cycles that a task which moved stays where it is.
    """

    def __init__(self, *, smoothing: int = 3, rest: int = 3) -> None:
        self._smoothing, self._rest = smoothing, rest
        self._recent: list[tuple[Floats, Floats]] = []  # cpu and queues of the last cycles
        self._resting: dict[int, int] = {}  # task -> cycles left

    def step(self, workers: Sequence[int], measured: Measured, fixed: Collection[int] = ()) -> CycleStep:
        """`workers`: the worker of each task; `fixed`: tasks that cannot move."""
        self._recent = [*self._recent, (measured.cpu, measured.queues)][-self._smoothing :]
        cpu, queues = (np.mean(recent, axis=0) for recent in zip(*self._recent, strict=True))
        self._resting = {task: left - 1 for task, left in self._resting.items() if left > 1}
        step = self._decided(np.array(workers, dtype=np.int64), measured, cpu, queues, fixed)
        if step.migration is not None:
            self._resting[step.migration.task] = self._rest + 1  # this cycle is over when the next begins
        return step

    def _decided(
        self, place: Ints, measured: Measured, cpu: Floats, queues: Floats, fixed: Collection[int]
    ) -> CycleStep:
        load = np.maximum(cpu, queues)
        worst = int(load.argmax())
        is_high, loaded = load[worst] >= _HIGH, f"worker {worst} is loaded {cpu[worst]:.0%}"
        low = (cpu <= _LOW_CPU) & (queues <= _LOW_QUEUE)
        if not low.any():
            if is_high:
                return CycleStep(Case.LACKING, f"{loaded}, and no worker has a low load")
            return CycleStep(Case.QUIET, "no worker's load is high or low")
        movable = [task for task in range(len(place)) if task not in self._resting and task not in fixed]
        if is_high:  # algorithm 1
            movable = [task for task in movable if place[task] == worst]
            best = _Candidates(movable, place, measured, cpu, low).best()
            return CycleStep(Case.BALANCE, loaded if best else f"{loaded}, but no task of it fits elsewhere", best)
        candidates = _Candidates(movable, place, measured, cpu, low)  # algorithm 2
        best = candidates.best()
        if best is None:
            return CycleStep(Case.OPTIMISE, "no task fits another node")
        if best.gain > _MIN_GAIN * candidates.traffic_of(best.task):
            return CycleStep(Case.OPTIMISE, "less traffic between nodes", best)
        first = candidates.first_of_pair()  # past a saddle: where traffic is even, no single move gains
        if first is None:
            return CycleStep(Case.OPTIMISE, f"the best move gains {best.gain:.3g} bytes/s, which is not enough")
        return CycleStep(Case.OPTIMISE, "less traffic between nodes once a second task has followed", first)


class OneTaskACycle:
    """OTD (N-Storm, section 4): a look is a cycle."""

    def __init__(self, online: OnlinePlacement) -> None:
        self._cluster = online.cluster
        self._otd = OnlineTaskDeployment()

    def look(self, deployment: Deployment) -> Look:
        """One cycle."""
        node_of_task = deployment.node_of_task
        queues = np.zeros(len(self._cluster.nodes))
        np.maximum.at(queues, node_of_task, deployment.queues)
        measured = Measured(
            deployment.traffic,
            # A task's part of a node depends on the node where they differ: that of the smallest is safe.
            deployment.costs / rooms(self._cluster).min(),
            deployment.busy(self._cluster, node_of_task),
            queues,
        )
        step = self._otd.step(node_of_task.tolist(), measured, fixed=np.flatnonzero(~deployment.movable).tolist())
        moves = () if step.migration is None else ((step.migration.task, step.migration.worker),)
        return Look(moves, step.case.name.lower(), step.reason)


class _Candidates:
    """Moves of some tasks, each to every worker of low load that stays below high."""

    def __init__(
        self, tasks: list[int], place: Ints, measured: Measured, cpu: Floats, low: npt.NDArray[np.bool_]
    ) -> None:
        self._tasks = np.array(tasks, dtype=np.int64)
        self._targets = np.flatnonzero(low)
        self._both = measured.traffic + measured.traffic.T
        self._task_cpu = measured.task_cpu[self._tasks]
        self._room = _HIGH - cpu[self._targets]
        self._homes, own = place[self._tasks], self._both[self._tasks]
        inside = np.stack([own[:, place == worker].sum(axis=1) for worker in self._targets], axis=1)
        now = (own * (place[None, :] == self._homes[:, None])).sum(axis=1)
        self._gains = inside - now[:, None]  # ASC: tasks x targets
        full = cpu[self._targets][None, :] + self._task_cpu[:, None] >= _HIGH
        self._gains[full | (self._homes[:, None] == self._targets[None, :])] = -np.inf

    def traffic_of(self, task: int) -> float:
        """Bytes a second, both ways."""
        return float(self._both[task].sum())

    def best(self) -> TaskMove | None:
        """The move of the greatest ASC."""
        if not np.isfinite(self._gains).any():
            return None
        row, column = np.unravel_index(int(self._gains.argmax()), self._gains.shape)
        return self._move(int(row), int(column))

    def first_of_pair(self) -> TaskMove | None:
        """The first move of the best pair to one worker that gains enough together."""
        own = self._both.sum(axis=1)[self._tasks]
        most, best = -np.inf, None
        for column in range(len(self._targets)):
            away = np.flatnonzero(np.isfinite(self._gains[:, column]))
            if len(away) < 2:
                continue
            gains, same = self._gains[away, column], np.equal.outer(self._homes[away], self._homes[away])
            here = self._tasks[away]
            together = np.add.outer(gains, gains) + self._both[np.ix_(here, here)] * (1 + same)
            np.fill_diagonal(together, -np.inf)
            together[np.add.outer(self._task_cpu[away], self._task_cpu[away]) >= self._room[column]] = -np.inf
            together[together <= _MIN_GAIN * np.add.outer(own[away], own[away])] = -np.inf
            if together.max() > most:
                most, best = together.max(), self._move(int(away[together.argmax() // len(away)]), column)
        return best

    def _move(self, row: int, column: int) -> TaskMove:
        return TaskMove(int(self._tasks[row]), int(self._targets[column]), float(self._gains[row, column]))
