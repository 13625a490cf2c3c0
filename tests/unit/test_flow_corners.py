"""Flows on input that is easily forgotten: sides without rows, rows without columns, columns of nulls, keys that are
values too, and types that Arrow holds but does not compute with."""

from __future__ import annotations

import math
import re
from pathlib import Path
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


@pytest.mark.parametrize("is_file", [False, True], ids=["in memory", "in a file"])
def test_enums_are_texts_in_every_step_as_tasks_do_not_keep_their_order(is_file: bool, tmp_path: Path) -> None:
    size = pl.Enum(["S", "M", "L"])
    sizes = pl.DataFrame(
        {"id": [1, 2, 3], "size": ["S", "M", "L"], "in": [{"size": "S"}, {"size": "M"}, {"size": "L"}]},
        schema_overrides={"size": size, "in": pl.Struct({"size": size})},
    )
    sizes.write_parquet(tmp_path / "sizes.parquet")
    rows = Flow().read(tmp_path / "sizes.parquet" if is_file else sizes)
    greater = [pl.col("size") > "M", pl.col("in").struct.field("size") > "M"]
    for step in (rows, rows.map(lambda row: row), rows.union(parallelism=2), rows.join(rows.select("id"), on="id")):
        for condition in greater:
            found = step.filter(condition)
            assert found.head()["id"].to_pylist() == [1] == found.run(backend=LocalBackend()).table()["id"].to_pylist()
    assert rows.key_by(None).agg(pl.col("size").max()).run(backend=LocalBackend()).table().to_pylist() == [
        {"size": "S"}
    ]
    made = rows.with_columns(size=pl.col("id").replace_strict({1: "S", 2: "M", 3: "L"}).cast(size)).filter(greater[0])
    assert made.run(backend=LocalBackend()).table()["id"].to_pylist() == [1], "those that an expression makes are texts"
    parts = pl.DataFrame({"id": [1, 2], "in": pl.Series([["S", "M"], ["L", "M"]], dtype=pl.Array(size, 2))})
    assert Flow().read(parts).filter("id > 1").head()["in"].to_pylist() == [["L", "M"]]


PRICES = pl.DataFrame(
    {"unit": [1, 2], "unit price": [99, 98], "a": [5, 6], "b": [1, 1], "a-b": [7, 8], "text": ["10.0", "x"]}
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda rows: rows.select("unit price"),
            r"`unit price` is .*: name a column by `AS`, and write a column whose",
        ),
        (
            lambda rows: rows.select("a-b").schema,
            r'`a-b` is computed, and a column has this name, which is written "a-b"',
        ),
        (lambda rows: rows.filter("text > 9.7").schema, "cannot compare string with numeric type"),
        (lambda rows: rows.filter("a > 1 and text between 1.5 and 2.5").schema, "cannot compare string with numeric"),
        (lambda rows: rows.key_by("a").agg(n="count(*) filter (where text > .5)").schema, "cannot compare string with"),
        (lambda rows: rows.key_by("a").agg(pl.col("a", "b").sum()), "stands for several columns: write an aggregate"),
        (lambda rows: rows.flow.read("x.csv", separator=";"), r"`separator` is an option .*options=\{'sep': ';'\}\)"),
    ],
)
def test_what_would_mean_something_else_than_its_user_thinks_is_refused(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Flow().read(PRICES))


def test_names_in_quotes_and_numbers_beside_numbers_are_what_they_are() -> None:
    rows = Flow().read(PRICES)
    assert rows.select('"unit price"', '"a-b"', "a - b AS c").head(1).to_pylist() == [
        {"unit price": 99, "a-b": 7, "c": 4}
    ]
    assert rows.filter("a > 5.5 and text > '9.7'").count() == 1
    pivoted = Flow().read([{"2021": 1, "year": 2020, "part": 0.5}])
    assert (
        pivoted.filter(
            "year in (2020, 2021, 2022) and part < .75", (pl.col("part") < 1.5) & (pl.col("part") != math.inf)
        ).count()
        == 1
    )
    assert pivoted.select("year AS `y`", "part as z -- why").head().to_pylist() == [{"y": 2020, "z": 0.5}]
    assert pivoted.key_by("year", value=()).agg(n=pl.len()).head().num_rows == 1
    assert rows.with_columns(x="not (a = 5)").select("x").head()["x"].to_pylist() == [False, True]


def test_what_is_read_may_be_a_list_of_files_or_lazy_and_a_result_is_a_frame(tmp_path: Path) -> None:
    for number in range(2):
        PRICES.write_parquet(tmp_path / f"{number}.parquet")
    files = sorted(tmp_path.iterdir())
    for given in (files, [*map(str, files)], pl.concat([PRICES, PRICES]).lazy()):
        assert Flow().read(given).count() == 4
    assert Flow().read([str(tmp_path)], format="parquet").count() == 4
    assert Flow().read(["to", "be"]).head().to_pylist() == [{"value": "to"}, {"value": "be"}], "texts are records"
    by_unit = Flow().read(PRICES).key_by("unit")
    assert by_unit.agg(name=pl.len()).run(backend=LocalBackend()).polars().columns == ["unit", "name"]
    assert repr(by_unit).startswith("<KeyedRows by 'unit' of <Stream 'read'")
    with pytest.raises(AttributeError, match=r"rows by key have no 'run': write `agg\(\.\.\.\)`"):
        by_unit.run()  # type: ignore[attr-defined]


def test_a_stream_without_a_rate_that_is_to_read_some_rows_reads_no_million() -> None:
    lines = Flow(until={"records": 2_000}).read({"format": "generated", "use": "jobs.lines:Lines", "rows": None})
    read = lines.key_by("value").reduce("count").run(backend=LocalBackend()).report.records.read
    assert 2_000 <= read < 200_000
