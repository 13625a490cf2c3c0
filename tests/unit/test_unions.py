"""Unions: columns go together by name and type, found as soon as they are known, and nothing is filled unasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dpa
from dpa import Flow, Job
from dpa.aggregates import Sum
from dpa.config import parse
from dpa.driver.backend import Backend
from dpa.errors import ConfigError, JobFailedError
from dpa.flow import Stream
from dpa.testing import LocalBackend

NUMBERS = pa.table({"k": [1, 2], "x": [10, 20]})
TEXTS = pa.table({"k": [2, 3], "x": ["a", "b"]})
OTHERS = pa.table({"k": [2, 3], "y": [0.5, 1.5]})
HALVES = pa.table({"x": [0.5], "k": pa.array([3], pa.int32())})


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


@dpa.batch_mapper
def described(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that a batch has, as a column."""
    names = pa.array([",".join(f"{field.name}:{field.type}" for field in batch.schema)] * batch.num_rows, pa.string())
    return pa.record_batch({"k": batch.column("k"), "columns": names})


def flow_of(build: Callable[[Stream, Stream], Any], right: pa.Table, left: pa.Table = NUMBERS) -> Flow:
    flow = Flow("tests", limits={"batch_records": 3, "in_flight_records": 10, "split_records": 5})
    build(flow.read(left, name="a"), flow.read(right, name="b"))
    return flow


def rows_of(flow: Flow, backend: Backend) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = flow.run(backend=backend).table().to_pylist()
    return sorted(rows, key=str)


DIFFERENT = [
    (TEXTS, "the column 'x' is int64 in the rows of 'a' and string in those of 'b'; make text of 'x' in 'a': `cast("),
    (OTHERS, "the rows of 'a' have no column 'y', and those of 'b' no column 'x'; give all the same columns, or set `"),
]


@pytest.mark.parametrize(("right", "message"), DIFFERENT, ids=["types", "columns"])
@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: a.union(b, name="u"),
        lambda a, b: a.union(b, name="u", parallelism=2).top_k(1, by="k"),
        lambda a, b: a.union(b, name="u").filter(lambda row: True).map(same).key_by("k").reduce("count"),
    ],
    ids=["result", "tasks", "fused"],
)
def test_a_union_of_other_columns_is_found_before_anything_runs(build: Any, right: pa.Table, message: str) -> None:
    flow = flow_of(build, right)
    for check in (flow.check, flow.validate, flow.forecast, lambda: flow.run(backend=LocalBackend())):
        with pytest.raises(ConfigError) as error:
            check()
        assert str(error.value).startswith(f"Flow('tests'): stages.u.from: {message}")


def test_a_step_that_takes_the_rows_of_several_is_checked_as_a_union_is() -> None:
    def reading(records: list[dict[str, Any]]) -> dict[str, Any]:
        return {"read": {"format": "records", "records": records}}

    stages: dict[str, Any] = {"a": reading([{"k": 1}]), "b": reading([{"k": "x"}]), "c": reading([{"k": 2}])}
    counts = {"from": ["a", "b"], "key_by": "k", "reduce": "count"}
    joined = {"from": "c", "key_by": "k", "join": {"with": ["c", "a", "b"]}}
    with pytest.raises(ConfigError, match=r"stages\.n\.from: the column 'k' is int64 in the rows of 'a' and string in"):
        Job(file=parse({"stages": {**stages, "n": counts, "o": {**counts, "from": "c"}}})).check()
    with pytest.raises(ConfigError, match=r"stages\.n\.join\.with: the column 'k' is int64 in the rows of 'c' and st"):
        Job(file=parse({"stages": {**stages, "n": joined}})).check()


def test_columns_of_a_union_are_in_any_order_and_have_the_type_that_holds_all(backend: Backend) -> None:
    flow = flow_of(lambda a, b: a.union(b).map(described), HALVES)
    assert {row["columns"] for row in rows_of(flow, backend)} == {"k:int64,x:double"}
    flow = flow_of(lambda a, b: a.union(b).key_by(None, value="x").reduce(Sum("x")), HALVES)
    assert rows_of(flow, backend) == [{"x": 30.5}]


def test_missing_columns_that_are_allowed_are_null_for_functions_after_the_union_too(backend: Backend) -> None:
    def united(a: Stream, b: Stream) -> Stream:
        return a.union([b], allow_missing_columns=True)

    rows = rows_of(flow_of(united, OTHERS), backend)
    assert [tuple(row.values()) for row in rows] == [(1, 10, None), (2, 20, None), (2, None, 0.5), (3, None, 1.5)]
    flow = flow_of(lambda a, b: united(a, b).map(lambda row: {"n": len(row), "y": row["y"]}), OTHERS)
    assert rows_of(flow, backend) == [{"n": 3, "y": 0.5}, {"n": 3, "y": 1.5}, {"n": 3, "y": None}, {"n": 3, "y": None}]
    flow = flow_of(lambda a, b: united(a, b).map(described), OTHERS)
    assert {row["columns"] for row in rows_of(flow, backend)} == {"k:int64,x:int64,y:double"}


