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
from lake_samples import VALUES, Lake, staged, written

from dpa import Job
from dpa._util.outages import may_pass
from dpa.errors import ConfigError, TableError
from dpa.sinks.delta import Delta
from dpa.sinks.sink import Target
from experiments.s3_server import KEY, SECRET
from tests.unit.output_samples import publishing


def delta(path: Path, fields: list[Any], protocol: dict[str, Any], **options: Any) -> str:
    """A table with this beginning of its log."""
    log = path / "lake" / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": options.get("by", []),
        "configuration": options.get("configuration", {}),
    }
    entries = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, entries)))
    return str(path / "lake")


def field(name: str, kind: str = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


INVARIANT = json.dumps({"expression": {"expression": "n > 0"}})
NAMED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}


@pytest.mark.parametrize("how", ["append", "overwrite", "final"])
@pytest.mark.parametrize(
    ("fields", "protocol", "configuration", "says"),
    [
        (
            [field("n")],
            {"minReaderVersion": 1, "minWriterVersion": 3},
            {"delta.constraints.some": "n > 0"},
            "some: n > 0",
        ),
        ([field("n", **{"delta.invariants": INVARIANT})], {"minReaderVersion": 1, "minWriterVersion": 2}, {}, "n > 0"),
        (
            [field("n"), field("double", **{"delta.generationExpression": "n * 2"})],
            {"minReaderVersion": 1, "minWriterVersion": 4},
            {},
            r"double = n \* 2",
        ),
    ],
    ids=["constraint", "invariant", "generated"],
)
def test_rows_that_break_a_rule_of_a_delta_table_are_refused(
    tmp_path: Path, fields: list[Any], protocol: dict[str, Any], configuration: dict[str, str], says: str, how: str
) -> None:
    path = delta(tmp_path, fields, protocol, configuration=configuration)
    names = [each["name"] for each in fields]
    mode, publishes = ("overwrite", None) if how == "overwrite" else ("append", "final" if how == "final" else None)
    good, bad = pa.table({"n": [1], "double": [2]}).select(names), pa.table({"n": [-1], "double": [1]}).select(names)
    written(publishing(Delta(Target(path, mode)), publishes), good, (1,) if publishes else ())
    with pytest.raises(TableError, match=f"rows of the result break a rule of the table at .*: {says}"):
        written(publishing(Delta(Target(path, mode)), publishes), bad, (1,) if publishes else ())
    assert pl.read_delta(path).to_arrow().to_pylist() == good.to_pylist()


def test_a_row_whose_text_looks_like_an_outage_is_not_written_again_and_again(tmp_path: Path) -> None:
    rule = {"delta.constraints.short": "length(w) < 5"}
    path = delta(tmp_path, [field("w", "string")], {"minReaderVersion": 1, "minWriterVersion": 3}, configuration=rule)
    with pytest.raises(TableError, match="break a rule") as caught:
        written(Delta(Target(path, "append")), pa.table({"w": ["Connection refused: error sending request"]}))
    assert not may_pass(caught.value)


@pytest.mark.parametrize("by", [[], ["double"]])
def test_generated_columns_of_a_delta_table_are_computed(tmp_path: Path, by: list[str]) -> None:
    fields = [field("n"), field("double", **{"delta.generationExpression": "n * 2"})]
    path = delta(tmp_path, fields, {"minReaderVersion": 1, "minWriterVersion": 4}, by=by)
    written(Delta(Target(path, "append")), pa.table({"n": [1, 2, 3]}))
    assert sorted(pl.read_delta(path).rows()) == [(1, 2), (2, 4), (3, 6)]


FEATURES: dict[str, list[str]] = {
    **{name: [name] for name in ("deletionVectors", "v2Checkpoint", "typeWidening", "variantType")},
    **{name: [] for name in ("domainMetadata", "inCommitTimestamp", "icebergCompatV1", "allowColumnDefaults")},
}


