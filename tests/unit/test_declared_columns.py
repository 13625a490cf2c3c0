"""`schema` of a step: what user code gives is checked against it, and later steps know the columns before a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import dpa
from dpa import BatchMapper, BatchReducer, Flow, Job, Process, Reducer
from dpa._util.declared import type_named
from dpa._util.inference import lossless
from dpa.aggregates import Count, Sum
from dpa.config import parse
from dpa.driver.backend import Backend
from dpa.errors import ConfigError, JobFailedError
from dpa.executors import Groups
from dpa.flow import Stream

ROWS = pa.table({"word": ["to", "be", "to"], "n": [1, 2, 3]})


def flow_of(build: Callable[[Stream], Any]) -> Flow:
    flow = Flow("tests", limits={"batch_records": 2, "in_flight_records": 10, "split_records": 2})
    build(flow.read(ROWS))
    return flow


def giving(value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {"word": row["word"], "x": value}


class Emitting(Process[int, Any]):
    """Emits a record for each value, and one at the end."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, Iterable[dict[str, Any]]]:
        return state, [{"word": key, "x": self.value}]

    def finish(self, key: Any, state: int) -> Iterable[dict[str, Any]]:
        return [{"word": key}]


class Finishing(Reducer[int, Any]):
    """Gives one value for each key."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: Any) -> int:
        return state

    merge = reduce

    def finish(self, state: int) -> Any:
        return {"x": self.value}


class OfBatches(BatchReducer):
    """The same on columns; fails where there is nothing to work on."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        if not len(groups):
            raise ValueError("nothing")
        return pa.record_batch({"x": pa.array([self.value] * len(groups))})

    merge = reduce


def of_batches(value: Any) -> Any:
    @dpa.batch_mapper
    def mapped(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"word": batch.column("word"), "x": pa.array([value] * batch.num_rows)})

    return mapped


GIVING: dict[str, Callable[[Stream, Any, Any], Any]] = {
    "map": lambda rows, value, schema: rows.map(giving(value), schema=schema),
    "flat_map": lambda rows, value, schema: rows.flat_map(lambda row: [giving(value)(row)] * 2, schema=schema),
    "map with tasks": lambda rows, value, schema: rows.map(giving(value), schema=schema, parallelism=2),
    "batch map": lambda rows, value, schema: rows.map(of_batches(value), schema=schema),
    "process": lambda rows, value, schema: rows.key_by("word").process(Emitting(value), schema=schema),
    "reduce": lambda rows, value, schema: rows.key_by("word").reduce(Finishing(value), schema=schema),
    "batch reduce": lambda rows, value, schema: rows.key_by("word").reduce(OfBatches(value), schema=schema),
}


@pytest.mark.parametrize("give", GIVING.values(), ids=GIVING)
def test_what_fits_is_cast_to_the_declared_types(backend: Backend, give: Callable[..., Any]) -> None:
    result = flow_of(lambda rows: give(rows, 3, {"word": "string", "x": pa.float32()})).run(backend=backend).table()
    assert dict(zip(result.schema.names, result.schema.types, strict=True)) == {"word": pa.string(), "x": pa.float32()}
    assert set(result["x"].to_pylist()) - {None} == {3.0}


@pytest.mark.parametrize("give", GIVING.values(), ids=GIVING)
@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        ("a", {"word": "string", "x": "int64"}, "gives the column 'x' as string, and it is declared as int64: these "),
        (1.5, {"word": "string", "x": "int64"}, "gives the column 'x' as double, and it is declared as int64: Float "),
        (
            0.1,
            {"word": "string", "x": "float"},
            "gives the column 'x' as double, and it is declared as float: a value ",
        ),
        (1, {"word": "string", "y": "int64"}, "gives a column 'x', and those declared are word, y"),
    ],
    ids=["other kind", "rounded", "less precise", "not declared"],
)
def test_what_does_not_fit_names_step_column_and_types(
    backend: Backend, give: Callable[..., Any], value: Any, schema: dict[str, str], message: str
) -> None:
    flow = flow_of(lambda rows: give(rows, value, schema))
    step = next(name for name in flow.job().config.stages if name != "read")
    with pytest.raises((ConfigError, JobFailedError)) as error:
        flow.run(backend=backend)
    assert f"stages.{step}.schema: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize("give", ["batch map", "reduce", "batch reduce"])
def test_a_declared_column_must_be_given_but_by_records(backend: Backend, give: str) -> None:
    schema = {"word": "string", "x": "int64", "y": "int64"}
    with pytest.raises((ConfigError, JobFailedError), match="gives no column 'y', which is declared; it gives word, x"):
        flow_of(lambda rows: GIVING[give](rows, 1, schema)).run(backend=backend)
    rows = flow_of(lambda rows: GIVING["map"](rows, 1, schema)).run(backend=backend).table().to_pylist()
    assert {row["y"] for row in rows} == {None}


