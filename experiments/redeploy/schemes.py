"""The ways to carry out a redeployment that the N-Storm paper compares (5.2), as times in which tasks do not work.

The master publishes a plan. The agent of each node looks for one every `T_S`; each worker looks what its node's agent
has every `T_W`. So nodes and workers learn of a plan at moments of their own, and a task that moves is away from the
one at which its old worker stops it until its new worker has started it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from experiments.redeploy.plans import Layout, Redeployment


@dataclass(frozen=True)
class Durations:
    """Seconds; the paper's (2.2, 3.3, 5.2), but for the last.

    Attributes:
        agent_cycle, worker_cycle: `T_S`, `T_W`: from one look to the next.
        lazy: `D_K`: how long a task that moves is kept at its old worker.
        stop: from when a whole job is stopped until it works again.
        restart: the same for a worker process. 155 s of 600 with ten redeployments (5.2.1); "over 10 s" is all that the
            text says (2.2).
        start: until a worker that runs has started one more task. The paper says that a task is away for less than a
            second where nobody waits for a cycle; this is in the middle.
    """

    agent_cycle: float = 10.0
    worker_cycle: float = 3.0
    lazy: float = 2.0
    stop: float = 30.0
    restart: float = 15.5
    start: float = 0.5


PUBLISHED = Durations()


@dataclass(frozen=True)
class Known:
    """When a plan becomes known.

    Attributes:
        on_node: when an agent that starts and kills workers does so, by node.
        in_worker: when a worker that starts and stops tasks does so.
    """

    on_node: tuple[float, ...]
    in_worker: tuple[float, ...]

    @classmethod
    def drawn(cls, at: float, layout: Layout, durations: Durations, draw: random.Random) -> Known:
        """Of a plan published at a moment. Where each cycle is then is drawn anew: real ones drift. An agent that kills
        workers does that every `T_W`, as in the paper's comparison (5.2)."""
        read = [at + draw.random() * durations.agent_cycle for _ in range(layout.nodes)]
        on_node = tuple(moment + draw.random() * durations.worker_cycle for moment in read)
        in_worker = tuple(
            read[layout.node_of(worker)] + draw.random() * durations.worker_cycle
            for worker in range(layout.all_workers)
        )
        return cls(on_node, in_worker)


Away: TypeAlias = "Mapping[int, tuple[float, float]]"
"""From when until when a task is away; one that ends before it begins is none."""

Scheme: TypeAlias = Callable[[Redeployment, Known, Layout, Durations], Away]
"""Who is away because of a redeployment."""


def stop_job(plan: Redeployment, known: Known, layout: Layout, durations: Durations) -> Away:
    """Storm: the whole job stops, and begins again by the new plan."""
    return dict.fromkeys(range(layout.tasks), (plan.at, plan.at + durations.stop))


def restart_workers(plan: Redeployment, known: Known, layout: Layout, durations: Durations) -> Away:
    """Storm*: workers that lose or gain a task restart, each with all its tasks."""
    touched = {worker for task in plan.moved for worker in (plan.before[task], plan.after[task])}

    def killed(worker: int) -> float:
        return known.on_node[layout.node_of(worker)]

    return {
        task: (killed(old), killed(new) + durations.restart)
        for task, (old, new) in enumerate(zip(plan.before, plan.after, strict=True))
        if old in touched
    }


def single_tasks(plan: Redeployment, known: Known, layout: Layout, durations: Durations) -> Away:
    """N-Storm: only tasks that move stop and start."""
    return {
        task: (known.in_worker[plan.before[task]], known.in_worker[plan.after[task]] + durations.start)
        for task in plan.moved
    }


def lazy_tasks(plan: Redeployment, known: Known, layout: Layout, durations: Durations) -> Away:
    """N-Storm+: the same, but the old worker keeps the task for `D_K` longer."""
    gaps = single_tasks(plan, known, layout, durations)
    return {task: (since + durations.lazy, until) for task, (since, until) in gaps.items()}


STOP, RESTART, SINGLE, LAZY, OURS = "stop the job", "restart workers", "single tasks", "lazy kill", "ours"

SCHEMES: Mapping[str, Scheme] = {STOP: stop_job, RESTART: restart_workers, SINGLE: single_tasks, LAZY: lazy_tasks}
"""The published ones; ours is carried out, not modelled."""


@dataclass(frozen=True)
class Polling:
    """What looking for a plan costs, in seconds of processor time: an agent's look, which its node's workers share, and
    a worker's."""

    agent: float = 0.0
    worker: float = 0.0

    def slowness(self, layout: Layout, durations: Durations) -> float:
        """The factor by which the tasks of a worker take longer.

        Raises:
            ValueError: nothing is left for tasks.
        """
        share = self.worker / durations.worker_cycle + self.agent / durations.agent_cycle / layout.workers
        if share >= 1:
            raise ValueError(f"looking for plans takes {share:.0%} of a processor")
        return 1 / (1 - share)


FREE = Polling()
