import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa.errors import TableError
from dpa.sources.files import FileTable
from dpa.sources.parquet import parquet_table
from dpa.sources.paths import locate, pruned
from dpa.sources.splits import total_rows


def write(path: Path, rows: int = 100, row_group: int = 10, start: int = 0, **columns: pa.Array) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = {"id": range(start, start + rows), "word": [f"w{i % 7}" for i in range(rows)]}
    table = pa.table({**made, **columns})
    pq.write_table(table, path, row_group_size=row_group)
    return path


def parquet_splits(paths, base=".", *, split_rows, columns=None, dictionary=(), **named):
    read = None if columns is None else tuple(columns)
    found = parquet_table([str(Path(base, path)) for path in paths], **named)
    return replace(found, columns=read, dictionary=tuple(dictionary)).splits(split_rows)


def ids(splits) -> list[int]:
    return [value for split in splits for batch in split.batches(7) for value in batch["id"].to_pylist()]


def test_row_groups_are_packed_in_order_up_to_the_wanted_size(tmp_path) -> None:
    write(tmp_path / "a.parquet")
    splits = parquet_splits(["a.parquet"], str(tmp_path), split_rows=35)
    assert [split.row_groups for split in splits] == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9,)]
    assert [split.rows for split in splits] == [30, 30, 30, 10]
    assert ids(splits) == list(range(100))


def test_a_row_group_is_never_divided(tmp_path) -> None:
    write(tmp_path / "a.parquet", row_group=40)
    assert [split.rows for split in parquet_splits([str(tmp_path)], split_rows=1)] == [40, 40, 20]


def test_a_split_never_spans_two_files(tmp_path) -> None:
    write(tmp_path / "a.parquet", rows=5)
    write(tmp_path / "b.parquet", rows=5, start=5)
    splits = parquet_splits([str(tmp_path)], split_rows=1000)
    assert [split.rows for split in splits] == [5, 5]
    assert ids(splits) == list(range(10))


def test_a_directory_is_read_without_hidden_files_and_sub_directories(tmp_path) -> None:
    write(tmp_path / "t" / "b.parquet", start=100)
    write(tmp_path / "t" / "a.parquet")
    write(tmp_path / "t" / "deep" / "c.parquet", start=200)
    write(tmp_path / "t" / ".hidden.parquet", start=300)
    (tmp_path / "t" / "_SUCCESS").touch()
    assert ids(parquet_splits(["t"], str(tmp_path), split_rows=10)) == list(range(200))


def test_a_tree_is_read_to_any_depth_if_asked_to_but_not_in_hidden_directories(tmp_path) -> None:
    write(tmp_path / "t" / "a.parquet")
    write(tmp_path / "t" / "x" / "y" / "b.parquet", start=100)
    write(tmp_path / "t" / "_temporary" / "c.parquet", start=200)
    assert ids(parquet_splits(["t"], str(tmp_path), split_rows=10, recursive=True)) == list(range(200))


def test_globs_match_one_part_of_a_path_each(tmp_path) -> None:
    write(tmp_path / "day1" / "a.parquet")
    write(tmp_path / "day2" / "a.parquet", start=100)
    write(tmp_path / "night" / "a.parquet", start=200)
    write(tmp_path / "day1" / "x" / "a.parquet", start=300)
    (tmp_path / "day3").touch()
    assert ids(parquet_splits(["day*/[a-c].parquet"], str(tmp_path), split_rows=10)) == list(range(200))
    assert ids(parquet_splits(["day?"], str(tmp_path), split_rows=10, glob="*.parquet")) == list(range(200))


def test_a_path_with_glob_characters_that_exists_is_taken_literally(tmp_path) -> None:
    write(tmp_path / "a[1].parquet")
    write(tmp_path / "a1.parquet", start=100)
    assert ids(parquet_splits(["a[1].parquet"], str(tmp_path), split_rows=10)) == list(range(100))


def test_a_file_named_twice_is_read_once(tmp_path) -> None:
    write(tmp_path / "a.parquet")
    assert ids(parquet_splits(["a.parquet", "*.parquet"], str(tmp_path), split_rows=10)) == list(range(100))


