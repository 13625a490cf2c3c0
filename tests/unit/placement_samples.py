"""Graphs and clusters that tests of placement share."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from dpa.placement.model import Cluster, Counts, GroupEdge, Node, Placement, TaskGraph, TaskGroup
from dpa.placement.online import reassigned

MEGABYTE = 1e6


def pipeline(tasks: tuple[int, ...], cost: float = 1.0, traffic: float = MEGABYTE) -> TaskGraph:
    """Groups one after the other, all of one cost."""
    groups = [TaskGroup(f"stage {number}", count, cost) for number, count in enumerate(tasks)]
    edges = [GroupEdge(one.name, other.name, traffic) for one, other in itertools.pairwise(groups)]
    return TaskGraph(tuple(groups), tuple(edges))


def moved(before: Placement, after: Counts) -> list[tuple[int, int]]:
    """Of the tasks that a placement which follows another has elsewhere, the old node and the new."""
    found = []
    for group, counts in enumerate(after):
        nodes = before.nodes_of(group)
        following = reassigned(nodes, counts)
        assert np.bincount(following, minlength=len(counts)).tolist() == counts.tolist()
        found += [pair for pair in zip(nodes, following, strict=True) if pair[0] != pair[1]]
    return found


@st.composite
def graphs(draw: st.DrawFn, max_tasks: int = 6) -> TaskGraph:
    """Acyclic graphs of up to five groups."""
    groups = [
        TaskGroup(f"g{number}", draw(st.integers(1, max_tasks)), draw(st.floats(0.0, 2.0)))
        for number in range(draw(st.integers(1, 5)))
    ]
    edges = [
        GroupEdge(one.name, other.name, draw(st.floats(0.0, 20.0)) * MEGABYTE)
        for place, one in enumerate(groups)
        for other in groups[place + 1 :]
        if draw(st.booleans())
    ]
    return TaskGraph(tuple(groups), tuple(edges))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to six nodes, alike or not, with bandwidth or without limit."""
    alike = draw(st.booleans())
    first = draw(_nodes)
    return Cluster(
        tuple(Node(f"n{number}", *(first if alike else draw(_nodes))) for number in range(draw(st.integers(1, 6))))
    )


_nodes = st.tuples(
    st.floats(0.5, 4.0),
    st.floats(0.0, 0.4),
    st.sampled_from([float("inf"), 30 * MEGABYTE, 300 * MEGABYTE]),
    st.just(0.0),
)
