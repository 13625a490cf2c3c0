"""What lines and values give: each the same as if it were alone, wherever batches begin, and whatever it holds. And
directories and prefixes that are watched: what counts as a file, in which order, and what makes one an error."""

from __future__ import annotations

import os
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from csv_files import CSVS
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import TableError
from dpa.sources import lines, watched
from dpa.sources.feed import Page, table_of
from dpa.sources.kafka import RecordFormat
from dpa.sources.lines import LineFormat
from dpa.sources.records import Gaps, LineBlock
from dpa.sources.splits import MemorySplit, NumberedSplit, Split, whole
from dpa.sources.watched import Seen, WatchedFiles
from experiments.s3_server import client, uri_of

NOW = 1_000
TEXT, CSV, JSON = LineFormat("text"), LineFormat("csv", header=True), LineFormat("json")
LAX_CSV, LAX_JSON = replace(CSV, tolerates=True), replace(JSON, tolerates=True)
COLUMNS = pa.schema([("a", pa.int64()), ("s", pa.string())])

STRANGE = {
    b"null": "no object of JSON",
    b"5": "no object of JSON",
    b'"text"': "no object of JSON",
    b'[{"a": 1}]': "no object of JSON",
    b'{"a": 1} {"a": 2}': "it is 2 records",
    b'{"a": 1} null {"a": 2}': "it is 3 records",
    b'{"a": 1} 5 {"a": 2}': "changed from object to number",
    b'{"a": 1,': "no object of JSON",
    b'{"a": 1,}': "Missing a name for object member",
    b'{"s": "\xff"}': "byte 7 of it, 0xff, is not UTF-8",
    b'{"s": "\xc3': "no object of JSON",
    b'{"s": "\\ud800"}': "surrogate",
    b'{"a": 1}\0{"a": 2}': "a byte that is 0",
    b'{"a": 1, "a": 2}': "specified twice",
    b'{"a": "one"}': "changed from number to string",
    b'{"a": 99999999999999999999}': "couldn't parse",
    b'{"a": 1}//}': "Invalid value",
}
"""Records that are no object of JSON with these columns, and what is said of them."""

GOOD = {
    b'{"a": 1, "s": "x"}': {"a": 1, "s": "x"},
    b'  {"a": 2}\t': {"a": 2, "s": None},
    b"{}": {"a": None, "s": None},
    b'{"s": "}{", "b": [null, {"c": {}}]}': {"a": None, "s": "}{"},
    b'{"a": null, "s": "\\u0000"}': {"a": None, "s": "\0"},
    b'{"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}": {"a": None, "s": None},
    '{"s": "é"}'.encode(): {"a": None, "s": "é"},
}


class Message:
    """A record of Kafka."""

    def __init__(self, value: bytes | None, offset: int, key: bytes | None = None) -> None:
        self.values = {"value": value, "offset": offset, "key": key, "topic": "t", "partition": 0}
        self.values |= {"timestamp": (1, 7), "headers": None}

    def __getattr__(self, name: str) -> Any:
        return lambda: self.values[name]


def put(place: Path, text: str | bytes, time: float = 100) -> None:
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(place, (time, time))


def watching(directory: Path, format: LineFormat | None = TEXT, **more: Any) -> WatchedFiles:
    return WatchedFiles(str(directory), format, clock=lambda: NOW, **more)


def with_columns(place: Path, kind: LineFormat, columns: pa.Schema | None = COLUMNS) -> WatchedFiles:
    return watching(place, kind, declared=columns)


def read(feed: WatchedFiles, split_rows: int = 100) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table_of(feed.poll(split_rows).splits, feed.schema).to_pylist()
    return found


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_a_strange_record_of_json_is_left_out_wherever_it_comes(value: bytes, tmp_path: Path) -> None:
    for before, after in ((b"", b""), (b"", b"\n{}"), (b'{"a": 1}\n', b""), (b'{"a": 1}\n', b"\n{}")):
        put(tmp_path / "file", before + value + after)
        assert len(read(with_columns(tmp_path, LAX_JSON))) == bool(before) + bool(after)
        with pytest.raises(TableError) as failure:
            read(with_columns(tmp_path, JSON))
        assert f"/file, line {1 + bool(before)}: cannot be read as json: " in str(failure.value)
        assert STRANGE[value] in str(failure.value)
        values = [*filter(None, (before.strip(), value, after.strip()))]
        batch, unread = RecordFormat(value="json", columns=COLUMNS).batch(
            cast(Any, [Message(each, offset) for offset, each in enumerate(values)]), ["offset", "a"]
        )
        assert [*unread] == [values.index(value)] and STRANGE[value] in unread[values.index(value)].message
        assert batch["offset"].to_pylist() == [place for place, each in enumerate(values) if each != value]