@pytest.mark.parametrize("name", ["{}/a%20%3F.parquet", "{}/*.parquet", "{}"])
def test_the_uri_of_a_local_file_is_read_like_its_path(tmp_path, name) -> None:
    file = write(tmp_path / "a ?.parquet")
    splits = parquet_splits([name.format(tmp_path.as_uri())], split_rows=1000)
    assert [split.path for split in splits] == [str(file)]
    assert ids(splits) == list(range(100))


@pytest.mark.parametrize(
    ("uri", "inner"),
    [
        ("s3://bucket/a/b.parquet?region=eu-west-1", "bucket/a/b.parquet"),
        ("gs://anonymous@bucket/a", "bucket/a"),
    ],
)
def test_the_uri_of_a_remote_file_stays_whole(uri: str, inner: str) -> None:
    place = locate(uri)
    assert (place.path, place.name) == (inner, uri)
    assert place.at(f"{inner}/c").name == uri.replace(inner, f"{inner}/c")


def test_an_empty_file_has_a_schema_and_no_splits(tmp_path) -> None:
    write(tmp_path / "a.parquet", rows=0)
    table = parquet_table([str(tmp_path)])
    assert table.schema.names == ["id", "word"]
    assert (table.rows, table.splits(10)) == (0, [])


def test_rows_and_paths_are_those_of_all_files(tmp_path) -> None:
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", rows=11)
    table = parquet_table([str(tmp_path)])
    assert table.rows == total_rows(table.splits(30)) == 111
    assert table.paths == [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]


def test_only_string_columns_that_are_read_are_decoded_as_dictionaries(tmp_path) -> None:
    write(tmp_path / "a.parquet")
    [split] = parquet_splits([str(tmp_path)], split_rows=1000, columns=["word"], dictionary=["word", "id"])
    assert split.dictionary == ("word",)
    batch = next(split.batches(10))
    assert batch.schema.names == ["word"]
    assert pa.types.is_dictionary(batch.schema.field("word").type)


@pytest.mark.parametrize("is_encoded", [True, False])
def test_only_columns_that_the_file_has_as_dictionaries_are_decoded_as_such(tmp_path, is_encoded) -> None:
    words = pa.array([f"a word {number % 1_000:09}" for number in range(200_000)])
    pq.write_table(pa.table({"word": words}), tmp_path / "a.parquet", use_dictionary=is_encoded)
    [split] = parquet_splits([str(tmp_path)], split_rows=200_000, dictionary=["word"])
    kinds = {batch.schema.field("word").type for batch in split.batches(65_536)}
    assert list(map(pa.types.is_dictionary, kinds)) == [is_encoded]


def test_a_missing_column_is_named_with_a_likely_spelling_and_the_columns_there_are(tmp_path) -> None:
    write(tmp_path / "a.parquet")
    with pytest.raises(TableError, match=r"no column 'wrd'; did you mean 'word'\? \(it has id, word\)"):
        parquet_splits([str(tmp_path)], split_rows=10, columns=["wrd"])


def test_files_that_disagree_on_a_column_are_refused_only_if_it_is_read(tmp_path) -> None:
    write(tmp_path / "a.parquet", n=pa.array([1] * 100, pa.int64()))
    write(tmp_path / "b.parquet", n=pa.array(["1"] * 100))
    with pytest.raises(TableError, match=r"column 'n' is int64 in .*a\.parquet and string in .*b\.parquet"):
        parquet_splits([str(tmp_path)], split_rows=10)
    assert len(parquet_splits([str(tmp_path)], split_rows=100, columns=["id"])) == 2


def test_files_with_a_missing_column_are_refused_and_one_in_another_place_is_read(tmp_path) -> None:
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "2.parquet")
    with pytest.raises(TableError, match=r"column 'b' is int64 in .* and missing in .*2\.parquet"):
        parquet_splits([str(tmp_path)], split_rows=10)
    pq.write_table(pa.table({"b": [2], "a": [1]}), tmp_path / "2.parquet")
    read = [batch for split in parquet_splits([str(tmp_path)], split_rows=10) for batch in split.batches(10)]
    assert [batch.to_pylist() for batch in read] == [[{"a": 1, "b": 2}]] * 2
    assert [batch.schema.names for batch in read] == [["a", "b"]] * 2


