"""Rows are brought into the columns of tables of Delta and Iceberg, or are refused, at best before a job runs."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake_samples import AT, Lake, written

from dpa import Flow
from dpa.errors import ConfigError, TableError

pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning")


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


@pytest.mark.parametrize(
    ("values", "kind", "says"),
    [
        (pa.array([1.5, 1e300]), pa.float32(), r"has the double 1e\+300"),
        (pa.array([0.1]), pa.float32(), "has the double 0.1"),
        (pa.array([float("nan")]), pa.int32(), "has the double nan"),
        (pa.array([1, 2**31]), pa.int32(), "has the int64 2147483648"),
        (pa.array([2**63], pa.uint64()), pa.int64(), "has the uint64 9223372036854775808"),
        (pa.array([2**53 + 1]), pa.float64(), "has the int64 9007199254740993"),
        (pa.array([datetime(2026, 1, 2), AT]), pa.date32(), "has the timestamp.* 2026-01-02 03:04:05"),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us"), "1970-01-01 00:00:00.000000001"),
        (pa.array([Decimal("1.234")]), pa.decimal128(10, 2), "has the decimal128.* 1.234"),
        (pa.array([1.234]), pa.decimal128(10, 2), "has the double 1.234"),
        (pa.array([10**9]), pa.decimal128(10, 2), "has the int64 1000000000"),
        (pa.array([[1], None, [2**31]]), pa.list_(pa.int32()), "column 'v.element' of the result has the int64"),
        (pa.array([{"a": 0.1}]), pa.struct([("a", pa.float32())]), "column 'v.a' of the result has the double 0.1"),
        (
            pa.array([[("k", 2**31)]], pa.map_(pa.string(), pa.int64())),
            pa.map_(pa.string(), pa.int32()),
            "column 'v.value' of the result has the int64 2147483648",
        ),
    ],
)
def test_a_value_that_would_change_is_refused(lake: Lake, values: pa.Array, kind: pa.DataType, says: str) -> None:
    lake.make(pa.schema([("v", kind), ("n", pa.int64())]))
    for mode in ("append", "overwrite"):
        with pytest.raises(
            TableError, match=f"{says}.*, which would change in the type .* that it has in the table at"
        ):
            lake.write(pa.table({"v": values, "n": range(len(values))}), mode)
    assert lake.rows() == []


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1.5, float("nan"), float("inf"), None]), pa.float32(), [1.5, float("nan"), float("inf"), None]),
        (pa.array([1, -(2**31), None]), pa.int32(), [1, -(2**31), None]),
        (pa.array([1.0, 2.0]), pa.int64(), [1, 2]),
        (pa.array([1, None]), pa.float64(), [1.0, None]),
        (pa.array([0.25, 1234.56]), pa.decimal128(10, 2), [Decimal("0.25"), Decimal("1234.56")]),
        (pa.array([7, None]), pa.decimal128(10, 2), [Decimal("7.00"), None]),
        (pa.array([Decimal("1.500")]), pa.decimal128(10, 2), [Decimal("1.50")]),
        (pa.array([datetime(2026, 1, 2), None]), pa.date32(), [date(2026, 1, 2), None]),
        (pa.array([date(2026, 1, 2)]), pa.timestamp("us"), [datetime(2026, 1, 2)]),
        (pa.array(["a", None]).dictionary_encode(), pa.string(), ["a", None]),
        (pa.array(["a"], pa.string_view()), pa.string(), ["a"]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array([None, None]), pa.int32(), [None, None]),
        (pa.array([[1, None], None, []]), pa.list_(pa.int32()), [[1, None], None, []]),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), pa.list_(pa.int32()), [[1, 2], None]),
        (
            pa.array([{"b": "x", "a": 1}, None, {"a": None}]),
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
            [{"a": 1, "b": "x"}, None, {"a": None, "b": None}],
        ),
        (
            pa.array([[("k", 1)], None, [("l", None)]], pa.map_(pa.string(), pa.int64())),
            pa.map_(pa.string(), pa.int32()),
            [[("k", 1)], None, [("l", None)]],
        ),
    ],
)
def test_values_that_stay_the_same_are_brought_into_the_types_of_a_table(
    lake: Lake, values: pa.Array, kind: pa.DataType, expected: list[Any]
) -> None:
    lake.make(pa.schema([("v", kind), ("n", pa.int64())]))
    within = pa.concat_arrays([values.slice(1), values, values]).slice(len(values) - 1, len(values))
    lake.write(pa.table({"v": within, "n": range(len(values))}))
    assert repr([row["v"] for row in lake.rows()]) == repr(expected), "also of arrays that begin within others"


def test_what_a_table_requires_is_written_and_a_null_there_is_refused(tmp_path: Path) -> None:
    inside = pa.struct([pa.field("a", pa.float32(), nullable=False)])
    columns = pa.schema(
        [
            pa.field("n", pa.int32(), nullable=False),
            pa.field("s", inside),
            pa.field("l", pa.list_(pa.field("element", pa.string(), nullable=False))),
        ]
    )
    for kind in ("delta", "iceberg"):
        lake = Lake(kind, tmp_path / kind)
        (tmp_path / kind).mkdir()
        lake.make(columns)
        rows = pa.table({"n": [1, 2], "s": [{"a": 0.5}, None], "l": [["x"], None]})
        lake.write(rows)
        written(lake.sink("overwrite", "final"), rows, (1, 2))
        assert lake.rows() == rows.to_pylist()
        for bad, name in [
            ({"n": [1, None]}, "n"),
            ({"s": [{"a": None}, None]}, "s.a"),
            ({"l": [["x", None], None]}, "l.element"),
        ]:
            with pytest.raises(
                TableError, match=rf"column '{name}' of the result has nulls, and the table at .* requires"
            ):
                lake.write(pa.table({**rows.to_pydict(), **bad}, schema=rows.schema))
        assert lake.rows() == rows.to_pylist()


# --- what is wrong is found before a job runs


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (pa.table({"word": ["a"], "v": ["x"]}), "column 'v' of the result is string, and int32 in the table at"),
        (
            pa.table({"other": ["a"], "v": [1]}),
            "the result has the columns other, v, and the table at .* word, v: give",
        ),
        (pa.table({"word": ["a"], "v": pa.array([True])}), "column 'v' of the result is bool, and int32"),
        (pa.table({"word": ["a"], "v": [[1]]}), "column 'v' of the result is list<"),
        (pa.table({"word": ["a"], "v": pa.array([1.0], pa.float16())}), "column 'v' of the result is halffloat, and"),
    ],
)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_columns_that_a_table_lacks_are_named_in_a_check(lake: Lake, given: pa.Table, says: str, mode: str) -> None:
    lake.make(pa.schema([("word", pa.string()), ("v", pa.int32())]))
    flow = Flow("checked")
    flow.read(given).filter(lambda row: True).write(**{**lake.output(), "mode": mode})
    with pytest.raises(ConfigError, match=rf"write.path: {says}"):
        flow.check()


def test_types_that_no_table_holds_are_named_before_a_job_runs_and_where_rows_have_them(lake: Lake) -> None:
    why = r"column 'v' of the result is .*, which the table at .* cannot hold"
    for kind in (pa.duration("s"), pa.decimal256(50, 2), pa.list_(pa.month_day_nano_interval())):
        rows, sink = pa.table({"n": [1], "v": pa.nulls(1, kind)}), lake.sink()
        sink.check()
        with pytest.raises(TableError, match=why):
            sink.expect(rows.schema)
        sink.begin()
        with pytest.raises(TableError, match=why):
            sink.stage(rows, 0, 0)
        sink.abort()
    assert not Path(lake.path).exists()


def test_unsigned_and_other_types_come_into_a_new_table_as_they_are(lake: Lake) -> None:
    at = AT.replace(tzinfo=timezone.utc)
    columns = {
        "n": pa.array([200], pa.uint8()),
        "u": pa.array([2**32 - 1], pa.uint32()),
        "at": pa.array([at], pa.timestamp("us", "Europe/Berlin")),
        "ns": pa.array([AT], pa.timestamp("ns")),
        "l": pa.array([[AT]], pa.list_(pa.timestamp("ns"))),
    }
    lake.write(pa.table(columns), "error")
    assert lake.rows() == [{"n": 200, "u": 2**32 - 1, "at": at, "ns": AT, "l": [AT]}]


def test_a_table_is_not_made_of_types_that_nobody_knows(lake: Lake) -> None:
    def write_columns_alone(mode: str) -> None:
        sink = lake.sink(mode)
        sink.begin()
        nobody = pa.table({"n": pa.array([], pa.int64()), "v": pa.nulls(0)})
        sink.commit([sink.stage(nobody, 0, 0)], 1, 0.0, is_last=True)
        sink.abort()

    write_columns_alone("append")
    why = r"column 'v' has only nulls so far, so the new table at .*: declare the result"
    with pytest.raises(TableError, match=why):
        lake.write(pa.table({"n": [1], "v": pa.nulls(1)}))
    lake.write(pa.table({"n": [1], "v": ["x"]}))
    lake.write(pa.table({"n": [2], "v": pa.nulls(1)}))
    assert lake.rows() == [{"n": 1, "v": "x"}, {"n": 2, "v": None}]
    write_columns_alone("overwrite")
    assert lake.rows() == []
