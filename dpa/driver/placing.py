"""Where the tasks of a job are to run: costs from a profile, a declaration or a sample, the nodes, and the allocator.

For costs of a sample, some rows of each input go through the job in this process, whose processor time and blocks are
measured. What messages cost is not in it."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from dpa.config import NodeConfig, PlacementConfig
from dpa.driver.inputs import OpenedInput
from dpa.driver.spec import JobSpec
from dpa.errors import PlacementError
from dpa.execution.failures import USER_ERRORS
from dpa.local.backend import LocalBackend
from dpa.placement import scores
from dpa.placement.allocators import ALLOCATORS, allocator_of
from dpa.placement.model import Cluster, Node, Placement
from dpa.placement.online import OnlinePlacement
from dpa.placement.profile import Profile
from dpa.placement.relaxations import Division, balanced, least_tolerance
from dpa.protocol.plan import RunHooks, RunOutcome
from dpa.protocol.wire.nodes import BackendNode, Placed
from dpa.sources.splits import memory_splits

_MEGABYTE = 1e6


@dataclass(frozen=True)
class NodeForecast:
    """A node of a placement.

    Attributes:
        name: name of the node in Ray, or as declared.
        processors: processors for tasks.
        tasks: number of tasks of each stage on this node.
        busy: share of its processors that they keep busy, at the highest rate that a single task, or the nodes within
            the tolerance, can keep up with.
        sent: bytes per second to other nodes at that rate.
        received: bytes per second from other nodes at that rate.
    """

    name: str
    processors: float
    tasks: Mapping[str, int]
    busy: float
    sent: float
    received: float


@dataclass(frozen=True)
class AllocatorForecast:
    """What an allocator would give.

    Attributes:
        name: name of the allocator.
        kept: share of all traffic that stays inside nodes.
        crossing: bytes per second between nodes.
        busiest: busy share of the busiest node.
        speed: rate that the busiest resource allows, relative to the chosen placement.
        refusal: why the allocator gives no placement, in which case the figures are 0; None if it gives one.
    """

    name: str
    kept: float = 0.0
    crossing: float = 0.0
    busiest: float = 0.0
    speed: float = 0.0
    refusal: str | None = None


@dataclass(frozen=True)
class PlacementForecast:
    """Where tasks would run, and what others would give.

    Attributes:
        origin: where the costs come from.
        tolerance: load that a node may have, in units of its even share.
        chosen: placement by the job's allocator.
        nodes: nodes in the cluster's order.
        others: placement by each other allocator.
    """

    origin: str
    tolerance: float
    chosen: AllocatorForecast
    nodes: tuple[NodeForecast, ...]
    others: tuple[AllocatorForecast, ...]


class Placing:
    """Places the tasks of one job, whose costs are known."""

    def __init__(self, spec: JobSpec, config: PlacementConfig, division: Division, origin: str) -> None:
        """`division`: groups of tasks that are alike; `origin`: in words, where their costs are from."""
        self._spec, self._config = spec, config
        self._division, self._origin = division, origin
        self._has_placed = False

    @classmethod
    def of(cls, spec: JobSpec, opened: Mapping[str, OpenedInput]) -> Placing:
        """Of a job with these inputs. Without a profile or declared costs, user code runs on a sample, and may fail as
        an ExecutorError. ConfigError if the profile or the declaration does not fit the job."""
        config = spec.config.placement or PlacementConfig()
        tasks = {step.name: step.tasks or 1 for step in spec.steps if step.is_stage}
        key = "profile" if config.profile is not None else "costs"
        with spec.file.blaming(f"placement.{key}", PlacementError):
            if config.profile is not None:
                profile = Profile.of_report(Path(spec.file.directory, config.profile))
                origin = f"measured in {config.profile}"
            elif config.costs:
                profile, origin = _declared(spec, config), "declared"
            else:
                profile, origin = piloted(spec, opened), "of user code on a sample"
            cpus = {stage: each.cpus or 0.0 for stage, each in spec.demand.each.items() if stage in tasks}
            if tasks and all(cpus.get(stage) for stage in tasks):
                costs = {stage: (cpus[stage],) * count for stage, count in tasks.items()}
                profile, origin = replace(profile, costs=costs), "the processors that tasks request"
            return cls(spec, config, profile.graph(tasks, divide=config.divide), origin)

    def placed(self, available: Sequence[BackendNode]) -> Placed:
        """The node of each task, by the backend's numbers, and how tasks move while the job runs. A later call means
        that nodes have died: the other declared ones are used. ConfigError if the first call misses a node, a later one
        has none, or tasks do not fit."""
        cluster = self._cluster(available)
        number = {node.name: node.id for node in available}
        ids = tuple(number[node.name] for node in cluster.nodes)
        placement, tolerance = self._chosen(cluster)
        homes = {stage: [ids[node] for node in of_tasks] for stage, of_tasks in self._division.nodes(placement).items()}
        self._has_placed = True
        options = self._config.online
        if options is None:
            return Placed(homes)
        return Placed(homes, OnlinePlacement(options, cluster, ids, self._config.allocator, tolerance))

    def forecast(self, available: Sequence[BackendNode] | None) -> PlacementForecast:
        """What each allocator would do, on the nodes given, else on the declared ones or this machine. ConfigError if a
        node is missing, or tasks do not fit."""
        cluster = self._declared_nodes() if available is None else self._cluster(available)
        placement, tolerance = self._chosen(cluster)
        fastest = _rate(placement)
        others = tuple(self._of_other(name, cluster, fastest) for name in ALLOCATORS if name != self._config.allocator)
        return PlacementForecast(
            self._origin, tolerance, _judged(self._config.allocator, placement, fastest), self._nodes(placement), others
        )

    def _nodes(self, placement: Placement) -> tuple[NodeForecast, ...]:
        used, sent, received = scores.busy(placement), scores.sent(placement), scores.received(placement)
        tasks = [Counter[str]() for _ in placement.cluster.nodes]
        for stage, homes in self._division.nodes(placement).items():
            for node in homes:
                tasks[node][stage] += 1
        return tuple(
            NodeForecast(node.name, node.room, dict(tasks[at]), float(used[at]), float(sent[at]), float(received[at]))
            for at, node in enumerate(placement.cluster.nodes)
        )

    def _placed(self, name: str, cluster: Cluster) -> tuple[Placement, float]:
        """What an allocator makes of the job at the rate at which nodes are busy but for the tolerance, or a single
        task is; and the tolerance with which tasks fit. PlacementError if they do not, or the allocator takes no such
        graph."""
        dearest = max(group.task_cost for group in self._division.graph.groups)
        largest = max(node.room for node in cluster.nodes)
        # Above the first, a node may get more tasks than it has processors for; below the last, the dearest task fits
        # nowhere.
        demand, wanted = self._spec.demand, self._config.tolerance
        if requested := sum((demand.each[stage].cpus or 0.0) * count for stage, count in demand.tasks.items()):
            wanted = min(wanted, cluster.room / requested)
        tolerance = max(wanted, dearest * cluster.room / (self._division.graph.cost * largest))
        return least_tolerance(
            lambda tried: self._placed_with(name, cluster, tried), self._division.graph, cluster, tolerance
        )

    def _placed_with(self, name: str, cluster: Cluster, tolerance: float) -> Placement:
        graph = self._division.graph
        one_task = min(1.0, max(node.room for node in cluster.nodes)) / max(group.task_cost for group in graph.groups)
        scaled = graph.scaled(min(cluster.room / tolerance / graph.cost, one_task))
        try:
            placed = allocator_of(name).allocate(scaled, balanced(scaled, cluster, tolerance))
            return Placement(scaled, cluster, placed.counts.copy())
        except PlacementError:
            raise
        except USER_ERRORS as error:
            raise PlacementError(f"the allocator {name!r} failed: {error!r}") from error

    def _of_other(self, name: str, cluster: Cluster, fastest: float) -> AllocatorForecast:
        try:
            return _judged(name, self._placed(name, cluster)[0], fastest)
        except PlacementError as error:
            return AllocatorForecast(name, refusal=str(error))

    def _chosen(self, cluster: Cluster) -> tuple[Placement, float]:
        with self._spec.file.blaming("placement.allocator", PlacementError):
            return self._placed(self._config.allocator, cluster)

    def _cluster(self, available: Sequence[BackendNode]) -> Cluster:
        there = {node.name: node.processors for node in available}
        for name in self._config.nodes:
            if name not in there and not self._has_placed:
                raise self._spec.file.error(
                    f"placement.nodes.{name}", f"Ray has no such node that is alive; it has {', '.join(there)}"
                )
        return self._of(there)

    def _declared_nodes(self) -> Cluster:
        cores = float(os.cpu_count() or 1)
        return self._of(dict.fromkeys(self._config.nodes, cores) or {"this machine": cores})

    def _of(self, processors: Mapping[str, float]) -> Cluster:
        """The nodes with these processors, but for what is declared of them. An undeclared one without any, as the head
        of a cluster may be, is not used. ConfigError if one has no room, or none is left."""
        nodes = []
        names = self._config.nodes or [name for name, count in processors.items() if count > 0]
        for name in (name for name in names if name in processors):
            declared = self._config.nodes.get(name, NodeConfig())
            bandwidth = declared.megabytes_per_second
            with self._spec.file.blaming(f"placement.nodes.{name}", PlacementError):
                nodes.append(
                    Node(
                        name,
                        declared.processors or processors[name],
                        reserved=declared.reserved,
                        bandwidth=math.inf if bandwidth is None else bandwidth * _MEGABYTE,
                    )
                )
        if not nodes:
            none = "no node of this Ray has a processor; declare what they have"
            why = "none of them is left" if self._config.nodes else none
            raise self._spec.file.error("placement.nodes", why)
        return Cluster(tuple(nodes))


def _declared(spec: JobSpec, config: PlacementConfig) -> Profile:
    """The profile that a job file writes down; ConfigError if it is not of the job's stages."""
    stages = [step.name for step in spec.steps if step.is_stage]

    def require(key: str, name: str) -> None:
        if name not in stages:
            raise spec.file.error(f"placement.{key}", f"there is no stage {name!r}; the stages are {', '.join(stages)}")

    for name in config.costs:
        require(f"costs.{name}", name)
    missing = [name for name in stages if name not in config.costs]
    if missing:
        raise spec.file.error("placement.costs", f"every stage needs a cost; there is none of {', '.join(missing)}")
    if not any(config.costs.values()):
        raise spec.file.error("placement.costs", "all are 0; give what stages cost, in any unit")
    for one, of in config.traffic.items():
        require(f"traffic.{one}", one)
        for other in of:
            require(f"traffic.{one}.{other}", other)
            if one == other:
                raise spec.file.error(f"placement.traffic.{one}.{other}", "a stage's traffic is that with other stages")
    traffic = {(one, other): size * _MEGABYTE for one, of in config.traffic.items() for other, size in of.items()}
    return Profile({stage: (config.costs[stage],) for stage in stages}, traffic)


