"""Steps become stages and edges: what is fused where, what runs once, in which order edges leave, which columns are
known."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpa
from dpa import Flow, Process
from dpa.aggregates import Count, Distinct, Sum
from dpa.driver.backend import Backend
from dpa.errors import ConfigError
from dpa.execution.emission import Emission
from dpa.flow import Stream
from dpa.logical.columns import columns_read
from dpa.logical.compilation import Compilation
from dpa.protocol.flow_control import CreditLimits, FlowControl
from dpa.protocol.plan import JobLimits
from dpa.testing import LocalBackend
from experiments.simulation.backend import SimulatedBackend

ROWS = [{"word": "to", "n": 1}, {"word": "be", "n": 2}, {"word": "to", "n": 3}]
SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def every(row: dict[str, Any]) -> bool:
    return True


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, row]


@dpa.batch_mapper
def renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns(["term", *batch.schema.names[1:]])


@pytest.fixture
def flow() -> Flow:
    return Flow("tests")


def compiled(flow: Flow, schema: pa.Schema = SCHEMA) -> Compilation:
    """The compilation of a flow, all of whose inputs have these columns."""
    spec = flow.job().spec
    return spec.compilation({source.name: schema for source in spec.sources})


def fused(flow: Flow) -> dict[str, list[tuple[str, ...]]]:
    """For each edge of a flow's graph, as `source target`, the steps that are fused on it."""
    made, found = compiled(flow), dict[str, list[tuple[str, ...]]]()
    for stage in made.compiled({}).graph.stages:
        for steps, taker, _ in made.edges(stage.name):
            found.setdefault(f"{stage.name} {taker.name}", []).append(tuple(step.name for step in steps))
    return found


def test_steps_without_tasks_are_fused_into_the_stage_before_them(flow: Flow) -> None:
    flow.read(ROWS).map(same).filter(every).key_by("word").reduce(Count())
    assert fused(flow) == {"read reduce": [("map", "filter")]}


def test_the_bounds_of_a_step_are_those_of_its_stage(flow: Flow) -> None:
    limits = {"in_flight_mb": 3, "in_flight_records": 300_000, "queue_seconds": None}
    words = flow.read(ROWS).key_by("word")
    words.reduce(Count(), name="bounded", limits=limits)
    words.reduce(Count(), name="usual")
    graph = compiled(flow).compiled({}).graph
    assert graph.credit("bounded") == CreditLimits(FlowControl(**limits))
    assert graph["usual"].flow == JobLimits()


def test_a_stream_of_ready_made_batch_reducers_begins_with_windows_for_microseconds_a_record(flow: Flow) -> None:
    words = flow.read(ROWS).key_by("word")
    slowed = {"slow_factor": [10.0, 1.0]}
    words.reduce(Count(), name="kernel", parallelism=2)
    words.reduce(Count(), name="slowed", parallelism=2, testing=slowed)
    words.reduce(Distinct(), name="python", parallelism=2)
    graph = compiled(flow).compiled({}).graph
    first = {name: graph.credit(name).first_window for name in ("kernel", "slowed", "python")}
    assert first["kernel"] == 10 * first["slowed"] > 100 * first["python"]


def test_a_step_with_tasks_of_its_own_is_a_stage(flow: Flow) -> None:
    flow.read(ROWS).flat_map(twice).map(same, parallelism=3).filter(every).key_by("word").reduce(Count())
    assert fused(flow) == {"read map": [("flat_map",)], "map reduce": [("filter",)]}
    assert compiled(flow).compiled({}).graph["map"].tasks == 3


def test_steps_after_a_reduce_are_fused_into_its_tasks(flow: Flow) -> None:
    counts = flow.read(ROWS).key_by("word").reduce(Count())
    counts.map(same).top_k(1, by="count")
    assert fused(flow) == {"read reduce": [()], "reduce top_k": [("map",)]}


def test_a_step_after_a_union_is_fused_into_each_stage_that_the_union_unites(flow: Flow) -> None:
    left, right = flow.read(ROWS, name="left"), flow.read(ROWS, name="right")
    left.union(right.map(same)).filter(every).key_by("word").reduce(Count())
    assert fused(flow) == {"left reduce": [("union", "filter")], "right reduce": [("map", "union", "filter")]}


def test_several_edges_may_lead_to_one_stage(flow: Flow) -> None:
    rows = flow.read(ROWS)
    rows.filter(every).union(rows.map(same), rows).key_by("word").reduce(Count())
    assert sorted(fused(flow)["read reduce"]) == [("filter", "union"), ("map", "union"), ("union",)]
    counts = {row["word"]: row["count"] for row in flow.run(backend=LocalBackend()).table().to_pylist()}
    assert counts == {"to": 6, "be": 3}


