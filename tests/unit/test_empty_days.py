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


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


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
