"""Files that results are written to, as Spark reads them; and a job that writes them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

import dpa
from dpa.sinks._layout import FileLayout
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.encodings import ENCODINGS
from dpa.sinks.sink import Target
from dpa.testing import LocalBackend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARQUET, CSV, JSON = ENCODINGS

UTC = dt.timezone.utc
AT = dt.datetime(2026, 1, 31, 12, 30, 0, 123456)
ROWS = pa.table(
    {
        "n": pa.array([1, 2]),
        "is": pa.array([True, None]),
        "tiny": pa.array([-128, None], pa.int8()),
        "ratio": pa.array([1e300, None]),
        "text": ['a "quote", a\nline', "\t\\ü,'"],
        "day": pa.array([dt.date(2026, 1, 31), None]),
        "local": pa.array([AT, None]),
        "at": pa.array([AT.replace(tzinfo=UTC), None], pa.timestamp("us", "Europe/Berlin")),
        "cents": pa.array([Decimal("-123.450"), None], pa.decimal128(10, 3)),
    }
)
DDL = "n long, is boolean, tiny tinyint, ratio double, text string, day date, local timestamp_ntz, at timestamp, cents "
DDL += "decimal(10,3)"


def write(directory: Path, layout: FileLayout, rows: pa.Table) -> None:
    sink = ResultDirectory(Target(str(directory)), layout)
    sink.begin()
    sink.commit([sink.stage(rows, 0, 1)], 1, 0.5, is_last=True)
    sink.abort()


@pytest.mark.parametrize("single_file", [False, True])
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_spark_reads_the_values_that_were_written(
    spark: SparkSession, tmp_path: Path, compression: str, single_file: bool
) -> None:
    expected = [tuple(row.values()) for row in ROWS.set_column(7, "at", ROWS["at"].cast("int64")).to_pylist()]
    for encoding in ENCODINGS:
        place = tmp_path / encoding.name
        write(place, FileLayout(encoding, compression, single_file=single_file), ROWS)
        reader = spark.read if encoding is PARQUET else spark.read.schema(DDL)
        if encoding is CSV:
            reader = reader.options(header=True, multiLine=True, escape='"', positiveInf="inf", negativeInf="-inf")
        frame = reader.format(encoding.name).load(str(place))
        found = frame.selectExpr("* except (at, cents)", "unix_micros(at) at", "cents").orderBy("n").collect()
        assert [tuple(row) for row in found] == expected


def test_spark_reads_infinite_numbers_of_csv(spark: SparkSession, tmp_path: Path) -> None:
    numbers = [float("inf"), float("-inf"), 0.5]
    write(tmp_path / "out", FileLayout(CSV), pa.table({"n": [1, 2, 3], "x": numbers}))
    reader = spark.read.schema("n long, x double").options(header=True, positiveInf="inf", negativeInf="-inf")
    assert [row.x for row in reader.csv(str(tmp_path / "out")).orderBy("n").collect()] == numbers


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda each: each.name)
def test_spark_reads_partitions_by_odd_values(spark: SparkSession, tmp_path: Path, encoding: object) -> None:
    odd = [
        "a/b",
        "x=y",
        "ü ö",
        "50%",
        "a:b",
        "q'\"",
        "*?[x]{}",
        "\n\x01",
        "007",
        ".",
        "..",
        "#^\\",
        "a+b&c",
        "null",
        None,
    ]
    days = [dt.date(2026, 1, 31) if at % 2 else None for at in range(len(odd))]
    rows = pa.table({"n": range(len(odd)), "k/1": odd, "day": days})
    write(tmp_path / "out", FileLayout(encoding, partition_by=("k/1", "day")), rows)
    frame = spark.read.schema("n long, `k/1` string, day date").format(encoding.name)
    found = frame.option("header", True).load(str(tmp_path / "out")).select("n", "k/1", "day").orderBy("n").collect()
    assert [tuple(row) for row in found] == [tuple(row.values()) for row in rows.to_pylist()]


def test_a_job_writes_files_that_spark_has_checked(spark: SparkSession, tmp_path: Path) -> None:
    words = [{"word": f"w{at % 7}", "at": at} for at in range(700)]
    layouts = {"lines.jsonl.zst": {}, "one.csv.gz": {"single_file": True}, "parts": {"partition_by": "word"}}
    flow = dpa.Flow("words")
    rows = flow.read(words, name="words")
    for name, options in layouts.items():
        counted = rows.key_by("word").reduce("count", name=name.partition(".")[0], parallelism=2)
        counted.write(tmp_path / name, **options)
        counted.reference("SELECT word, count(*) AS count FROM words GROUP BY word")
    result = flow.run(backend=LocalBackend()).check()
    for stage in ("lines", "one", "parts"):
        table = result.table(stage)
        assert result.report[stage].reference.matches
        assert table.schema.names == ["word", "count"]
        assert {row["word"]: row["count"] for row in table.to_pylist()} == {f"w{at}": 100 for at in range(7)}
    assert len(pl.read_csv(tmp_path / "one.csv.gz" / "part-00000.csv.gz")) == 7
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == [
        "_job.yaml",
        *(f"word=w{at}" for at in range(7)),
    ]
