"""What the task allocation paper assumes, lifted beforehand (section 5): tasks too coarse, unequal, or too spread out.

Unequal nodes need no step of their own: a node's capacity is in processors of one kind (`dpa.placement.model.Node`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpa.errors import PlacementError
from dpa.placement.model import SLACK, Cluster, GroupEdge, Placement, TaskGraph, TaskGroup
from dpa.placement.rooms import evenly_packed
from dpa.placement.scores import busy, dearest_first

_STEP, _STEPS = 1.15, 40
"""The factor between tolerances where the allocator refuses that of the most even packing, and how many are tried."""


def balanced(graph: TaskGraph, cluster: Cluster, tolerance: float = 1.1) -> Cluster:
    """The cluster with no more room on each node than its share of all costs, times `tolerance` (the paper's alpha,
    2.2): an allocator that fills nodes then spreads the load. Raises PlacementError if that is not above 0."""
    if not tolerance > 0:
        raise PlacementError(
            f"the tolerance of balanced nodes is {tolerance:g}; it must be above 0, and above 1 to help"
        )
    share = tolerance * graph.cost / cluster.room
    if not share:
        return cluster
    nodes = [replace(node, capacity=node.reserved + share * node.room) if share < 1 else node for node in cluster.nodes]
    return Cluster(tuple(nodes))


def least_tolerance(
    attempt: Callable[[float], Placement], graph: TaskGraph, cluster: Cluster, wanted: float
) -> tuple[Placement, float]:
    """What an allocator makes of a balanced cluster with the tolerance that is wanted or, where tasks are too coarse
    for that, with one hardly greater than it must be; and that tolerance. `attempt` raises PlacementError if the tasks
    do not fit. Raises it if they never do, or the allocator does not take such a graph."""
    refusal = PlacementError("no tolerance was tried")
    for tolerance in _tolerances(graph, cluster, wanted):
        try:
            return attempt(tolerance), tolerance
        except PlacementError as error:
            refusal = error
    raise refusal


def _tolerances(graph: TaskGraph, cluster: Cluster, wanted: float) -> Iterator[float]:
    yield wanted
    fullest = float(busy(evenly_packed(graph, cluster)).max()) * cluster.room / graph.cost
    # That of the most even packing is nearly the least that any allocator can keep; it may need a little more.
    coarse = max(wanted, fullest * (1 + SLACK))
    if coarse > wanted:
        yield coarse
    for _ in range(_STEPS):
        coarse *= _STEP
        yield coarse


Task = tuple[str, int]
"""A group, and the number of a task in it."""


@dataclass(frozen=True)
class Division:
    """A graph whose groups are parts of the groups of another one: `tasks` of that make each group of `graph`."""

    graph: TaskGraph
    tasks: Mapping[str, tuple[Task, ...]]

    def nodes(self, placement: Placement) -> dict[str, list[int]]:
        """The node of each task of the other graph, by its group."""
        found: dict[str, dict[int, int]] = {}
        for number, group in enumerate(placement.graph.groups):
            for (name, task), node in zip(self.tasks[group.name], placement.nodes_of(number), strict=True):
                found.setdefault(name, {})[task] = node
        return {name: [nodes[task] for task in sorted(nodes)] for name, nodes in found.items()}


def divided(graph: TaskGraph, costs: Mapping[str, Sequence[float]], margin: float = 0.2) -> Division:
    """The graph with a skewed group divided into groups whose tasks cost about the same. Traffic goes with cost: a
    reducer that is busy twice as long has received about twice as many records. Raises PlacementError if there is no
    such group, or not one cost for each of its tasks.

    Args:
        costs: for each group to divide, the processors that each of its tasks keeps busy, as measured.
        margin: by which part the dearest task of a group may cost more than its cheapest.

    Returns:
        Groups `NAME/0`, `NAME/1` ... in place of each divided one, the dearest tasks first; one that needs no division
        keeps its name and gets the measured cost.
    """
    names = {group.name: group for group in graph.groups}
    for name, values in costs.items():
        if name not in names:
            raise PlacementError(f"costs are given for {name!r}; the task groups are {', '.join(names)}")
        if len(values) != names[name].tasks:
            raise PlacementError(f"{len(values)} costs are given for the {names[name].tasks} tasks of {name!r}")
    parts = {
        group.name: _parts(group, costs[group.name], margin) if group.name in costs else _whole(group, group.cost)
        for group in graph.groups
    }
    edges = [
        GroupEdge(one.name, other.name, edge.traffic * _share(one, upstream) * _share(other, downstream))
        for edge in graph.edges
        for upstream, downstream in [([*parts[edge.upstream]], [*parts[edge.downstream]])]
        for one in upstream
        for other in downstream
    ]
    groups = {part.name: (part, tasks) for of in parts.values() for part, tasks in of.items()}
    if len(groups) < sum(map(len, parts.values())):
        raise PlacementError(f"a part of a divided group would have another group's name: {', '.join(names)}")
    return Division(
        TaskGraph(tuple(part for part, _ in groups.values()), tuple(edges)),
        {name: tasks for name, (_, tasks) in groups.items()},
    )


def _parts(group: TaskGroup, costs: Sequence[float], margin: float) -> dict[TaskGroup, tuple[Task, ...]]:
    """Runs of nearly equal costs, the dearest tasks first."""
    runs: list[list[int]] = []
    for task in dearest_first(costs):
        if runs and costs[runs[-1][0]] <= costs[task] * (1 + margin):
            runs[-1].append(task)
        else:
            runs.append([task])
    if len(runs) == 1:
        return _whole(group, sum(costs))
    return {
        TaskGroup(f"{group.name}/{number}", len(run), sum(costs[task] for task in run)): tuple(
            (group.name, task) for task in run
        )
        for number, run in enumerate(runs)
    }


def _whole(group: TaskGroup, cost: float) -> dict[TaskGroup, tuple[Task, ...]]:
    return {replace(group, cost=cost): tuple((group.name, task) for task in range(group.tasks))}


def _share(part: TaskGroup, parts: Sequence[TaskGroup]) -> float:
    """Of a group's traffic, by cost."""
    total = sum(each.cost for each in parts)
    return part.cost / total if total else part.tasks / sum(each.tasks for each in parts)
