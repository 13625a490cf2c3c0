import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa.errors import TableError
from dpa.sources.parquet import parquet_table
from dpa.sources.paths import locate, pruned
from dpa.sources.splits import total_rows


def write(path: Path, rows: int = 100, row_group: int = 10, start: int = 0, **columns: pa.Array) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = {"id": range(start, start + rows), "word": [f"w{i % 7}" for i in range(rows)]}
    table = pa.table({**made, **columns})
    pq.write_table(table, path, row_group_size=row_group)
    return path


def parquet_splits(paths, *, split_rows, columns=None, dictionary=(), **named):
    read = None if columns is None else tuple(columns)
    found = parquet_table(paths, **named)
    return replace(found, columns=read, dictionary=tuple(dictionary)).splits(split_rows)


def ids(splits) -> list[int]:
    return [value for split in splits for batch in split.batches(7) for value in batch["id"].to_pylist()]


def test_row_groups_are_packed_in_order_and_neither_divided_nor_put_together_across_files(tmp_path) -> None:
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", rows=50, row_group=40, start=100)
    splits = parquet_splits([str(tmp_path)], split_rows=35)
    assert [split.row_groups for split in splits] == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9,), (0,), (1,)]
    assert [split.rows for split in splits] == [30, 30, 30, 10, 40, 10]
    assert ids(splits) == list(range(150))


def test_row_groups_that_were_read_are_not_read_again(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.parquet")
    [_, split] = parquet_splits([str(tmp_path)], split_rows=80)
    read: list[list[int]] = []
    whole = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda file, **options: read.append(options["row_groups"]) or whole(file, **options),
    )
    assert ids([split.after(15)]) == [*range(95, 100)]
    assert read == [[9]]


PLACES = (
    *("t/a", "t/b", "t/.hidden", "t/_temporary/f", "t/deep/c", "t/deep/old/d", "t/old/e"),
    *("day1/a", "day2/a", "day1/x/a", "night/a", "a[1]", "a1", "only/deep/g"),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for place in PLACES:
        write(root / f"{place}.parquet", rows=1)
    for other in ("t/_SUCCESS", "day3"):
        (root / other).touch()
    (root / "notes.txt").write_text("no columns here")
    return root


TREE = {"recursive": True}


@pytest.mark.parametrize(
    ("paths", "options", "expected"),
    [
        (["t"], {}, ["t/a", "t/b"]),
        (["t"], TREE, ["t/a", "t/b", "t/deep/c", "t/deep/old/d", "t/old/e"]),
        (["t"], {**TREE, "exclude": ["old"]}, ["t/a", "t/b", "t/deep/c"]),
        (["t"], {**TREE, "exclude": ["d??p", "old"]}, ["t/a", "t/b"]),
        (["day*/[a-c].parquet"], {}, ["day1/a", "day2/a"]),
        (["day?"], {"glob": "*.parquet"}, ["day1/a", "day2/a"]),
        (["a[1].parquet"], {}, ["a[1]"]),
        (["t/a.parquet", "t/*.parquet"], {}, ["t/a", "t/b"]),
    ],
)
def test_paths_are_files_directories_and_globs_of_which_each_file_counts_once_and_hidden_ones_do_not(
    tree: Path, paths: list[str], options: dict[str, Any], expected: list[str]
) -> None:
    table = parquet_table([str(tree / path) for path in paths], **options)
    assert table.paths == [str(tree / f"{place}.parquet") for place in expected]


@pytest.mark.parametrize(
    ("paths", "options", "why"),
    [
        (["none"], {}, "{tree}/none: no such file or directory"),
        (["*.pq"], {}, r"\*\.pq: no such file or directory"),
        (["only"], {}, "holds no file; sub-directories are read with `recursive: true`"),
        (["only"], {**TREE, "glob": "*.pq"}, r"no file whose name matches '\*\.pq'"),
        (["t/deep/old"], {**TREE, "glob": "x*", "exclude": ["old"]}, "holds no file"),
        (["notes.txt"], {}, r"notes\.txt: not a Parquet file that can be read"),
        (["gopher://a/b"], {}, "not a place that can be read"),
        ([], {}, "no path"),
    ],
)
def test_what_cannot_be_found_or_read_is_named(tree: Path, paths: list[str], options: dict[str, Any], why: str) -> None:
    with pytest.raises(TableError, match=why.replace("{tree}", str(tree))):
        parquet_table([path if "://" in path else str(tree / path) for path in paths], **options)


@pytest.mark.parametrize("name", ["{}/a%20%3F.parquet", "{}/*.parquet", "{}"])
def test_the_uri_of_a_local_file_is_read_like_its_path(tmp_path, name) -> None:
    file = write(tmp_path / "a ?.parquet")
    splits = parquet_splits([name.format(tmp_path.as_uri())], split_rows=1000)
    assert [split.path for split in splits] == [str(file)]
    assert ids(splits) == list(range(100))


@pytest.mark.parametrize(
    ("uri", "inner"),
    [("s3://bucket/a/b.parquet?region=eu-west-1", "bucket/a/b.parquet"), ("gs://anonymous@bucket/a", "bucket/a")],
)
def test_the_uri_of_a_remote_file_stays_whole(uri: str, inner: str) -> None:
    place = locate(uri)
    assert (place.path, place.name) == (inner, uri)
    assert place.at(f"{inner}/c").name == uri.replace(inner, f"{inner}/c")


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


# --- samples


def test_a_sample_has_different_rows_of_all_files_in_order_and_is_another_for_another_seed(tmp_path: Path) -> None:
    for file in range(2):
        write(tmp_path / f"{file}.parquet", rows=500, start=500 * file)
    numbers = parquet_table([str(tmp_path)])
    sample = numbers.sample(300, seed=1)
    drawn = sample["id"].to_pylist()
    assert len(drawn) == len(set(drawn)) == 300
    assert drawn == sorted(drawn)
    assert drawn[0] < 100 and drawn[-1] >= 900
    assert sample["word"].to_pylist() == [f"w{number % 500 % 7}" for number in drawn]
    assert sample == numbers.sample(300, seed=1) != numbers.sample(300, seed=2)
    whole_groups = replace(numbers, columns=("id",)).sample(1_000)
    assert (whole_groups.column_names, whole_groups.num_rows) == (["id"], 640)
    assert len({number // 10 for number in whole_groups["id"].to_pylist()}) == 64


def test_rows_and_samples_are_of_all_files_also_of_those_without_rows(tmp_path: Path) -> None:
    for name, rows in (("a", 100), ("b", 11)):
        file = write(tmp_path / f"{name}.parquet", rows=rows)
    pq.write_table(pq.read_table(file).slice(0, 0), tmp_path / "c.parquet")
    table, empty = parquet_table([str(tmp_path)]), parquet_table([str(tmp_path / "c.parquet")])
    assert table.rows == total_rows(table.splits(30)) == 111
    assert parquet_table([str(tmp_path / "b.parquet")]).sample(20) == table.read().slice(100)
    assert (empty.schema.names, empty.rows, empty.splits(10)) == (["id", "word"], 0, [])
    assert empty.sample(10) == table.read().slice(0, 0)
    with pytest.raises(TableError, match=r"no column 'wrd'; did you mean 'word'\? \(it has id, word\)"):
        replace(table, columns=("wrd",)).splits(10)
