"""What the tasks of a job request of a Ray that is shared: options of their actors, bundles of a placement group, and
what the job says if Ray does not have it.

A Ray for this user's jobs on this machine alone is asked for nothing: there tasks share the machine."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from dpa._util.words import plural
from dpa.errors import ConfigError
from dpa.protocol.plan import RunPlan
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.nodes import Amounts, JobDemand, Placed, in_words
from dpa.runtime._processes import Actor
from dpa.runtime.actors.actor import Share, elsewhere
from dpa.runtime.cluster import alive_nodes, is_private
from dpa.runtime.ray_internals.private import free_resources

_WAITS_SECONDS = 5.0  # how often to look whether tasks wait

_NODE_GROUP = "ray.io/node-group"
"""Ray's label of nodes that KubeRay or Ray's cluster launcher has made, of which there may be more later."""


class Requests:
    """Those of one job.

    Attributes:
        each: what each task of a stage requests; no stage whose tasks request nothing.
    """

    def __init__(self, demand: JobDemand | None = None, *, is_placed: bool = False) -> None:
        """`is_placed`: whether tasks are pinned to nodes that there are. ConfigError if a placement group would have
        tasks that request nothing."""
        shared = JobDemand({}, {}) if demand is None or is_private() else demand
        default = 1.0 if shared.group or (shared.each and not is_placed and _may_grow()) else 0.0
        amounts = {stage: resources.amounts(default) for stage, resources in shared.each.items()}
        self.each = {stage: requested for stage, requested in amounts.items() if requested}
        self._tasks, self._group = shared.tasks, shared.group
        self._made: PlacementGroup | None = None
        self._said: set[str] = set()
        self._look_at = time.monotonic() + _WAITS_SECONDS
        if self._group is not None and len(self.each) < len(amounts):
            nothing = next(stage for stage in amounts if stage not in self.each)
            raise ConfigError(f"tasks of {nothing} request nothing, and a group is of requests", "placement.group")

    def of(self, stage: str) -> Amounts:
        return self.each.get(stage, {})

    @property
    def addresses(self) -> list[Address]:
        """The tasks at first, if any of them requests something."""
        tasks = self._tasks.items() if self.each else ()
        return [Address(stage, index) for stage, count in tasks for index in range(count)]

    def homes(self, placed: Placed | None) -> dict[Address, str | None]:
        """The node of each task that needs an actor of its own; None: any."""
        if placed is None:
            return dict.fromkeys(self.addresses)
        return {Address(stage, index): node for stage, ids in placed.nodes.items() for index, node in enumerate(ids)}

    def noted(self, plan: RunPlan) -> RunPlan:
        """The plan with the stages marked for whose tasks Ray keeps processors."""
        stages = (replace(stage, has_processors="CPU" in self.of(stage.name)) for stage in plan.graph.stages)
        return replace(plan, graph=replace(plan.graph, stages=tuple(stages))) if self.each else plan

    def require_room(self, avoided: Collection[str] = (), placed: Placed | None = None) -> None:
        """ConfigError if a node, or all together, do not have what tasks request, and there will be no others."""
        if not self.each or (_may_grow() and placed is None):
            return
        nodes = {node.id: node for node in alive_nodes(avoided)}
        has = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["NodeID"] in nodes}
        for stage, amounts in self.each.items():
            _require(f"each task of {stage} requests", amounts, has.values())
        of_tasks = [self.of(task.stage) for task in self.addresses]
        if not _fits(_sum(of_tasks), _sum(has.values())):
            there = in_words({name: _sum(has.values()).get(name, 0.0) for name in _sum(of_tasks)})
            raise _error(f"the tasks request {in_words(_sum(of_tasks))} together; the nodes have {there}")
        if self._group == "strict_pack":
            _require("with `strict_pack` all tasks together request", _sum(of_tasks), has.values())
        if self._group == "strict_spread" and len(of_tasks) > len(nodes):
            count = f"{plural(len(of_tasks), 'task')} and {plural(len(nodes), 'node')}"
            raise ConfigError(f"`strict_spread` needs a node for each task; there are {count}", "placement.group")
        homes = {} if placed is None else placed.nodes
        for node in {node for stage in homes.values() for node in stage}:
            pinned = _sum(self.of(stage) for stage, ids in homes.items() for each in ids if each == node)
            _require(f"the tasks that are placed on {nodes[node].name} request", pinned, [has[node]])

    def group(self, avoided: Collection[str] = ()) -> PlacementGroup | None:
        """A new placement group with a bundle for each task, on nodes that are not `avoided`; None: there is to be
        none."""
        if self._group is None:
            return None
        bundles = [dict(self.of(task.stage)) for task in self.addresses]
        labels = [elsewhere(avoided)] * len(bundles) if avoided else None
        self._made = placement_group(bundles, self._group.upper(), bundle_label_selector=labels)
        return self._made

    def end(self, group: PlacementGroup | None) -> None:
        if group is not None:
            with suppress(RayError):  # Ray has ended, and the group with it
                remove_placement_group(group)

    def share(self, task: Address, group: PlacementGroup | None) -> Share:
        if group is None:
            return Share(self.of(task.stage))
        place = self.addresses.index(task)
        return Share(self.of(task.stage), PlacementGroupSchedulingStrategy(group, place))

    def waits(self, actors: Mapping[Address, Actor]) -> list[str]:
        """Why tasks do not start, of each stage that waits for resources; said once. Called often."""
        if not self.each or time.monotonic() < self._look_at:
            return []
        self._look_at = time.monotonic() + _WAITS_SECONDS
        waiting = Counter(address.stage for address, actor in actors.items() if actor.share.amounts and not actor.is_up)
        free = [*free_resources().values()] if waiting else []
        if self._made is not None and not self._made.wait(0):
            free = []  # no bundle has what is free before all of them have
        found = []
        for stage, count in waiting.items():
            amounts = self.of(stage)
            if stage in self._said or any(_fits(amounts, node) for node in free):
                continue
            self._said.add(stage)
            these = f"tasks of {stage} wait ({count} of {self._tasks.get(stage, count)})"
            then = "the autoscaler may add one" if _may_grow() else "wait for other jobs, or lower `resources`"
            found.append(f"{these}: each requests {in_words(amounts)}, which no node has free; {then}")
        return found


def _may_grow() -> bool:
    return any(_NODE_GROUP in node["Labels"] for node in ray.nodes() if node["Alive"])


def _fits(amounts: Amounts, node: Amounts) -> bool:
    return all(amount <= node.get(name, 0.0) for name, amount in amounts.items())


def _sum(each: Iterable[Amounts]) -> dict[str, float]:
    found: dict[str, float] = {}
    for amounts in each:
        for name, amount in amounts.items():
            found[name] = found.get(name, 0.0) + amount
    return found


def _require(what: str, amounts: Amounts, nodes: Collection[Amounts]) -> None:
    if not any(_fits(amounts, node) for node in nodes):
        most = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in amounts}
        raise _error(f"{what} {in_words(amounts)}; the most that a node has is {in_words(most)}")


def _error(what: str) -> ConfigError:
    return ConfigError(f"{what}. Lower `cpus`, `memory`, `custom` or the number of tasks, or add nodes", "resources")
