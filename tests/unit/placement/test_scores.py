"""What a placement is worth, beside sums over single tasks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_samples import MEGABYTE, clusters, graphs, pipeline

from dpa.errors import PlacementError
from dpa.placement import scores
from dpa.placement.model import Cluster, GroupEdge, Node, Placement, TaskGraph, TaskGroup
from dpa.placement.objectives import Fullness, KeptTraffic, Objective, Unevenness
from experiments.placement.elastic import bandwidth_use, deviation


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Tasks anywhere, fitting or not."""
    graph, cluster = draw(graphs(max_tasks=4)), draw(clusters())
    node = st.integers(0, len(cluster.nodes) - 1)
    nodes = [draw(st.lists(node, min_size=group.tasks, max_size=group.tasks)) for group in graph.groups]
    return Placement(graph, cluster, np.array([np.bincount(of, minlength=len(cluster.nodes)) for of in nodes]))


@settings(max_examples=60)
@given(placement=placements())
def test_traffic_is_the_sum_over_pairs_of_tasks_and_objectives_agree_with_it(placement: Placement) -> None:
    graph, cluster = placement.graph, placement.cluster
    pairs = [
        (one, other, link.per_pair)
        for link in graph.links
        for one in placement.nodes_of(link.upstream)
        for other in placement.nodes_of(link.downstream)
    ]
    kept = sum(amount for one, other, amount in pairs if one == other)
    nodes = range(len(cluster.nodes))
    sent = [sum(amount for one, other, amount in pairs if one == node != other) for node in nodes]
    received = [sum(amount for one, other, amount in pairs if one != node == other) for node in nodes]
    assert scores.kept_traffic(placement) == pytest.approx(kept)
    assert scores.sent(placement) == pytest.approx(sent, abs=1e-3)
    assert scores.received(placement) == pytest.approx(received, abs=1e-3)
    assert scores.crossing_traffic(placement) == pytest.approx(sum(sent), abs=1e-3)
    judged = [kind(graph, cluster).value(placement.counts) for kind in (KeptTraffic, Unevenness)]
    if scores.overloaded(placement):
        assert judged == [np.inf] * 2
        return
    squares = np.square(scores.utilisation(placement)).sum() + np.square(bandwidth_use(placement)).sum()
    assert judged == [pytest.approx(-kept, abs=1e-3), pytest.approx(squares, abs=1e-6)]


@pytest.mark.parametrize("kind", [KeptTraffic, Unevenness, Fullness])
@given(placement=placements(), data=st.data())
def test_an_objective_asked_about_some_groups_or_one_more_task_says_what_it_says_about_all(
    kind: type[Objective], placement: Placement, data: st.DataObject
) -> None:
    objective, contents = kind(placement.graph, placement.cluster), placement.counts.T.astype(float)
    groups = np.array(
        data.draw(st.lists(st.sampled_from(range(contents.shape[1])), min_size=1, unique=True).map(sorted))
    )
    only = np.zeros_like(contents)
    only[:, groups] = contents[:, groups]
    assert objective.use(contents[:, groups], groups) == pytest.approx(objective.use(only))
    group = int(groups[0])
    more = objective.use(contents) + objective.use_of_one_more(contents, group)
    contents[:, group] += 1
    assert more == pytest.approx(objective.use(contents))


def test_the_busiest_resource_limits_throughput_and_what_is_reserved_counts_as_used() -> None:
    graph = pipeline((1, 1), cost=0.5, traffic=40 * MEGABYTE)
    apart = np.array([[1, 0], [0, 1]])
    wide, narrow = Cluster.alike(2, 1.0), Cluster.alike(2, 1.0, bandwidth=10 * MEGABYTE)
    assert scores.throughput(Placement(graph, wide, apart.copy())) == pytest.approx(2.0)
    assert scores.throughput(Placement(graph, narrow, apart.copy())) == pytest.approx(0.25)
    together = Placement(graph, narrow, np.array([[1, 0], [1, 0]]))
    assert scores.throughput(together) == pytest.approx(1.0)
    node = Node("n", 4.0, reserved=1.0, bandwidth=10.0, reserved_bandwidth=2.0)
    placement = Placement(pipeline((2,), cost=1.0), Cluster((node,)), np.array([[2]]))
    assert scores.utilisation(placement).tolist() == [0.5]
    assert bandwidth_use(placement).tolist() == [0.2]
    assert scores.throughput(placement) == pytest.approx(3.0)
    assert deviation(np.array([0.2, 0.4, 0.6])) == pytest.approx(np.sqrt(0.08))


def test_several_edges_between_two_groups_are_one_link() -> None:
    graph = TaskGraph(
        (TaskGroup("a", 2, 1.0), TaskGroup("b", 3, 1.0)), (GroupEdge("a", "b", 6.0), GroupEdge("a", "b", 12.0))
    )
    assert [link.per_pair for link in graph.links] == [3.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TaskGroup("count", 0, 1.0), "'count' has 0 tasks; it needs at least 1"),
        (lambda: TaskGroup("count", 1, -1.0), "'count' costs -1.0 processors"),
        (lambda: GroupEdge("a", "a", 1.0), "from task group 'a' to itself"),
        (
            lambda: TaskGraph((TaskGroup("a", 1, 0.0),), (GroupEdge("a", "b", 1.0),)),
            "leads to or from 'b'; the task groups are a",
        ),
        (lambda: TaskGraph(()), "needs at least one task group"),
        (lambda: Node("n", 1.0, reserved=1.0), "1 processors and reserves 1"),
        (lambda: Node("n", 1.0, bandwidth=0.0), "bandwidth of 0 bytes/s"),
        (lambda: Cluster(()), "needs at least one node"),
        (lambda: Cluster((Node("n", 1.0), Node("n", 2.0))), "different names; these are n, n"),
        (
            lambda: Placement(pipeline((2,)), Cluster.alike(2, 1.0), np.array([[1, 0]])),
            r"tasks placed: \[1\]; the groups have \[2\]",
        ),
    ],
)
def test_what_is_inconsistent_is_refused(make: object, message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        make()  # type: ignore[operator]
