"""What is left of a split once some of its rows have been read."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpa.errors import TableError
from dpa.sources.generated import BLOCK_ROWS, GeneratedTable, Generator
from dpa.sources.parquet import parquet_table
from dpa.sources.splits import ParquetSplit, Split, memory_splits

ROWS = 100


class Squares(Generator):
    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        return pa.record_batch({"id": pa.array(range(start, start + rows), pa.int64())})


def ids(split: Split, batch_rows: int = 7) -> list[int]:
    return [number for batch in split.batches(batch_rows) for number in batch["id"].to_pylist()]


@pytest.fixture(scope="module")
def parquet_split(tmp_path_factory: pytest.TempPathFactory) -> ParquetSplit:
    """The rows of all row groups but the first, of ten rows each."""
    directory = tmp_path_factory.mktemp("split")
    pq.write_table(pa.table({"id": range(ROWS + 10)}), directory / "rows.parquet", row_group_size=10)
    [_, split] = parquet_table(["rows.parquet"], str(directory)).splits(ROWS)
    return split


def split_of(kind: str, parquet_split: ParquetSplit) -> Split:
    match kind:
        case "memory":
            [split] = memory_splits(pa.table({"id": range(ROWS)}), ROWS)
            return split
        case "generated":
            return GeneratedTable(Squares(), BLOCK_ROWS + ROWS).splits(BLOCK_ROWS - 50 + ROWS)[0]
    return parquet_split


@pytest.mark.parametrize("kind", ["memory", "generated", "parquet"])
@given(st.lists(st.integers(0, 40), max_size=4), st.integers(1, 30))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_rest_is_all_that_was_not_read(
    kind: str, parquet_split: ParquetSplit, read: list[int], batch_rows: int
) -> None:
    split = split_of(kind, parquet_split)
    expected = ids(split)
    for wanted in read:
        rows = min(wanted, split.rows)
        split, expected = split.after(rows), expected[rows:]
    assert split.rows == len(expected)
    assert ids(split, batch_rows) == expected
    assert all(batch.num_rows <= batch_rows for batch in split.batches(batch_rows))


def test_row_groups_that_were_read_are_not_read_again(
    parquet_split: ParquetSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[int]] = []
    whole = pq.ParquetFile.iter_batches

    def noted(self: pq.ParquetFile, **options: object) -> object:
        read.append(options["row_groups"])
        return whole(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    rest = parquet_split.after(25)
    assert ids(rest) == ids(parquet_split)[25:]
    assert read[0] == list(parquet_split.row_groups[2:])


def test_the_rest_of_a_file_that_was_replaced_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": range(ROWS)}), file)
    [split] = parquet_table([file.name], str(tmp_path)).splits(ROWS)
    pq.write_table(pa.table({"id": range(ROWS - 10)}), file)
    with pytest.raises(TableError, match="row groups have 90 rows now, and had 100"):
        ids(split.after(10))