@given(st.lists(st.sampled_from([*STRANGE, *GOOD, b"", b"  "]), max_size=12), st.integers(1, 12), st.booleans())
def test_what_a_record_gives_does_not_depend_on_those_beside_it(found: list[bytes], cut: int, returns: bool) -> None:
    due = [GOOD[value] for value in found if value in GOOD]
    end = b"\r" if returns else b"\n"
    rows = []
    for part in (found[:cut], found[cut:]):
        block = LineBlock(pa.py_buffer(end.join(part)))
        table, wrong = LAX_JSON.parsed(block, len(block), (), COLUMNS)
        assert table.num_rows + len(wrong) == len(block) and len(block) == sum(bool(value) for value in part)
        rows += table.to_pylist()
    assert rows == due
    messages = [Message(value, offset) for offset, value in enumerate(found)]
    batch, unread = RecordFormat(value="json", columns=COLUMNS).batch(cast(Any, messages), ["offset", "a", "s"])
    offsets = [place for place, value in enumerate(found) if value in GOOD]
    assert batch.to_pylist() == [{"offset": place, **GOOD[found[place]]} for place in offsets]
    assert sorted(unread) == [place for place, value in enumerate(found) if value not in GOOD]


def test_two_objects_in_a_value_and_an_empty_value_stay_with_their_offsets() -> None:
    values = [b'{"a": 1}', b'{"a": 2} {"a": 3}', b"", None, b'{"a": 4}']
    messages = [Message(value, offset, b"k%d" % offset) for offset, value in enumerate(values)]
    found, unread = RecordFormat(value="json", columns=COLUMNS).batch(cast(Any, messages), ["key", "offset", "a"])
    assert [(row["key"], row["offset"], row["a"]) for row in found.to_pylist()] == [
        (b"k0", 0, 1),
        (b"k3", 3, None),
        (b"k4", 4, 4),
    ]
    assert sorted(unread) == [1, 2] and unread[2].message.startswith(
        "partition 0 of the topic t, offset 2: cannot be read as declared: it is empty"
    )


def test_texts_of_kafka_that_are_none_are_named_and_read_again() -> None:
    kind = RecordFormat(key="string", value="string", tolerates=True)
    messages = [Message(b"a", 0, b"k"), Message(b"b", 1, b"\xff"), Message(b"\xff", 2), Message(None, 3, None)]
    found, unread = kind.batch(cast(Any, messages), ["offset"])
    assert found["offset"].to_pylist() == [0, 3] and sorted(unread) == [1, 2]
    mended = RecordFormat(key="bytes", value="string")
    row = mended.record(unread[1].data, pickle.loads(pickle.dumps(unread[1].about)))
    assert (row["key"], row["value"], row["offset"], row["topic"]) == (b"\xff", "b", 1, "t")
    with pytest.raises(ValueError, match=r"offset 2: .*is not UTF-8"):
        mended.record(unread[2].data, unread[2].about)


@pytest.mark.parametrize("name", CSVS)
def test_csv_has_one_dialect_wherever_splits_begin(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, due = CSVS[name]
    put(tmp_path / "file.csv", content)
    strict = CSV
    texts = pa.schema([("a", pa.string()), ("s", pa.string())])
    for declared in (None, texts):
        assert [tuple(row.values()) for row in read(with_columns(tmp_path, strict, declared))] == due
    for size in (1, 7):
        monkeypatch.setattr(lines, "_SPLIT_BYTES", size)
        assert [tuple(row.values()) for row in read(with_columns(tmp_path, strict, texts))] == due


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"1,2,3", "it has 3 values, and there are 2 columns"),
        (b'1,"2', "a quote is not closed in its line"),
        (b'1,"2"x', "quotes are around a part of a value"),
        (b'1,x"2"', "quotes are around a part of a value"),
        (b"one,2", "conversion error to int64: invalid value 'one'"),
    ],
)
def test_a_line_that_is_no_record_of_csv_is_left_out_or_named(line: bytes, why: str, tmp_path: Path) -> None:
    put(tmp_path / "file", b"a,s\n1,x\n" + line + b'\n2,"y"\n')
    assert read(with_columns(tmp_path, LAX_CSV)) == [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}]
    with pytest.raises(TableError, match=r"/file, line 3: cannot be read as csv: .*; it begins") as failure:
        read(with_columns(tmp_path, CSV))
    assert why in str(failure.value)
    put(tmp_path / "file", line + b"\n1,2\n")
    assert read(with_columns(tmp_path, replace(LAX_CSV, header=False))) == [{"a": 1, "s": "2"}]


