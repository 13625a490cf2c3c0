"""Graphs of stages: what follows what, who sends to whom, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import ConfigError
from dpa.protocol.flow_control import FlowControl
from dpa.protocol.graph import CheckpointTimes, ClosingWindows, Edge, Graph, Publishing, Stage
from dpa.protocol.machines import task_of
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.routing.groupings.options import BY_KIND, GroupingOptions, ShuffleOptions
from dpa.sources.splits import MemorySplit
from experiments.simulated_jobs.map_reduce import map_reduce


def graph(tasks: dict[str, int], *edges: str) -> Graph:
    """A graph of stages with these numbers of tasks, and of edges like `a b`."""
    stages = tuple(Stage(name, number) for name, number in tasks.items())
    return Graph(stages, tuple(Edge(*edge.split()) for edge in edges))


DIAMOND = graph({"sink": 1, "right": 3, "left": 2, "rows": 2}, "rows left", "rows right", "left sink", "right sink")


def test_a_graph_knows_what_follows_what_and_who_sends_to_whom() -> None:
    assert [stage.name for stage in DIAMOND.in_order] == ["rows", "right", "left", "sink"]
    assert [stage.name for stage in DIAMOND.queue_fed()] == ["right", "left", "sink"]
    assert [name for name in ("rows", "left", "right", "sink") if DIAMOND.is_source(name)] == ["rows"]
    assert [number for number, _ in DIAMOND.into("sink")] == [2, 3]
    assert [number for number, _ in DIAMOND.out_of("rows")] == [0, 1]
    assert [stage.name for stage in DIAMOND.upstream("sink")] == ["left", "right"]
    senders = [Address("left", 0), Address("left", 1), *(Address("right", index) for index in range(3))]
    assert DIAMOND.senders("sink") == senders
    assert DIAMOND.queue_bound("sink") == 5 * DIAMOND["sink"].flow.in_flight_records
    apart = graph({"d": 1, "c": 1, "b": 1, "a": 1}, "a b", "d c")
    assert [stage.name for stage in apart.in_order] == ["d", "a", "c", "b"], "as they are named"


@given(st.data())
def test_whatever_the_order_in_which_stages_are_named_none_comes_before_one_that_feeds_it(data: st.DataObject) -> None:
    names = [f"s{number}" for number in range(6)]
    drawn = [f"{names[i]} {names[j]}" for i in range(6) for j in range(i + 1, 6) if data.draw(st.booleans())]
    made = graph(dict.fromkeys(data.draw(st.permutations(names)), 1), *data.draw(st.permutations(drawn)))
    place = {stage.name: number for number, stage in enumerate(made.in_order)}
    assert len(place) == 6
    assert all(place[edge.source] < place[edge.target] for edge in made.edges)


def test_a_stage_that_feeds_another_along_two_edges_is_one_sender_with_twice_the_credit() -> None:
    twice = graph({"rows": 2, "sink": 1}, "rows sink", "rows sink")
    assert [stage.name for stage in twice.upstream("sink")] == ["rows"]
    assert twice.senders("sink") == [Address("rows", 0), Address("rows", 1)]
    assert twice.queue_bound("sink") == 2 * 2 * twice["sink"].flow.in_flight_records


@pytest.mark.parametrize(
    ("of_graph", "of_sink", "divided"),
    [
        ({}, {}, False),
        ({"checkpoints": CheckpointTimes(10.0)}, {}, True),
        ({}, {"publishing": (Publishing(1.0),)}, True),
        ({}, {"publishing": (Publishing(closed=True),)}, True),
        ({}, {"windows": ClosingWindows()}, False),
    ],
)
def test_where_the_stream_is_cut_receivers_have_even_shares_of_the_credit(
    of_graph: dict[str, Any], of_sink: dict[str, Any], divided: bool
) -> None:
    stages = (Stage("rows", 2), replace(Stage("sink", 3), **of_sink))
    assert Graph(stages, (Edge("rows", "sink"),), **of_graph).credit("sink").divided == divided


def test_the_smallest_graph_is_a_source_and_a_reduce_stage() -> None:
    splits = (MemorySplit(pa.table({"n": [1]})),)
    smallest = map_reduce(splits, 2, 3, flow=FlowControl(quantum_records=7))
    assert [(stage.name, stage.tasks) for stage in smallest.in_order] == [("mapper", 2), ("reducer", 3)]
    assert (smallest["mapper"].input.splits, smallest["reducer"].flow.quantum_records) == (splits, 7)
    assert smallest.without_splits()["mapper"].input.splits == ()
    assert smallest.without_splits().edges == smallest.edges


# --- what is refused


@pytest.mark.parametrize(
    ("tasks", "edges", "what"),
    [
        ({"a": 1, "b": 1}, ["a b", "b a"], "the stages a -> b -> a form a cycle"),
        ({"a": 1}, ["a a"], "the stages a -> a form a cycle"),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, ["a b", "b c", "c b", "c d"], "the stages b -> c -> b form a cycle"),
        ({"a": 1, "b": 1}, ["a counts"], "there is no stage 'counts'; the stages are a, b"),
        ({"a": 1, "b": 1}, ["rows b"], "there is no stage 'rows'"),
        ({"a": 1, COORDINATOR.stage: 1}, ["a coordinator"], "a stage must not be named 'coordinator'"),
    ],
)
def test_a_graph_that_cannot_be_run_is_refused(tasks: dict[str, int], edges: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        graph(tasks, *edges)


def test_the_load_balancer_is_no_stage_and_two_stages_have_two_names() -> None:
    with pytest.raises(ConfigError, match="a stage must not be named 'load balancer'"):
        Graph((Stage(BALANCER.stage, 1),), ())
    with pytest.raises(ConfigError, match="two stages are named 'a'"):
        Graph((Stage("a", 1), Stage("a", 2)), ())


@pytest.mark.parametrize("grouping", [options() for options in BY_KIND.values()], ids=lambda grouping: grouping.kind)
def test_states_migrate_only_where_a_key_has_one_task(grouping: GroupingOptions) -> None:
    assert grouping.splits_keys == (grouping.kind not in ("ring", "key"))
    if not grouping.splits_keys:
        map_reduce((), 1, 2, grouping=grouping, consistency="migrate")
        return
    with pytest.raises(ConfigError, match=f"the states of stage 'reducer' cannot migrate by '{grouping.kind}'"):
        map_reduce((), 1, 2, grouping=grouping, consistency="migrate")


# --- its machines


def test_every_task_of_a_graph_has_a_machine_with_an_emitter_for_each_edge_that_leaves_its_stage() -> None:
    edges = {"rows": [(0, "left", 2), (1, "right", 3)], "left": [(2, "sink", 1)], "right": [(3, "sink", 1)], "sink": []}
    for address in DIAMOND.addresses:
        machine = task_of(DIAMOND, address)
        assert isinstance(machine, SourceMachine if address.stage == "rows" else OperatorMachine)
        assert machine.address == address
        found = [(emitter.edge, emitter.stage, emitter.table.reducers) for emitter in machine.emitters]
        assert found == edges[address.stage]


def test_the_senders_of_a_stage_have_groupings_with_numbers_of_their_own() -> None:
    """Round-robin senders that all began with the same task would load it first."""
    stages = (Stage("a", 2), Stage("b", 1), Stage("sink", 3, grouping=ShuffleOptions()))
    made = Graph(stages, (Edge("a", "sink"), Edge("b", "sink")))
    groupings = [task_of(made, at).emitters[0]._grouping for at in made.senders("sink")]
    first = [int(grouping.choose(pa.array([0], pa.uint32()).to_numpy())[0]) for grouping in groupings]
    assert len(set(first)) == 3
