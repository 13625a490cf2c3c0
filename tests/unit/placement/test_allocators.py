"""One suite that every allocator passes, and what each of them alone must do."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from placement_samples import MEGABYTE, clusters, graphs, moved, pipeline

from dpa.errors import PlacementError
from dpa.placement import scores
from dpa.placement._descent import Budget, Descent
from dpa.placement.allocators import ALLOCATORS, Allocator, allocator_of
from dpa.placement.allocators.greedy_matching import _Matching
from dpa.placement.allocators.search import QUICK, SearchAllocator, TopDownSearchAllocator
from dpa.placement.allocators.top_down import TopDownAllocator, by_priority
from dpa.placement.model import Cluster, GroupEdge, Node, Placement, TaskGraph, TaskGroup
from dpa.placement.objectives import KeptTraffic, Nodes, Unevenness
from dpa.placement.online import aligned
from dpa.placement.rooms import Rooms
from dpa.placement.scores import Floats
from experiments.placement import sensitivity
from experiments.placement.baselines import BASELINES, ExactAllocator, RandomAllocator
from experiments.placement.graphs import Case, as_published, crowded, dense, full, trees, unlike_nodes

NAMES = [*ALLOCATORS, *BASELINES.values()]
every_allocator = pytest.mark.parametrize("name", NAMES)


def allocated(allocator: Allocator, graph: TaskGraph, cluster: Cluster) -> Placement | None:
    """The allocator's placement; None where it refuses."""
    try:
        return allocator.allocate(graph, cluster)
    except PlacementError as error:
        assert "processors" in str(error) or "groups" in str(error)
        return None


@every_allocator
@settings(max_examples=25)
@given(graph=graphs(max_tasks=4), cluster=clusters())
def test_all_tasks_are_placed_within_every_nodes_room_or_it_says_what_is_lacking_and_again_the_same(
    name: str, graph: TaskGraph, cluster: Cluster
) -> None:
    placement = allocated(allocator_of(name), graph, cluster)
    again = allocated(allocator_of(name), graph, cluster)
    assert placement == again
    if placement is not None and again is not None:
        assert placement.counts.sum(axis=1).tolist() == [group.tasks for group in graph.groups]
        assert scores.overloaded(placement) == []
        assert moved(placement, aligned(cluster, again.counts, placement.counts)) == []


@every_allocator
def test_what_fits_easily_is_placed_and_a_task_larger_than_any_node_is_refused_by_name(name: str) -> None:
    placement = allocator_of(name).allocate(pipeline((2, 3, 2)), Cluster.alike(4, 2.0))
    assert placement.counts.sum() == 7
    graph = TaskGraph((TaskGroup("small", 2, 0.2), TaskGroup("large", 1, 3.0)), (GroupEdge("small", "large", 1.0),))
    with pytest.raises(PlacementError, match=r"large|no placement exists"):
        allocator_of(name).allocate(graph, Cluster.alike(3, 2.0))


def test_top_down_keeps_one_hundred_links_of_the_papers_example_and_ends_where_no_balanced_split_fits() -> None:
    assert sensitivity.links(TopDownAllocator()) == 100
    graph = TaskGraph((TaskGroup("few", 2, 1.0), TaskGroup("many", 40, 4.0)), (GroupEdge("few", "many", 1.0),))
    placement = TopDownAllocator().allocate(graph, Cluster.alike(6, 1.0))
    kept = placement.counts[0] @ placement.counts[1]
    assert kept == 2 * 5  # one of few and as many of many as fit beside it


def test_tasks_that_cost_nothing_exceed_no_node_and_traffic_between_them_is_the_most_significant() -> None:
    for few in (2.0, 0.5):
        graph = TaskGraph((TaskGroup("few", 1, few), TaskGroup("free", 3, 0.0)), (GroupEdge("few", "free", 1.0),))
        placement = allocated(TopDownAllocator(), graph, Cluster.alike(1, 1.0))
        assert (placement is None) == (few > 1)
    costs = {"a": 0.9, "b": 0.5, "c": 0.0, "d": 0.0}
    edges = (GroupEdge("a", "b", 9.0), GroupEdge("c", "d", 1.0), GroupEdge("b", "d", 0.0))
    graph = TaskGraph(tuple(TaskGroup(name, 1, cost) for name, cost in costs.items()), edges)
    assert [link.per_pair for link in by_priority(graph, "significance")] == [1.0, 9.0, 0.0]