@pytest.mark.parametrize(
    ("fields", "protocol", "configuration", "says"),
    [
        *(
            (
                [field("n")],
                {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [*also], "writerFeatures": [feature]},
                {},
                feature,
            )
            for feature, also in FEATURES.items()
        ),
        (
            [field("n", **NAMED)],
            {"minReaderVersion": 2, "minWriterVersion": 5},
            {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"},
            "columnMapping",
        ),
        (
            [field("n", **{"delta.identity.start": 1, "delta.identity.step": 1})],
            {"minReaderVersion": 1, "minWriterVersion": 6},
            {},
            "identityColumns",
        ),
    ],
)
def test_features_of_delta_that_cannot_be_written_are_refused_when_a_job_is_checked(
    tmp_path: Path, fields: list[Any], protocol: dict[str, Any], configuration: dict[str, str], says: str
) -> None:
    path = delta(tmp_path, fields, protocol, configuration=configuration)
    given = {"format": "delta", "path": path, "mode": "append"}
    job = Job(input=pa.table({"n": [1]}), key="n", reducer="count", output=given)
    with pytest.raises(
        ConfigError, match=f"has features that cannot be written here: {says}; drop them there, or name"
    ):
        job.check()


def test_a_delta_table_that_only_takes_more_rows_is_not_replaced(tmp_path: Path) -> None:
    path = delta(
        tmp_path,
        [field("n")],
        {"minReaderVersion": 1, "minWriterVersion": 2},
        configuration={"delta.appendOnly": "true"},
    )
    written(Delta(Target(path, "append")), pa.table({"n": [1]}))
    for sink in (Delta(Target(path, "overwrite")), publishing(Delta(Target(path, "append")), "table")):
        with pytest.raises(TableError, match=r"only takes more rows \(delta.appendOnly\): nothing in it is replaced"):
            sink.check()


def test_partitions_that_readers_would_find_changed_are_refused(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    lake.make(pa.schema([("p", pa.string()), ("n", pa.int64())]), ["p"])
    with pytest.raises(
        TableError, match="column 'p' of the result has the value '', which would change as a partition"
    ):
        written(lake.sink(), pa.table({"p": ["a", ""], "n": [1, 2]}))
    assert lake.rows() == []
    decimals = Lake("delta", tmp_path / "decimals")
    decimals.make(pa.schema([("p", pa.decimal128(10, 2)), ("n", pa.int64())]), ["p"])
    with pytest.raises(TableError, match="`deltalake` cannot write negative decimals as partitions"):
        written(decimals.sink(), pa.table({"p": [Decimal("-0.25")], "n": [1]}))
    other = Lake("delta", tmp_path / "other")
    other.make(pa.schema([("p", pa.binary()), ("n", pa.int64())]), ["p"])
    with pytest.raises(TableError, match="is partitioned by 'p', which is binary: such partitions cannot be written"):
        other.sink().check()


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.alter.add_columns([Schema.from_arrow(pa.schema([("m", pa.int64())])).fields[0]]),
        lambda table: table.alter.add_constraint({"few": "n < 2"}),
    ],
    ids=["a column", "a constraint"],
)
def test_a_delta_table_that_is_altered_while_a_job_runs_keeps_its_rules(
    tmp_path: Path, change: Callable[[DeltaTable], None]
) -> None:
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


def test_a_partitioned_delta_table_may_be_in_object_storage(s3_port: int) -> None:
    where, options = (
        "s3://results/parted",
        {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        },
    )
    rows = pa.table({"p": pa.array(VALUES[pa.string()]), "n": range(len(VALUES[pa.string()]))})
    write_deltalake(where, rows, partition_by=["p"], storage_options=options)
    for mode in ("append", "overwrite"):
        written(Delta(Target(where, mode, options)), rows)
        found = pl.read_delta(where, storage_options=options).sort("n").select("p", "n").to_arrow()
        assert {*map(str, found.to_pylist())} == {*map(str, rows.to_pylist())}
        assert len(found) == len(rows) * (2 if mode == "append" else 1)
