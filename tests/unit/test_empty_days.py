"""Jobs on days without rows: each result has the same columns and types whatever input is empty, and a step that names
a column does not fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import dpa
from dpa import Flow, Process
from dpa.aggregates import Count, Distinct, Max, Min, Sum, TopK
from dpa.driver.backend import Backend
from dpa.flow import Stream
from dpa.testing import LocalBackend, run_local
from experiments.simulation.backend import SimulatedBackend

LEFT = pa.table({"id": [1, 2, 2], "day": ["Mon", "Tue", "Tue"], "n": [3, 1, 2]})
RIGHT = pa.table({"id": [2, 3, 4], "day": ["Tue", "Wed", "Thu"], "n": [0.5, 1.5, 2.5]})


@pytest.fixture(params=[LocalBackend(), SimulatedBackend(seed=1)], ids=["local", "simulated"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def types_of(table: pa.Table) -> dict[str, pa.DataType]:
    return dict(zip(table.schema.names, table.schema.types, strict=True))


def behind_one_another(flow: Flow, empty: str) -> Stream:
    """A left join with rows of a function, then a right join with rows of the same columns."""
    tables = {"a": [1, 2], "b": [7, 8], "m": [5, 6]}
    rows = {
        name: flow.read(pa.table({"k": [1, 3], "v": v})[: 0 if name in empty else 2], name=name)
        for name, v in tables.items()
    }
    made = rows["m"].map(same, schema={"k": "int64", "v": "int64"})
    return rows["a"].key_by("k").join(made.key_by("k"), "left").key_by("k").join(rows["b"].key_by("k"), "right")


@pytest.mark.parametrize("empty", ["", "a", "b", "m", "am", "abm"])
def test_a_column_means_the_same_whatever_side_of_joins_after_one_another_is_empty(
    backend: Backend, empty: str
) -> None:
    flow = Flow("tests")
    behind_one_another(flow, empty)
    table = flow.run(backend=backend).table()
    assert types_of(table) == dict.fromkeys(["k", "v", "v_right", "v_right_right"], pa.int64())
    found = {row.pop("k"): tuple(row.values()) for row in table.to_pylist()}
    of_left, of_made = (None if "a" in empty else 1), (None if empty else 5)
    of_three = (None if "a" in empty else 2), (None if empty else 6)
    assert found == ({} if "b" in empty else {1: (of_left, of_made, 7), 3: (*of_three, 8)})


def test_a_join_that_names_columns_of_a_side_without_rows_may_be_joined_again(backend: Backend) -> None:
    flow = Flow("tests")
    tables = {"a": {"k": [1], "v": [1]}, "b": {"k": [1], "w": [2]}, "c": {"k": [1], "x": [3]}}
    a, b, c = (flow.read(pa.table(rows)[: name != "a"], name=name) for name, rows in tables.items())
    made = a.map(same, schema={"k": "int64", "w": "int64"})
    full = b.key_by("k").join(made.key_by("k"), "full").key_by("k").join(c.key_by("k"), "left")
    full.key_by("k", value="w").join(c.key_by("k"))
    assert flow.run(backend=backend).table().to_pylist() == [{"k": 1, "w": 2, "x": 3}]


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


class Values(Process[int, Any]):
    """Emits each value with its key."""

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, Iterable[dict[str, Any]]]:
        return state + 1, [{"key": str(key), "value": value}]


@pytest.mark.parametrize(
    "reaching", [lambda rows: rows, lambda rows: rows.filter(lambda row: False)], ids=["no rows", "all filtered"]
)
def test_a_process_by_several_columns_that_no_row_reaches_has_its_key_columns(
    backend: Backend, reaching: Callable[[Stream], Stream]
) -> None:
    flow = Flow("tests")
    reaching(flow.read(LEFT[:0])).key_by("id", "day").process(Values())
    assert types_of(flow.run(backend=backend).table()) == {"id": pa.int64(), "day": pa.string()}


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("empty", ["left", "right", "both"])
def test_columns_of_a_join_are_named_by_value_where_nothing_is_known_of_a_side_without_rows(
    backend: Backend, how: str, empty: str
) -> None:
    flow = Flow("tests")
    left, right = (
        flow.read(table[:0] if empty in (side, "both") else table).map(same).key_by("id", value=["day", "n"])
        for side, table in (("left", LEFT), ("right", RIGHT))
    )
    pairs = left.join(right, how, name="pairs")
    pairs.key_by("day", "day_right").reduce(Sum("n_right"), name="sums")
    pairs.filter(same).key_by("day_right").top_k(2, by="n", name="top")
    result = flow.run(backend=backend)
    sums, top = result.table("sums"), result.table("top")
    assert sums.column_names == ["day", "day_right", "n_right"]
    assert set(top.column_names) >= {"day_right", "rank", "n"}
    rows = {("left", "right"): RIGHT, ("left", "full"): RIGHT, ("right", "left"): LEFT, ("right", "full"): LEFT}
    alone = rows.get((empty, how), RIGHT[:0])
    assert sum(filter(None, sums["n_right"].to_pylist())) == (sum(alone["n"].to_pylist()) if alone is RIGHT else 0)
    assert sums.num_rows == len(set(alone["day"].to_pylist()))


def test_a_ranking_by_a_function_of_typed_rows_keeps_their_columns(backend: Backend) -> None:
    flow = Flow("tests")
    ranked = flow.read(LEFT[:0]).key_by(lambda row: row["id"] % 2).top_k(2, by="n", name="ranked")
    ranked.key_by("day").reduce(Sum("n"), name="sums")
    assert types_of(flow.run(backend=backend).table()) == {"day": pa.string(), "n": pa.int64()}


def test_a_ranking_by_a_column_of_nulls_alone_passes_over_all_rows(backend: Backend) -> None:
    flow = Flow("tests")
    rows = flow.read(pa.table({"id": [1, 2], "n": pa.nulls(2)}))
    rows.key_by("id").top_k(1, by="n", name="first").key_by("id").reduce(Count(), name="counts")
    assert types_of(flow.run(backend=backend).table()) == {"id": pa.int64(), "count": pa.int64()}


@pytest.mark.parametrize("records", [[], [{"word": "to", "n": 1}]], ids=["none", "one"])
def test_records_in_memory_may_be_none(backend: Backend, records: list[Any]) -> None:
    flow = Flow("tests")
    flow.read(records, name="bare").key_by("word").reduce(Sum("n"), name="sums")
    flow.read(records, name="declared", schema={"word": "string", "n": "int16"}).top_k(1, by="n", name="top")
    result = flow.run(backend=backend)
    assert types_of(result.table("top")) == {"rank": pa.int64(), "word": pa.string(), "n": pa.int16()}
    assert result.table("sums").column_names == ["word", "n"]
    assert run_local(None, Sum("n"), records, key="word").column_names == ["word", "n"]
    assert [result.table(name).num_rows for name in ("top", "sums")] == [len(records)] * 2


# --- the columns and types of each result are the same, whatever input is empty


WORDS = pa.table({"word": ["to", "be", "to", None], "n": pa.array([1, 2, None, 4], pa.int32())})
USERS = pa.table(
    {"name": ["ann", "bob"], "word": ["to", "be"], "since": pa.array([1, 2], pa.timestamp("us")), "tags": [["a"], []]}
)
TEXT = {"letter": "string", "times": "int32", "share": "double"}


def letters(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"letter": letter, "times": 1, "share": 1} for letter in row["word"] or ""]


@dpa.batch_mapper
def renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"word": batch.column("word"), "times": batch.column("n")})


class Seen(Process[int, Any]):
    """How often each key came so far."""

    schema: ClassVar = {"word": "string", "n": "int32", "seen": "double"}

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, Iterable[dict[str, Any]]]:
        return state + 1, [{"word": key[0], "n": key[1], "seen": state + 1}]


def _ready_made(words: Stream, users: Stream) -> None:
    pairs = words.key_by("word").join(users.key_by("word", value="since"), "left")
    pairs.key_by("since", value="n").reduce(Distinct(), name="distinct")
    words.key_by("word", value="n").reduce(TopK(2), schema={"top": "list<int32>"}, name="greatest")
    users.key_by(None).reduce(Max("since"), name="newest")


def _in_two_orders(words: Stream, users: Stream) -> None:
    """Rows of a union whose columns come in two orders."""
    turned = users.map(renamed_of_users)
    words.map(renamed).union(turned, name="united")


@dpa.batch_mapper
def renamed_of_users(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"times": batch.column("since").cast(pa.int64()), "word": batch.column("word")})


BY_KEY = {"key": "int64", "rank": "int64", "word": "string", "n": "int32"}
FLOWS: dict[str, Callable[[Stream, Stream], Any]] = {
    "union of columns in two orders": _in_two_orders,
    "ready-made reducer of objects before a batch function": lambda words, users: (
        words.key_by("word", value="n")
        .reduce(Distinct())
        .union(users.map(renamed_of_users), allow_missing_columns=True)
    ),
    "map with tasks of its own": lambda words, users: words.flat_map(letters, schema=TEXT, parallelism=3).union(
        users.flat_map(letters, schema=TEXT), parallelism=2
    ),
    "process by several columns": lambda words, users: (
        words.key_by("word", "n").process(Seen()).key_by("word").join(users.key_by("word"), "full").top_k(2, by="seen")
    ),
    "function of the key": lambda words, users: (
        words.key_by(lambda row: len(row["word"] or ""))
        .top_k(1, by="n", schema=BY_KEY)
        .key_by("word")
        .join(users.key_by("word"), "right")
        .key_by("key")
        .reduce(Count(), schema={"key": "int64", "count": "uint8"})
    ),
    "function of two values": lambda words, users: (
        words.key_by("word", value="n")
        .reduce(lambda left, right: left or right, schema={"value": "int32"})
        .key_by("word")
        .join(users.key_by("word"))
    ),
    "ready-made reducers": _ready_made,
    "batch functions": lambda words, users: (
        words.map(renamed)
        .filter(lambda row: row["times"] != 2)
        .key_by("word")
        .join(users.map(lambda row: {**row, "tags": None}, schema=USERS.schema).key_by("word"), "left")
        .key_by("since")
        .reduce(Min("times"))
    ),
}


@pytest.mark.parametrize("build", FLOWS.values(), ids=FLOWS)
def test_columns_and_types_are_the_same_whatever_input_is_empty(
    backend: Backend, build: Callable[[Stream, Stream], Any]
) -> None:
    found = []
    for empty in ((), ("words",), ("users",), ("words", "users")):
        flow = Flow("tests", limits={"batch_records": 2, "in_flight_records": 10, "split_records": 2})
        tables = {"words": WORDS, "users": USERS}
        words, users = (flow.read(rows[:0] if name in empty else rows, name=name) for name, rows in tables.items())
        build(words, users)
        result = flow.run(backend=backend)
        assert flow.forecast().stages
        found.append({step.name: result.table(step.name).schema for step in flow.job().spec.results})
    whole, *others = found
    assert [field for schema in whole.values() for field in schema if pa.types.is_null(field.type)] == []
    assert others == [whole] * 3
