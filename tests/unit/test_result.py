"""A result that was written to a directory is read from there for as long as it is there, and no other one for it."""

import dataclasses
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import report_samples as samples

from dpa.errors import TableError
from dpa.result import OutputReport, Result, when_written

FILE = "part-00000.parquet"


def ended(directory: Path, value: int) -> Result:
    """A job that has written one part to a directory, one second after the one of `value - 1`."""
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.table({"word": ["a"], "value": [value]}), directory / FILE)
    os.utime(directory / FILE, (value, value))
    output = OutputReport(str(directory), 1, (FILE,))
    return Result(dataclasses.replace(samples.report(), output=output), None, when_written(output))


def test_a_result_is_read_from_its_directory(tmp_path: Path) -> None:
    assert ended(tmp_path / "out", 1).table()["value"].to_pylist() == [1]


def test_a_later_result_in_the_same_directory_is_not_taken_for_it(tmp_path: Path) -> None:
    first, second = ended(tmp_path / "out", 1), ended(tmp_path / "out", 2)
    assert second.table()["value"].to_pylist() == [2]
    with pytest.raises(TableError, match=r"/out: the result of .* was replaced or removed after the job had ended"):
        first.table()
    (tmp_path / "out" / FILE).unlink()
    with pytest.raises(TableError, match="was replaced or removed"):
        second.table()