def test_each_side_of_a_join_with_itself_has_an_edge(flow: Flow) -> None:
    rows = flow.read(ROWS)
    rows.key_by("word").join(rows.filter(every).key_by("word"), name="pairs")
    emission = compiled(flow).compiled({}).tasks["read"]
    assert isinstance(emission, Emission)
    assert fused(flow) == {"read pairs": [("filter",), ()]}
    assert [edge.side for edge in emission.edges] == [1, 0]


@pytest.mark.parametrize("backend", [LocalBackend(), SimulatedBackend(seed=3)], ids=["local", "simulated"])
def test_what_several_edges_have_in_common_runs_once(flow: Flow, backend: Backend) -> None:
    calls: Counter[str] = Counter()

    def counting(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def call(row: dict[str, Any]) -> dict[str, Any]:
            calls[name] += 1
            return row

        return call

    common = flow.read(ROWS).map(counting("first")).map(counting("second"), name="second")
    for side in ("left", "right"):
        common.map(counting(side)).key_by("word").reduce(Count(), name=side)
    common.key_by("n").reduce(Count(), name="direct")
    result = flow.run(backend=backend)
    assert calls == {"first": 3, "second": 3, "left": 3, "right": 3}
    assert {name: result.table(name).num_rows for name in ("left", "right", "direct")} == {
        "left": 2,
        "right": 2,
        "direct": 3,
    }


def test_columns_are_known_behind_batch_functions_filters_joins_and_batch_reducers(flow: Flow) -> None:
    rows = flow.read(ROWS, name="rows")
    terms = rows.filter(every, name="filtered").map(renamed, name="terms")
    sums = terms.key_by("term").reduce(Sum("n"), name="sums")
    joined = rows.key_by("word").join(sums.key_by("term"), name="joined")
    joined.union(joined, name="united").top_k(2, by="n", name="top")
    made = compiled(flow)
    found = {step.name: made.columns.of(step.name) for step in made.steps}
    assert {name: columns and columns.names for name, columns in found.items()} == {
        "rows": ["word", "n"],
        "filtered": ["word", "n"],
        "terms": ["term", "n"],
        "sums": ["term", "n"],
        "joined": ["word", "n", "n_right"],
        "united": ["word", "n", "n_right"],
        "top": ["rank", "word", "n", "n_right"],
    }


def test_columns_are_not_known_behind_functions_of_a_record_and_what_takes_its_rows(flow: Flow) -> None:
    rows = flow.read(ROWS)
    made = rows.map(same, name="made")
    made.key_by("word").reduce(Count(), name="counted")
    rows.key_by("word").reduce(max, name="reduced")
    made.union(rows, name="united").key_by("word", value="n").join(rows.key_by("word"), name="joined")
    columns = compiled(flow).columns
    assert [columns.of(name) for name in ("made", "counted", "reduced", "united", "joined")] == [None] * 5


def test_columns_are_known_behind_a_function_of_the_key_but_for_the_type_of_the_key(flow: Flow) -> None:
    flow.read(ROWS).key_by(lambda row: row["n"]).top_k(1, by="n", name="ranked")
    columns = compiled(flow).columns
    types = {"key": pa.null(), "rank": pa.int64(), "word": pa.string(), "n": pa.int64()}
    assert columns.of("ranked") == columns.empty("ranked") == pa.schema(types)


def test_an_empty_result_has_the_columns_that_later_steps_name(flow: Flow) -> None:
    rows = flow.read(ROWS)
    made = rows.map(same, name="made")
    passed = made.filter(every, name="passed").union(made, name="united")
    passed.key_by("word", value="n").reduce(max, name="reduced")
    passed.key_by("day").top_k(1, by="hour", name="ranked")
    sides = made.key_by("word", value="n").join(rows.key_by("word"), "left", name="joined")
    sides.key_by("n_right").reduce(Count(), name="counted")
    empty = {step.name: compiled(flow).columns.empty(step.name) for step in compiled(flow).steps}
    untyped = {name: [field.name for field in schema if pa.types.is_null(field.type)] for name, schema in empty.items()}
    named = ["word", "n", "day", "hour"]
    assert untyped["made"] == untyped["passed"] == untyped["united"] == named
    assert [schema.names for schema in (empty["made"], empty["passed"], empty["united"])] == [named] * 3
    assert empty["reduced"] == pa.schema({"word": pa.null(), "value": pa.null()})
    assert empty["ranked"].names == ["day", "rank", *[name for name in named if name != "day"]]
    assert empty["joined"] == pa.schema({"word": pa.string(), "n": pa.null(), "n_right": pa.int64()})
    assert empty["counted"] == pa.schema({"n_right": pa.int64(), "count": pa.int64()})


def test_only_the_columns_are_read_that_all_edges_name_as_a_dictionary_where_they_are_keys_alone(flow: Flow) -> None:
    def read() -> Any:
        return columns_read(flow.job().spec.steps, "rows")

    rows = flow.read(ROWS, name="rows")
    rows.key_by("word", value="n").reduce(Sum("n"))
    assert read() == (("word", "n"), ("word",))
    rows.key_by("user", value=[]).reduce(Count())
    assert read() == (("word", "n", "user"), ("word", "user"))
    rows.key_by("day").reduce(Count())
    assert read() == (None, ("day",))
    rows.filter(every).key_by("day").reduce(Count())  # a function of batches expects the columns' own types
    assert read() == (None, ())


@dpa.batch_mapper
def tripled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": pc.multiply(batch.column("n"), 3)})


@dpa.batch_filter
def even(batch: pa.RecordBatch) -> pa.Array:
    return pc.equal(pc.bit_wise_and(batch.column("n"), 1), 0)


Naive = Callable[[list[int]], list[int]]
OPERATORS: dict[str, tuple[str, Callable[..., Any], Naive]] = {
    "map": ("map", lambda row: {"n": row["n"] + 1}, lambda rows: [n + 1 for n in rows]),
    "map of batches": ("map", tripled, lambda rows: [n * 3 for n in rows]),
    "filter": ("filter", lambda row: row["n"] % 3, lambda rows: [n for n in rows if n % 3]),
    "filter of batches": ("filter", even, lambda rows: [n for n in rows if n % 2 == 0]),
    "flat_map": (
        "flat_map",
        lambda row: [{"n": row["n"]}] * (row["n"] % 3),
        lambda rows: [n for n in rows for _ in range(n % 3)],
    ),
}
"""Words of a flow, a function for each, and what it does in plain Python."""


@dataclass(frozen=True)
class Drawn:
    """A step of a random flow: an operator or, where it is None, a union; the steps it takes rows of; its tasks."""

    operator: str | None
    takes: tuple[int, ...]
    parallelism: int | None


@st.composite
def steps(draw: st.DrawFn) -> list[Drawn]:
    """Steps, each of which takes rows of those before it; step 0 reads."""
    found: list[Drawn] = []
    for number in range(1, draw(st.integers(2, 7))):
        operator = draw(st.sampled_from([*OPERATORS, None]))
        one_or_more = st.lists(st.integers(0, number - 1), min_size=1, max_size=1 if operator else 3)
        tasks = draw(st.sampled_from([None, None, 1, 2]))
        found.append(Drawn(operator, tuple(draw(one_or_more)), tasks))
    return found


def built(numbers: Sequence[int], drawn: Sequence[Drawn]) -> tuple[Flow, dict[str, Counter[int]]]:
    """The flow of these steps on these numbers, and what each of its results must be."""
    flow = Flow("tests", limits={"batch_records": 3, "split_records": 4})
    rows, naive = [flow.read(pa.table({"n": pa.array(numbers, pa.int64())}))], [list(numbers)]
    for step in drawn:
        options = {} if step.parallelism is None else {"parallelism": step.parallelism}
        before, *others = (rows[number] for number in step.takes)
        taken = [n for number in step.takes for n in naive[number]]
        if step.operator is None:
            rows.append(before.union(*others, **options))
            naive.append(taken)
        else:
            word, function, plain = OPERATORS[step.operator]
            rows.append(getattr(before, word)(function, **options))
            naive.append(plain(taken))
    ends = [number for number in range(1, len(rows)) if not any(number in step.takes for step in drawn)]
    return flow, {rows[number].step: Counter(naive[number]) for number in ends}


NUMBERS = st.lists(st.integers(0, 20), max_size=12)


@given(NUMBERS, steps())
@settings(max_examples=80, deadline=None)
def test_any_tree_of_steps_gives_the_rows_of_plain_python(numbers: list[int], drawn: list[Drawn]) -> None:
    flow, expected = built(numbers, drawn)
    _require_results(flow, expected, LocalBackend())


@given(NUMBERS, steps(), st.integers(0, 1_000))
@settings(max_examples=25, deadline=None)
def test_so_it_does_whatever_the_order_of_messages(numbers: list[int], drawn: list[Drawn], seed: int) -> None:
    flow, expected = built(numbers, drawn)
    _require_results(flow, expected, SimulatedBackend(seed=seed))


def _require_results(flow: Flow, expected: dict[str, Counter[int]], backend: Backend) -> None:
    result = flow.run(backend=backend)
    assert {name: Counter(row["n"] for row in result.table(name).to_pylist()) for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "words"), [({}, "top 2 by n of each word"), ({"descending": False}, "least 2 by n of each word")]
)
def test_a_ranking_is_told_in_the_words_of_its_step(flow: Flow, options: dict[str, Any], words: str) -> None:
    flow.read(ROWS).key_by("word").top_k(2, by="n", **options)
    assert [step.does for step in flow.job().spec.steps] == ["read", words]


