"""Generated inputs in Spark: the same rows as in a task, and a job whose reference sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from topologies import LINES, TRADES, rows_of

from dpa import Generator, Job
from dpa.errors import TableError
from dpa.sources.files import FileTable
from dpa.sources.generated import BLOCK_ROWS, GeneratedTable
from dpa.spark import generated_frame, staged
from dpa.testing import LocalBackend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


class Numbers(Generator):
    """Positions in a type that Spark does not have; fails where it is asked to."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at

    def batch(self, start: int, rows: int, random: Any) -> pa.RecordBatch:
        if start == self.fails_at:
            raise ValueError("no more numbers")
        return pa.record_batch({"n": pa.array(range(start, start + rows), pa.uint32())})


@pytest.fixture
def written(spark: SparkSession) -> Iterator[Callable[[GeneratedTable], FileTable]]:
    """Writes a generated table through Spark."""
    with ExitStack() as stack:
        yield lambda table: stack.enter_context(staged(generated_frame(spark, table)))


# --- rows


@pytest.mark.parametrize("table", [LINES, TRADES], ids=["lines", "trades"])
def test_spark_writes_the_rows_that_tasks_generate(written: Any, table: GeneratedTable) -> None:
    found = written(table)
    assert found.rows == table.rows
    assert found.read().equals(rows_of(table))


def test_rows_are_written_in_order_over_several_partitions(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpa.spark._exchange._PARTITION_ROWS", 3_000)
    found = written(GeneratedTable(Numbers(), 10_000))
    assert len(found.files) == 4
    assert found.read()["n"].to_pylist() == list(range(10_000))


def test_a_table_without_rows_keeps_its_columns(spark: SparkSession) -> None:
    frame = generated_frame(spark, GeneratedTable(Numbers(), 0))
    assert (frame.columns, frame.count()) == (["n"], 0)


def test_a_generator_that_fails_in_spark_is_named(written: Any) -> None:
    table = GeneratedTable(Numbers(fails_at=BLOCK_ROWS), 2 * BLOCK_ROWS)
    with pytest.raises(TableError, match=r"Numbers.batch failed on 4096 rows from 4096: ValueError: no more numbers"):
        written(table)


# --- a job


@pytest.mark.usefixtures("spark")
def test_a_job_over_a_generated_input_equals_spark() -> None:
    overrides = ["input.rows=20000", "input.rate=40000", "input.padding=8", "limits.batch_records=2000"]
    overrides += ["parallelism={mappers: 1, reducers: 2}", "reference.baseline=false"]
    report = Job.from_file(ROOT / "configs" / "generated_wordcount.yaml", overrides).run(backend=LocalBackend()).report
    assert report.reference.checked
    assert report.reference.matches, report.reference.differences
    assert report.records.read == 20_000
