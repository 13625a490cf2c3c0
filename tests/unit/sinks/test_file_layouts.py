"""Results as files of every format and layout: which types they hold, what other readers find, what is refused."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from dpa.errors import ConfigError, TableError
from dpa.sinks._layout import FileLayout
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.encodings import ENCODINGS, Encoding
from dpa.sinks.objects import ResultFiles
from dpa.sinks.reading import published
from dpa.sinks.sink import Target
from dpa.sources.paths import data_files
from tests.unit.output_samples import job, of, publication, publishing

PARQUET, CSV, JSON = ENCODINGS

UTC = dt.timezone.utc
AT = dt.datetime(2026, 1, 31, 12, 30, 0, 123456)

READS_NULL_LISTS = int(pa.__version__.partition(".")[0]) >= 26
"""Arrow 25, the last for Python 3.10, writes null lists of a fixed size to Parquet, and cannot read them."""

COLUMNS = {
    "bool": pa.array([True, None]),
    "int8": pa.array([-128, None], pa.int8()),
    "uint16": pa.array([2**16 - 1, None], pa.uint16()),
    "int64": pa.array([-(2**63), 2**63 - 1]),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
    "half": pa.array([0.5, None], pa.float16()),
    "float": pa.array([0.1, None], pa.float32()),
    "double": pa.array([1e300, -0.0]),
    "text": pa.array(["", None]),
    "odd text": pa.array(['a "quote", a\nline\r', "\t\\ü,'"]),
    "large text": pa.array(["007", "null"], pa.large_string()),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "date64": pa.array([86_400_000, None], pa.date64()),
    "time": pa.array([dt.time(23, 59, 59, 999_999), None]),
    "time32": pa.array([1_001, None], pa.time32("ms")),
    "seconds": pa.array([1_769_862_600, None], pa.timestamp("s")),
    "local": pa.array([AT, None]),
    "nanoseconds": pa.array([1_769_862_600_123_456_789, None], pa.timestamp("ns", "America/New_York")),
    "two o'clock twice": pa.array([1_698_537_600_000_000, 1_698_541_200_000_000], pa.timestamp("us", "Europe/Berlin")),
    "decimal": pa.array([Decimal("-123.450"), None], pa.decimal128(10, 3)),
    "wide decimal": pa.array([Decimal("9" * 38), None], pa.decimal128(38, 0)),
    "nothing": pa.nulls(2),
    # and what a line of CSV has no field for
    "list": pa.array([[1, None], []], pa.list_(pa.int8())),
    "fixed": pa.array([[1, 2], None if READS_NULL_LISTS else [3, 4]], pa.list_(pa.int32(), 2)),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int16())),
    "struct": pa.array(
        [{"day": dt.date(2026, 1, 31), "at": AT.replace(tzinfo=UTC), "cents": [Decimal("1.50")]}, None],
        pa.struct([("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("cents", pa.list_(pa.decimal128(9, 2)))]),
    ),
}
INFINITE = pa.array([float("nan"), float("-inf")])
REFUSED = {
    "binary": pa.array([b"\xff", None]),
    "duration": pa.array([dt.timedelta(1), None]),
    "map by number": pa.array([[(1, 1)], None], pa.map_(pa.int64(), pa.int64())),
    "list of times": pa.array([[dt.time(1)], None]),
}


def written(directory: Path, layout: FileLayout, *shares: pa.Table) -> pa.Table:
    """What is published of the rows that tasks have staged; what is staged is the same."""
    sink = ResultDirectory(Target(str(directory), "overwrite"), layout)
    sink.begin()
    try:
        staged = [sink.stage(rows, task, 1) for task, rows in enumerate(shares)]
        before = sink.read(staged)
        files = sink.commit(staged, 1, 0.5, is_last=True)
        after = sink.read(files)
    finally:
        sink.abort()
    found = published(directory)
    assert after.schema.equals(before.schema)
    assert found.schema.equals(before.schema)
    assert sorted(map(repr, before.to_pylist())) == sorted(map(repr, after.to_pylist()))
    assert repr(found.to_pylist()) == repr(after.to_pylist())
    return found


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("single_file", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda each: each.name)
def test_rows_of_every_type_are_read_back_as_they_were(
    encoding: Encoding, single_file: bool, compression: str, tmp_path: Path
) -> None:
    is_flat = encoding is CSV
    known = {name: values for name, values in COLUMNS.items() if not (is_flat and pa.types.is_nested(values.type))}
    rows = pa.table({**known, **({} if encoding is JSON else {"infinite": INFINITE})})
    found = written(
        tmp_path / "out", FileLayout(encoding, compression, single_file=single_file), rows.slice(0, 1), rows
    )
    widened = {"seconds": pa.timestamp("ms"), "date64": pa.date32()} if not (encoding.is_text) or single_file else {}
    expected = pa.concat_tables([rows.slice(0, 1), rows])
    for name, kind in widened.items():  # Parquet has no such types
        at = expected.column_names.index(name)
        expected = expected.set_column(at, name, expected[name].cast(kind))
    assert found.schema.equals(expected.schema)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert len([*(tmp_path / "out").glob(f"part-*{encoding.ending_of(compression)}")]) == (1 if single_file else 2)


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_polars_reads_what_was_written(compression: str, tmp_path: Path) -> None:
    rows = pa.table({"n": [1, None, -3], "text": ["", None, 'a "b",\nc'], "day": [dt.date(2026, 1, 31), None, None]})
    frame = pl.DataFrame(pl.from_arrow(rows))
    for encoding, read in ((CSV, pl.read_csv), (JSON, pl.read_ndjson), (PARQUET, pl.read_parquet)):
        for single_file in (False, True):
            place = tmp_path / f"{encoding.name}{single_file}"
            written(place, FileLayout(encoding, compression, single_file=single_file), rows)
            part = place / f"part-00000{encoding.ending_of(compression)}"
            found = read(part) if encoding is PARQUET else read(part, schema=frame.schema)
            assert found.equals(frame)


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_that_no_text_stands_for_is_refused_before_there_are_rows(name: str, tmp_path: Path) -> None:
    columns = pa.schema([("key", pa.string()), (name, REFUSED[name].type)])
    for encoding in (CSV, JSON):
        sink = ResultDirectory(Target(str(tmp_path / "out")), FileLayout(encoding))
        with pytest.raises(TableError, match=f"column '{name}' is .*, which {encoding.name} cannot hold: convert it"):
            sink.expect(columns)
    ResultDirectory(Target(str(tmp_path / "out"))).expect(columns)


@pytest.mark.parametrize(
    "values",
    [
        INFINITE,
        pa.array([[{"x": 1.0}, {"x": float("inf")}]]),
        pa.array([[("a", float("nan"))]], pa.map_(pa.string(), pa.float32())),
    ],
)
def test_numbers_that_json_lacks_fail_the_job_and_leave_nothing(values: pa.Array, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="'x' has a number that is infinite or NaN, which JSON cannot"):
        written(tmp_path / "out", FileLayout(JSON), pa.table({"x": values}))
    assert [*tmp_path.iterdir()] == []


# --- directories of partitions

ODD = [
    *("a/b", "x=y", "ü ö", "50%", "a:b", "q'\"", "*?[x]{}", "\n\x01", "null", "007", ".", "..", "#^\\"),
    *("a+b&c", "true", None),
]


def test_odd_values_and_null_come_back_from_names_of_directories(tmp_path: Path) -> None:
    rows = pa.table({"n": range(len(ODD)), "k": ODD, "day": [dt.date(2026, 1, 31), None] * (len(ODD) // 2)})
    found = written(tmp_path / "out", FileLayout(partition_by=("k", "day")), rows.slice(0, 5), rows.slice(5))
    assert found.schema.equals(rows.schema)
    assert found.sort_by("n").to_pylist() == rows.to_pylist()
    kinds = pl.DataFrame(rows.select(["k", "day"])).schema
    by_polars = pl.scan_parquet(tmp_path / "out", hive_partitioning=True, hive_schema=kinds, hidden_file_prefix="_")
    assert by_polars.select(rows.column_names).sort("n").collect().rows() == pl.DataFrame(rows).rows()


@pytest.mark.parametrize(
    "values",
    [
        pa.array([-7, None], pa.int8()),
        pa.array([2**64 - 1, 0], pa.uint64()),
        pa.array([True, False]),
        pa.array(["a", "b"], pa.large_string()),
    ],
)
@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda each: each.name)
def test_partitions_keep_their_types_in_every_format(encoding: Encoding, values: pa.Array, tmp_path: Path) -> None:
    rows = pa.table({"p = 1/2": values, "n": [1, 2]})
    found = written(tmp_path / "out", FileLayout(encoding, partition_by=("p = 1/2",)), rows)
    assert found.schema.equals(rows.schema)
    assert found.sort_by("n").to_pylist() == rows.to_pylist()


def test_a_task_writes_a_hot_partition_with_one_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, write = [0], Encoding.__subclasses__()[0].writing

    def counted(self: Encoding, *given: object) -> object:
        opened = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink() and path.exists()]
        most[0] = max(most[0], sum(tmp_path in path.parents for path in opened if path.suffix == ".parquet"))
        return write(self, *given)

    monkeypatch.setattr(type(PARQUET), "writing", counted)
    rows = pa.table({"p": ["hot"] * 5 + [f"{at}" for at in range(300)], "n": range(305)})
    written(tmp_path / "out", FileLayout(partition_by=("p",)), rows, rows)
    assert len([*(tmp_path / "out" / "p=hot").iterdir()]) == 2
    assert most == [1]


def test_columns_and_texts_that_cannot_be_partitions_are_refused(tmp_path: Path) -> None:
    for by, said in (
        (("x",), "`partition_by` names 'x', and the result has p, n"),
        (("n",), "takes texts, integers, booleans and dates, and column 'n' is double"),
        (("p", "n"), "takes texts"),
    ):
        sink = ResultDirectory(Target(str(tmp_path / "out")), FileLayout(partition_by=by))
        with pytest.raises(TableError, match=said):
            sink.expect(pa.schema([("p", pa.string()), ("n", pa.float64())]))
    layout = FileLayout(partition_by=("p",))
    with pytest.raises(TableError, match="names all columns of the result, so files would have none: leave one out"):
        written(tmp_path / "out", layout, pa.table({"p": ["a"]}))
    for text in ("", "__HIVE_DEFAULT_PARTITION__"):
        why = f"column 'p' has the text '{text}', for which there is no directory's name"
        with pytest.raises(TableError, match=why):
            written(tmp_path / "out", layout, pa.table({"p": ["a", text], "n": [1, 2]}))
    assert [*tmp_path.iterdir()] == []


def test_a_result_of_another_layout_is_replaced_as_a_whole_and_strangers_in_it_are_not(tmp_path: Path) -> None:
    rows = pa.table({"p": ["a", "b"], "n": [1, 2]})
    for layout in (
        FileLayout(partition_by=("p",)),
        FileLayout(CSV),
        FileLayout(JSON, partition_by=("n",)),
        FileLayout(single_file=True),
    ):
        written(tmp_path / "out", layout, rows)
    assert sorted(each.name for each in (tmp_path / "out").rglob("*")) == ["_job.yaml", "part-00000.parquet"]
    written(tmp_path / "out", FileLayout(partition_by=("p",)), rows)
    (tmp_path / "out" / "p=a" / "mine.txt").touch()
    with pytest.raises(TableError, match="holds p=a, no file of a result"):
        written(tmp_path / "out", FileLayout(CSV), rows)
    assert (tmp_path / "out" / "p=a" / "part-00000.parquet").exists()


def test_a_later_job_reads_of_partitions_what_the_manifest_names(tmp_path: Path) -> None:
    sink = publishing(ResultFiles(Target(str(tmp_path / "out")), FileLayout(partition_by=("p",))), "final")
    sink.begin()
    rows = pa.table({"p": ["a", "b"], "n": [1, 2]})
    named = sink.commit([sink.stage(rows, 0, 1)], 1, 0.5)
    sink.stage(rows, 0, 2)
    assert len([*(tmp_path / "out").rglob("*.parquet")]) == 4
    found = data_files(str(tmp_path / "out"), recursive=True)
    assert [file.path for file in found] == sorted(str(tmp_path / "out" / name) for name in named or ())
    sink.abort()
    assert len([*(tmp_path / "out").rglob("*.parquet")]) == 2


# --- in job files


@pytest.mark.parametrize(
    ("path", "layout"),
    [
        ("x", FileLayout(PARQUET)),
        ("x.csv", FileLayout(CSV)),
        ("x.CSV.gz", FileLayout(CSV, "gzip")),
        ("x.jsonl.zst", FileLayout(JSON, "zstd")),
        ("x.ndjson", FileLayout(JSON)),
        ("x.parquet", FileLayout(PARQUET)),
        ("x.1", FileLayout(PARQUET)),
    ],
)
def test_the_ending_of_a_path_says_the_format_unless_it_is_given(path: str, layout: FileLayout, tmp_path: Path) -> None:
    assert publication(job(tmp_path / path)).sink._layout == layout
    given = of({"output": {"path": str(tmp_path / path), "format": "json", "compression": "gzip"}})
    assert publication(given).sink._layout == FileLayout(JSON, "gzip")
    zipped = of({"output": {"path": str(tmp_path / "x.csv.gz"), "format": "csv"}})
    assert publication(zipped).sink._layout == FileLayout(CSV, "gzip")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"format": "cvs"}, "output.format"),
        ({"format": ["csv"]}, "output.format"),
        ({"compresion": "gzip"}, "compresion.*did you mean 'compression'"),
        ({"compression": "gzp"}, "output.compression"),
        ({"path": "x.tsv"}, r"no \.tsv is written: give `format`, or a path that ends in \.parquet, \.csv or \.jsonl"),
        (
            {"compression": "snappy", "format": "csv"},
            "files of csv are not compressed with `snappy`: it is `none`, `gzip` or `zstd`",
        ),
        ({"partition_by": 3}, "output.partition_by"),
        ({"partition_by": "a", "single_file": True}, "`partition_by` makes many files, and `single_file` one"),
        ({"single_file": True, "publish": "final"}, "`single_file` is for results published once, or as `table`"),
        (
            {"partition_by": "a", "format": "delta"},
            "`partition_by` is for files: give a `path`, and `parquet`, `csv` or `json`",
        ),
        ({"mode": "append", "format": "csv"}, "`append` is for tables"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        of({"output": {"path": str(tmp_path / "out"), **given}})
