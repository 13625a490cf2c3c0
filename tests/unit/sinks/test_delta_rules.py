"""What tables of Delta demand of rows besides their columns holds for those of jobs, or the table is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from lake_samples import Lake, staged

from dpa import Job
from dpa._util.outages import may_pass
from dpa.errors import ConfigError, TableError


def delta(path: Path, fields: list[Any], writer: int, configuration: dict[str, str] | None = None, **more: Any) -> Lake:
    """A table with this beginning of its log; `writer`: the version that writers need."""
    log = path / "lake" / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": more.pop("by", []),
        "configuration": configuration or {},
    }
    entries = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": writer, **more}}, {"metaData": metadata}]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, entries)))
    return Lake("delta", path)


def field(name: str, kind: str = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


INVARIANT = json.dumps({"expression": {"expression": "n > 0"}})
NAMED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
DOUBLE = [field("n"), field("double", **{"delta.generationExpression": "n * 2"})]


@pytest.mark.parametrize("how", ["append", "overwrite", "final"])
@pytest.mark.parametrize(
    ("fields", "writer", "configuration", "says"),
    [
        ([field("n")], 3, {"delta.constraints.some": "n > 0"}, "some: n > 0"),
        ([field("n", **{"delta.invariants": INVARIANT})], 2, {}, "n > 0"),
        (DOUBLE, 4, {}, r"double = n \* 2"),
    ],
    ids=["constraint", "invariant", "generated"],
)
def test_rows_that_break_a_rule_of_a_delta_table_are_refused(
    tmp_path: Path, fields: list[Any], writer: int, configuration: dict[str, str], says: str, how: str
) -> None:
    lake = delta(tmp_path, fields, writer, configuration)
    names = [each["name"] for each in fields]
    good, bad = pa.table({"n": [1], "double": [2]}).select(names), pa.table({"n": [-1], "double": [1]}).select(names)
    lake.write(good, how)
    with pytest.raises(TableError, match=f"rows of the result break a rule of the table at .*: {says}"):
        lake.write(bad, how)
    assert pl.read_delta(lake.path).to_arrow().to_pylist() == good.to_pylist()


def test_a_row_whose_text_looks_like_an_outage_is_not_written_again_and_again(tmp_path: Path) -> None:
    lake = delta(tmp_path, [field("w", "string")], 3, {"delta.constraints.short": "length(w) < 5"})
    with pytest.raises(TableError, match="break a rule") as caught:
        lake.write(pa.table({"w": ["Connection refused: error sending request"]}))
    assert not may_pass(caught.value)


@pytest.mark.parametrize("by", [[], ["double"]])
def test_generated_columns_of_a_delta_table_are_computed(tmp_path: Path, by: list[str]) -> None:
    lake = delta(tmp_path, DOUBLE, 4, by=by)
    lake.write(pa.table({"n": [1, 2, 3]}))
    assert sorted(pl.read_delta(lake.path).rows()) == [(1, 2), (2, 4), (3, 6)]


FEATURES: dict[str, list[str]] = {
    **{name: [name] for name in ("deletionVectors", "v2Checkpoint", "typeWidening", "variantType")},
    **{name: [] for name in ("domainMetadata", "inCommitTimestamp", "icebergCompatV1", "allowColumnDefaults")},
}


@pytest.mark.parametrize(
    ("about", "says"),
    [
        *(
            ({"writer": 7, "minReaderVersion": 3, "readerFeatures": [*also], "writerFeatures": [feature]}, feature)
            for feature, also in FEATURES.items()
        ),
        (
            {
                **{"fields": [field("n", **NAMED)], "writer": 5, "minReaderVersion": 2},
                "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"},
            },
            "columnMapping",
        ),
        (
            {"fields": [field("n", **{"delta.identity.start": 1, "delta.identity.step": 1})], "writer": 6},
            "identityColumns",
        ),
    ],
)
def test_features_of_delta_that_cannot_be_written_are_refused_when_a_job_is_checked(
    tmp_path: Path, about: dict[str, Any], says: str
) -> None:
    given = delta(tmp_path, **{"fields": [field("n")], **about}).output()
    job = Job(input=pa.table({"n": [1]}), key="n", reducer="count", output=given)
    why = f"has features that cannot be written here: {says}; drop them there, or name"
    with pytest.raises(ConfigError, match=why):
        job.check()


def test_a_delta_table_that_only_takes_more_rows_is_not_replaced(tmp_path: Path) -> None:
    lake = delta(tmp_path, [field("n")], 2, {"delta.appendOnly": "true"})
    lake.write(pa.table({"n": [1]}))
    for sink in (lake.sink("overwrite"), lake.sink(publishes="table")):
        with pytest.raises(TableError, match=r"only takes more rows \(delta.appendOnly\): nothing in it is replaced"):
            sink.check()


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (pa.string(), "", "column 'p' of the result has the value '', which would change as a partition"),
        (pa.decimal128(10, 2), Decimal("-0.25"), "`deltalake` cannot write negative decimals as partitions"),
        (pa.binary(), b"", "is partitioned by 'p', which is binary: such partitions cannot be written"),
    ],
    ids=str,
)
def test_partitions_that_would_change_are_refused(tmp_path: Path, kind: pa.DataType, value: object, says: str) -> None:
    lake = Lake("delta", tmp_path)
    lake.make(pa.schema([("p", kind), ("n", pa.int64())]), ["p"])
    with pytest.raises(TableError, match=says):
        lake.write(pa.table({"p": pa.array([None, value], kind), "n": [1, 2]}))
    assert lake.rows() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.alter.add_columns([Schema.from_arrow(pa.schema([("m", pa.int64())])).fields[0]]),
        lambda table: table.alter.add_constraint({"few": "n < 2"}),
    ],
    ids=["a column", "a constraint"],
)
def test_a_table_altered_meanwhile_keeps_its_rules(tmp_path: Path, change: Callable[[DeltaTable], None]) -> None:
    lake = Lake("delta", tmp_path)
    lake.make(pa.schema([("p", pa.string()), ("n", pa.int64())]), ["p"])
    sink = lake.sink()
    sink.begin()
    parts = staged(sink, pa.table({"p": ["a", "b"], "n": [1, 2]}), 0)
    change(DeltaTable(lake.path))
    with pytest.raises(TableError, match=r"give both the same|break a rule of the table at .*: few: n < 2"):
        sink.commit(parts, 1, 0.0, is_last=True)
    sink.abort()
    assert lake.rows() == []


def test_a_delta_table_that_is_made_while_a_job_runs_takes_its_rows(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    sink = lake.sink()
    sink.begin()
    parts = staged(sink, pa.table({"p": ["a", "b"], "n": [1, 2]}), 0)
    assert sink.read(parts).to_pylist() == [{"p": "a", "n": 1}, {"p": "b", "n": 2}]
    write_deltalake(lake.path, pa.table({"p": ["c"], "n": pa.array([0], pa.int32())}), partition_by=["p"])
    sink.commit(parts, 1, 0.0, is_last=True)
    sink.abort()
    assert lake.rows() == [{"p": "c", "n": 0}, {"p": "a", "n": 1}, {"p": "b", "n": 2}]
    assert {*pl.read_delta(lake.path)["p"]} == {"a", "b", "c"}