def test_names_of_columns_are_as_spark_makes_them_and_each_header_says_where_they_are(tmp_path: Path) -> None:
    put(tmp_path / "file", b'x,X,,"p""q",caf\xe9\n1,2,3,4,5\n')
    feed = with_columns(tmp_path, CSV, None)
    assert feed.schema.names == ["x0", "X1", "_c2", 'p"q', "caf\ufffd"]
    assert [*read(feed)[0].values()] == ["1", "2", "3", "4", "5"]
    put(tmp_path / "file", b'"a"b,c\n')
    with pytest.raises(TableError, match="/file: its first line is none of CSV: "):
        _ = with_columns(tmp_path, CSV, None).schema
    put(tmp_path / "file", b"a,s\n1,x\n", 10)
    put(tmp_path / "other", b"s,a\ny,2\n", 20)
    assert read(with_columns(tmp_path, LAX_CSV)) == [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}]


def test_a_mark_of_utf8_is_one_at_the_start_of_a_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_SPLIT_BYTES", 4)
    put(tmp_path / "a", "\ufeffa,s\n1,2\n\ufeff3,\ufeff\n".encode())
    texts = pa.schema([("a", pa.string()), ("s", pa.string())])
    assert [row["a"] for row in read(with_columns(tmp_path, LAX_CSV, texts))] == ["1", "\ufeff3"]
    put(tmp_path / "a", '\ufeff{"a": 1}\n\ufeff{"a": 2}\n'.encode())
    assert [row["a"] for row in read(with_columns(tmp_path, LAX_JSON))] == [1]


def test_lines_that_are_left_out_are_gaps_with_their_bytes_and_places(tmp_path: Path) -> None:
    put(tmp_path / "file", b'{"a": 0}\nnull\n  \n{"a": 3}\n[4]\n\n{"a": 5}\n')
    [split] = with_columns(tmp_path, LAX_JSON).poll(100).splits
    assert split.rows == 6
    for skipped, due in ((0, [0, 3, 5]), (1, [3, 5]), (2, [3, 5]), (4, [5]), (5, [5])):
        gaps, rest = Gaps(), cast(Any, split.after(skipped))
        assert [n for batch in rest.batches(2, gaps) for n in batch["a"].to_pylist()] == due
        assert gaps.passed(len(due)) == 6 - skipped - len(due)
        places = {1: b"null", 4: b"[4]"}
        assert [(place + skipped, record.data) for place, record in gaps.unread] == [
            (place, data) for place, data in places.items() if place >= skipped
        ]
    assert "file, byte 27: cannot be read as json" in gaps.unread[-1][1].message if gaps.unread else True


def test_which_records_are_left_out_does_not_depend_on_the_columns_that_are_read(tmp_path: Path) -> None:
    put(tmp_path / "file", b'{"a": "no number", "s": "x"}\n{"a": 1, "s": "y"}\n')
    feed = with_columns(tmp_path, LAX_JSON)
    feed.columns = ("s",)
    assert table_of(feed.poll(9).splits).to_pylist() == [{"s": "y"}]


def test_the_columns_of_json_are_those_of_the_lines_that_are_objects(tmp_path: Path) -> None:
    put(tmp_path / "file", b'null\n[1]\n{"n": 1}\r{"m": {"x": "\xc3\xa9"}}\n{"n": 2}{"n": 3}\n{"p"')
    assert with_columns(tmp_path, LAX_JSON, None).schema == pa.schema(
        [("n", pa.int64()), ("m", pa.struct([("x", pa.string())]))]
    )
    put(tmp_path / "file", b"null\n5\n")
    with pytest.raises(TableError, match="its columns are not known"):
        _ = with_columns(tmp_path, LAX_JSON, None).schema


@pytest.mark.parametrize("kind", [TEXT, LAX_JSON, LAX_CSV], ids=lambda kind: str(kind.name))
def test_files_that_have_no_lines_of_utf8_are_refused_with_words(kind: LineFormat, tmp_path: Path) -> None:
    declared = None if kind.name == "text" else COLUMNS
    for name, content, why in (
        ("a.gz", b"a,s\n", "is compressed"),
        ("a.txt.ZST", b"", "is compressed"),
        ("a", b"\x1f\x8b\x08", "is compressed"),
        ("b", "a,s\n".encode("utf-16"), "is UTF-16"),
    ):
        put(tmp_path / name, content)
        with pytest.raises(TableError, match=f"/{name}: {why}, and is read as lines of UTF-8"):
            with_columns(tmp_path, kind, declared).poll(9)
        (tmp_path / name).unlink()


