"""Directories and prefixes that are watched: what counts as a file, in which order, and what makes one an error."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa.errors import TableError
from dpa.sources import lines, watched
from dpa.sources.feed import Page, table_of
from dpa.sources.lines import LineFormat
from dpa.sources.splits import MemorySplit, NumberedSplit, whole
from dpa.sources.watched import Seen, WatchedFiles
from experiments.s3_server import client, uri_of

TEXT, CSV, JSON = LineFormat("text"), LineFormat("csv", header=True), LineFormat("json")
NOW = 1_000


def put(place: Path, text: str | bytes, time: float = 100) -> None:
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(place, (time, time))


def put_parquet(place: Path, rows: int, time: float = 100, kind: pa.DataType | None = None, size: int = 2) -> None:
    pq.write_table(pa.table({"n": pa.array(range(rows), kind)}), place, row_group_size=size)
    os.utime(place, (time, time))


def watching(directory: Path, format: LineFormat | None = TEXT, **more: Any) -> WatchedFiles:
    return WatchedFiles(str(directory), format, clock=lambda: NOW, **more)


def rows(page: Page, column: str = "value") -> list[Any]:
    return table_of(page.splits)[column].to_pylist() if page.splits else []


def test_files_come_in_the_order_of_their_times_and_each_once(tmp_path: Path) -> None:
    put(tmp_path / "b", "1\n", 50)
    put(tmp_path / "a", "2\n", 60)
    for hidden in (".c", "_d"):
        put(tmp_path / hidden, "never\n")
    feed = watching(tmp_path)
    page = feed.poll(100)
    assert rows(page) == ["1", "2"]
    put(tmp_path / "late", "3\n", 40)  # renamed into the directory long after it was written
    (tmp_path / "_d").rename(tmp_path / "d")
    (tmp_path / "b").unlink()
    page = replace(feed).poll(100, pickle.loads(pickle.dumps(page.position)))
    assert rows(page) == ["3", "never"]
    assert rows(feed.poll(100, page.position)) == []


def test_files_that_were_not_looked_at_count_as_many_rows_as_those_before(tmp_path: Path) -> None:
    feed = watching(tmp_path)
    assert feed.lag(None) == {"": 0}
    for number, lines_of_it in enumerate((2, 4)):
        put(tmp_path / str(number), "x\n" * lines_of_it, 10 + number)
    assert feed.lag(None) is None, "how many rows a file has is not known yet"
    position = feed.poll(100).position
    assert feed.lag(position) == {"": 0}
    for number in range(5):
        put(tmp_path / f"new {number}", "x\n", 20)
    assert feed.lag(position) == {"": 5 * 3}


def test_a_position_names_only_the_newest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "_REMEMBERED", 3)
    for number in range(6):
        put(tmp_path / str(number), f"{number}\n", 10 + number // 2)
    feed = watching(tmp_path)
    page = feed.poll(100)
    assert page.position == Seen(11 * 10**9, {"4": 12 * 10**9, "5": 12 * 10**9})
    put(tmp_path / "too late", "-\n", 11)
    put(tmp_path / "late", "+\n", 12)
    assert rows(feed.poll(100, page.position)) == ["+"]


def test_sub_directories_and_names_as_for_other_files(tmp_path: Path) -> None:
    for place in ("a.log", "b.txt", "in/c.log", "out/d.log", "_x/e.log"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        put(tmp_path / place, f"{place}\n")
    assert rows(watching(tmp_path, glob="*.log").poll(9)) == ["a.log"]
    assert rows(watching(tmp_path, glob="*.log", recursive=True, exclude=["o*"]).poll(9)) == ["a.log", "in/c.log"]


def test_a_file_of_lines_is_read_once_nothing_is_written_to_it(tmp_path: Path) -> None:
    put(tmp_path / "a", "1\n", NOW - 0.5)
    feed = watching(tmp_path)
    page = feed.poll(100)
    assert not page.splits
    later = replace(feed, clock=lambda: NOW + 1).poll(100, page.position)
    assert rows(later) == ["1"]
    put(tmp_path / "a", "1\n2\n", NOW)
    with pytest.raises(TableError, match=r"/a: was changed while the job was running: it has 4 bytes now, and had 2"):
        rows(later)
    with pytest.raises(TableError, match=r": a was changed after it had been read: write each file once; renamed"):
        feed.poll(100, later.position)


def test_a_parquet_file_is_read_once_it_has_its_footer(tmp_path: Path) -> None:
    put_parquet(tmp_path / "whole", 4, NOW - 60)
    half = (tmp_path / "whole").read_bytes()[:-9]
    put(tmp_path / "half", half, NOW - 59)
    feed = watching(tmp_path, None)
    page = feed.poll(2)
    assert [split.rows for split in page.splits] == [2, 2]
    assert not feed.poll(2, page.position).splits
    with pytest.raises(TableError, match="half: not a Parquet file that can be read"):
        replace(feed, clock=lambda: NOW + 2).poll(2, page.position)
    put_parquet(tmp_path / "half", 3, NOW - 59)
    assert sum(split.rows for split in feed.poll(9, page.position).splits) == 3


def test_a_page_may_end_within_a_file(tmp_path: Path) -> None:
    for number in range(3):
        put_parquet(tmp_path / str(number), 60, 10 + number, size=3)
    feed, position, given = watching(tmp_path, None), None, []
    for _ in range(3):
        page = replace(feed).poll(3, position)
        assert page.splits == feed.poll(3, position).splits
        position = page.position
        given += page.splits
    assert [(Path(split.path).name, split.row_groups) for split in given] == [
        (str(file), (group,)) for file in range(3) for group in range(20)
    ]
    part = feed.poll(3)
    put_parquet(tmp_path / "1", 9, 11.5)
    with pytest.raises(TableError, match="1 was removed, or changed, before all of it had been read"):
        replace(feed).poll(3, part.position)


def test_files_of_lines_are_cut_at_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_SPLIT_BYTES", 10)
    texts = ["", "a", "bb\r", "c" * 25, "", "d", "ü" * 4, "", "", "e"]
    put(tmp_path / "a", "\ufeff" + "\n".join(texts))
    expected = [line.rstrip("\r") for line in texts]
    page = watching(tmp_path).poll(2)
    assert rows(page) == expected
    assert max(split.rows for split in page.splits) == 2
    assert [split.rows for split in watching(tmp_path, LineFormat("csv")).poll(9).splits] == [2, 3, 1]
    put(tmp_path / "a", b"\n\r\n" * 9)
    assert not watching(tmp_path, JSON).poll(9).splits
    put(tmp_path / "b", b"\xff\n")
    assert rows(watching(tmp_path, glob="b").poll(9)) == ["\ufffd"]


def test_columns_are_those_declared_or_those_of_the_first_file(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 'n;name\n1;"x;y"\n;""\n2;\n')
    kind = replace(CSV, separator=";")
    feed = watching(tmp_path, kind, glob="*.csv")
    assert table_of(feed.poll(9).splits).to_pylist() == [
        {"n": "1", "name": "x;y"},
        {"n": None, "name": None},
        {"n": "2", "name": None},
    ]
    declared = pa.schema([("name", pa.string()), ("n", pa.int64())])
    found = table_of(replace(feed, declared=declared, columns=("n",)).poll(9).splits)
    assert found.equals(pa.table({"n": pa.array([1, None, 2])}))
    plain = watching(tmp_path, replace(kind, header=False), glob="*.csv")
    assert plain.schema.names == ["_c0", "_c1"] and rows(plain.poll(9), "_c0") == ["n", "1", None, "2"]
    put(tmp_path / "a.json", '{"n": 1, "more": {"x": "1"}}\n')
    feed = watching(tmp_path, JSON, glob="*.json")
    assert feed.schema == pa.schema([("n", pa.int64()), ("more", pa.struct([("x", pa.string())]))])
    page = feed.poll(9)
    put(tmp_path / "b.json", '{"other": 1}\n{"n": 2}\n')
    assert table_of(feed.poll(9, page.position).splits)["n"].to_pylist() == [None, 2]


@pytest.mark.parametrize(
    ("format", "content", "declared", "message"),
    [
        (CSV, "a,b\n1,2\n", {"c": pa.int64()}, r"the header of \S+/file has no column 'c'"),
        (CSV, "a\nx\n", {"a": pa.int64()}, r"/file, line 2: cannot be read as csv: .* error to int64"),
        (CSV, 'a\n"x\ny"\n', {"a": pa.string()}, r"/file, line 2: .*: a quote is not closed"),
        (
            JSON,
            '{"a": 1}\n{"a":\n',
            {"a": pa.int64()},
            r"/file, line 2: cannot be read as json: it is",
        ),
    ],
)
def test_lines_that_are_no_records_are_named(
    format: LineFormat, content: str, declared: dict[str, pa.DataType], message: str, tmp_path: Path
) -> None:
    put(tmp_path / "file", content)
    with pytest.raises(TableError, match=message):
        rows(watching(tmp_path, format, declared=pa.schema(declared)).poll(9), "a")


def test_what_cannot_be_watched_is_said(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no such directory: make it"):
        watching(tmp_path / "none").poll(9)
    with pytest.raises(TableError, match=r"holds no file that is complete, .* declare them in `columns`"):
        _ = watching(tmp_path, CSV).schema
    assert watching(tmp_path, CSV).poll(9).splits == ()
    put_parquet(tmp_path / "a", 1, 10)
    put_parquet(tmp_path / "b", 1, 20, pa.float64())
    with pytest.raises(TableError, match="column 'n' is double in b, and int64 in the input"):
        watching(tmp_path, None).poll(9)
    with pytest.raises(TableError, match="is a file; what is watched is a directory"):
        watching(tmp_path / "a", None).poll(9)
    with pytest.raises(TableError, match="has no column 'm'"):
        watching(tmp_path, None, columns=("m",)).poll(9)


def test_later_files_may_have_columns_in_another_order_and_as_narrower_types(tmp_path: Path) -> None:
    for number, table in enumerate([{"n": [2**40], "word": ["a"]}, {"word": ["b"], "n": pa.array([1], pa.int8())}]):
        pq.write_table(pa.table(table), tmp_path / f"{number}")
        os.utime(tmp_path / f"{number}", (number, number))
    splits = watching(tmp_path, None).poll(9).splits
    batches = [batch for split in splits for batch in split.batches(9)]
    assert [batch.to_pylist() for batch in batches] == [[{"n": 2**40, "word": "a"}], [{"n": 1, "word": "b"}]]
    assert batches[0].schema == batches[1].schema


def test_a_prefix_of_object_storage_is_watched(s3_port: int) -> None:
    prefix = uuid4().hex
    place = uri_of(s3_port, f"results/{prefix}/")
    feed = WatchedFiles(place, TEXT)
    page = feed.poll(9)
    assert not page.splits
    client(s3_port).put_object(Bucket="results", Key=f"{prefix}/a", Body=b"1\n2\n")
    page = feed.poll(9, page.position)
    assert rows(page) == ["1", "2"]
    assert not feed.poll(9, page.position).splits
    client(s3_port).delete_object(Bucket="results", Key=f"{prefix}/a")
    with pytest.raises(TableError, match=rf"s3://results/{prefix}/a: no such file: it was removed") as failure:
        rows(page)
    assert "hidden" not in str(failure.value)


def test_a_split_can_be_read_with_all_columns(tmp_path: Path) -> None:
    put(tmp_path / "a", '{"a": 1, "b": 2}\n')
    [split] = watching(tmp_path, JSON, columns=("b",)).poll(9).splits
    assert table_of([split]).column_names == ["b"]
    assert table_of([whole(NumberedSplit(split, 0))]).to_pylist() == [{"a": 1, "b": 2}]
    assert whole(MemorySplit(pa.table({"a": [1]}))).rows == 1
