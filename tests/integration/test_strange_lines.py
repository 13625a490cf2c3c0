"""Lines that are strange, beside Spark: files of CSV are the same rows for whoever reads them, and a reference is of
the rows that are there."""

import os
from pathlib import Path
from typing import Any

import pytest
from csv_files import CSVS

from dpa import Job, Mapper
from dpa.config import parse
from dpa.errors import TableError
from dpa.sources.feed import table_of
from dpa.sources.lines import LineFormat
from dpa.sources.watched import WatchedFiles
from dpa.spark import Source, input_table, load
from dpa.testing import LocalBackend


def put(place: Path, data: bytes) -> None:
    place.write_bytes(data)
    os.utime(place, (100, 100))


@pytest.mark.parametrize("name", CSVS)
def test_csv_is_the_same_rows_for_spark_and_for_who_watches(spark, name: str, tmp_path: Path) -> None:
    content, due = CSVS[name]
    put(tmp_path / "file.csv", content)
    found = load(spark, Source("csv", str(tmp_path / "file.csv"), options={"header": "true"}))
    assert found.columns == ["a", "s"] and [tuple(row) for row in found.collect()] == due
    feed = WatchedFiles(str(tmp_path), LineFormat("csv", header=True))
    rows = table_of(feed.poll(9).splits, feed.schema).to_pylist()
    assert [tuple(row.values()) for row in rows] == due


def test_spark_refuses_files_whose_headers_have_another_order_and_names_columns_of_one(spark, tmp_path: Path) -> None:
    put(tmp_path / "1.csv", b"a,s\n1,2\n")
    put(tmp_path / "2.csv", b"s,a\n2,1\n")
    header = {"header": "true"}
    several = Source("csv", str(tmp_path), options=header)
    with pytest.raises(TableError, match="header"), input_table(lambda: spark, several):
        pass
    put(tmp_path / "3.csv", b",x,X\n1,2,3\n")
    found = load(spark, Source("csv", str(tmp_path / "3.csv"), options=header))
    assert found.columns == ["_c0", "x1", "X2"] and [tuple(row) for row in found.collect()] == [("1", "2", "3")]
    feed = WatchedFiles(str(tmp_path), LineFormat("csv", header=True), glob="3.csv")
    assert feed.schema.names == found.columns


class Flaws(Mapper):
    """Raises on one record."""

    def map(self, record: dict[str, Any]) -> Any:
        if record["n"] == 4:
            raise ValueError("four")
        yield record["k"], record["n"]


LINES = b'{"k": "a", "n": 1}\nnull\n{"k": "b", "n": "two"}\n{"k": "b", "n": 4}\n{"k": "c"\n{"k": "a", "n": 7}\n'


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("on_error", ["dead_letter", "skip"])
def test_a_reference_is_of_the_rows_that_are_there(on_error: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put(tmp_path / "in" / "file", LINES)
    watch = {"columns": {"k": "string", "n": "int64"}}
    document = {
        "input": {"format": "json", "path": str(tmp_path / "in"), "watch": watch},
        **{"key": "k", "reducer": {"use": "sum", "args": {"column": "n"}}, "on_error": on_error},
        "reference": {"sql": "SELECT k, sum(n) AS n FROM input GROUP BY k"},
    }
    if on_error == "dead_letter":
        document["dead_letters"] = {"path": str(tmp_path / "dead"), "mode": "overwrite"}
    reference = Job(file=parse(document)).run(backend=LocalBackend()).report.reference
    assert (reference.checked, reference.matches, reference.rows) == (True, True, 2)
    if on_error == "dead_letter":  # a line behind others that are left out is found by its place
        document |= {"mapper": f"{__name__}:Flaws", "reducer": "sum"}
        document["reference"] = {"sql": "SELECT k, sum(n) AS value FROM input GROUP BY k"}
        reference = Job(file=parse(document)).run(backend=LocalBackend()).report.reference
        assert (reference.checked, reference.matches, reference.rows) == (True, True, 1)