def test_a_path_where_nothing_is_is_named_in_full(tmp_path) -> None:
    with pytest.raises(TableError, match=f"{tmp_path}/none: no such file or directory"):
        parquet_table([str(tmp_path / "none")])
    with pytest.raises(TableError, match=r"\*\.parquet: no such file or directory"):
        parquet_table([str(tmp_path / "*.parquet")])


def test_a_directory_without_files_is_refused_and_the_way_to_read_deeper_is_told(tmp_path) -> None:
    write(tmp_path / "deep" / "a.parquet")
    with pytest.raises(TableError, match="holds no file; sub-directories are read with `recursive: true`"):
        parquet_table([str(tmp_path)])
    with pytest.raises(TableError, match=r"no file whose name matches '\*\.pq'"):
        parquet_table([str(tmp_path)], glob="*.pq", recursive=True)


def test_a_tree_is_searched_without_the_directories_that_are_excluded(tmp_path) -> None:
    for place in ("a", "deep/b", "deep/old/c", "old/d", "_hidden/e"):
        write(tmp_path / f"{place}.parquet")

    def found(*exclude: str) -> list[str]:
        table = parquet_table([str(tmp_path)], recursive=True, exclude=exclude)
        return [file.path.removeprefix(f"{tmp_path}/") for file in table.files]

    assert found() == ["a.parquet", "deep/b.parquet", "deep/old/c.parquet", "old/d.parquet"]
    assert found("old") == ["a.parquet", "deep/b.parquet"]
    assert found("d??p", "old") == ["a.parquet"]
    with pytest.raises(TableError, match="holds no file"):
        parquet_table([str(tmp_path / "deep" / "old")], recursive=True, glob="x*", exclude=["old"])


