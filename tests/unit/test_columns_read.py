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
    """The sum of the columns that it reads, which are all that it sees, in their order."""

    def __init__(self, reads: Any = ("v",)) -> None:
        self.reads = reads

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: dict[str, Any]) -> int:
        assert tuple(value) == ((self.reads,) if isinstance(self.reads, str) else tuple(self.reads))
        return state + sum(len(each) if isinstance(each, str) else each for each in value.values())

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> dict[str, int]:
        return {"total": state}


class Plain(Total):
    reads = ()

    def __init__(self) -> None: ...

    def reduce(self, state: int, value: Any) -> int:
        return state + value


class Echo(Process[None, dict[str, Any]]):
    reads = ("v",)

    def zero(self) -> None:
        return None

    def process(self, key: Any, state: None, value: dict[str, Any]) -> tuple[None, Iterable[dict[str, Any]]]:
        return None, [{"k": key, **value}]


class Listed(Reducer[list[Any], dict[str, Any]]):
    reads = ["v"]  # noqa: RUF012

    def zero(self) -> list[Any]:
        return []

    def reduce(self, state: list[Any], value: dict[str, Any]) -> list[Any]:
        return [*state, value["v"]]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return left + right


def totals(rows: Any, reducer: Any, **options: Any) -> list[dict[str, Any]]:
    return run_local(None, reducer, rows, key="k", **options).to_pylist()


one_column_or_several = pytest.mark.parametrize("rows", [ROWS, WIDER], ids=["one column", "several columns"])


@one_column_or_several
@pytest.mark.parametrize("combine", [False, True], ids=["records", "combined"])
def test_one_more_column_changes_nothing(rows: list[dict[str, Any]], combine: bool) -> None:
    assert totals(rows, Total(), combine=combine) == EXPECTED
    assert totals(rows, Total("v"), combine=combine) == EXPECTED


def test_columns_that_are_read_come_in_their_order_and_may_be_the_key_s_and_without_them_values_are_as_before() -> None:
    assert totals(WIDER, Total(("w", "v"))) == [{"k": "a", "total": 44}, {"k": "b", "total": 22}]
    assert totals(WIDER, Total(("k",))) == [{"k": "a", "total": 2}, {"k": "b", "total": 1}]
    assert totals(ROWS, Plain()) == totals(WIDER, Plain(), value=["v"]) == EXPECTED


@batch_mapper
def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@one_column_or_several
def test_flows_jobs_batch_mappers_windows_and_sessions_give_the_same(rows: list[dict[str, Any]]) -> None:
    flow = Flow("totals")
    timed = flow.read([{**row, "at": row["v"]} for row in rows], time={"column": "at", "unit": "s"})
    timed.key_by("k").reduce(Total(), name="totals")
    timed.window(dpa.tumbling("1h")).key_by("k").reduce(Total(), name="tumbling")
    timed.window(dpa.session("1h")).key_by("k").reduce(Total(), name="session")
    found = run_local(flow)
    assert found["totals"].to_pylist() == EXPECTED
    assert [found[name]["total"].to_pylist() for name in ("tumbling", "session")] == [[4, 2]] * 2
    job = Job(input=rows, key="k", reducer={"use": f"{__name__}:Total"})
    assert sorted(job.run(backend=LocalBackend()).table().to_pylist(), key=str) == EXPECTED
    assert run_local(same, Total(), rows, key="k").to_pylist() == EXPECTED


def test_functions_that_give_the_key_and_processes_get_the_same() -> None:
    flow = Flow("totals")
    rows = flow.read(WIDER)
    rows.key_by(lambda row: row["k"]).reduce(Total(), name="totals")
    rows.key_by("k").process(Echo(), name="echoed")
    found = run_local(flow)
    assert found["totals"].to_pylist() == [{"key": "a", "total": 4}, {"key": "b", "total": 2}]
    assert sorted(map(str, found["echoed"].to_pylist())) == sorted(str({"k": row["k"], "v": row["v"]}) for row in ROWS)


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
    table = pa.table({"k": [1, 2, 3], "v": column})
    assert totals(table, Listed()) == [
        {"k": number, "value": [value]} for number, value in zip([1, 2, 3], column.to_pylist(), strict=True)
    ]


def test_bad_records_are_left_out_of_it() -> None:
    flow = Flow("totals")
    at = pa.array([0, 2**62, 1], pa.timestamp("us"))  # Python has no such time
    flow.read(pa.table({"k": [1, 1, 1], "v": at})).key_by("k").reduce(Listed(), name="listed", on_error="skip")
    assert [len(row["value"]) for row in run_local(flow)["listed"].to_pylist()] == [2]


def test_value_may_name_more_columns_but_none_less_and_the_rows_must_have_them() -> None:
    assert totals(WIDER, Total(), value=["note", "v"]) == EXPECTED
    with pytest.raises(ConfigError, match=r"value: .*Total reads 'w', which `value` does not name: add it, or leave"):
        totals(WIDER, Total(("w", "v")), value=["v"])
    with pytest.raises(ConfigError, match="has no column 'w'; it has k, v"):
        totals(ROWS, Total(("w", "v")))
    for reads in (3, [1], {"v": 1}):
        with pytest.raises(ConfigError, match=r"Total\.reads names columns, such as \('cents', 'day'\), and is "):
            totals(ROWS, Total(reads))


def test_its_laws_are_checked_on_dicts() -> None:
    check_reducer_laws(Total(), [{"v": 1}, {"v": 2}])