class Seen(Process[int, Any]):
    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, list[dict[str, Any]]]:
        return state, []


Sides = Callable[[Stream, Stream], Stream]
UNNAMED: dict[str, tuple[str, Sides]] = {
    "map": ("made", lambda rows, made: made),
    "filter after a map": ("made", lambda rows, made: made.filter(every)),
    "union": ("made", lambda rows, made: rows.union(made)),
    "union of any columns": ("made", lambda rows, made: rows.union(made, allow_missing_columns=True)),
    "flat_map": ("flat", lambda rows, made: made.flat_map(lambda row: [row], name="flat")),
    "batch function": ("made", lambda rows, made: made.map(renamed)),
    "reducer": ("largest", lambda rows, made: rows.key_by("word").reduce(max, name="largest")),
    "process": ("seen", lambda rows, made: rows.key_by("word").process(Seen(), name="seen")),
    "first rows": ("made", lambda rows, made: made.key_by("word").top_k(1, by="n")),
    "semi join": ("made", lambda rows, made: made.key_by("word").join(rows.key_by("word"), "semi")),
}
"""Rows whose columns are known only while a job runs, and the step that could declare them."""


@pytest.mark.parametrize(("hiding", "rows_of"), UNNAMED.values(), ids=UNNAMED)
@pytest.mark.parametrize("input", [{"format": "parquet", "path": "none"}, ROWS], ids=["not looked at", "in memory"])
def test_a_join_of_columns_that_are_not_known_is_refused_when_it_is_checked(
    hiding: str, rows_of: Sides, input: Any
) -> None:
    for swapped, how in itertools.product((False, True), ("inner", "left", "right", "full")):
        flow = Flow("tests")
        rows = flow.read(input, name="rows")
        sides = [rows, rows_of(rows, rows.map(same, name="made"))]
        left, right = reversed(sides) if swapped else sides
        left.key_by("word").join(right.key_by("word"), how, name="pairs")
        mend = f"declare the `schema` of '{hiding}', or name the columns that the join takes in `value`"
        with pytest.raises(ConfigError, match=rf"stages\.pairs\.join: .* are not known before the job runs: {mend}"):
            flow.check()


