"""Files of Arrow IPC, read in place."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from dpa import Flow
from dpa.aggregates import Count
from dpa.config.inputs import InputConfig
from dpa.errors import TableError
from dpa.sources.files import FileTable, file_table
from dpa.sources.ipc import ipc_file
from dpa.testing import LocalBackend

ROWS = pa.table({"id": range(100), "word": [f"w{number % 7}" for number in range(100)]})


def write(place: Path, rows: pa.Table = ROWS, batch: int = 10) -> Path:
    with pa.ipc.new_file(place, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=batch)
    return place


def table_of(place: Path) -> FileTable:
    return file_table(ipc_file, [str(place)])


def test_what_polars_writes_is_read(tmp_path: Path) -> None:
    frame = pl.DataFrame({"word": ["a", "b", "a"], "kind": ["x", None, "x"]}, schema_overrides={"kind": pl.Categorical})
    frame.write_ipc(tmp_path / "a.ipc")
    flow = Flow("polars")
    flow.read(tmp_path / "*.ipc").key_by("word", "kind").reduce(Count())
    found = flow.run(backend=LocalBackend(), check=False).table().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [("a", "x", 2), ("b", None, 1)]
    write(tmp_path / "b.ipc", pa.table({"kind": ["x"], "word": ["c"]}))
    assert [tuple(row.values()) for row in table_of(tmp_path).read().to_pylist()][2:] == [("a", "x"), ("c", "x")]


def test_rows_are_counted_without_any_column_and_of_nested_ones(tmp_path: Path) -> None:
    nested = pa.table({"tags": [["a"], [], None]})
    table = replace(table_of(write(tmp_path / "a.arrow", nested)), columns=())
    assert [batch.num_rows for split in table.splits(10) for batch in split.batches(10)] == [3]


def test_a_file_that_is_not_arrow_or_is_damaged_or_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.arrow").write_text("no columns here")
    with pytest.raises(TableError, match=r"notes\.arrow: not a file of Arrow IPC that can be read"):
        table_of(tmp_path)
    place = write(tmp_path / "notes.arrow")
    [split] = table_of(tmp_path).splits(1000)
    content = place.read_bytes()
    place.write_bytes(content[:200] + bytes(len(content) - 200))
    with pytest.raises(TableError, match=r"notes\.arrow: record batches 0 to 9 cannot be read: "):
        [*split.batches(10)]
    place.write_bytes(content + b"more")
    with pytest.raises(TableError, match=r"was changed while the job was running: it has [\d,]+ bytes now"):
        [*split.batches(10)]
    place.unlink()
    with pytest.raises(TableError, match=r"no such file: it was removed while the job was running, or"):
        [*split.batches(10)]


def test_keys_of_spark_are_refused_of_arrow() -> None:
    with pytest.raises(ValueError, match=r"is a key of the format `parquet`.* but the format is `arrow`"):
        InputConfig(path="a.feather", where="id > 1")