def test_files_from_before_1970_are_read(tmp_path: Path) -> None:
    put(tmp_path / "a", b'{"a": 1}\n', -86_400 * 365.0)
    put(tmp_path / "b", b'{"a": 2}\n', -1e-9)
    feed = with_columns(tmp_path, LAX_JSON)
    page = feed.poll(9)
    assert table_of(page.splits)["a"].to_pylist() == [1, 2]
    put(tmp_path / "c", b'{"a": 3}\n', -5)
    assert table_of(feed.poll(9, page.position).splits)["a"].to_pylist() == [3]


def test_a_record_of_some_megabytes_is_one_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_SPLIT_BYTES", 2**16)
    large = b"x" * 3_000_000
    put(tmp_path / "file", b'{"a": 1}\n{"s": "' + large + b'"}\n{"s": ' + large + b'}\n{"a": 2}\n')
    found = read(with_columns(tmp_path, LAX_JSON))
    assert [row["a"] for row in found] == [1, None, 2] and found[1]["s"] == large.decode()


def test_random_bytes_give_rows_or_are_left_out(tmp_path: Path) -> None:
    """Each line gives the same alone as among others, in both formats."""
    draw = random.Random(1)  # few: where there are many objects, Arrow takes long to raise an error
    pieces = [b"{", b"}", b'"', b"a", b":", b",", b"1", b"null", b"\xff", b"\r", b"\\", b" ", b"\0", b'{"a":1}']
    for number in range(60):
        some = [b"".join(draw.choices(pieces, k=draw.randrange(9))) for _ in range(6)]
        for kind, names in ((LAX_JSON, ()), (replace(LAX_CSV, header=False), ("a", "s"))):
            alone = []
            for line in some:
                block = LineBlock(pa.py_buffer(line))
                alone += kind.parsed(block, len(block), names, COLUMNS)[0].to_pylist()
            put(tmp_path / f"{kind.name}{number}", b"\n".join(some))
            feed = WatchedFiles(str(tmp_path), kind, COLUMNS, glob=f"{kind.name}{number}", clock=lambda: NOW)
            assert read(feed) == alone


def test_a_sample_is_of_the_rows_that_are_there(tmp_path: Path) -> None:
    put(tmp_path / "file", b"".join(b"null\n" if n % 3 else b'{"a": %d}\n' % n for n in range(300)))
    found = with_columns(tmp_path, LAX_JSON).sample(50, seed=1)["a"].to_pylist()
    assert found and found == sorted(found) and all(n % 3 == 0 for n in found)


def test_lines_are_found_where_pieces_end_within_their_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PIECE_BYTES", 3)
    put(tmp_path / "file", b"{}\r\n{}\r{}\n\r\n{}\r\n5\n")
    with pytest.raises(TableError, match="line 6: "):
        read(with_columns(tmp_path, JSON))


def test_an_earlier_split_is_still_one() -> None:
    """Checkpoints hold splits pickled without these attributes, by the names that the classes had."""
    kind = pickle.loads(pickle.dumps(JSON))
    del kind.__dict__["tolerates"]
    assert kind == JSON
    assert isinstance(lines.LinesSplit("", kind, (), COLUMNS, None, 0, 0, 0, 0), Split)


# --- what is watched


def put_parquet(place: Path, rows: int, time: float = 100, kind: pa.DataType | None = None, size: int = 2) -> None:
    pq.write_table(pa.table({"n": pa.array(range(rows), kind)}), place, row_group_size=size)
    os.utime(place, (time, time))


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


def test_what_cannot_be_watched_is_said(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no such directory: make it"):
        watching(tmp_path / "none").poll(9)
    with pytest.raises(TableError, match=r"holds no file that is complete, .* declare them in `columns`"):
        _ = watching(tmp_path, CSV).schema
    assert watching(tmp_path, CSV).poll(9).splits == ()
    put(tmp_path / "file", "a,b\n1,2\n")
    with pytest.raises(TableError, match=r"the header of \S+/file has no column 'c'"):
        rows(watching(tmp_path, CSV, declared=pa.schema({"c": pa.int64()})).poll(9), "c")
    (tmp_path / "file").unlink()
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
