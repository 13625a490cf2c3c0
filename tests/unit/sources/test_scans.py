"""CSV and JSON lines that polars reads in place."""

import bz2
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from csv_files import CSVS
from hypothesis import given
from hypothesis import strategies as st

from dpa import Flow, Job
from dpa.aggregates import Sum
from dpa.columns.arrow import held
from dpa.config.inputs import InputConfig
from dpa.errors import TableError
from dpa.sources import scans
from dpa.sources.files import FileTable, file_table
from dpa.sources.scans import ScanFormat, scan_file, scanned
from dpa.testing import LocalBackend

CSV, JSON = ScanFormat("csv"), ScanFormat("json")
TEXT = pa.large_string()


def table_of(place: Path, form: ScanFormat = CSV, declared: pa.Schema | None = None, **options: Any) -> FileTable:
    return scanned(file_table(lambda file: scan_file(file, form, declared), [str(place)], **options))


def put(place: Path, content: str | bytes) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_BLOCK_BYTES", 64)


KINDS = {
    "integers": ("1\n2\n", pa.int64(), [1, 2]),
    "numbers": ("1\n2.5\n", pa.float64(), [1.0, 2.5]),
    "numbers beyond int64": ("1\n99999999999999999999\n", pa.decimal128(38, 0), [1, 99999999999999999999]),
    "booleans": ("true\nfalse\n", pa.bool_(), [True, False]),
    "texts": ("a\n b \n", TEXT, ["a", " b "]),
    "numbers and texts": ("1\na\n", TEXT, ["1", "a"]),
    "booleans and numbers": ("true\n1\n", TEXT, ["true", "1"]),
    "dates": ("2024-01-01\n2024-01-02\n", TEXT, ["2024-01-01", "2024-01-02"]),
    "NaN": ("NaN\ninf\n", pa.float64(), None),
    "quoted numbers": ('"1"\n"2"\n', pa.int64(), [1, 2]),
    "no numbers in some blocks": ("\n" * 200 + "7\n", pa.int64(), [None] * 200 + [7]),
    "a number far behind": ("a\n" * 200 + "7\n", TEXT, ["a"] * 200 + ["7"]),
    "a fraction far behind": ("1\n" * 200 + "7.5\n", pa.float64(), [1.0] * 200 + [7.5]),
}


@pytest.mark.parametrize("case", KINDS)
def test_types_of_csv_hold_all_values_of_all_blocks(tmp_path: Path, case: str, small_blocks: None) -> None:
    content, kind, expected = KINDS[case]
    table = table_of(put(tmp_path / "a.csv", "n\n" + content))
    assert table.schema == pa.schema([("n", kind)])
    read = table.read()
    assert read.schema == table.schema
    assert expected is None or read["n"].to_pylist() == expected


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\0", exclude_categories=["Cs"]), max_size=12)


@given(rows=st.lists(st.tuples(st.integers(-9, 9), texts.filter(str.strip)), min_size=1, max_size=30))
def test_records_with_line_ends_in_quotes_are_whole_in_whatever_blocks(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]]
) -> None:
    place = tmp_path_factory.mktemp("quoted") / "a.csv"
    quoted = (text.replace('"', '""') for _, text in rows)
    place.write_text(
        "n,t\n" + "".join(f'{n},"{text}"\n' for (n, _), text in zip(rows, quoted, strict=True)), newline=""
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scans, "_BLOCK_BYTES", 16)
        table = table_of(place, declared=pa.schema([("n", pa.int64()), ("t", TEXT)]))
        splits = table.splits(3)
        found = [tuple(row.values()) for split in splits for batch in split.batches(2) for row in batch.to_pylist()]
        assert found == rows
        assert table.rows == len(rows) == sum(split.rows for split in splits)


def test_json_lines_have_the_fields_of_all_records_of_all_files(tmp_path: Path, small_blocks: None) -> None:
    put(tmp_path / "a.jsonl", '{"a":1,"in":{"x":1}}\n{"a":2.5}\n' + '{"a":1}\n' * 50 + '{"b":"late","in":{"y":[1]}}')
    put(tmp_path / "b.jsonl", '{"c":null,"a":7}\r\n')
    table = table_of(tmp_path, JSON)
    assert table.schema.names == ["a", "in", "b", "c"]
    assert [table.schema.field(name).type for name in ("a", "b", "c")] == [pa.float64(), TEXT, TEXT]
    rows = table.read().to_pylist()
    assert rows[0] == {"a": 1.0, "in": {"x": 1, "y": None}, "b": None, "c": None}
    assert rows[-2] == {"a": None, "in": {"x": None, "y": [1]}, "b": "late", "c": None}
    assert rows[-1] == {"a": 7.0, "in": None, "b": None, "c": None}


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(("ending", "packed"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd)])
def test_compressed_files_are_a_split_each(
    tmp_path: Path, ending: str, packed: Callable[[bytes], bytes], small_blocks: None
) -> None:
    content = "n,word\n" + "".join(f"{n},w{n % 3}\n" for n in range(100))
    table = table_of(put(tmp_path / f"a.csv{ending}", packed(content.encode())))
    [split] = table.splits(10)
    assert table.read()["n"].to_pylist() == [*range(100)]
    assert [row for batch in split.after(97).batches(2) for row in batch["n"].to_pylist()] == [97, 98, 99]


