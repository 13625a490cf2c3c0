"""Rows go to the partitions that tables of Delta and Iceberg have, and keep their columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from lake_samples import VALUES, Lake, staged
from pyiceberg import transforms, types
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema

from dpa import Flow, tumbling
from dpa.aggregates import Max, Sum
from dpa.errors import TableError
from dpa.executors import Process
from dpa.flow import Stream
from dpa.sinks.delta import Delta
from dpa.sinks.sink import Target
from dpa.testing import LocalBackend

pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning")


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


@pytest.mark.parametrize("how", ["append", "overwrite", "final"])
@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_rows_go_to_the_partitions_of_a_table(lake: Lake, kind: pa.DataType, how: str) -> None:
    columns = pa.schema([("p", kind), ("n", pa.int64())])
    lake.make(columns, ["p"])
    before = pa.table({"p": pa.array(VALUES[kind][:1], kind), "n": [-1]})
    lake.write(before)
    values = VALUES[kind] * 2
    rows = pa.table({"n": range(len(values)), "p": pa.array(values, kind)})
    lake.write(rows, how)
    expected = [*(before.to_pylist() if how != "overwrite" else []), *rows.select(["p", "n"]).to_pylist()]
    assert lake.rows() == expected
    if lake.kind == "delta":
        assert pl.read_delta(lake.path).sort("n").select("p", "n").to_dicts() == expected
        assert DeltaTable(lake.path).metadata().partition_columns == ["p"]
        table = DeltaTable(lake.path)
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        table.optimize.compact()
    else:
        assert pl.scan_iceberg(lake.table()).sort("n").collect().to_dicts() == expected
        assert [field.name for field in lake.table().spec().fields] == ["p"]
    assert lake.rows() == expected


def test_windows_that_are_published_go_to_partitions_by_their_start(lake: Lake) -> None:
    columns = [("window_start", pa.timestamp("us", "UTC")), ("window_end", pa.timestamp("us", "UTC"))]
    lake.make(pa.schema([*columns, ("word", pa.string()), ("count", pa.int64())]), ["window_start"])
    times = [datetime(2026, 1, 1, 0, minute) for minute in (0, 1, 7, 9)]
    flow = Flow("windows")
    rows = flow.read(pa.table({"word": ["a", "b", "a", "a"], "at": times}), time="at").window(tumbling("5m"))
    rows.key_by("word").reduce("count").write(**lake.output(), publish="final")
    flow.run(backend=LocalBackend())
    found = sorted((row["window_start"].minute, row["word"], row["count"]) for row in lake.read().to_pylist())
    assert found == [(0, "a", 1), (0, "b", 1), (5, "a", 2)]


ROWS = pa.table(
    {
        "k": ["a", "b", "a"],
        "n": pa.array([1, 2, 3], pa.int32()),
        "d": pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(10, 2)),
        "at": [datetime(2026, 1, 1, 0, minute) for minute in (0, 1, 7)],
    }
)
OTHERS = pa.table({"k": ["a", "c"], "n": pa.array([7, None], pa.int32()), "w": ["x", "y"]})


class Passing(Process):
    """Passes rows on, with the number of those before."""

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, list[Any]]:
        return state + 1, [{"n": value, "before": state}]


FLOWS: dict[str, Callable[[Stream, Callable[[], Stream]], Stream]] = {
    "count": lambda rows, _: rows.key_by("k").reduce("count"),
    "max": lambda rows, _: rows.key_by("k", value=["d"]).reduce(Max("d")),
    "sum of decimals": lambda rows, _: rows.key_by("k", value=["d"]).reduce(Sum("d")),
    "two keys": lambda rows, _: rows.key_by("k", "n").reduce("count"),
    "windows": lambda rows, _: rows.window(tumbling("5m")).key_by("k").reduce("count"),
    "inner": lambda rows, others: rows.key_by("k").join(others().key_by("k")),
    "full": lambda rows, others: rows.key_by("k").join(others().key_by("k"), "full"),
    "top": lambda rows, _: rows.top_k(2, by="n"),
    "process": lambda rows, _: rows.key_by("k", value=["n"]).process(Passing()),
    "map": lambda rows, _: rows.map(lambda row: {"k": row["k"], "twice": row["n"] * 2}),
    "filter": lambda rows, _: rows.filter(lambda row: row["n"] > 1),
    "union": lambda rows, others: rows.union(others(), allow_missing_columns=True),
}


def test_a_relative_path_is_where_the_job_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    sink = Delta(Target("lake", "append"))
    sink.begin()
    monkeypatch.chdir(tmp_path)
    sink.commit(staged(sink, pa.table({"n": [1, 2]}), 0), 1, 0.0, is_last=True)
    assert pl.read_delta(str(tmp_path / "here" / "lake")).height == 2


@pytest.mark.parametrize("times", [1, 2])
def test_changes_come_into_a_table_with_their_kind_and_epoch(lake: Lake, times: int) -> None:
    columns = [("k", pa.string()), ("count", pa.int32()), ("change", pa.string()), ("epoch", pa.int32())]
    lake.make(pa.schema(columns), ["change"])
    for _ in range(times):
        flow = Flow("changes")
        flow.read(ROWS).key_by("k").reduce("count").write(**lake.output(), publish="changes")
        flow.run(backend=LocalBackend())
    assert sorted(row["k"] for row in lake.read().to_pylist()) == sorted(["a", "b"] * times)


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_adds_to_a_table_that_it_has_made(lake: Lake, name: str) -> None:
    found = []
    for _ in range(2):
        flow = Flow("again")
        FLOWS[name](flow.read(ROWS, time="at"), partial(flow.read, OTHERS)).write(**lake.output())
        flow.run(backend=LocalBackend())
        found.append(lake.read().num_rows)
    assert found[1] == 2 * found[0] > 0


@pytest.mark.parametrize(
    ("kind", "transform", "values"),
    [
        (types.StringType(), transforms.BucketTransform(4), VALUES[pa.string()]),
        (types.StringType(), transforms.TruncateTransform(2), ["", *VALUES[pa.string()]]),
        (types.LongType(), transforms.BucketTransform(4), VALUES[pa.int64()]),
        (types.IntegerType(), transforms.TruncateTransform(10), VALUES[pa.int32()]),
        (types.DecimalType(10, 2), transforms.IdentityTransform(), [Decimal("-0.01"), *VALUES[pa.decimal128(10, 2)]]),
        (types.DecimalType(10, 2), transforms.TruncateTransform(10), VALUES[pa.decimal128(10, 2)]),
        (types.DateType(), transforms.MonthTransform(), VALUES[pa.date32()]),
        (types.TimestampType(), transforms.YearTransform(), VALUES[pa.timestamp("us")]),
        (types.TimestampType(), transforms.DayTransform(), VALUES[pa.timestamp("us")]),
        (types.TimestampType(), transforms.HourTransform(), VALUES[pa.timestamp("us")]),
    ],
    ids=str,
)
@pytest.mark.parametrize("how", ["append", "overwrite", "final"])
def test_iceberg_computes_partitions(tmp_path: Path, kind: Any, transform: Any, values: list[Any], how: str) -> None:
    lake = Lake("iceberg", tmp_path)
    lake.catalog.create_namespace("some")
    columns = IcebergSchema(
        types.NestedField(1, "p", kind), types.NestedField(2, "n", types.IntegerType(), required=True)
    )
    spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    table = lake.catalog.create_table("some.table", columns, partition_spec=spec)
    rows = pa.table({"n": range(len(values)), "p": pa.array(values, table.schema().as_arrow().field("p").type)})
    lake.write(rows, how)
    assert lake.rows() == rows.select(["p", "n"]).to_pylist()
    assert lake.table().spec().fields[0].transform == transform


def test_iceberg_tables_that_cannot_be_written_are_refused_when_a_job_is_checked(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    lake.catalog.create_namespace("some")
    columns = IcebergSchema(types.NestedField(1, "n", types.LongType()), types.NestedField(2, "u", types.UUIDType()))
    spec = PartitionSpec(PartitionField(2, 1000, transforms.BucketTransform(2), "part"))
    lake.catalog.create_table("some.table", columns, partition_spec=spec)
    why = r"is partitioned by bucket\[2\] of 'u', which is uuid: `pyiceberg` cannot write"
    with pytest.raises(TableError, match=why):
        lake.sink().check()
    lake.catalog.drop_table("some.table")
    lake.catalog.create_table("some.table", columns)
    path = Path(lake.table().metadata_location.removeprefix("file://"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 3, "next-row-id": 0}))
    with pytest.raises(TableError, match=r"has version 3 of the format, and 2 is the newest that can be written"):
        lake.sink().check()