def test_a_step_sees_the_declared_values_of_the_step_before(backend: Backend) -> None:
    flow = flow_of(
        lambda rows: (
            rows.map(lambda row: {"n": row["n"]}, schema={"n": "double", "m": "int64"})
            .filter(lambda row: row["m"] is None)
            .map(lambda row: {"text": str(row["n"])})
        )
    )
    assert sorted(flow.run(backend=backend).table()["text"].to_pylist()) == ["1.0", "2.0", "3.0"]


class Declaring(Finishing):
    schema: ClassVar = {"x": "int8"}


class Odd(Finishing):
    schema: ClassVar = 3


class DeclaringBatches(BatchMapper):
    schema: ClassVar = pa.schema({"word": pa.string(), "x": pa.int8()})

    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"word": batch.column("word"), "x": batch.column("n")})


def test_an_executor_class_may_declare_its_columns(backend: Backend) -> None:
    flow = flow_of(lambda rows: rows.map(DeclaringBatches(), name="mapped").key_by("word").reduce(Declaring(1)))
    assert flow.run(backend=backend).table().schema == pa.schema({"word": pa.string(), "x": pa.int8()})
    flow = flow_of(lambda rows: rows.map(DeclaringBatches(), name="mapped"))
    assert flow.run(backend=backend).table().schema == DeclaringBatches.schema


def test_a_job_of_one_reducer_declares_its_result(backend: Backend) -> None:
    def pairs(row: dict[str, Any]) -> Any:
        yield row["word"], row["n"]

    types = {"word": "string", "value": "int32"}
    results = [
        Job(input=rows, mapper=pairs, reducer=max, key="word", schema=types).run(backend=backend).table()
        for rows in (ROWS, ROWS[:0])
    ]
    assert results[0].schema == results[1].schema == pa.schema({"word": pa.string(), "value": pa.int32()})
    assert sorted(results[0].to_pylist(), key=str) == [{"word": "be", "value": 2}, {"word": "to", "value": 3}]
    executor = Job(input=ROWS[:0], mapper=pairs, reducer=Declaring(1), key="word").run(backend=backend).table()
    assert executor.schema == pa.schema({"word": pa.null(), "x": pa.int8()})