OPTIONS: dict[str, tuple[dict[str, str], str, list[dict[str, Any]]]] = {
    "no header": ({"header": "false"}, "1,a\n", [{"_c0": 1, "_c1": "a"}]),
    "a separator": ({"sep": ";"}, "a;b\n1;2,5\n", [{"a": 1, "b": "2,5"}]),
    "a delimiter": ({"Delimiter": "\t"}, "a\tb\n1\t2\n", [{"a": 1, "b": 2}]),
    "a quote": ({"quote": "'"}, "a,b\n'1,5',2\n", [{"a": "1,5", "b": 2}]),
    "no quote": ({"quote": ""}, 'a\n"x\n', [{"a": '"x'}]),
    "a null": ({"nullValue": "NA"}, "a,b\nNA,\n1,x\n", [{"a": None, "b": None}, {"a": 1, "b": "x"}]),
    "a comment": ({"comment": "#"}, "# first\na\n# second\n1\n", [{"a": 1}]),
    "no types": ({"inferSchema": "false"}, "a\n1\n", [{"a": "1"}]),
    "nothing": ({}, '\ufeffa,,"c ""d""",a\n1,2,3,4\n', [{"a0": 1, "_c1": 2, 'c "d"': 3, "a3": 4}]),
    "a header alone": ({}, "a,b\n", []),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options_are_named_as_sparks_are(tmp_path: Path, case: str) -> None:
    options, content, rows = OPTIONS[case]
    assert table_of(put(tmp_path / "a.csv", content), ScanFormat.of("csv", options)).read().to_pylist() == rows


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"options": {"dateFormat": "y"}}, "csv that is read in place has no option 'dateFormat': give one of header,"),
        ({"options": {"sep": "||"}}, "`separator` of CSV that is read in place is one character of ASCII"),
        ({"where": "a > 1"}, "`select` and `where` are Spark's"),
        ({"watch": {}, "format": "csv"}, "leave `in_place` out"),
        ({"in_place": False, "columns": {"a": "int64"}}, "`columns` are of files that are read with `in_place: true`"),
    ],
)
def test_what_cannot_be_read_in_place_is_said(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InputConfig(**{"path": "a.csv", "in_place": True, **keys})
    assert InputConfig(path="a.csv", format="csv", in_place=True).options == {"header": "true", "inferSchema": "true"}


def test_declared_columns_are_read_alone_by_their_names(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "when,n,more\n2024-01-02,1.50,x\n,,y\n")
    put(tmp_path / "b.csv", "n,when\n2,2024-01-03\n")
    declared = pa.schema([("n", pa.decimal128(5, 2)), ("when", pa.date32())])
    table = table_of(tmp_path, declared=declared)
    assert table.schema == declared
    assert [tuple(map(str, row.values())) for row in table.read().to_pylist()] == [
        ("1.50", "2024-01-02"),
        ("None", "None"),
        ("2.00", "2024-01-03"),
    ]
    with pytest.raises(TableError, match=r"the header of .*a\.csv has no column 'm' \(it has when, n, more\)"):
        table_of(tmp_path, declared=pa.schema([("m", pa.int64())]))
    table = table_of(tmp_path / "b.csv", replace(CSV, header=False), pa.schema([("x", TEXT), ("y", TEXT)]))
    assert table.read().to_pylist()[0] == {"x": "n", "y": "when"}
    table = table_of(put(tmp_path / "c.csv", "n\n1\nx\n"), declared=pa.schema([("n", pa.int64())]))
    with pytest.raises(TableError, match=r"c\.csv: bytes 2 to 6 cannot be read as csv: could not parse `x` .* column"):
        table.read()


def test_csv_files_go_together_by_their_headers_with_the_types_of_all(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "a,b\n1,x\n")
    put(tmp_path / "b.csv", "b,a\n7,2.5\n")
    table = table_of(tmp_path)
    assert table.read().to_pylist() == [{"a": 1.0, "b": "x"}, {"a": 2.5, "b": "7"}]
    put(tmp_path / "c.csv", "a\n3\n")
    with pytest.raises(TableError, match=r"column 'b' is large_string in .*a\.csv and missing in .*c\.csv: with"):
        table_of(tmp_path).splits(10)
    assert table_of(tmp_path, allow_missing=True).read().to_pylist()[2] == {"a": 3.0, "b": None}


OTHERWISE: dict[str, list[tuple[str | None, ...]]] = {
    "empty values": [("", "x"), (None, "x"), (None, "")],
    "blank lines": [(None, None), ("  ", None), ("1", "2"), ("\t", None), (None, None), ("\x01\x0b", None), ("3", "4")],
}
"""What is read of files of which Spark reads other rows."""

WITH_RETURNS = ("CR", "CR after the header", "all ends")


@pytest.mark.parametrize("name", CSVS)
def test_strange_csv_is_read_as_by_spark_but_for_what_is_documented(tmp_path: Path, name: str) -> None:
    content, due = CSVS[name]
    place = put(tmp_path / "a.csv", content)
    form = ScanFormat.of("csv", {"inferSchema": "false"})
    if name in WITH_RETURNS:
        with pytest.raises(TableError, match="cannot be read as csv"):
            table_of(place, form)
        return
    found = [tuple(row.values()) for row in table_of(place, form).read().to_pylist()]
    assert found == OTHERWISE.get(name, due)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", "a,b\n1,2,3\n", r"bytes \d to \d+ cannot be read as csv: .*found more fields"),
        ("a.csv", 'a,b\n1,"x\n', r"bytes \d to \d+ cannot be read as csv: .*could not parse"),
        ("a.csv", 'a,b\n1,"x"y\n', r"bytes \d to \d+ cannot be read as csv: .*(could not parse|malformed)"),
        ("a.csv.xz", "", r"in place files are read that end with \.gz, \.bz2, \.zst, not \.xz"),
        ("a.json", '{"a":1}\n{bad\n', r"bytes 0 to \d+ cannot be read as json: "),
        (
            "a.json",
            '{"a":1}\n' * 8 + '{"a":{"x":1}}\n' * 20,
            "column 'a' has values of types int64 and struct<x: int64>: declare",
        ),
    ],
    ids=["too many values", "an open quote", "a quote within", "packed otherwise", "no JSON", "no common type"],
)
def test_a_file_that_is_none_of_its_format_is_named(
    tmp_path: Path, name: str, content: str, reason: str, small_blocks: None
) -> None:
    with pytest.raises(TableError, match=rf"{re.escape(name)}: {reason}"):
        table_of(put(tmp_path / name, content), JSON if name == "a.json" else CSV)


