"""Files of one input whose columns differ: they go together by name, each column as the widest type."""

import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from differing_files import UTC, WIDENED, of
from pyarrow import feather

from dpa import Flow
from dpa.aggregates import Sum
from dpa.columns.arrow import held, to_batch
from dpa.errors import ConfigError, TableError
from dpa.report import show_plan
from dpa.sources.files import FileTable, file_table
from dpa.sources.ipc import ipc_file
from dpa.sources.parquet import parquet_table
from dpa.sources.splits import whole
from dpa.sources.united import UnitedSplit
from dpa.testing import LocalBackend

FORMATS: dict[str, tuple[Callable[..., Any], Callable[..., FileTable]]] = {
    "parquet": (pq.write_table, parquet_table),
    "arrow": (feather.write_feather, partial(file_table, ipc_file)),
}


@pytest.fixture(params=FORMATS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., FileTable]:
    """Writes tables, each to a file, and opens them as one input."""
    write, table = FORMATS[request.param]

    def made(*tables: pa.Table | dict[str, Any], **options: Any) -> FileTable:
        for number, each in enumerate(tables):
            write(each if isinstance(each, pa.Table) else pa.table(each), tmp_path / f"{number}.file")
        return table([str(tmp_path)], **options)

    return made


@pytest.mark.parametrize("order", [1, -1], ids=["", "the other way round"])
@pytest.mark.parametrize("case", WIDENED)
def test_a_column_is_read_as_the_widest_type_of_all_files(files: Any, case: str, order: int) -> None:
    *arrays, kind, expected = WIDENED[case]
    arrays, expected = arrays[::order], expected[::order]
    names = [["n", "id"], ["id", "n"]]
    tables = [
        pa.table({name: {"n": array, "id": pa.array([number])}[name] for name in of_file})
        for number, (array, of_file) in enumerate(zip(arrays, names, strict=True))
    ]
    table = files(*tables)
    assert table.schema.field("n").type == kind
    assert table.schema.names == ["n", "id"]
    read = table.read()
    assert read["n"].type == kind and read["id"].to_pylist() == [0, 1]
    found = read["n"].to_pylist()
    if isinstance(expected[0], str) and not pa.types.is_large_string(kind) and not pa.types.is_string(kind):
        found = [value.isoformat() for value in found]
        expected = [value.replace("+00:00", str(found[0])[19:]) for value in expected]
    assert found == expected
    assert table.sample(10)["n"].type == kind
    one = replace(table, columns=("n",), dictionary=("n",))
    assert [batch.num_rows for split in one.splits(10) for batch in split.batches(10)] == [1, 1]
    assert one.widened == (f"n to {table.schema.field('n').type}",)


@pytest.mark.parametrize("case", [*WIDENED, "nothing there"])
def test_a_split_of_files_that_differ_is_a_query_too_where_no_value_can_change(tmp_path: Path, case: str) -> None:
    one, other, *_ = WIDENED.get(case, (of([1], pa.int64()), of([2], pa.int64())))
    pq.write_table(pa.table({"n": one, "id": [0]}), tmp_path / "0.parquet")
    there = {"id": [1], "m": ["x"]} if case == "nothing there" else {"id": [1], "n": other, "m": ["x"]}
    pq.write_table(pa.table(there), tmp_path / "1.parquet")
    table = parquet_table([str(tmp_path)], allow_missing=True)
    for columns in (None, ("n",)):
        for split in replace(table, columns=columns).splits(10):
            if not isinstance(split, UnitedSplit):
                continue
            scan = split.scan()
            if scan is None or scan.frame.collect_schema() != held(scan.schema):
                assert case not in ("int32 and int64", "string and large_string", "null and string")
                continue
            found = to_batch(scan.frame.slice(scan.first).collect(), scan.schema)
            assert found.to_pylist() == [row for batch in split.batches(10) for row in batch.to_pylist()]