def test_only_what_takes_several_may_allow_missing_columns() -> None:
    with pytest.raises(ConfigError, match=r"stages\.map: `allow_missing_columns` is for the rows of several steps"):
        flow_of(lambda a, b: a.map(same, allow_missing_columns=True), OTHERS).check()


@pytest.mark.parametrize("left", [int, str], ids=["integers", "texts"])
@pytest.mark.parametrize("right", [int, str], ids=["integers", "texts"])
def test_keys_that_functions_give_go_together_as_far_as_their_types_do(backend: Backend, left: Any, right: Any) -> None:
    flow = Flow("tests")
    rows = flow.read(NUMBERS), flow.read(HALVES)
    counts = [
        side.key_by(lambda row, key=key: key(row["k"])).top_k(1, by="x")
        for side, key in zip(rows, (left, right), strict=True)
    ]
    counts[0].union(counts[1]).key_by("key").reduce(Sum("x"))
    if left is right:
        assert rows_of(flow, backend) == [{"key": left(key), "x": x} for key, x in ((1, 10.0), (2, 20.0), (3, 0.5))]
        return
    with pytest.raises(JobFailedError, match="keys of types int64 and string"):
        flow.run(backend=backend)


def test_a_key_that_a_function_gives_is_of_the_type_that_the_other_rows_have(backend: Backend) -> None:
    flow = Flow("tests")
    ranked = flow.read(NUMBERS).key_by(lambda row: row["k"], value=["x"]).top_k(1, by="x")
    texts = pa.table({"rank": [1], "key": ["a"], "x": [0.5]})
    ranked.union(flow.read(texts))
    with pytest.raises(JobFailedError, match="the column 'key' is int64 here and string in the rows of other steps"):
        flow.run(backend=backend)


def behind(a: Stream, b: Stream, **options: Any) -> Stream:
    return a.map(same, name="f").union(b.map(same, name="g"), name="u", **options)


BEHIND = {
    "result": behind,
    "ranked": lambda a, b: behind(a, b).top_k(9, by="k"),
    "reduced": lambda a, b: behind(a, b).key_by("k").reduce(lambda left, right: left),
    "counted": lambda a, b: behind(a, b).filter(lambda row: True).key_by("k").reduce("count"),
    "dealt": lambda a, b: behind(a, b, parallelism=3).map(same).key_by("k").reduce("count"),
}


@pytest.mark.parametrize("build", BEHIND.values(), ids=BEHIND)
@pytest.mark.parametrize(
    ("right", "message"),
    [
        (TEXTS, r"stages\.u\.from: the column 'x' is \w+ in the rows of '[fg]' and \w+ in those of '[fg]'; make text"),
        (OTHERS, "stages.u.from: the rows of '[fg]' have no column '[xy]', and those of '[fg]' no column '[xy]'; give"),
    ],
    ids=["types", "columns"],
)
def test_a_union_behind_functions_is_named_while_it_runs(
    backend: Backend, build: Any, right: pa.Table, message: str
) -> None:
    with pytest.raises(JobFailedError, match=message) as error:
        flow_of(build, right).run(backend=backend)
    assert "finish" not in str(error.value).partition("\n")[0]


@pytest.mark.parametrize("values", [None, ["x"]], ids=["all values", "one value"])
def test_columns_that_may_be_missing_behind_functions_are_null(backend: Backend, values: Any) -> None:
    def united(a: Stream, b: Stream) -> Stream:
        return behind(a, b, allow_missing_columns=True)

    rows = rows_of(flow_of(united, OTHERS), backend)
    assert [sorted(row.items()) for row in rows if row["k"] == 3] == [[("k", 3), ("x", None), ("y", 1.5)]]
    if values:
        summed = flow_of(lambda a, b: united(a, b).key_by("k", value=values).reduce(Sum("x")), OTHERS)
        assert rows_of(summed, backend) == [{"k": 1, "x": 10}, {"k": 2, "x": 20}, {"k": 3, "x": None}]


def test_rows_of_a_function_that_vary_in_columns_may_be_united(backend: Backend) -> None:
    def varying(row: dict[str, Any]) -> dict[str, Any]:
        return row if row["k"] != 1 else {"k": 1}

    rows = rows_of(flow_of(lambda a, b: a.map(varying).union(b), NUMBERS), backend)
    assert sorted(row["x"] or 0 for row in rows) == [0, 10, 20, 20]


def test_keys_of_two_types_in_a_join_behind_functions_are_named(backend: Backend) -> None:
    texts = pa.table({"id": ["1", "2"], "y": [1, 2]})
    flow = flow_of(lambda a, b: a.key_by("k").join(b.map(same, name="g").key_by("id", value="y"), name="pairs"), texts)
    message = r"stages\.pairs\.join\.key_by: keys must be of one type, but '\w+' of '[ag]' is (int64|string) and"
    with pytest.raises(JobFailedError, match=message):
        flow.run(backend=backend)
