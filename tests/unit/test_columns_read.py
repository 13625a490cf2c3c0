"""A reducer or process that declares what it reads gets dicts of these columns, however many columns the rows have."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

import dpa
from dpa import Flow, Job, Process, Reducer, batch_mapper
from dpa.errors import ConfigError
from dpa.testing import LocalBackend, check_reducer_laws, run_local

ROWS = [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a", "v": 3}]
WIDER = [{**row, "w": 10 * row["v"], "note": "x"} for row in ROWS]
EXPECTED = [{"k": "a", "total": 4}, {"k": "b", "total": 2}]


class Total(Reducer[int, dict[str, Any]]):
    reads = ("v",)

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: dict[str, Any]) -> int:
        assert [*value] == ["v"]
        return state + value["v"]

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> dict[str, int]:
        return {"total": state}


class Both(Total):
    reads = ("w", "v")

    def reduce(self, state: int, value: dict[str, Any]) -> int:
        assert [*value] == ["w", "v"]
        return state + value["w"] + value["v"]


class Named(Total):
    """Which columns these are is said by its arguments."""

    def __init__(self, column: str) -> None:
        self.reads = column

    def reduce(self, state: int, value: dict[str, Any]) -> int:
        return state + value[self.reads]


class Plain(Total):
    reads = ()

    def reduce(self, state: int, value: Any) -> int:
        return state + value


class Echo(Process[None, dict[str, Any]]):
    reads = ("v",)

    def zero(self) -> None:
        return None

    def process(self, key: Any, state: None, value: dict[str, Any]) -> tuple[None, Iterable[dict[str, Any]]]:
        return None, [{"k": key, **value}]


def totals(rows: Any, reducer: Any, **options: Any) -> list[dict[str, Any]]:
    return run_local(None, reducer, rows, key="k", **options).to_pylist()


@pytest.mark.parametrize("rows", [ROWS, WIDER], ids=["one column", "several columns"])
@pytest.mark.parametrize("combine", [False, True], ids=["records", "combined"])
def test_one_more_column_changes_nothing(rows: list[dict[str, Any]], combine: bool) -> None:
    assert totals(rows, Total(), combine=combine) == EXPECTED
    assert totals(rows, Named("v"), combine=combine) == EXPECTED


def test_several_columns_come_in_the_order_in_which_they_are_named() -> None:
    assert totals(WIDER, Both) == [{"k": "a", "total": 44}, {"k": "b", "total": 22}]


def test_a_column_of_the_key_may_be_read() -> None:
    class OfKey(Total):
        reads = ("k",)

        def reduce(self, state: int, value: dict[str, Any]) -> int:
            return state + len(value["k"])

    assert totals(WIDER, OfKey()) == [{"k": "a", "total": 2}, {"k": "b", "total": 1}]


def test_without_it_values_are_as_before() -> None:
    assert totals(ROWS, Plain()) == EXPECTED
    assert totals(WIDER, Plain(), value=["v"]) == EXPECTED


@pytest.mark.parametrize("rows", [ROWS, WIDER], ids=["one column", "several columns"])
def test_flows_and_jobs_give_the_same(rows: list[dict[str, Any]]) -> None:
    flow = Flow("totals")
    flow.read(rows).key_by("k").reduce(Total())
    assert run_local(flow)["reduce"].to_pylist() == EXPECTED
    job = Job(input=rows, key="k", reducer={"use": f"{__name__}:Total"})
    assert sorted(job.run(backend=LocalBackend()).table().to_pylist(), key=str) == EXPECTED


def test_functions_that_give_the_key_and_processes_get_the_same() -> None:
    flow = Flow("totals")
    rows = flow.read(WIDER)
    rows.key_by(lambda row: row["k"]).reduce(Total(), name="totals")
    rows.key_by("k").process(Echo(), name="echoed")
    found = run_local(flow)
    assert found["totals"].to_pylist() == [{"key": "a", "total": 4}, {"key": "b", "total": 2}]
    assert sorted(map(str, found["echoed"].to_pylist())) == sorted(str({"k": row["k"], "v": row["v"]}) for row in ROWS)


def test_what_a_batch_mapper_returns_is_read_too() -> None:
    @batch_mapper
    def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    for rows in (ROWS, WIDER):
        assert run_local(same, Total(), rows, key="k").to_pylist() == EXPECTED


@pytest.mark.parametrize("rows", [ROWS, WIDER], ids=["one column", "several columns"])
def test_windows_and_sessions_give_the_same(rows: list[dict[str, Any]]) -> None:
    for windows in (dpa.tumbling("1h"), dpa.session("1h")):
        flow = Flow("totals")
        timed = flow.read([{**row, "at": row["v"]} for row in rows], time={"column": "at", "unit": "s"})
        timed.window(windows).key_by("k").reduce(Total(), name="totals")
        assert [row["total"] for row in run_local(flow)["totals"].to_pylist()] == [4, 2]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, 2, 3]),
        pa.array(["x", "y", "x"]).dictionary_encode(),
        pa.array([[1], None, []]),
        pa.array([{"x": 1}, None, {"x": 3}]),
        pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_any_type_are_read(column: pa.Array) -> None:
    class Listed(Reducer[list[Any], dict[str, Any]]):
        reads = ["v"]  # noqa: RUF012

        def zero(self) -> list[Any]:
            return []

        def reduce(self, state: list[Any], value: dict[str, Any]) -> list[Any]:
            return [*state, value["v"]]

        def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
            return left + right

    table = pa.table({"k": [1, 2, 3], "v": column})
    assert totals(table, Listed()) == [
        {"k": number, "value": [value]} for number, value in zip([1, 2, 3], column.to_pylist(), strict=True)
    ]


def test_bad_records_are_left_out_of_it() -> None:
    flow = Flow("totals")
    at = pa.array([0, 2**62, 1], pa.timestamp("us"))  # Python has no such time
    read = flow.read(pa.table({"k": [1, 1, 1], "v": at}))
    read.key_by("k").reduce(Latest(), name="latest", on_error="skip")
    assert run_local(flow)["latest"].to_pylist() == [{"k": 1, "value": 2}]


class Latest(Reducer[int, dict[str, Any]]):
    reads = ("v",)

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: dict[str, Any]) -> int:
        return state + (value["v"] is not None)

    def merge(self, left: int, right: int) -> int:
        return left + right


def test_a_column_that_rows_lack_is_named_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="has no column 'w'; it has k, v"):
        totals(ROWS, Both())


def test_value_may_name_more_columns_but_none_less() -> None:
    assert totals(WIDER, Total(), value=["note", "v"]) == EXPECTED
    with pytest.raises(ConfigError, match=r"value: .*Both reads 'w', which `value` does not name: add it, or leave"):
        totals(WIDER, Both(), value=["v"])


@pytest.mark.parametrize("reads", [3, [1], {"v": 1}])
def test_what_names_no_columns_is_refused(reads: Any) -> None:
    reducer = Named(reads)
    with pytest.raises(ConfigError, match=r"Named\.reads names columns, such as \('cents', 'day'\), and is "):
        totals(ROWS, reducer)


def test_its_laws_are_checked_on_dicts() -> None:
    check_reducer_laws(Total(), [{"v": 1}, {"v": 2}])