REFUSED = {
    "string and int64": (of(["a"], pa.string()), of([1], pa.int64())),
    "bool and int64": (of([True], pa.bool_()), of([1], pa.int64())),
    "string and binary": (of(["a"], pa.string()), of([b"a"], pa.binary())),
    "a timestamp with a zone and one without": (of([1], pa.timestamp("us", UTC)), of([1], pa.timestamp("us"))),
    "a double and a decimal": (of([1.0], pa.float64()), of([Decimal("1.00")], pa.decimal128(5, 2))),
    "structs of other fields": (
        of([{"a": 1}], pa.struct([("a", pa.int32())])),
        of([{"b": 1}], pa.struct([("b", pa.int32())])),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_types_that_no_type_holds_are_refused_with_files_and_types_where_they_are_read(files: Any, case: str) -> None:
    one, other = REFUSED[case]
    table = files({"n": one, "id": [0]}, {"n": other, "id": [1]})
    with pytest.raises(TableError) as error:
        table.splits(10)
    words = rf"column 'n' is {one.type} in {table.paths[0]} and {other.type} in {table.paths[1]}: no type holds both"
    assert str(error.value) == words
    unread = replace(table, columns=("id",))
    assert [row for split in unread.splits(10) for batch in split.batches(10) for row in batch["id"].to_pylist()] == [
        0,
        1,
    ]
    assert table.read().column_names == ["id"]
    again = [batch.schema.names for split in unread.splits(10) for batch in whole(split).batches(10)]
    assert again == [["id"], ["id"]]


def test_three_files_are_compared_with_each_other(files: Any) -> None:
    table = files({"n": of([1], pa.int32())}, {"n": of([1.5], pa.float64())}, {"n": of(["a"], pa.string())})
    with pytest.raises(TableError, match=rf"is int32 in {table.paths[0]} and string in {table.paths[2]}: no type"):
        table.splits(10)


def test_a_file_of_no_rows_says_nothing_unless_no_file_has_rows(files: Any) -> None:
    empty = pa.table({"n": pa.array([], pa.string()), "other": pa.array([], pa.null())})
    table = files(empty, {"n": [1], "m": ["a"]})
    assert table.schema == pa.schema([("n", pa.int64()), ("m", pa.string())])
    assert table.read().to_pylist() == [{"n": 1, "m": "a"}]
    assert files(empty, empty).schema == empty.schema


def test_a_column_that_a_file_lacks_is_refused_unless_null_is_allowed(files: Any) -> None:
    tables = [{"a": [1], "b": [2]}, {"a": [3]}, {"a": [4], "c": ["x"]}]
    table = files(*tables)
    words = (
        rf"column 'b' is int64 in {table.paths[0]} and missing in {table.paths[1]}: with `allow_missing_columns` it is"
    )
    with pytest.raises(TableError, match=words):
        table.splits(10)
    assert len(replace(table, columns=("a",)).splits(10)) == 3
    allowed = files(*tables, allow_missing=True)
    assert allowed.read().to_pylist() == [
        {"a": 1, "b": 2, "c": None},
        {"a": 3, "b": None, "c": None},
        {"a": 4, "b": None, "c": "x"},
    ]
    assert allowed.widened == ("b to null where it is missing", "c to null where it is missing")
    rows = [batch for split in replace(allowed, columns=("b",)).splits(10) for batch in split.batches(10)]
    assert [row for batch in rows for row in batch["b"].to_pylist()] == [2, None, None]


def test_columns_that_may_be_null_go_with_those_that_may_not(files: Any) -> None:
    field = pa.field("n", pa.int64(), nullable=False)
    table = files(pa.table([[1]], pa.schema([field])), {"n": [None, 2]})
    assert table.read()["n"].to_pylist() == table.sample(10)["n"].to_pylist() == [1, None, 2]
    assert table.widened == ()


def test_a_value_that_no_type_holds_exactly_fails_with_its_file(files: Any) -> None:
    table = files({"n": [2**60 + 1]}, {"n": [0.5]})
    with pytest.raises(TableError, match=rf"{table.paths[0]}: column 'n' is int64, and double in the input: "):
        table.read()


def test_a_flow_adds_up_two_widths_and_its_plan_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"word": ["a", "b"], "n": of([1, 2], pa.int32())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"n": [2**40], "word": of(["a"], pa.large_string())}), tmp_path / "2.parquet")
    flow = Flow("widened")
    flow.read(tmp_path).key_by("word").reduce(Sum("n"))
    found = flow.run(backend=LocalBackend(), check=False).table().to_pylist()
    assert sorted((row["word"], row["n"]) for row in found) == [("a", 2**40 + 1), ("b", 2)]
    source, _ = flow.forecast().stages
    assert source.widened == ("word to large_string", "n to int64")
    show_plan(flow.forecast(), sys.stdout)
    assert "files differ: word to large_string, n to int64" in " ".join(capsys.readouterr().out.split())


def test_a_flow_reads_null_for_missing_columns_if_it_says_so(tmp_path: Path) -> None:
    pq.write_table(pa.table({"word": ["a", "b"], "n": [1, 2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"word": ["b"]}), tmp_path / "2.parquet")

    def flow(**options: Any) -> Flow:
        made = Flow("missing")
        made.read(tmp_path, **options).key_by("word").reduce(Sum("n"))
        return made

    with pytest.raises(
        ConfigError, match=r"column 'n' is int64 in .*1\.parquet and missing in .*2\.parquet: with `allow"
    ):
        flow().run(backend=LocalBackend(), check=False)
    found = flow(allow_missing_columns=True).run(backend=LocalBackend(), check=False).table().to_pylist()
    assert sorted((row["word"], row["n"]) for row in found) == [("a", 1), ("b", 2)]