def test_what_is_left_of_a_tree_are_its_largest_whole_parts(tmp_path) -> None:
    for place in ("a.py", "b.txt", "whole/c.py", "whole/part/d.py", "deep/e.py", "deep/old/f.py", "old/g.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()

    def left(path: str, *exclude: str) -> list[str]:
        return [place.name.removeprefix(f"{tmp_path}/") for place in pruned(path, exclude, "*.py")]

    assert left(str(tmp_path), "old") == ["a.py", "deep/e.py", "whole"]
    assert left(f"{tmp_path}/*", "old") == [
        "a.py",
        "b.txt",
        "deep/e.py",
        "old",
        "whole",
    ]  # the roots are what was asked
    assert [place.path for place in pruned(str(tmp_path), ["none"])] == [str(tmp_path)]
    assert left(str(tmp_path / "whole"), "*") == ["whole/c.py"]


def test_a_file_that_is_not_parquet_is_named(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("no columns here")
    with pytest.raises(TableError, match=r"notes\.txt: not a Parquet file that can be read"):
        parquet_table([str(tmp_path)])


def damage(file: Path, row_group: int) -> None:
    """Turn over bytes of a page of the first column."""
    column = pq.ParquetFile(file).metadata.row_group(row_group).column(0)
    start, content = column.dictionary_page_offset, bytearray(file.read_bytes())
    content[start + 20 : start + 30] = bytes(255 - byte for byte in content[start + 20 : start + 30])
    file.write_bytes(content)


@pytest.mark.parametrize("split_rows", [1000, 10], ids=["of several", "of one"])
def test_a_damaged_row_group_is_named_with_its_file_and_split(tmp_path, split_rows) -> None:
    file = write(tmp_path / "a.parquet")
    damage(file, 4)
    splits = parquet_splits([str(file)], split_rows=split_rows)
    split = next(split for split in splits if 4 in split.row_groups)
    with pytest.raises(TableError, match=rf"^{file}: row group 4 cannot be read: Corrupt snappy compressed data$"):
        ids([split])
    if split_rows == 10:
        assert len(ids(other for other in splits if other != split)) == 90


def other_values(file: Path) -> None:
    """As many rows and row groups of the same columns, in another number of bytes."""
    write(file, start=2**40)


def padded(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """The change, and before the data as many bytes as make the file as large as it was."""

    def changed(file: Path) -> None:
        size = file.stat().st_size
        change(file)
        content = file.read_bytes()
        assert len(content) < size
        footer = int.from_bytes(content[-8:-4], "little") + 8
        file.write_bytes(content[:-footer] + bytes(size - len(content)) + content[-footer:])

    return changed


def without_words(file: Path) -> None:
    pq.write_table(pa.table({"id": range(100)}), file, row_group_size=10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.unlink(), r"no such file: it was removed while the job was running, or"),
        (lambda file: file.write_bytes(b""), r"was changed while the job was running: it has 0 bytes now"),
        (lambda file: file.write_bytes(bytes(file.stat().st_size)), r"the file cannot be read: Parquet magic bytes"),
        (padded(lambda file: write(file, rows=30)), r"was changed .*: it has other row groups now"),
        (padded(lambda file: write(file, rows=90, row_group=9)), r"was changed .*: it has other row groups now"),
        (padded(lambda file: write(file, id=pa.array(["1"] * 100))), r"was changed .*: the column 'id' is string now"),
        (padded(without_words), r"was .*'word' is missing now"),
        (other_values, r"was changed .*: it has [\d,]+ bytes now, and had [\d,]+"),
    ],
    ids=["removed", "emptied", "damaged", "groups", "rows", "type", "column", "values"],
)
def test_a_file_that_is_not_what_it_was_when_splits_were_made_is_named(tmp_path, change, message) -> None:
    file = write(tmp_path / "a.parquet")
    split = parquet_splits([str(file)], split_rows=50, dictionary=["word"])[1]
    change(file)
    with pytest.raises(TableError, match=rf"^{file}: {message}") as error:
        ids([split])
    assert "\n" not in str(error.value)


def test_a_file_that_is_written_again_as_it_was_is_read(tmp_path) -> None:
    file = write(tmp_path / "a.parquet", word=pa.array(["a", "b"] * 50).dictionary_encode())
    splits = parquet_splits([str(file)], split_rows=50, dictionary=["word"])
    file.write_bytes(file.read_bytes())
    assert ids(pickle.loads(pickle.dumps(splits))) == list(range(100))


def test_no_path_at_all_is_an_error() -> None:
    with pytest.raises(TableError, match="no path"):
        parquet_table([])


def test_an_unknown_kind_of_uri_is_an_error() -> None:
    with pytest.raises(TableError, match="not a place that can be read"):
        parquet_table(["gopher://a/b"])


# --- samples


@pytest.fixture
def numbers(tmp_path: Path) -> FileTable:
    """The numbers from 0 to 999, in two files of row groups of 10 rows."""
    for file in range(2):
        part = pa.table({"n": range(500 * file, 500 * (file + 1)), "text": [f"row {row}" for row in range(500)]})
        pq.write_table(part, tmp_path / f"{file}.parquet", row_group_size=10)
    return parquet_table([str(tmp_path)])


def test_a_sample_has_so_many_different_rows_of_all_files_in_order(numbers: FileTable) -> None:
    sample = numbers.sample(300, seed=1)
    drawn = sample["n"].to_pylist()
    assert len(drawn) == len(set(drawn)) == 300
    assert drawn == sorted(drawn)
    assert drawn[0] < 100 and drawn[-1] >= 900
    assert sample["text"].to_pylist() == [f"row {number % 500}" for number in drawn]


def test_a_sample_is_the_same_for_the_same_seed_and_else_another(numbers: FileTable) -> None:
    assert numbers.sample(50, seed=1) == numbers.sample(50, seed=1)
    assert numbers.sample(50, seed=1) != numbers.sample(50, seed=2)


def test_a_sample_reads_no_more_than_some_row_groups_and_the_columns_that_are_asked_for(numbers: FileTable) -> None:
    sample = replace(numbers, columns=("n",)).sample(1_000)
    assert sample.column_names == ["n"]
    assert sample.num_rows == 640
    assert len({number // 10 for number in sample["n"].to_pylist()}) == 64


def test_a_small_table_is_its_own_sample_and_an_empty_one_too(tmp_path: Path) -> None:
    table = pa.table({"n": [3, 1, 2]})
    pq.write_table(table, tmp_path / "small.parquet")
    pq.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    assert parquet_table([str(tmp_path / "small.parquet")]).sample(10) == table
    assert parquet_table([str(tmp_path / "empty.parquet")]).sample(10) == table.slice(0, 0)