# --- before a run


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda rows: rows.map(giving(1), schema={"word": "string", "x": "int64"}).key_by("wrod").reduce(Count()),
            "stages.reduce.key_by: the step 'map' has no column 'wrod'; it has word, x",
        ),
        (
            lambda rows: (
                rows.key_by("word").process(Emitting(1), schema={"word": "string", "x": "int64"}).top_k(1, by="n")
            ),
            "stages.top_k.top_k: ranks by the column 'n', and the columns are word, x",
        ),
        (
            lambda rows: rows.key_by("word").reduce(max, schema={"value": "int64"}).key_by("word").reduce(Sum("n")),
            "stages.reduce_2.reduce: dpa.aggregates.Sum reads the column 'n'",
        ),
        (
            lambda rows: rows.map(giving(1), schema={"word": "double", "x": "int64"}).key_by("word").reduce(Count()),
            "stages.reduce.key_by: the column 'word': keys of Arrow type double are not supported",
        ),
        (
            lambda rows: rows.map(DeclaringBatches(), schema={"word": "string", "y": "int64"}),
            "stages.map.schema: test_declared_columns.DeclaringBatches.map_batch.map gives a column 'x', and those",
        ),
        (
            lambda rows: rows.key_by("word").reduce(Count(), schema={"n": "int64"}),
            "stages.reduce.schema: dpa.aggregates.Count.finish gives a column 'count', and those declared are n",
        ),
        (
            lambda rows: rows.key_by("word").reduce(Count(), schema={"count": "string"}),
            "stages.reduce.schema: dpa.aggregates.Count.finish gives the column 'count' as int64, and it is declared",
        ),
        (
            lambda rows: rows.key_by("n").reduce(Count(), schema={"n": "int32", "count": "int64"}),
            "stages.reduce.schema: the key column 'n' is kept as int64: declare it so",
        ),
        (
            lambda rows: rows.map(giving(1), schema={"x": "int65"}),
            "stages.map.schema: 'int65' is no Arrow type: give one such as `int64`, ",
        ),
        (
            lambda rows: rows.key_by("word").reduce(Odd(1)),
            "stages.reduce.reduce: test_declared_columns.Odd.schema: a schema is a mapping of columns to",
        ),
        (
            lambda rows: rows.map(giving(1), schema=["x"]),
            "stages.map.schema: a schema is a mapping of columns to Arrow types, such as `{word: string, n: int64}`",
        ),
        (
            lambda rows: rows.union(rows.flow.read([{"x": "a"}], name="texts", schema={"x": "int64"})),
            "stages.texts.schema: the input gives the column 'x' as string, and it is declared as int64",
        ),
        (
            lambda rows: rows.flow.read({"format": "parquet", "path": "x"}, schema={"x": "int64"}),
            "stages.read_2: `schema` is for tables and records in memory, and `parquet` has columns of its own",
        ),
        (lambda rows: rows.filter(giving(1), schema={"x": "int64"}), "stages.filter: `filter` has no use for `schema`"),
    ],
)
def test_what_a_declaration_shows_is_found_before_anything_runs(build: Callable[[Stream], Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        flow_of(build).check()
    assert message in str(error.value).replace(f"{__name__}.", "test_declared_columns.")


def test_a_job_file_declares_columns_by_the_names_of_types() -> None:
    step = {"from": "rows", "map": {"use": "m:f"}, "schema": {"n": "decimal128(10,2)", "of": "list<string>"}}
    read = {"read": {"format": "records", "records": [1]}}
    config = parse({"stages": {"rows": read, "mapped": step}}).config
    assert config.resolved()["stages"]["mapped"]["schema"] == {"n": "decimal128(10, 2)", "of": "list<item: string>"}
    assert parse(config.resolved()).config == config


# --- types and casts


TYPES = [
    *(pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary()),
    *(pa.binary(16), pa.date32(), pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.time64("us"), pa.null()),
    *(pa.duration("s"), pa.decimal128(10, 2), pa.decimal256(50, -2), pa.map_(pa.string(), pa.list_(pa.int64()))),
    pa.large_list(pa.struct({"a": pa.decimal128(3, 1), "b c": pa.list_(pa.string())})),
]


def test_a_type_is_found_by_the_name_that_arrow_prints_and_another_name_is_none() -> None:
    for kind in TYPES:
        assert type_named(str(kind)) == kind
    for name in ("int65", "list<>", "list<int64", "map<string>", "struct<a>", "decimal128(3)", ""):
        with pytest.raises(ValueError, match="is no Arrow type"):
            type_named(name)


LOSSLESS: list[tuple[list[Any], str, list[Any]]] = [
    ([1, None], "double", [1.0, None]),
    ([1.0, 2.0], "int32", [1, 2]),
    ([0.5, math.nan, None], "float", [0.5, math.nan, None]),
    ([1], "decimal128(10, 2)", [Decimal("1.00")]),
    ([Decimal("3")], "int64", [3]),
    ([Decimal("1.5"), Decimal("2.25")], "decimal128(10, 2)", [Decimal("1.50"), Decimal("2.25")]),
    (["a"], "large_string", ["a"]),
    ([datetime(2020, 1, 1)], "date32", [date(2020, 1, 1)]),
    ([date(2020, 1, 1)], "timestamp[us]", [datetime(2020, 1, 1)]),
    ([[1, 2], None], "list<double>", [[1.0, 2.0], None]),
    ([[None]], "list<int64>", [[None]]),
    ([[1.5, math.nan]], "list<float>", [[1.5, math.nan]]),
    ([{"b": None, "a": 1}], "struct<a: int32, b: list<string>>", [{"a": 1, "b": None}]),
    ([None], "struct<a: int32>", [None]),
]
LOSING: list[tuple[list[Any], str]] = [
    ([300], "int8"),
    ([-1], "uint64"),
    ([2**53 + 1], "double"),
    ([1.5], "int32"),
    ([0.1], "float"),
    ([math.nan], "int64"),
    ([12345678], "decimal128(5, 2)"),
    ([Decimal("1.555")], "decimal128(10, 2)"),
    ([0.5], "decimal128(10, 2)"),
    (["1"], "int64"),
    ([1], "string"),
    ([True], "int64"),
    ([b"a"], "string"),
    ([datetime(2020, 1, 1, 5)], "date32"),
    ([datetime(2020, 1, 1)], "timestamp[us, tz=UTC]"),
    ([[1, 2**60 + 1], None], "list<double>"),
    ([{"a": 1}], "struct<b: int64>"),
]


@pytest.mark.parametrize(("values", "name", "cast"), LOSSLESS, ids=str)
def test_a_cast_keeps_every_value(values: list[Any], name: str, cast: list[Any]) -> None:
    found = lossless(pa.array(values), type_named(name))
    assert (found.type, repr(found.to_pylist())) == (type_named(name), repr(cast))


@pytest.mark.parametrize(("values", "name"), LOSING, ids=str)
def test_a_cast_that_changes_a_value_is_refused(values: list[Any], name: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        lossless(pa.array(values), type_named(name))