NAMED: dict[str, Sides] = {
    "value": lambda rows, made: made.key_by("word", value="n").join(rows.key_by("word")),
    "declared map": lambda rows, made: (
        made.map(same, schema={"word": "string", "n": "int8"}).key_by("word").join(rows.key_by("word"))
    ),
    "join of named columns": lambda rows, made: (
        made.key_by("word", value="n").join(rows.key_by("word"), "full").key_by("word").join(rows.key_by("word"))
    ),
    "ready-made reducer": lambda rows, made: (
        made.key_by("word").reduce(Count()).key_by("word").join(rows.key_by("word"))
    ),
    "ready-made reducer of objects": lambda rows, made: (
        made.key_by("word", value="n").reduce("top_k").key_by("word").join(rows.key_by("word"))
    ),
    "right side of a semi join": lambda rows, made: (
        rows.key_by("word").join(made.key_by("word"), "semi").key_by("word").join(rows.key_by("word"))
    ),
    "left side of an anti join": lambda rows, made: made.key_by("word").join(rows.key_by("word"), "anti"),
}


@pytest.mark.parametrize("build", NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("input", [{"format": "parquet", "path": "none"}, ROWS], ids=["not looked at", "in memory"])
def test_a_join_needs_no_more_than_the_names_of_columns(build: Sides, input: Any) -> None:
    flow = Flow("tests")
    rows = flow.read(input)
    build(rows, rows.map(same))
    flow.check()


def test_a_column_that_a_join_of_named_columns_lacks_is_named() -> None:
    flow = Flow("tests")
    rows = flow.read(ROWS, name="rows")
    pairs = rows.map(same).key_by("word", value="n").join(rows.key_by("word"), name="pairs")
    pairs.key_by("m").reduce(Count())
    with pytest.raises(ConfigError, match="the step 'pairs' has no column 'm'; it has word, n, n_right"):
        flow.check()
    other = Flow("tests")
    rows = other.read(ROWS)
    rows.key_by("word").join(rows.key_by("n", value="x"))
    with pytest.raises(ConfigError, match=r"stages.join.join.value: the step 'read' has no column 'x'; it has word, n"):
        compiled(other)
