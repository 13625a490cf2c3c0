"""What lines and values give: each the same as if it were alone, wherever batches begin, and whatever it holds."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from csv_files import CSVS
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import TableError
from dpa.sources import lines
from dpa.sources.feed import table_of
from dpa.sources.kafka import RecordFormat
from dpa.sources.lines import LineFormat
from dpa.sources.records import Gaps, LineBlock
from dpa.sources.splits import Split
from dpa.sources.watched import WatchedFiles

NOW = 1_000
JSON, CSV = LineFormat("json", tolerates=True), LineFormat("csv", header=True, tolerates=True)
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


def put(place: Path, data: bytes, time: float = 100) -> None:
    place.write_bytes(data)
    os.utime(place, (time, time))


def watching(place: Path, kind: LineFormat, declared: pa.Schema | None = COLUMNS) -> WatchedFiles:
    return WatchedFiles(str(place), kind, declared, clock=lambda: NOW)


def read(feed: WatchedFiles, split_rows: int = 100) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table_of(feed.poll(split_rows).splits, feed.schema).to_pylist()
    return found


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_a_strange_record_of_json_is_left_out_wherever_it_comes(value: bytes, tmp_path: Path) -> None:
    for before, after in ((b"", b""), (b"", b"\n{}"), (b'{"a": 1}\n', b""), (b'{"a": 1}\n', b"\n{}")):
        put(tmp_path / "file", before + value + after)
        assert len(read(watching(tmp_path, JSON))) == bool(before) + bool(after)
        with pytest.raises(TableError) as failure:
            read(watching(tmp_path, LineFormat("json")))
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
        table, wrong = JSON.parsed(block, len(block), (), COLUMNS)
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
def test_csv_is_of_one_dialect_wherever_splits_begin(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, due = CSVS[name]
    put(tmp_path / "file.csv", content)
    strict = LineFormat("csv", header=True)
    texts = pa.schema([("a", pa.string()), ("s", pa.string())])
    for declared in (None, texts):
        assert [tuple(row.values()) for row in read(watching(tmp_path, strict, declared))] == due
    for size in (1, 7):
        monkeypatch.setattr(lines, "_SPLIT_BYTES", size)
        assert [tuple(row.values()) for row in read(watching(tmp_path, strict, texts))] == due


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
    assert read(watching(tmp_path, CSV)) == [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}]
    with pytest.raises(TableError, match=r"/file, line 3: cannot be read as csv: .*; it begins") as failure:
        read(watching(tmp_path, LineFormat("csv", header=True)))
    assert why in str(failure.value)
    put(tmp_path / "file", line + b"\n1,2\n")
    assert read(watching(tmp_path, LineFormat("csv", tolerates=True))) == [{"a": 1, "s": "2"}]


def test_names_of_columns_are_as_spark_makes_them(tmp_path: Path) -> None:
    put(tmp_path / "file", b'x,X,,"p""q",caf\xe9\n1,2,3,4,5\n')
    feed = watching(tmp_path, LineFormat("csv", header=True), None)
    assert feed.schema.names == ["x0", "X1", "_c2", 'p"q', "caf\ufffd"]
    assert [*read(feed)[0].values()] == ["1", "2", "3", "4", "5"]
    put(tmp_path / "file", b'"a"b,c\n')
    with pytest.raises(TableError, match="/file: its first line is none of CSV: "):
        _ = watching(tmp_path, LineFormat("csv", header=True), None).schema


def test_each_header_says_where_the_columns_of_its_file_are(tmp_path: Path) -> None:
    put(tmp_path / "1", b"a,s\n1,x\n", 10)
    put(tmp_path / "2", b"s,a\ny,2\n", 20)
    assert read(watching(tmp_path, CSV)) == [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}]


def test_a_mark_of_utf8_is_one_at_the_beginning_of_a_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_SPLIT_BYTES", 4)
    put(tmp_path / "a", "\ufeffa,s\n1,2\n\ufeff3,\ufeff\n".encode())
    texts = pa.schema([("a", pa.string()), ("s", pa.string())])
    assert [row["a"] for row in read(watching(tmp_path, CSV, texts))] == ["1", "\ufeff3"]
    put(tmp_path / "a", '\ufeff{"a": 1}\n\ufeff{"a": 2}\n'.encode())
    assert [row["a"] for row in read(watching(tmp_path, JSON))] == [1]


def test_lines_that_are_left_out_are_gaps_with_their_bytes_and_places(tmp_path: Path) -> None:
    put(tmp_path / "file", b'{"a": 0}\nnull\n  \n{"a": 3}\n[4]\n\n{"a": 5}\n')
    [split] = watching(tmp_path, JSON).poll(100).splits
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
    feed = watching(tmp_path, JSON)
    feed.columns = ("s",)
    assert table_of(feed.poll(9).splits).to_pylist() == [{"s": "y"}]


def test_the_columns_of_json_are_those_of_the_lines_that_are_objects(tmp_path: Path) -> None:
    put(tmp_path / "file", b'null\n[1]\n{"n": 1}\r{"m": {"x": "\xc3\xa9"}}\n{"n": 2}{"n": 3}\n{"p"')
    assert watching(tmp_path, JSON, None).schema == pa.schema(
        [("n", pa.int64()), ("m", pa.struct([("x", pa.string())]))]
    )
    put(tmp_path / "file", b"null\n5\n")
    with pytest.raises(TableError, match="its columns are not known"):
        _ = watching(tmp_path, JSON, None).schema


@pytest.mark.parametrize("kind", [LineFormat("text"), JSON, CSV], ids=lambda kind: str(kind.name))
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
            watching(tmp_path, kind, declared).poll(9)
        (tmp_path / name).unlink()


def test_files_from_before_1970_are_read(tmp_path: Path) -> None:
    put(tmp_path / "a", b'{"a": 1}\n', -86_400 * 365.0)
    put(tmp_path / "b", b'{"a": 2}\n', -1e-9)
    feed = watching(tmp_path, JSON)
    page = feed.poll(9)
    assert table_of(page.splits)["a"].to_pylist() == [1, 2]
    put(tmp_path / "c", b'{"a": 3}\n', -5)
    assert table_of(feed.poll(9, page.position).splits)["a"].to_pylist() == [3]


def test_a_record_of_some_megabytes_is_one_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_SPLIT_BYTES", 2**16)
    large = b"x" * 3_000_000
    put(tmp_path / "file", b'{"a": 1}\n{"s": "' + large + b'"}\n{"s": ' + large + b'}\n{"a": 2}\n')
    found = read(watching(tmp_path, JSON))
    assert [row["a"] for row in found] == [1, None, 2] and found[1]["s"] == large.decode()


def test_random_bytes_give_rows_or_are_left_out(tmp_path: Path) -> None:
    """Each line gives the same alone as among others, in both formats."""
    draw = random.Random(1)  # few: where there are many objects, Arrow takes long to raise an error
    pieces = [b"{", b"}", b'"', b"a", b":", b",", b"1", b"null", b"\xff", b"\r", b"\\", b" ", b"\0", b'{"a":1}']
    for number in range(60):
        some = [b"".join(draw.choices(pieces, k=draw.randrange(9))) for _ in range(6)]
        for kind, names in ((JSON, ()), (LineFormat("csv", tolerates=True), ("a", "s"))):
            alone = []
            for line in some:
                block = LineBlock(pa.py_buffer(line))
                alone += kind.parsed(block, len(block), names, COLUMNS)[0].to_pylist()
            put(tmp_path / f"{kind.name}{number}", b"\n".join(some))
            feed = WatchedFiles(str(tmp_path), kind, COLUMNS, glob=f"{kind.name}{number}", clock=lambda: NOW)
            assert read(feed) == alone


def test_a_sample_is_of_the_rows_that_are_there(tmp_path: Path) -> None:
    put(tmp_path / "file", b"".join(b"null\n" if n % 3 else b'{"a": %d}\n' % n for n in range(300)))
    found = watching(tmp_path, JSON).sample(50, seed=1)["a"].to_pylist()
    assert found and found == sorted(found) and all(n % 3 == 0 for n in found)


def test_lines_are_found_where_pieces_end_between_return_and_newline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "PIECE_BYTES", 3)
    put(tmp_path / "file", b"{}\r\n{}\r{}\n\r\n{}\r\n5\n")
    with pytest.raises(TableError, match="line 6: "):
        read(watching(tmp_path, LineFormat("json")))


def test_an_earlier_split_is_still_one() -> None:
    """Checkpoints hold splits pickled without these attributes, by the names that the classes had."""
    kind = pickle.loads(pickle.dumps(LineFormat("json")))
    del kind.__dict__["tolerates"]
    assert kind == LineFormat("json")
    assert isinstance(lines.LinesSplit("", kind, (), COLUMNS, None, 0, 0, 0, 0), Split)