def test_top_down_joins_all_hosts_of_a_group_not_the_first_alone_and_fuses_the_nodes_of_two_groups() -> None:
    graph = TaskGraph(
        (TaskGroup("one", 4, 1.0), TaskGroup("two", 4, 1.0), TaskGroup("three", 4, 0.8)),
        (GroupEdge("one", "two", 50.0), GroupEdge("two", "three", 10.0)),
    )
    counts = TopDownAllocator().allocate(graph, Cluster.alike(4, 1.4)).counts
    assert int(((counts[1] > 0) & (counts[2] > 0)).sum()) == 2
    graph = TaskGraph(
        tuple(TaskGroup(name, 1, 0.4) for name in "abcd"),
        (GroupEdge("a", "b", 90.0), GroupEdge("c", "d", 80.0), GroupEdge("b", "c", 1.0)),
    )
    counts = TopDownAllocator().allocate(graph, Cluster.alike(3, 2.0)).counts
    assert int(counts.any(axis=0).sum()) == 1


@settings(max_examples=30)
@given(rooms=st.lists(st.floats(0.2, 3.0), min_size=1, max_size=5), cost=st.floats(0.01, 0.3), tasks=st.integers(1, 60))
def test_many_equal_tasks_go_where_one_after_the_other_would(rooms: list[float], cost: float, tasks: int) -> None:
    graph = TaskGraph((TaskGroup("g", tasks, cost * tasks),))
    cluster = Cluster(tuple(Node(f"n{number}", room) for number, room in enumerate(rooms)))
    free = list(rooms)
    for _ in range(tasks):
        free[free.index(max(free))] -= cost
    assume(min(free) >= 0)
    placement = Rooms(graph, cluster).place_rest()
    left = np.array(rooms) - placement.counts[0] * cost
    assert sorted(left) == pytest.approx(sorted(free))


@settings(max_examples=20)
@given(graph=graphs(max_tasks=3), cluster=clusters())
def test_exact_is_as_good_as_trying_everything(graph: TaskGraph, cluster: Cluster) -> None:
    assume(graph.tasks <= 6 and len(cluster.nodes) <= 4)
    for kind in (KeptTraffic, Unevenness):
        objective = kind(graph, cluster)
        best = min(map(objective.value, _everything(graph, cluster)), default=float("inf"))
        placement = allocated(ExactAllocator(kind), graph, cluster)
        found = float("inf") if placement is None else objective.value(placement.counts)
        assert found == pytest.approx(best)


def _everything(graph: TaskGraph, cluster: Cluster) -> list[np.ndarray]:
    """All placements, as counts."""
    groups = [number for number, group in enumerate(graph.groups) for _ in range(group.tasks)]
    found = []
    for nodes in itertools.product(range(len(cluster.nodes)), repeat=len(groups)):
        counts = np.zeros((len(graph.groups), len(cluster.nodes)), dtype=np.int64)
        np.add.at(counts, (groups, list(nodes)), 1)
        found.append(counts)
    return found


@settings(max_examples=30)
@given(graph=graphs(), cluster=clusters(), objective=st.sampled_from([KeptTraffic, Unevenness]))
def test_ours_is_never_worse_than_what_it_starts_from(
    graph: TaskGraph, cluster: Cluster, objective: type[KeptTraffic | Unevenness]
) -> None:
    judge = objective(graph, cluster)
    ours = allocated(SearchAllocator(objective, trials=3), graph, cluster)
    for start in QUICK:
        theirs = allocated(start, graph, cluster)
        if theirs is not None:
            assert ours is not None
            assert judge.value(ours.counts) <= judge.value(theirs.counts) + 1e-9


def test_published_matching_fills_light_nodes_first_and_then_moderate_ones() -> None:
    graph = pipeline((5,), cost=2.5)
    counts = allocator_of("greedy_matching").allocate(graph, Cluster.alike(3, 2.0)).counts
    assert counts.tolist() == [[2, 2, 1]]  # a quarter each: 50 % is moderate, so every node gets two before a third


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), generator=st.sampled_from([full, crowded, dense, unlike_nodes]))
def test_searches_refuse_nothing_that_others_place(seed: int, generator: Callable[[np.random.Generator], Case]) -> None:
    graph, cluster = generator(np.random.default_rng(seed))
    others = [*map(allocator_of, NAMES), *map(RandomAllocator, range(5))]
    if any(allocated(other, graph, cluster) is not None for other in others):
        assert scores.overloaded(TopDownSearchAllocator(trials=0).allocate(graph, cluster)) == []


