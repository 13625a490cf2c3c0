"""Where a job's tasks are to run: origins of costs, nodes, and what is refused."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from dpa import Job, batch_mapper
from dpa.driver.inputs import Inputs
from dpa.driver.placing import PlacementForecast, Placing, piloted
from dpa.errors import ConfigError
from dpa.protocol.wire.nodes import BackendNode

TABLE = pa.table({"key": [f"k{number % 40}" for number in range(4_000)]})
COSTS = {"mapper": 1.0, "reducer": 3.0}
TRAFFIC = {"mapper": {"reducer": 20.0}}
NODES = {"a": {"processors": 2.0}, "b": {"processors": 2.0}}
THERE = [BackendNode("id-1", "a", 2.0), BackendNode("id-2", "b", 2.0), BackendNode("id-3", "c", 8.0)]


def job(**placement: Any) -> Job:
    return Job(input=TABLE, reducer="count", parallelism={"mappers": 2, "reducers": 4}, placement=placement)


def forecast(**placement: Any) -> PlacementForecast:
    found = job(**placement).forecast().placement
    assert found is not None
    return found


def placing(**placement: Any) -> Placing:
    """Of declared costs."""
    return Placing.of(job(costs=COSTS, traffic=TRAFFIC, **placement).spec, {})


def test_costs_are_measured_on_a_sample_if_nothing_else_says_them() -> None:
    found = forecast(nodes=NODES)
    assert found.origin == "of user code on a sample"
    assert sum(sum(node.tasks.values()) for node in found.nodes) == 6
    assert {each.name for each in found.others} >= {"even", "top_down"}
    assert Job(input=TABLE, reducer="count").forecast().placement is None
    with pytest.raises(ConfigError, match="a sample of the input has no rows: declare what stages cost"):
        Job(input=TABLE.slice(0, 0), reducer="count", placement={}).forecast()


def test_an_allocator_of_the_users_places_the_tasks_beside_those_that_there_are_and_is_named_if_it_fails() -> None:
    found = forecast(nodes=NODES, costs=COSTS, allocator="dpa.placement.allocators.even:EvenAllocator")
    [same] = [each for each in found.others if each.name == "even"]
    assert (found.chosen.kept, found.chosen.busiest) == (same.kept, same.busiest)
    with pytest.raises(ConfigError, match=r"placement.allocator: .*:made' failed: OSError\('no licence'\)"):
        placing(nodes=NODES, allocator=f"{__name__}:made").forecast(None)


def test_the_sample_of_a_source_costs_all_its_tasks_alike() -> None:
    spec = job().spec
    with ExitStack() as stack:
        profile = piloted(spec, Inputs(spec).open(stack, lambda: pytest.fail("Spark is not needed")))
    assert sum(map(sum, profile.costs.values())) == pytest.approx(1.0)
    first, second = profile.costs["mapper"]
    assert first == second > 0
    assert profile.traffic["mapper", "reducer"] > 0


@pytest.mark.parametrize(("tick", "rows"), [(0.0, [10, 100, 1_000, 5_000]), (0.75, [10, 100]), (1.0, [10])])
def test_a_pilot_takes_as_many_rows_as_there_is_time_for(tick: float, rows: list[int]) -> None:
    seen: list[int] = []

    @batch_mapper
    def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.extend([batch.num_rows] if batch.num_rows else [])  # the first look at its columns is at none
        return batch

    table = pa.table({"key": [f"k{number % 7}" for number in range(5_000)]})
    spec = Job(input=table, mapper=counted, reducer="count", placement={}).spec
    now = itertools.count(0.0, tick)
    with ExitStack() as stack:
        opened = Inputs(spec).open(stack, lambda: pytest.fail("Spark is not needed"))
        piloted(spec, opened, clock=lambda: next(now))
    assert seen == rows


def test_every_task_has_a_node_of_those_that_are_named_or_of_all_as_far_as_they_are_needed() -> None:
    homes = placing(nodes=NODES).placed(THERE).nodes
    assert {stage: len(nodes) for stage, nodes in homes.items()} == {"mapper": 2, "reducer": 4}
    assert {node for nodes in homes.values() for node in nodes} == {"id-1", "id-2"}
    homes = placing(allocator="even").placed(THERE).nodes
    assert {node for nodes in homes.values() for node in nodes} == {"id-1", "id-2", "id-3"}
    with pytest.raises(ConfigError, match=r"placement\.nodes\.d: Ray has no such node that is alive; it has a, b, c"):
        placing(nodes={"d": {}}).placed(THERE)
    with pytest.raises(ConfigError, match=r"placement\.nodes\.a: node 'a' has 2 processors and reserves 2"):
        placing(nodes={"a": {"reserved": 2.0}}).placed(THERE)


def test_processors_that_all_tasks_request_are_their_costs_and_no_node_gets_more_than_it_has() -> None:
    asking = Job(
        input=TABLE,
        reducer="count",
        parallelism={"mappers": 2, "reducers": 4},
        placement={"costs": COSTS, "tolerance": 2.0, "nodes": {"a": {}, "b": {"processors": 6.0}}},
        resources={"cpus": 1, "reducers": {"cpus": 1.5}},
    )
    found = Placing.of(asking.spec, {})
    assert found.forecast(None).origin == "the processors that tasks request"
    homes = found.placed([BackendNode("id-1", "a", 2.0), BackendNode("id-2", "b", 6.0)]).nodes
    assert homes["mapper"].count("id-1") + 1.5 * homes["reducer"].count("id-1") <= 2.0
    assert homes["mapper"].count("id-2") + 1.5 * homes["reducer"].count("id-2") <= 6.0


def test_a_placement_group_is_left_to_ray() -> None:
    grouped = Job(input=TABLE, reducer="count", placement={"group": "pack"})
    assert grouped.forecast().placement is None
    assert grouped.spec.demand.group == "pack"
    with pytest.raises(ConfigError, match=r"in a placement group Ray places the tasks: leave out `group`, or `costs`"):
        Job(input=TABLE, reducer="count", placement={"group": "pack", "costs": COSTS})


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"costs": {"mapper": 1.0}}, r"placement\.costs: every stage needs a cost; there is none of reducer"),
        ({"costs": {**COSTS, "sort": 1.0}}, r"placement\.costs\.sort: there is no stage 'sort'; the stages are mapper"),
        ({"costs": dict.fromkeys(COSTS, 0.0)}, r"placement\.costs: all are 0"),
        ({"costs": {**COSTS, "reducer": -1.0}}, r"placement\.costs\.reducer"),
        ({"costs": COSTS, "traffic": {"mappr": {"reducer": 1.0}}}, r"placement\.traffic\.mappr: there is no stage"),
        ({"costs": COSTS, "traffic": {"mapper": {"mapper": 1.0}}}, "a stage's traffic is that with other stages"),
        ({"costs": COSTS, "nodes": {"a": {"processors": float("inf")}}}, r"placement\.nodes\.a\.processors"),
    ],
)
def test_a_declaration_that_does_not_fit_the_job_is_refused_where_it_stands(
    declared: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        forecast(**declared)


@pytest.mark.parametrize("processors", [(2.0, 2.0, 2.0), (2.0, 2.0, 1.0), (4.0, 1.0), (1.0, 1.0, 1.0, 1.0, 1.0)])
def test_no_allocator_is_faster_than_ours_whatever_tolerance_it_needs(processors: tuple[float, ...]) -> None:
    nodes = {f"n{number}": {"processors": count} for number, count in enumerate(processors)}
    found = placing(nodes=nodes, allocator="top_down_search").forecast(None)
    assert found.chosen.speed == pytest.approx(1.0)
    assert all(each.speed <= 1.02 for each in found.others)


def test_the_tolerance_grows_until_coarse_tasks_fit_but_no_more_than_the_most_even_packing_needs() -> None:
    # Five equal tasks on three nodes: two of them on a node are 2 / (5 / 3) = 1.2 times its share.
    declared = {"costs": {"mapper": 1.0, "reducer": 4.0}, "nodes": {name: {"processors": 4.0} for name in "abc"}}
    spec = Job(input=TABLE, reducer="count", parallelism={"mappers": 1, "reducers": 4}, placement=declared).spec
    found = Placing.of(spec, {}).forecast(None)
    assert found.tolerance == pytest.approx(1.2)
    assert all(each.speed <= found.tolerance + 1e-9 for each in found.others)
    found = placing(tolerance=1.01, allocator="top_down", nodes={**NODES, "c": {"processors": 2.0}}).forecast(None)
    assert found.tolerance > 1.01
    assert all(node.busy <= 1 for node in found.nodes)
    nodes = {f"n{number}": {"processors": 16.0} for number in range(80)}  # few tasks fit many nodes
    found = placing(nodes=nodes, allocator="top_down").forecast(None)
    assert sum(sum(node.tasks.values()) for node in found.nodes) == 6


def test_a_node_is_as_busy_as_its_tasks_make_it_whatever_others_use() -> None:
    nodes = {"a": {"processors": 8.0, "reserved": 6.0}, "b": {"processors": 4.0}}
    found = placing(nodes=nodes, allocator="even").forecast(None)
    costs = {"mapper": 1.0 / 2, "reducer": 3.0 / 4}  # of a task
    used = [sum(costs[stage] * count for stage, count in node.tasks.items()) for node in found.nodes]
    assert [node.processors for node in found.nodes] == [2.0, 4.0]
    assert found.nodes[0].busy * 2 / used[0] == pytest.approx(found.nodes[1].busy * 4 / used[1])
    assert found.chosen.busiest == max(node.busy for node in found.nodes) <= 1


def test_a_node_without_processors_is_left_alone_unless_some_are_declared() -> None:
    there = [*THERE, BackendNode("id-4", "head", 0.0)]
    homes = placing(allocator="even").placed(there).nodes
    assert "id-4" not in {node for nodes in homes.values() for node in nodes}
    homes = placing(allocator="even", nodes={"head": {"processors": 4.0}}).placed(there).nodes
    assert {node for nodes in homes.values() for node in nodes} == {"id-4"}
    with pytest.raises(ConfigError, match=r"placement\.nodes: no node of this Ray has a processor"):
        placing().placed([BackendNode("id-4", "head", 0.0)])


class TakesNothing:
    """Can be no policy, and is none that allocates."""

    def look(self, deployment: object) -> object:
        return deployment

    def allocate(self, graph: object, cluster: object) -> object:
        raise OSError("no licence")


made = TakesNothing()


class TakesOne(TakesNothing):
    def __init__(self, needed: int) -> None:
        self.needed = needed


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"profile": "report.json", "costs": COSTS}, "give `profile`, which is measured, or `costs`"),
        ({"traffic": TRAFFIC}, "`traffic` is declared together with `costs`"),
        ({"allocator": "topdown"}, "'even', .* or `package.module:Name` of your own, .*; did you mean 'top_down'?"),
        ({"allocator": "no.such:Thing"}, r"placement\.allocator: there is no module 'no'"),
        ({"allocator": "collections:Counter"}, "is Counter, which has no `allocate"),
        ({"allocator": f"{__name__}:TakesOne"}, r"placement\.allocator: .*:TakesOne cannot be made of {}: TypeError"),
        ({"online": {"policy": "replane"}}, "'improve', 'replan' or `package.module:Name` .*; did you .*'replan'"),
        ({"online": {"policy": "no.such:Thing"}}, r"placement\.online\.policy: there is no module 'no'"),
        ({"online": {"policy": f"{__name__}:made"}}, "is not a class that is made of an `OnlinePlacement`"),
        ({"online": {"policy": f"{__name__}:TakesNothing"}}, "is not a class that is made of an `OnlinePlacement`"),
        ({"online": {"policy": 5}}, r"^Job.*: placement\.online\.policy: [^\n]*$"),
        ({"profile": "nothing.json"}, "placement.profile: no profile at .*nothing.json"),
    ],
)
def test_sections_that_do_not_fit_are_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        forecast(**section)