def _judged(name: str, placement: Placement, fastest: float) -> AllocatorForecast:
    traffic = placement.graph.traffic
    return AllocatorForecast(
        name,
        kept=min(1.0, scores.kept_traffic(placement) / traffic) if traffic else 1.0,
        crossing=scores.crossing_traffic(placement),
        busiest=float(scores.busy(placement).max()),
        speed=_rate(placement) / fastest,
    )


def _rate(placement: Placement) -> float:
    """The rate that the busiest resource allows, in processors that tasks keep busy then."""
    return scores.throughput(placement) * placement.graph.cost


PILOT_ROWS = 100_000  # rows of each input that are sampled at most, approximately
PILOT_SECONDS = 10.0  # how long all pilots of a job may take together, approximately

_FIRST_ROWS, _MORE = 10, 10
"""A pilot on few rows says how many more there is time for: the rows of the first, and how many times as many the next
one has."""


def piloted(spec: JobSpec, opened: Mapping[str, OpenedInput], clock: Callable[[], float] = time.monotonic) -> Profile:
    """The profile of a job on a sample of these inputs, at the rate at which its user code keeps one processor busy.
    Where a row takes long, the sample is small. PlacementError if it has no rows, or takes no time; ExecutorError if
    user code fails on it."""
    samples = {name: found.sample(PILOT_ROWS)[1] for name, found in opened.items()}
    largest = max(sample.num_rows for sample in samples.values())
    if not largest:
        raise PlacementError("a sample of the input has no rows: declare what stages cost")
    rows, began, before = min(_FIRST_ROWS, largest), clock(), math.inf
    while True:
        turn = clock()
        outcome = _run(spec, opened, {name: _part(sample, rows / largest) for name, sample in samples.items()})
        ended = clock()
        taken = ended - turn
        growth = max(float(_MORE), taken / before)  # of a join, time grows faster than rows
        if rows == largest or ended - began + taken * growth > PILOT_SECONDS:
            return _profile(spec, outcome)
        rows, before = min(rows * _MORE, largest), max(taken, 1e-6)


