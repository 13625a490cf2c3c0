"""Random graphs and clusters of the kind that the task allocation paper compares with the optimum (7.3), and of others.

Seventeen tasks in three to seven groups cost five processors; every group but the last ones sends to one, two or three
later groups (with 70, 25 and 5 %), 5 to 20 MB/s each; there are eight nodes of one processor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np

from dpa.placement.model import Cluster, GroupEdge, Node, TaskGraph, TaskGroup

TASKS, COST, NODES = 17, 5.0, 8
FAN_OUT = (0.70, 0.25, 0.05)
MEGABYTE = 1e6

Case = tuple[TaskGraph, Cluster]


def as_published(random: np.random.Generator) -> Case:
    """The cost of a group goes with its number of tasks, within a factor of about 1.5."""
    tasks = _tasks(random)
    costs = tasks * random.uniform(0.8, 1.2, len(tasks))
    return _graph(random, tasks, costs), Cluster.alike(NODES, 1.0)


def unlike_nodes(random: np.random.Generator) -> Case:
    """As published, but on four nodes of half a processor and four of one and a half."""
    nodes = [Node(f"node {number}", 0.5 if number % 2 else 1.5) for number in range(NODES)]
    return as_published(random)[0], Cluster(tuple(nodes))


def crowded(random: np.random.Generator) -> Case:
    """As published, but on six nodes, of which five would do if tasks were as fine as water."""
    return as_published(random)[0], Cluster.alike(6, 1.0)


def trees(random: np.random.Generator) -> Case:
    """Every group but the first receives from one earlier group."""
    tasks = _tasks(random)
    names = [f"g{number}" for number in range(len(tasks))]
    groups = _groups(names, tasks, tasks * random.uniform(0.8, 1.2, len(tasks)))
    edges = [_edge(random, names[int(random.integers(place))], names[place]) for place in range(1, len(names))]
    return TaskGraph(groups, tuple(edges)), Cluster.alike(NODES, 1.0)


def dense(random: np.random.Generator) -> Case:
    """Every group sends to every later one, on six nodes."""
    tasks = _tasks(random)
    names = [f"g{number}" for number in range(len(tasks))]
    groups = _groups(names, tasks, tasks * random.uniform(0.8, 1.2, len(tasks)))
    edges = [_edge(random, one, other) for one, other in itertools.combinations(names, 2)]
    return TaskGraph(groups, tuple(edges)), Cluster.alike(6, 1.0)


def full(random: np.random.Generator) -> Case:
    """As published, but each of five nodes has just the room of the tasks that one placement by chance gives it."""
    graph = as_published(random)[0]
    room = np.zeros(5)
    for group in graph.groups:
        room += group.task_cost * random.multinomial(group.tasks, np.full(len(room), 1 / len(room)))
    nodes = [Node(f"node {number}", float(share)) for number, share in enumerate(room) if share]
    return graph, Cluster(tuple(nodes))


GENERATORS: Mapping[str, Callable[[np.random.Generator], Case]] = {
    "as published": as_published,
    "unlike nodes": unlike_nodes,
    "six nodes": crowded,
    "trees": trees,
    "dense": dense,
    "full nodes": full,
}


def _tasks(random: np.random.Generator) -> np.ndarray:
    groups = int(random.integers(3, 8))
    return np.asarray(1 + random.multinomial(TASKS - groups, np.full(groups, 1 / groups)))


def _graph(random: np.random.Generator, tasks: np.ndarray, costs: np.ndarray) -> TaskGraph:
    names = [f"g{number}" for number in range(len(tasks))]
    edges = []
    for place in range(len(names) - 1):
        later = names[place + 1 :]
        wanted = int(random.choice([1, 2, 3], p=FAN_OUT))
        chosen = random.choice(len(later), size=min(wanted, len(later)), replace=False)
        edges += [_edge(random, names[place], later[other]) for other in chosen.tolist()]
    return TaskGraph(_groups(names, tasks, costs), tuple(edges))


def _groups(names: list[str], tasks: np.ndarray, costs: np.ndarray) -> tuple[TaskGroup, ...]:
    shares = COST * costs / costs.sum()
    return tuple(
        TaskGroup(name, int(count), float(cost)) for name, count, cost in zip(names, tasks, shares, strict=True)
    )


def _edge(random: np.random.Generator, one: str, other: str) -> GroupEdge:
    return GroupEdge(one, other, float(random.uniform(5, 20)) * MEGABYTE)