def test_short_records_and_blank_lines_end_with_nulls_and_count_without_any_column(tmp_path: Path) -> None:
    table = table_of(put(tmp_path / "a.csv", "a,b\n1\n\n2,\n"))
    assert [(row["a"], row["b"]) for row in table.read().to_pylist()] == [(1, None), (None, None), (2, None)]
    counted = replace(table, columns=())
    assert [batch.num_rows for split in counted.splits(10) for batch in split.batches(10)] == [3]


def test_a_file_that_changes_while_the_job_runs_is_named(tmp_path: Path) -> None:
    place = put(tmp_path / "a.csv", "a\n1\n")
    [split] = table_of(place).splits(10)
    put(place, "a\n1\n2\n")
    with pytest.raises(TableError, match=r"a\.csv: was changed while the job was running: it has 6 bytes"):
        next(split.batches(10))
    place.unlink()
    with pytest.raises(TableError, match=r"a\.csv: no such file: it was removed while the job was running, or"):
        next(split.batches(10))


def test_a_flow_reads_csv_and_json_without_spark(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "word,n\na,1\nb,2\na,3\n")
    (tmp_path / "a.json").write_text("".join(json.dumps({"word": word, "n": 10}) + "\n" for word in "abc"))
    flow = Flow("scans")
    rows = flow.read(tmp_path / "a.csv", in_place=True)
    rows.union(flow.read(tmp_path / "a.json", in_place=True, schema={"word": "string", "n": "int64"})).key_by(
        "word"
    ).reduce(Sum("n"))
    found = flow.run(backend=LocalBackend(), check=False).table().to_pylist()
    assert sorted((row["word"], row["n"]) for row in found) == [("a", 14), ("b", 12), ("c", 10)]


@pytest.mark.parametrize("form", [CSV, JSON], ids=["CSV", "JSON"])
def test_a_split_is_a_query_too(tmp_path: Path, form: ScanFormat) -> None:
    rows = [{"n": number, "word": f"w{number}", "x": number / 2} for number in range(50)]
    lines = [json.dumps(row) if form is JSON else ",".join(map(str, row.values())) for row in rows]
    put(tmp_path / "a", "\n".join(["n,word,x", *lines] if form is CSV else lines))
    [split] = replace(table_of(tmp_path, form), columns=("word", "n")).splits(100)
    scan = split.after(20).scan()
    assert scan is not None and scan.frame.collect_schema() == held(scan.schema)
    found: list[Any] = []
    while scan.parts:
        (number, rest), first = scan.begun(3), scan.first
        found, scan = [*found, *scan.frame.slice(first, number).collect().rows()], rest
    assert found == [tuple(row.values()) for batch in split.after(20).batches(7) for row in batch.to_pylist()]
    assert len(found) == 30
    assert replace(split, columns=()).scan() is None


@pytest.mark.parametrize("given", [str, Path, lambda path: {"path": str(path)}], ids=["text", "path", "section"])
def test_a_job_reads_a_path_as_a_flow_does(tmp_path: Path, given: Any) -> None:
    pq.write_table(pa.table({"word": ["a", "b", "a"]}), tmp_path / "words.parquet")
    found = Job(input=given(tmp_path / "words.parquet"), key="word", reducer="count").run(backend=LocalBackend())
    assert sorted(map(tuple, found.table().to_pandas().itertuples(index=False))) == [("a", 2), ("b", 1)]
