"""The Ray actor of the load balancer."""

from __future__ import annotations

import ray

from dpa.protocol.balancer.machine import LoadBalancerMachine, load_balancer_of
from dpa.protocol.plan import RunPlan
from dpa.protocol.wire.events import Redistribute
from dpa.routing.keys import Key
from dpa.runtime._actors import TaskActor


class LoadBalancerActor(TaskActor):
    """The load balancer, with the DPA paper's two calls (section 4.2) for tools and tests."""

    _machine: LoadBalancerMachine

    @ray.method(concurrency_group="control")
    def become(self, plan: RunPlan) -> None:
        """Be the load balancer of a plan, of which nothing but the graph matters."""
        self._leave_for(plan.generation)
        self._machine = load_balancer_of(plan.graph)
        self.host(self._machine, plan)

    @ray.method(concurrency_group="control")
    def key_lookup(self, key: Key, stage: str) -> int:
        """The task of a stage that owns a key now."""
        with self._shell.lock:
            return self._machine.key_lookup(key, stage)

    @ray.method(concurrency_group="control")
    def redistribute(self, node_id: int, stage: str) -> None:
        """Relieve a task whatever its load.

        Raises:
            BalanceError: there is no such task.
        """
        with self._shell.lock:
            self._machine.require_task(stage, node_id)
        self._shell.post(Redistribute(stage, node_id))