@pytest.mark.parametrize("nodes", [6, 12])
def test_nodes_that_are_to_be_full_to_the_brim_are_filled(nodes: int) -> None:
    random = np.random.default_rng(nodes)
    costs, counts = random.uniform(0.1, 1.0, 6), random.integers(0, 3, (6, nodes))
    groups = [TaskGroup(f"g{at}", int(counts[at].sum()), float(counts[at].sum() * costs[at])) for at in range(6)]
    cluster = Cluster(tuple(Node(f"n{at}", float(costs @ counts[:, at])) for at in range(nodes)))
    graph = TaskGraph(tuple(groups), (GroupEdge("g0", "g1", MEGABYTE),))
    assert allocated(TopDownAllocator(), graph, cluster) is None
    assert scores.overloaded(TopDownSearchAllocator().allocate(graph, cluster)) == []


@pytest.mark.parametrize("generator", [as_published, trees, dense, unlike_nodes, full])
def test_top_down_with_search_keeps_99_percent_of_the_best(generator: Callable[[np.random.Generator], Case]) -> None:
    random, kept = np.random.default_rng(1), np.zeros(2)
    for _ in range(10):
        graph, cluster = generator(random)
        placements = [allocated(each, graph, cluster) for each in (TopDownSearchAllocator(), ExactAllocator())]
        kept += [0.0 if placement is None else scores.kept_traffic(placement) for placement in placements]
    assert kept[0] >= 0.99 * kept[1] > 0


def test_the_work_of_a_search_is_bounded_however_large_the_graph() -> None:
    graph, cluster = pipeline((500, 500, 500, 500), cost=20.0), Cluster.alike(100, 1.0)
    counts = RandomAllocator().allocate(graph, cluster).counts
    budget = Budget(20_000)
    reached = Descent(KeptTraffic(graph, cluster), budget).improve(counts)
    assert -32 * 1_100 * 7 <= budget.left <= 0  # a step: some ways with each of 32 nodes, of 4 groups and 3 links
    assert KeptTraffic(graph, cluster).value(reached) < KeptTraffic(graph, cluster).value(counts)


def test_traffic_is_kept_where_one_node_has_room_for_all() -> None:
    for allocator in (TopDownAllocator(), TopDownSearchAllocator(), ExactAllocator()):
        placement = allocator.allocate(pipeline((3, 3, 3), traffic=5 * MEGABYTE), Cluster.alike(3, 4.0))
        assert scores.crossing_traffic(placement) == pytest.approx(0.0, abs=1.0)


class Counted(Unevenness):
    """Unevenness that counts the tables of contents it is asked about."""

    asked = 0

    def use(self, contents: Floats, groups: Nodes | None = None) -> Floats:
        self.asked += 1
        return super().use(contents, groups)


def test_matching_follows_what_nodes_use_and_does_not_count_it_anew_for_each_task() -> None:
    graph, cluster = dense(np.random.default_rng(5))
    matching = _Matching(graph, cluster)
    matching.objective = counted = Counted(graph, cluster)
    for group in range(len(graph.groups)):
        while matching.rooms.left[group] and (node := matching.evenest_node(group)) is not None:
            matching.place(group, node)
    assert counted.asked == 0 < len(graph.groups) < graph.tasks - sum(matching.rooms.left)
    assert matching.use == pytest.approx(counted.use(matching.contents))


def test_nodes_of_very_many_groups_that_are_to_be_full_to_the_brim_are_refused_in_words_or_filled() -> None:
    costs = np.random.default_rng(1).uniform(0.1, 1.0, 1_100)
    groups = tuple(TaskGroup(f"g{at}", 1, float(cost)) for at, cost in enumerate(costs))
    cluster = Cluster(tuple(Node(f"n{at}", float(costs[at::5].sum())) for at in range(5)))
    placement = allocated(TopDownSearchAllocator(trials=0), TaskGraph(groups), cluster)
    assert placement is None or scores.overloaded(placement) == []