def _part(sample: pa.Table, share: float) -> pa.Table:
    """This share of a sample's rows, at least one, spread evenly over it."""
    rows = min(sample.num_rows, max(1, round(sample.num_rows * share)))
    return sample.take(pa.array(np.linspace(0, sample.num_rows - 1, rows).astype(np.int64)))


def _run(spec: JobSpec, opened: Mapping[str, OpenedInput], samples: Mapping[str, pa.Table]) -> RunOutcome:
    splits = {name: tuple(memory_splits(sample, PILOT_ROWS)) for name, sample in samples.items()}
    plan = spec.plan(splits, {name: found.schema for name, found in opened.items()})
    return LocalBackend(redistributes=False).run(plan, RunHooks())


def _profile(spec: JobSpec, outcome: RunOutcome) -> Profile:
    seconds = sum(used.cpu_seconds for used in outcome.use.values())
    if not seconds:
        raise PlacementError("user code took no time on a sample: declare what stages cost")
    costs: dict[str, list[float]] = defaultdict(list)
    traffic: dict[tuple[str, str], float] = defaultdict(float)
    for address, used in outcome.use.items():
        costs[address.stage].append(used.cpu_seconds / seconds)
        for to, sent in used.sent.items():
            traffic[address.stage, to.stage] += sent.bytes / seconds
    for source in spec.sources:  # one task of each has read everything
        costs[source.name] = [sum(costs[source.name]) / (source.tasks or 1)] * (source.tasks or 1)
    return Profile({stage: tuple(of) for stage, of in costs.items()}, dict(traffic))
