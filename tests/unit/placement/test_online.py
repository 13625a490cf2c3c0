"""Placements looked at again: what moves, what does not, and why."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_samples import moved, pipeline

from dpa.placement.model import Cluster, OnlineOptions, Placement
from dpa.placement.online import Deployment, Look, OnlinePlacement, Policy, aligned, policy_of
from experiments.otd.methods import METHODS, OTD

MB = 1e6
NODES = Cluster.alike(2, 4.0)
BRANCHES = [("lines", 0), ("lines", 1), ("counts", 0), ("counts", 1)]


def policy(name: str, cluster: Cluster = NODES, **options: float) -> Policy:
    ids = tuple(node.name for node in cluster.nodes)
    placement = OnlineOptions(policy=name, **options)
    return policy_of(OnlinePlacement(placement, cluster, ids, "top_down_search", 1.2))


def deployment(
    node_of_task: list[int],
    costs: list[float],
    traffic: dict[tuple[int, int], float],
    tasks: list[tuple[str, int]] | None = None,
    fixed: tuple[int, ...] = (),
) -> Deployment:
    """Tasks of stages of their own, unless they are named; `traffic` in MB/s between positions."""
    number = len(node_of_task)
    names, between = tasks or [(f"stage {task}", 0) for task in range(number)], np.zeros((number, number))
    for pair, size in traffic.items():
        between[pair] = size * MB
    movable = np.array([task not in fixed for task in range(number)])
    return Deployment(tuple(names), np.array(node_of_task), np.array(costs), between, np.zeros(number), movable)


def after(found: Look, before: Deployment) -> np.ndarray:
    node_of_task = before.node_of_task.copy()
    for task, node in found.moves:
        node_of_task[task] = node
    return node_of_task


@pytest.mark.parametrize(("name", "then"), [("improve", "no better placement"), ("replan", "the same placement")])
def test_two_branches_that_share_both_nodes_are_parted_once(name: str, then: str) -> None:
    looking = policy(name)
    before = deployment([0, 1, 1, 0], [0.5] * 4, {(0, 1): 50, (2, 3): 50})
    found = looking.look(before)
    assert before.crossing(after(found, before)) == 0
    assert len(found.moves) == 2
    assert found.reason.endswith("100.0 to 0.0 MB/s between nodes")
    again = looking.look(deployment(after(found, before).tolist(), [0.5] * 4, {(0, 1): 50, (2, 3): 50}))
    assert (again.moves, again.kind) == ((), then)


def test_a_good_placement_stays_though_measurements_vary() -> None:
    random = np.random.default_rng(0)
    improving = policy("improve")
    for _ in range(50):
        costs = (0.5 * random.uniform(0.7, 1.3, 4)).tolist()
        sizes = {(0, 1): 50 * random.uniform(0.7, 1.3), (2, 3): 50 * random.uniform(0.7, 1.3)}
        assert not improving.look(deployment([0, 0, 1, 1], costs, sizes)).moves


def test_a_node_that_holds_the_job_up_is_relieved() -> None:
    before = deployment([0, 0, 0, 0, 1], [1.5, 1.5, 0.5, 0.5, 0.1], {(0, 1): 0.1})
    found = policy("improve").look(before)
    assert before.busy(NODES, before.node_of_task).max() == 1.0
    assert before.busy(NODES, after(found, before)).max() < 0.7
    assert found.reason.startswith("busiest node 100% to 5")


def test_neither_evenness_alone_nor_little_traffic_nor_what_is_not_measured_moves_anything() -> None:
    before = deployment([0, 0, 0, 1], [0.5, 0.5, 0.5, 0.1], {(0, 3): 0.1})
    assert policy("improve").look(before).kind == "no better placement"
    before = deployment([0, 1, 1, 0], [0.5] * 4, {(0, 1): 0.2, (2, 3): 0.2})
    assert not policy("improve").look(before).moves
    before = deployment([0, 1], [0.0, 0.0], {})
    assert policy("improve").look(before).kind == "not measured"
    assert policy("replan").look(before).kind == "no placement"


@pytest.mark.parametrize("name", ["improve", "replan"])
def test_tasks_that_cannot_move_are_planned_around(name: str) -> None:
    tasks = [("x", 0), ("x", 1), ("y", 0), ("y", 1)]
    cluster = Cluster.alike(2, 1.0)
    spread = deployment([0, 0, 1, 1], [0.45] * 4, {}, tasks, fixed=(0, 1))
    assert not policy(name, cluster).look(spread).moves, "both nodes have as much to do"
    crowded = deployment([0, 0, 0, 0, 1], [0.3, 0.3, 0.2, 0.2, 0.4], {}, [*tasks, ("z", 0)], fixed=(0, 1, 4))
    [(task, node)] = policy(name, cluster).look(crowded).moves
    assert task in (2, 3) and node == 1
    assert not policy(name, cluster).look(deployment([0, 1], [0.5, 0.5], {}, fixed=(0, 1))).moves


def test_one_task_moves_in_a_cycle_of_otd_until_nothing_is_gained() -> None:
    otd, node_of_task, moved = policy(METHODS[OTD].policy), [0, 1, 1, 0], 0
    for _ in range(12):
        before = deployment(node_of_task, [0.3] * 4, {(0, 1): 50, (2, 3): 50})
        found = otd.look(before)
        assert len(found.moves) <= 1
        node_of_task, moved = after(found, before).tolist(), moved + len(found.moves)
    assert before.crossing(np.array(node_of_task)) == 0
    assert moved == 2


@settings(max_examples=80)
@given(
    name=st.sampled_from(["improve", METHODS[OTD].policy, "replan"]),
    node_of_task=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    costs=st.lists(st.floats(0.01, 1.5), min_size=4, max_size=4),
    amounts=st.lists(st.floats(0, 90), min_size=4, max_size=4),
    fixed=st.sets(st.integers(0, 3)),
)
def test_moves_are_of_movable_tasks_to_other_nodes_and_improve_what_they_are_for(
    name: str, node_of_task: list[int], costs: list[float], amounts: list[float], fixed: set[int]
) -> None:
    cluster = Cluster.alike(3, 2.0)
    pairs = [(0, 2), (0, 3), (1, 2), (1, 3)]
    before = deployment(node_of_task, costs, dict(zip(pairs, amounts, strict=True)), BRANCHES, tuple(fixed))
    found = policy(name, cluster).look(before)
    tasks = [task for task, _ in found.moves]
    assert len(set(tasks)) == len(tasks)
    assert not set(tasks) & fixed
    assert all(node_of_task[task] != node for task, node in found.moves)
    assert found.kind and found.reason
    if name == "improve" and found.moves:
        now, then = before.node_of_task, after(found, before)
        busy = [float(before.busy(cluster, each).max()) for each in (now, then)]
        less = before.crossing(now) - before.crossing(then)
        crossing = less / max(float(before.traffic.sum()), 1.0) if abs(less) >= MB else 0.0
        assert (1 - busy[1] / busy[0] if max(busy) >= 0.8 else 0.0) + crossing > 0.05 - 1e-9


COUNTS = st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=2)


def placed(counts: list[list[int]], totals: tuple[int, int]) -> Placement:
    """A placement of two groups on three nodes; what is missing is on the last."""
    table = np.array(counts)
    table[:, 2] = np.array(totals) - table[:, :2].sum(axis=1)
    return Placement(pipeline(totals), Cluster.alike(3, 9.0), table)


@given(before=COUNTS, after=COUNTS)
def test_as_few_tasks_move_as_the_counts_allow(before: list[list[int]], after: list[list[int]]) -> None:
    old, new = placed(before, (7, 8)), placed(after, (7, 8))
    assert len(moved(old, new.counts)) == np.maximum(new.counts - old.counts, 0).sum()
    exchanged = aligned(new.cluster, new.counts, old.counts)
    assert sorted(exchanged.T.tolist()) == sorted(new.counts.T.tolist())
    if sorted(old.counts.T.tolist()) == sorted(new.counts.T.tolist()):
        assert moved(old, exchanged) == []


def test_nodes_of_two_kinds_are_not_exchanged() -> None:
    cluster = Cluster((*Cluster.alike(2, 1.0).nodes, *Cluster.alike(3, 2.0).nodes[2:]))
    counts, current = np.array([[3, 0, 0]]), np.array([[0, 0, 3]])
    assert aligned(cluster, counts, current).tolist() == [[3, 0, 0]]
    assert aligned(cluster, counts, np.array([[0, 3, 0]])).tolist() == [[0, 3, 0]]
