"""Which tasks move where one placement follows another."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_samples import moved, pipeline

from dpa.placement.model import Cluster, Placement
from dpa.placement.online import aligned

COUNTS = st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=2)


def placed(counts: list[list[int]], totals: tuple[int, int]) -> Placement:
    """A placement of two groups on three nodes; what is missing is on the last."""
    table = np.array(counts)
    table[:, 2] = np.array(totals) - table[:, :2].sum(axis=1)
    return Placement(pipeline(totals), Cluster.alike(3, 9.0), table)


@settings(max_examples=50)
@given(before=COUNTS, after=COUNTS)
def test_as_few_tasks_move_as_the_counts_allow(before: list[list[int]], after: list[list[int]]) -> None:
    old, new = placed(before, (7, 8)), placed(after, (7, 8))
    assert len(moved(old, new.counts)) == np.maximum(new.counts - old.counts, 0).sum()


@settings(max_examples=50)
@given(before=COUNTS, after=COUNTS)
def test_exchanging_equal_nodes_moves_no_more(before: list[list[int]], after: list[list[int]]) -> None:
    old, new = placed(before, (7, 8)), placed(after, (7, 8))
    exchanged = aligned(new.cluster, new.counts, old.counts)
    assert sorted(exchanged.T.tolist()) == sorted(new.counts.T.tolist())
    if sorted(old.counts.T.tolist()) == sorted(new.counts.T.tolist()):
        assert moved(old, exchanged) == []


def test_nodes_of_two_kinds_are_not_exchanged() -> None:
    cluster = Cluster((*Cluster.alike(2, 1.0).nodes, *Cluster.alike(3, 2.0).nodes[2:]))
    counts, current = np.array([[3, 0, 0]]), np.array([[0, 0, 3]])
    assert aligned(cluster, counts, current).tolist() == [[3, 0, 0]]
    assert aligned(cluster, counts, np.array([[0, 3, 0]])).tolist() == [[0, 3, 0]]
