"""What is left of a split of Parquet once some of its rows have been read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa.errors import TableError
from dpa.sources.parquet import parquet_table
from dpa.sources.splits import ParquetSplit, Split

ROWS = 100


def ids(split: Split, batch_rows: int = 7) -> list[int]:
    return [number for batch in split.batches(batch_rows) for number in batch["id"].to_pylist()]


@pytest.fixture(scope="module")
def parquet_split(tmp_path_factory: pytest.TempPathFactory) -> ParquetSplit:
    """The rows of all row groups but the first, of ten rows each."""
    directory = tmp_path_factory.mktemp("split")
    pq.write_table(pa.table({"id": range(ROWS + 10)}), directory / "rows.parquet", row_group_size=10)
    [_, split] = parquet_table([str(directory)]).splits(ROWS)
    return split


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
    [split] = parquet_table([str(file)]).splits(ROWS)
    pq.write_table(pa.table({"id": range(ROWS - 10)}), file)
    with pytest.raises(TableError, match=r"was changed while the job was running: it has .* bytes now"):
        ids(split.after(10))
