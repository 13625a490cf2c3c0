"""Text that is read in place: which is, and what its splits hold. Integration tests hold its lines against Spark's."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from dpa.errors import TableError
from dpa.sources import text
from dpa.sources.feed import table_of
from dpa.sources.paths import data_files, locate
from dpa.sources.text import large_text, text_table


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_SPLIT_BYTES", 100)
    monkeypatch.setattr(text, "_LARGE_BYTES", 50)


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


def test_text_is_read_in_place_where_files_are_large_here_and_not_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large").mkdir()
    large = tmp_path / "large" / "a.txt"
    large.write_text("a line\n" * 20)
    (tmp_path / "large" / "_hidden").write_text("")
    assert [file.path for file in large_text([str(tmp_path / "large")])] == [str(large)]
    assert large_text([str(large), str(large)]) == large_text([str(large)])
    (tmp_path / "small.txt").write_text("a line\n")
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(bytes(range(256)) * 9))
    for paths in (["small.txt"], ["large", *["small.txt"], "packed.txt.gz"], ["packed.txt.gz"], ["none"], []):
        assert large_text([str(tmp_path / path) for path in paths]) == []
    assert large_text([str(tmp_path)], glob="*.none") == []
    assert large_text([f"s3://bucket/{large}"]) == []
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert large_text([str(large)]) == []


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a line\n" * 20)
    splits = text_table(data_files(str(file))).poll(5).splits
    with file.open("a") as more:
        more.write("another\n")
    with pytest.raises(TableError, match=r"was changed while the job was running: it has 148 bytes now, and had 140"):
        table_of(splits)
    file.unlink()
    with pytest.raises(TableError, match="was removed while the job was running"):
        table_of(splits)
    with pytest.raises(TableError, match="was removed"):
        text_table([locate(str(file))])
