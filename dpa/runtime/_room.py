"""What a task has for its states, where that goes by the memory of its node."""

from __future__ import annotations

import math

import ray
from ray import cloudpickle

from dpa.execution.spill.room import Room
from dpa.protocol.plan import RunPlan

_SHARE = 0.5
"""The part of a node's memory that states may take; the rest is for processes, and for records on their way: so Ray's
memory monitor, which kills at 95 % of the machine, has no reason to."""

_LEAST_MB = 16


def room_in(plan: RunPlan, seed: int) -> Room | None:
    """The room of a task of the plan on this node, whose keys are hashed with `seed`."""
    auto = _auto_mb(plan) if plan.limits.state_mb == "auto" else None
    return plan.limits.room(seed, auto, cloudpickle.dumps)


def _auto_mb(plan: RunPlan) -> int:
    """A share of what Ray may use of this node, without its object store, in MiB; tasks are taken to be spread
    evenly."""
    nodes, here = [node for node in ray.nodes() if node["Alive"]], ray.get_runtime_context().get_node_id()
    memory = next(node["Resources"].get("memory", 0.0) for node in nodes if node["NodeID"] == here)
    with_states = sum(stage.tasks for stage in plan.graph.queue_fed())
    return max(_LEAST_MB, int(_SHARE * memory / math.ceil(with_states / len(nodes))) // 2**20)
