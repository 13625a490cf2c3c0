"""Flows on input that is easily forgotten: sides without rows, rows without columns, columns of nulls, keys that are
values too, and types that Arrow holds but does not compute with."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import dpa
from dpa import Flow
from dpa.aggregates import Count
from dpa.driver.backend import Backend
from dpa.errors import ConfigError, JobFailedError
from dpa.testing import LocalBackend

LEFT = pa.table({"id": [1, 2, 2], "x": ["a", "b", "c"]})
RIGHT = pa.table({"key": [2, 3], "x": [0.5, 1.5], "y": [[1], [2]]})
NUMBERS = [{"group": number % 3, "n": number} for number in range(12)]


@pytest.fixture
def flow() -> Flow:
    return Flow("tests", limits={"batch_records": 3, "in_flight_records": 10, "split_records": 5})


def test_the_key_of_a_join_is_complete_where_the_left_value_names_it(flow: Flow, backend: Backend) -> None:
    flow.read(LEFT).key_by("id", value=["id", "x"]).join(flow.read(RIGHT).key_by("key", value="y"), "full")
    rows = flow.run(backend=backend).table().to_pylist()
    assert sorted(rows, key=str) == [
        {"id": 1, "x": "a", "y": None},
        {"id": 2, "x": "b", "y": [1]},
        {"id": 2, "x": "c", "y": [1]},
        {"id": 3, "x": None, "y": [2]},
    ]


@pytest.mark.parametrize(
    "constant", [None, [None], {"a": 1, "b": None}, [{"a": None}]], ids=["null", "list", "struct", "list of structs"]
)
def test_rows_with_nulls_of_no_type_can_be_ranked(flow: Flow, backend: Backend, constant: Any) -> None:
    flow.read(NUMBERS).map(lambda row: {**row, "constant": constant}).top_k(2, by="n")
    assert flow.run(backend=backend).table().to_pylist() == [
        {"rank": 1, "group": 2, "n": 11, "constant": constant},
        {"rank": 2, "group": 1, "n": 10, "constant": constant},
    ]


def test_columns_and_aggregates_may_come_in_lists_as_polars_takes_them() -> None:
    def sums(orders: dpa.flow.Stream, *, listed: bool) -> list[dict[str, Any]]:
        def given(*each: Any) -> tuple[Any, ...]:
            return ([*each],) if listed else each

        rows = orders.with_columns(*given("id + 1 AS m", pl.col("id").alias("n")), k="id % 2")
        rows = rows.select(*given("m", "n"), "k", "x").drop(*given("m", "x")).filter("n > 0", pl.col("n") < 3)
        rows = rows.filter(*given("n > 0", "n < 3"))
        found = rows.key_by("k").agg(*given("sum(n) AS n", pl.len().alias("rows"))).head().to_pylist()
        return sorted(found, key=lambda row: row["k"])

    assert (
        sums(Flow().read(LEFT), listed=True)
        == sums(Flow().read(LEFT), listed=False)
        == [{"k": 0, "n": 4, "rows": 2}, {"k": 1, "n": 1, "rows": 1}]
    )


def test_options_of_a_filter_are_of_each_of_its_conditions() -> None:
    def fails_on_two(row: dict[str, Any]) -> bool:
        return 1 // (row["id"] - 2) < 2

    for conditions in ((fails_on_two, "id > 0"), ("id > 0", fails_on_two)):
        rows = Flow().read(LEFT).filter(*conditions, on_error="skip", name="kept")
        assert (rows.step, rows.count()) == ("kept", 1)


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int32(), pa.string()), pa.string_view()], ids=str)
def test_rows_are_ranked_by_a_dictionary_and_by_views(flow: Flow, backend: Backend, kind: pa.DataType) -> None:
    flow.read(pa.table({"word": pa.array(["be", "to", None, "or", "to", "not"], kind)})).top_k(3, by="word")
    assert flow.run(backend=backend).table()["word"].to_pylist() == ["to", "to", "or"]


@dpa.batch_mapper
def no_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda row: {}, r"map failed on record .*: a record needs a column at least, and \{\} has none"),
        (no_columns, r"no_columns\.map must return columns: its \d rows have none"),
    ],
    ids=["record", "batch"],
)
def test_rows_without_columns_are_refused(flow: Flow, backend: Backend, function: Any, message: str) -> None:
    flow.read(NUMBERS).map(function).key_by(None).reduce(Count())
    with pytest.raises(JobFailedError, match=message):
        flow.run(backend=backend)


@pytest.mark.parametrize(
    ("left", "right", "types", "text"),
    [
        (
            1,
            "1",
            "'id' of 'numbers' is int64 and 'key' of 'others' is string",
            "'id' in 'numbers': `cast(id AS string)",
        ),
        ("1", 1, "'id' of 'numbers' is string and 'key' of 'others' is int64", "'key' in 'others': `cast(key AS strin"),
        (1, True, "'id' of 'numbers' is int64 and 'key' of 'others' is bool", "'id' in 'numbers': `cast(id AS string)"),
    ],
    ids=["a number and a text", "a text and a number", "a number and a boolean"],
)
def test_keys_of_two_types_are_found_before_anything_runs(
    flow: Flow, left: Any, right: Any, types: str, text: str
) -> None:
    numbers, others = (
        flow.read(pa.table({column: [key]}), name=name)
        for name, column, key in (("numbers", "id", left), ("others", "key", right))
    )
    numbers.key_by("id").join(others.key_by("key"), name="pairs")
    message = f"stages.pairs.join.key_by: keys must be of one type, but {types}; make text of {text}"
    with pytest.raises(ConfigError, match=re.escape(message)):
        flow.run(backend=LocalBackend())


def test_times_of_two_types_are_not_to_become_texts(flow: Flow) -> None:
    one, other = (flow.read(pa.table({"at": pa.array([0], pa.timestamp("us", zone))})) for zone in ("UTC", None))
    one.join(other, on="at")
    with pytest.raises(ConfigError, match=r"keys must be of one type, .* by polars' `.dt.replace_time_zone"):
        flow.run(backend=LocalBackend())


def test_keys_of_all_steps_that_a_step_is_from_are_of_one_type(flow: Flow) -> None:
    numbers, texts = (flow.read(pa.table({"id": [key]})) for key in (1, "1"))
    counts = numbers.key_by("id").reduce(Count(), name="counts")
    flow._stages[counts.step]["from"] = [numbers.step, texts.step]  # as a job file may say it
    with pytest.raises(ConfigError, match=r"stages\.counts\.from: the column 'id' is int64 in the rows of"):
        flow.run(backend=LocalBackend())


@dpa.batch_filter
def of_two_batches(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
    return left


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda rows: rows.map(lambda left, right: left), r"map: .* is called with \(record\), and its parameters are"),
        (lambda rows: rows.filter(of_two_batches), r"filter: .*of_two_batches is called with \(batch\), and its param"),
        (lambda rows: rows.key_by(lambda: 1).reduce(Count()), r"reduce\.key_by: .* is called with \(record\), and its"),
    ],
    ids=["map", "batch filter", "key"],
)
def test_a_function_of_other_arguments_is_refused(flow: Flow, add: Any, message: str) -> None:
    add(flow.read(NUMBERS))
    with pytest.raises(ConfigError, match=message):
        flow.check()
