"""OTD: one task moves a cycle, to relieve a worker or to keep traffic inside a node (N-Storm, section 4).

A step is arithmetic on what was measured; who measures and who moves is not known here. What the paper leaves open is
in `OtdOptions`. Traffic that is perfectly even makes every first move worth nothing, which a threshold would take for
the end: there a pair of moves to the same node is looked for, of which the first is made now and the second is worth
more in the next cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from dpa.placement.scores import Floats

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class OtdOptions:
    """When a worker's load is high or low, and what a move must gain.

    Attributes:
        high: used part of the processor, or of the queue, from which a load is high.
        low_cpu, low_queue: used parts up to which it is low, both.
        smoothing: cycles whose mean is judged.
        rest: cycles that a task which moved stays where it is.
        min_gain: what an optimising move must keep inside nodes, as part of all traffic of the task that moves.
    """

    high: float = 0.8
    low_cpu: float = 0.5
    low_queue: float = 0.2
    smoothing: int = 3
    rest: int = 3
    min_gain: float = 0.01


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
        nodes: the node of each worker.
    """

    def __init__(self, nodes: Sequence[int], options: OtdOptions = OtdOptions()) -> None:
        self._nodes = np.array(nodes, dtype=np.int64)
        self._options = options
        self._recent: list[tuple[Floats, Floats]] = []  # cpu and queues of the last cycles
        self._resting: dict[int, int] = {}  # task -> cycles left

    def step(self, workers: Sequence[int], measured: Measured, fixed: Collection[int] = ()) -> CycleStep:
        """Decide on this cycle.

        Args:
            workers: the worker of each task.
            fixed: tasks that cannot move.
        """
        place = np.array(workers, dtype=np.int64)
        cpu, queues = self._smoothed(measured)
        high = (cpu >= self._options.high) | (queues >= self._options.high)
        low = (cpu <= self._options.low_cpu) & (queues <= self._options.low_queue)
        self._resting = {task: left - 1 for task, left in self._resting.items() if left > 1}
        movable = [task for task in range(len(place)) if task not in self._resting and task not in fixed]
        if high.any() and not low.any():
            worst = int(np.maximum(cpu, queues).argmax())
            return CycleStep(Case.LACKING, f"worker {worst} is loaded {cpu[worst]:.0%}, and no worker has a low load")
        if high.any():
            step = self._balance(movable, place, measured, cpu, queues, high, low)
        elif low.any():
            step = self._optimise(movable, place, measured, cpu, low)
        else:
            step = CycleStep(Case.QUIET, "no worker's load is high or low")
        if step.migration is not None:
            self._resting[step.migration.task] = self._options.rest + 1  # this cycle is over when the next begins
        return step

    def _balance(
        self,
        movable: list[int],
        place: Ints,
        measured: Measured,
        cpu: Floats,
        queues: Floats,
        high: npt.NDArray[np.bool_],
        low: npt.NDArray[np.bool_],
    ) -> CycleStep:
        """Algorithm 1: the pair of greatest ASC between the most loaded worker's tasks and low workers."""
        worst = int(np.where(high, np.maximum(cpu, queues), -1.0).argmax())
        found = self._best([task for task in movable if place[task] == worst], place, measured, cpu, low)
        if found is None:
            return CycleStep(
                Case.BALANCE, f"worker {worst} is loaded {cpu[worst]:.0%}, but no task of it fits elsewhere"
            )
        return CycleStep(Case.BALANCE, f"worker {worst} is loaded {cpu[worst]:.0%}", found)

    def _optimise(
        self, movable: list[int], place: Ints, measured: Measured, cpu: Floats, low: npt.NDArray[np.bool_]
    ) -> CycleStep:
        """Algorithm 2: of all tasks the pair of greatest ASC, if it gains enough; else the first of two that do."""
        found = self._best(movable, place, measured, cpu, low)
        if found is None:
            return CycleStep(Case.OPTIMISE, "no task fits another node")
        own = measured.traffic[found.task].sum() + measured.traffic[:, found.task].sum()
        if found.gain > self._options.min_gain * own:
            return CycleStep(Case.OPTIMISE, "less traffic between nodes", found)
        first = self._first_of_pair(movable, place, measured, cpu, low)
        if first is None:
            return CycleStep(Case.OPTIMISE, f"the best move gains {found.gain:.3g} bytes/s, which is not enough")
        return CycleStep(Case.OPTIMISE, "less traffic between nodes once a second task has followed", first)

    def _best(
        self, tasks: list[int], place: Ints, measured: Measured, cpu: Floats, low: npt.NDArray[np.bool_]
    ) -> TaskMove | None:
        """The pair of greatest ASC of one of `tasks` and each node's least loaded low worker that stays below high."""
        targets, gains = self._candidates(tasks, place, measured, cpu, low)
        if not len(targets) or not np.isfinite(gains).any():
            return None
        row, column = (int(i) for i in np.unravel_index(int(gains.argmax()), gains.shape))
        return TaskMove(tasks[row], int(targets[column]), float(gains[row, column]))

    def _candidates(
        self, tasks: list[int], place: Ints, measured: Measured, cpu: Floats, low: npt.NDArray[np.bool_]
    ) -> tuple[Ints, Floats]:
        """Each node's least loaded low worker, and the ASC of each task (row) for each of them (column)."""
        targets = np.array(
            [
                candidates[cpu[candidates].argmin()]
                for node in np.unique(self._nodes)
                if len(candidates := np.flatnonzero(low & (self._nodes == node)))
            ],
            dtype=np.int64,
        )
        if not len(targets) or not tasks:
            return targets[:0], np.zeros((len(tasks), 0))
        both = measured.traffic + measured.traffic.T
        nodes_of_tasks = self._nodes[place]
        inside = np.stack([both[tasks][:, nodes_of_tasks == node].sum(axis=1) for node in self._nodes[targets]], axis=1)
        # What a task keeps inside now: where the target is on its own node, the score of moving is 0.
        now = (both[tasks] * (nodes_of_tasks[None, :] == nodes_of_tasks[tasks][:, None])).sum(axis=1)
        gains = inside - now[:, None]
        full = cpu[targets][None, :] + measured.task_cpu[tasks][:, None] >= self._options.high
        gains[full | (place[tasks][:, None] == targets[None, :])] = -np.inf
        return targets, gains

    def _first_of_pair(
        self, tasks: list[int], place: Ints, measured: Measured, cpu: Floats, low: npt.NDArray[np.bool_]
    ) -> TaskMove | None:
        """The first move of the best pair to one worker that gains enough together, past a saddle of the traffic."""
        targets, gains = self._candidates(tasks, place, measured, cpu, low)
        both = measured.traffic + measured.traffic.T
        nodes_of_tasks = self._nodes[place]
        own = both.sum(axis=1)[tasks]
        best: tuple[float, TaskMove] | None = None
        for column, worker in enumerate(targets.tolist()):
            away = np.flatnonzero(np.isfinite(gains[:, column]) & (nodes_of_tasks[tasks] != self._nodes[worker]))
            if len(away) < 2:
                continue
            here = np.array(tasks)[away]
            same = nodes_of_tasks[here][:, None] == nodes_of_tasks[here][None, :]
            together = gains[away, column][:, None] + gains[away, column][None, :]
            together = together + both[np.ix_(here, here)] * (1 + same)
            np.fill_diagonal(together, -np.inf)
            room = self._options.high - cpu[worker]
            cost = measured.task_cpu[here]
            together[cost[:, None] + cost[None, :] >= room] = -np.inf
            needed = self._options.min_gain * (own[away][:, None] + own[away][None, :])
            together[together <= needed] = -np.inf
            row, other = (int(i) for i in np.unravel_index(int(together.argmax()), together.shape))
            gain = float(together[row, other])
            if np.isfinite(gain) and (best is None or gain > best[0]):
                best = gain, TaskMove(int(here[row]), worker, float(gains[away[row], column]))
        return None if best is None else best[1]

    def _smoothed(self, measured: Measured) -> tuple[Floats, Floats]:
        """Means of the last cycles."""
        self._recent = [*self._recent[1 - self._options.smoothing :], (measured.cpu, measured.queues)]
        if self._options.smoothing == 1:
            self._recent = self._recent[-1:]
        cpu, queues = zip(*self._recent, strict=True)
        return np.mean(cpu, axis=0), np.mean(queues, axis=0)
