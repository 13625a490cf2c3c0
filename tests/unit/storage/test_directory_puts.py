"""Conditional puts into a directory, also where the file system lacks locks or hard links."""

from __future__ import annotations

import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from dpa.errors import TableError
from dpa.storage import Files, Purpose, S3Files, files_at


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return files_at(str(tmp_path), Purpose("results", TableError, TableError))


def refuse(monkeypatch: pytest.MonkeyPatch, module: object, name: str, number: int) -> None:
    def refused(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, name, refused)


def winners_of(files: Files) -> list[bytes]:
    """Those of eight that put the same file at once who have put it."""
    begin = Barrier(8)

    def put(number: int) -> bool:
        begin.wait()
        while True:
            try:
                return files.put("one", b"%d" % number) is not None
            except BlockingIOError:
                continue

    with ThreadPoolExecutor(8) as writers:
        done = [*writers.map(put, range(8))]
    return [b"%d" % number for number in range(8) if done[number]]


def test_without_locks_one_of_many_puts_a_new_file(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, fcntl, "flock", errno.ENOLCK)
    for _ in range(20):
        [winner] = winners_of(files)
        assert files.read("one") == winner
        assert files.names("") == ["one"]
        files.delete(["one"])


def test_without_hard_links_a_lock_decides(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, os, "link", errno.EPERM)
    [winner] = winners_of(files)
    assert files.read("one") == winner
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_file_is_replaced_if_it_is_the_one_that_was_seen(files: Files, tmp_path: Path) -> None:
    first = files.put("one", b"1")
    assert files.put("one", b"2") is None
    second = files.put("one", b"2", first)
    assert files.put("one", b"3", first) is None
    assert files.get("one") == (b"2", second)
    assert files.put("two", b"3", first) is None
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EPERM])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_put_that_fails_leaves_nothing_and_says_why(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    tag = files.put("one", b"1")
    with monkeypatch.context() as broken, pytest.raises(TableError, match=os.strerror(number)):
        refuse(broken, os, call, number)
        files.put("one", b"2", tag)
    assert {path.name for path in tmp_path.iterdir()} == {"one"}
    assert files.get("one") == (b"1", tag)


def test_a_scheme_may_be_in_capitals() -> None:
    assert isinstance(files_at("S3://bucket/results", Purpose("results", TableError, TableError)), S3Files)


def test_what_a_killed_put_has_left_goes_when_the_next_job_begins(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = files.put("one", b"1")

    def replace(*paths: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            files.put("one", b"2", tag)
    assert len([*tmp_path.iterdir()]) == 2
    assert files.names("") == ["one"]
    with files.held():
        assert {path.name for path in tmp_path.iterdir()} == {"one", ".lock"}
        with pytest.raises(BlockingIOError), files_at(str(tmp_path), files.purpose).held():
            pass
