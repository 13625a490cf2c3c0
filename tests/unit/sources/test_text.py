"""Text that is read in place: which is, and what its splits hold. Integration tests hold its lines against Spark's."""

from __future__ import annotations

import gzip
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dpa.errors import TableError
from dpa.sources import lines
from dpa.sources.feed import table_of
from dpa.sources.lines import LinesFile, large_text, text_table
from dpa.sources.paths import data_files, locate
from dpa.sources.splits import NumberedSplit, whole


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_TEXT_SPLIT_BYTES", 100)
    monkeypatch.setattr(lines, "_LARGE_BYTES", 50)


def test_splits_have_all_lines_in_order_and_no_more_rows_than_asked_for(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number} {line}\n" * 2 for line in range(100)))
    table = text_table(large_text([str(tmp_path)]))
    assert table.paths == [str(tmp_path / f"{number}.txt") for number in range(3)]
    splits = table.poll(5).splits
    assert max(split.rows for split in splits) == 5
    expected = [f"{number} {line}" for number in range(3) for line in range(100) for _ in range(2)]
    assert table_of(splits)["value"].to_pylist() == expected
    assert len(table.poll(1_000).splits) < len(splits) // 3
    assert table_of(replace(table, columns=()).poll(9).splits).num_rows == 600
    with pytest.raises(TableError, match="has no column 'word'"):
        replace(table, columns=("word",)).poll(5)


def test_small_files_share_a_split_which_continues_at_any_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_TEXT_SPLIT_BYTES", 40)
    monkeypatch.setattr(lines, "_LEAST_PACKS", 1)
    lengths = [1, 0, 3, 2, 9, 1, 1, 4]
    for number, length in enumerate(lengths):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number}{line}\n" for line in range(length)))
    expected = [f"{number}{line}" for number, length in enumerate(lengths) for line in range(length)]
    splits = text_table(data_files(str(tmp_path))).poll(8).splits
    assert [split.rows for split in splits] == [6, 8, 7]  # one file's ninth line begins the last
    assert table_of(splits)["value"].to_pylist() == expected
    assert {NumberedSplit(split, 0).file for split in splits[::2]} == {None}
    for split in splits:
        assert sum(batch.num_rows for batch in replace(split, columns=()).batches(4)) == split.rows
        assert (
            table_of([whole(replace(split, columns=()))])["value"].to_pylist() == table_of([split])["value"].to_pylist()
        )
        rows = table_of([split])["value"].to_pylist()
        for read in range(split.rows):
            assert table_of([split.after(read // 2).after(read - read // 2)])["value"].to_pylist() == rows[read:]


def test_lines_are_counted_alike_when_a_text_is_looked_at_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_TEXT_SPLIT_BYTES", 1_000)
    file, random = tmp_path / "a.txt", Random(0)
    for _ in range(200):
        parts = random.choices(["a", "é", "\n", "\r", "\r\n", "\ufeff"], k=random.randrange(12))
        file.write_bytes("".join(parts).encode())
        table, rows = text_table(data_files(str(file))), random.randrange(1, 6)
        later = replace(table, files=tuple(replace(each, lines=None) for each in table.files))
        assert table.poll(rows).splits == later.poll(rows).splits, parts


def test_text_is_read_in_place_where_it_is_large_and_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").mkdir()
    large = tmp_path / "large" / "a.txt"
    large.write_text("a line\n" * 20)
    (tmp_path / "large" / "_hidden").write_text("")
    assert [file.path for file in large_text([str(tmp_path / "large")])] == [str(large)]
    assert large_text([str(large), str(large.parent)]) == [], "Spark reads it twice"
    for passed_over in ("_a.txt", ".a.txt", "a.txt._COPYING_"):
        (tmp_path / passed_over).write_text("a line\n" * 20)
        assert large_text([str(tmp_path / passed_over)]) == []
    assert large_text([str(large.parent)], glob="[^a].txt") == [], "Hadoop's globs are others"
    (tmp_path / "small.txt").write_text("a line\n")
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(bytes(range(256)) * 9))
    for paths in (["small.txt"], ["large", *["small.txt"], "packed.txt.gz"], ["packed.txt.gz"], ["none"], []):
        assert large_text([str(tmp_path / path) for path in paths]) == []
    assert large_text([str(tmp_path)], glob="*.none") == []
    assert large_text([f"s3://bucket/{large}"]) == []
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert large_text([str(large)]) == []


def test_each_byte_is_read_once_to_count_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("ab\n" * 200)
    read: list[int] = []
    one = lines._read
    monkeypatch.setattr(
        lines, "_read", lambda file, start, wanted, size: read.append(wanted) or one(file, start, wanted, size)
    )
    splits = text_table(data_files(str(tmp_path))).poll(5).splits
    assert sum(split.rows for split in splits) == 200
    assert sum(read) < 610  # and a byte behind each part twice


def test_a_sample_of_large_text_is_of_all_and_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [f"{number} {line}" for number in range(2) for line in range(3_000)]
    for number in range(2):
        mine = "".join(f"{line}\n" for line in written if line.startswith(f"{number} "))
        (tmp_path / f"{number}.txt").write_text(mine)
    table = text_table(data_files(str(tmp_path)))
    monkeypatch.setattr(lines, "_LARGE_BYTES", 50_000)
    assert table.sample(10_000)["value"].to_pylist() == written
    monkeypatch.setattr(lines, "_LARGE_BYTES", 30_000)
    monkeypatch.setattr(type(table), "poll", None)
    sample = table.sample(100, seed=1)["value"].to_pylist()
    assert len(set(sample)) == 100 and set(sample) <= set(written)
    assert [written.index(line) for line in sample] == sorted(written.index(line) for line in sample)
    for part in range(4):
        assert 5 < sum(part * 1_500 <= written.index(line) < (part + 1) * 1_500 for line in sample) < 55
    assert 0 < table.sample(100, enough=lambda: True).num_rows < 30
    assert table.sample(100, seed=1)["value"].to_pylist() == sample
    monkeypatch.undo()
    monkeypatch.setattr(lines, "_LARGE_BYTES", 5_000)
    (tmp_path / "long.txt").write_text("x" * 5_000)
    assert text_table(data_files(str(tmp_path / "long.txt"))).sample(9)["value"].to_pylist() == ["x" * 5_000]


def test_counting_ends_if_it_is_interrupted_or_a_file_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a line\n" * 100 + "b" * 300)
    other = tmp_path / "b.txt"
    other.write_text("c\n")
    table = text_table(data_files(str(tmp_path)))
    counted: list[int] = []
    made = LinesFile.cuts_within

    def interrupted(file: LinesFile, *given: Any) -> Any:
        if file.location.path == str(other):
            while not counted:
                time.sleep(0.01)
            raise KeyboardInterrupt
        counted.append(1)
        time.sleep(0.05)
        return made(file, *given)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(LinesFile, "cuts_within", interrupted)
        replace(table, files=table.files[::-1]).poll(1)
    assert 0 < len(counted) < 8, "of 10 parts"
    file.write_text("a line\n" * 100 + "b")
    with pytest.raises(TableError, match="it has 701 bytes now, and had 1,000"):
        table.poll(1_000)


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a line\n" * 20)
    splits = text_table(data_files(str(file))).poll(5).splits
    with file.open("a") as more:
        more.write("another\n")
    with pytest.raises(TableError, match="it has 148 bytes now, and had 140; what is read in place must stay as it is"):
        table_of(splits)
    file.unlink()
    with pytest.raises(TableError, match="was removed while the job was running"):
        table_of(splits)
    with pytest.raises(TableError, match="was removed"):
        text_table([locate(str(file))])
