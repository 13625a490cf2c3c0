"""One result takes the place of another: whatever fails, wherever the process dies, one of the two is there whole."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dpa._util.owned import OwnedDirectory
from dpa.sinks import _replacement as replacement
from dpa.sinks._replacement import MARK, Replacement, parts_of_result, settle_abandoned

OLD = {MARK: "old", "part-00000.parquet": "old 0", "part-00001.parquet": "old 1", "part-00002.parquet": "old 2"}
NEW = {MARK: "new", "part-00001.parquet": "new 1", "part-00003.parquet": "new 3"}
OPERATIONS = [(Path, "rename"), (Path, "mkdir"), (Path, "unlink"), (Path, "rmdir"), (os, "unlink"), (os, "rmdir")]
BESIDE, IN_PLACE = "two directories change places", "files are moved in the directory"


class Died(BaseException):
    """The process was killed."""


def accept(directory: Path) -> None:
    """Whatever is there may go."""


def fill(directory: Path, files: dict[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")


def found(directory: Path) -> dict[str, str]:
    """What a reader of a directory finds; work directories are hidden."""
    shown = (file for file in directory.iterdir() if not file.name.startswith(".")) if directory.exists() else ()
    return {file.name: file.read_text(encoding="utf-8") for file in shown}


def begun(target: Path, how: str) -> Replacement:
    if how == IN_PLACE:
        prepared = Replacement._begun(target, target, NEW[MARK])
    else:
        prepared = Replacement.begin(target, NEW[MARK])
        assert prepared.work.parent == target.parent
    fill(prepared.new, {name: text for name, text in NEW.items() if name != MARK})
    return prepared


def fail_at(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException, *, for_good: bool) -> list[str]:
    """Have the file operation of that number fail, and all later ones if `for_good`; returns those that were tried."""
    tried: list[str] = []

    def failing(name: str, real: Any) -> Any:
        def operation(*arguments: Any, **options: Any) -> Any:
            tried.append(name)
            if len(tried) == number or (for_good and len(tried) > number):
                raise error
            return real(*arguments, **options)

        return operation

    for owner, name in OPERATIONS:
        monkeypatch.setattr(owner, name, failing(name, getattr(owner, name)))
    return tried


@pytest.fixture(params=[BESIDE, IN_PLACE])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[OLD, {}], ids=["over an old result", "into an empty directory"])
def old(request: pytest.FixtureRequest) -> dict[str, str]:
    return dict(request.param)


def test_whatever_fails_the_old_result_or_the_new_one_is_there(tmp_path: Path, how: str, old: dict[str, str]) -> None:
    number = 0
    tried: list[str] = []
    while len(tried) >= number:
        number += 1
        target = tmp_path / str(number) / "out"
        fill(target, old)
        prepared, failed = begun(target, how), False
        with pytest.MonkeyPatch.context() as patch:
            tried = fail_at(patch, number, OSError(errno.EIO, "Input/output error"), for_good=False)
            try:
                prepared.publish(accept)
            except OSError:
                failed = True
            during = found(target)
        assert during == (old if failed else NEW), (number, tried)
        prepared.settle()
        assert found(target) == during
        assert len([*target.iterdir()]) == len(during), "no work directory is left in it"
        assert [path.name for path in target.parent.iterdir()] == ["out"]
    assert number >= 3


def test_a_process_that_dies_while_it_settles_for_a_dead_one_is_settled_for_too(tmp_path: Path, how: str) -> None:
    for death in range(2, 12, 3):
        number = 0
        tried: list[str] = []
        while len(tried) >= number:
            number += 1
            target = tmp_path / f"{death}, {number}" / "out"
            fill(target, OLD)
            prepared = begun(target, how)
            with pytest.MonkeyPatch.context() as patch:
                fail_at(patch, death, Died(), for_good=True)
                with suppress(Died):
                    prepared.publish(accept)
            prepared._owned.release()
            with pytest.MonkeyPatch.context() as patch:
                tried = fail_at(patch, number, Died(), for_good=True)
                with suppress(Died):
                    settle_abandoned(target)
            settle_abandoned(target)
            assert found(target) in (OLD, NEW), (death, number, tried)
            assert [path.name for path in target.parent.iterdir()] == ["out"]


def test_what_may_not_go_stays_and_so_does_the_old_result(tmp_path: Path, how: str) -> None:
    fill(tmp_path / "out", OLD)
    prepared = begun(tmp_path / "out", how)
    assert settle_abandoned(tmp_path / "out") == [prepared.work], "a job that lives is named, and its work stays"
    fill(tmp_path / "out", {"data.csv": "mine"})

    def refuse(directory: Path) -> None:
        assert (directory / "data.csv").exists()
        raise ValueError("a stranger")

    with pytest.raises(ValueError, match="a stranger"):
        prepared.publish(refuse)
    prepared.settle()
    assert found(tmp_path / "out") == {**OLD, "data.csv": "mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_comes_after_the_last_look_is_not_removed(tmp_path: Path, how: str) -> None:
    fill(tmp_path / "out", OLD)
    prepared = begun(tmp_path / "out", how)
    prepared.publish(lambda directory: (directory / "data.csv").touch())
    if how == IN_PLACE:
        prepared.settle()
        assert sorted(found(tmp_path / "out")) == sorted([*NEW, "data.csv"])
    else:
        with pytest.raises(OSError, match="not empty"):
            prepared.settle()
        assert [path.name for path in (prepared.work / "old").iterdir()] == ["data.csv"]
        settle_abandoned(tmp_path / "out")
        assert (prepared.work / "old" / "data.csv").exists()
        assert found(tmp_path / "out") == NEW


def test_the_leftovers_of_a_published_result_do_not_bring_back_the_one_before(tmp_path: Path, how: str) -> None:
    fill(tmp_path / "out", OLD)
    prepared = begun(tmp_path / "out", how)
    prepared.publish(accept)
    prepared._owned.release()
    for name in parts_of_result(tmp_path / "out"):
        (tmp_path / "out" / name).unlink()
    settle_abandoned(tmp_path / "out")
    assert found(tmp_path / "out") == {}


def test_what_a_dead_process_did_is_not_undone_where_a_whole_result_has_come_since(tmp_path: Path, how: str) -> None:
    for death in range(1, 9):
        target, later = tmp_path / str(death) / "out", {MARK: "later", "part-00000.parquet": "later 0"}
        fill(target, OLD)
        prepared = begun(target, how)
        with pytest.MonkeyPatch.context() as patch:
            fail_at(patch, death, Died(), for_good=True)
            with suppress(Died):
                prepared.publish(accept)
        for name in parts_of_result(target):
            (target / name).unlink()
        fill(target, later)
        prepared._owned.release()
        settle_abandoned(target)
        assert found(target) == later, death
        assert [path.name for path in target.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", ["a link to another result", "a link to nothing", "a file"])
def test_what_takes_the_directorys_place_meanwhile_stays_and_no_link_is_followed(tmp_path: Path, kind: str) -> None:
    target, other = tmp_path / "out", tmp_path / "other"
    fill(target, OLD)
    fill(other, OLD)
    prepared = begun(target, BESIDE)
    target.rename(tmp_path / "archive")
    if kind == "a file":
        target.write_text("mine", encoding="utf-8")
    else:
        target.symlink_to(other if kind == "a link to another result" else tmp_path / "none")
    with pytest.raises(NotADirectoryError, match="no directory any more"):
        prepared.publish(accept)
    prepared.settle()
    assert found(other) == found(tmp_path / "archive") == OLD
    assert target.read_text(encoding="utf-8") == "mine" if kind == "a file" else target.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "other", "out"]


def test_a_link_that_a_dead_process_had_moved_away_is_put_back(tmp_path: Path) -> None:
    fill(tmp_path / "other", OLD)
    prepared = begun(tmp_path / "out", BESIDE)
    (tmp_path / "out").symlink_to(tmp_path / "other")
    (tmp_path / "out").rename(prepared.work / "old")
    prepared._owned.release()
    settle_abandoned(tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert found(tmp_path / "other") == OLD
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


def test_a_directory_in_one_of_the_same_name_is_not_settled_for_it_nor_the_other_way_round(tmp_path: Path) -> None:
    outer = tmp_path / "out"
    inner = outer / "out"
    fill(outer, OLD)
    in_outer = begun(outer, IN_PLACE)
    in_outer._aside.mkdir()
    (outer / MARK).rename(in_outer._aside / MARK)
    in_outer._owned.release()
    assert settle_abandoned(inner) == []
    settle_abandoned(outer)
    assert found(outer) == OLD
    fill(inner, NEW)
    beside_inner = begun(inner, BESIDE)
    inner.rename(beside_inner.work / "old")
    (outer / MARK).unlink()
    beside_inner._owned.release()
    assert settle_abandoned(outer) == []
    assert len(found(outer)) == len(OLD) - 1
    settle_abandoned(inner)
    assert found(inner) == NEW


def test_a_directory_that_cannot_be_renamed_is_filled_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "out", OLD)
    make = OwnedDirectory.make

    def guarded(parent: Path, prefix: str) -> OwnedDirectory:
        if parent == tmp_path:
            raise OSError(errno.EROFS, "Read-only file system")
        return make(parent, prefix)

    monkeypatch.setattr(replacement.OwnedDirectory, "make", guarded)
    prepared = Replacement.begin(tmp_path / "out", "new")
    assert prepared.work.parent == tmp_path / "out"
    prepared.settle()
    with pytest.raises(OSError, match="Read-only"):
        Replacement.begin(tmp_path / "not there", "new")


def test_where_full_directories_are_replaced_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "out", OLD)
    rename = Path.rename

    def careless(self: Path, goal: Path) -> Path:
        if goal.is_dir() and any(goal.iterdir()):
            shutil.rmtree(goal)
        return rename(self, goal)

    monkeypatch.setattr(Path, "rename", careless)
    prepared = Replacement.begin(tmp_path / "out", "new")
    assert prepared.work.parent == tmp_path / "out"
    assert found(tmp_path / "out") == OLD


# --- real mount points


@pytest.fixture(params=["another file system", "the same file system, bound"])
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory that something is mounted on."""
    target, source = tmp_path / "out", tmp_path / "volume"
    target.mkdir()
    source.mkdir()
    what = ["-t", "tmpfs", "none"] if request.param == "another file system" else ["--bind", str(source)]
    try:
        subprocess.run(["mount", *what, str(target)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not permitted here")
    yield target
    subprocess.run(["umount", "--lazy", str(target)], check=True)


def test_a_mount_point_gets_its_result_in_place_and_one_that_is_read_only_is_named_at_once(mounted: Path) -> None:
    for before, now in ((({}), OLD), (OLD, NEW)):
        assert found(mounted) == before
        prepared = Replacement.begin(mounted, now[MARK])
        assert prepared.work.parent == mounted
        fill(prepared.new, now)
        prepared.publish(accept)
        prepared.settle()
        assert sorted(path.name for path in mounted.iterdir()) == sorted(now)
        assert found(mounted) == now
    assert {path.name for path in mounted.parent.iterdir()} == {"out", "volume"}
    subprocess.run(["mount", "-o", "remount,ro,bind", str(mounted)], check=True)
    with pytest.raises(OSError, match="Read-only file system"):
        Replacement.begin(mounted, "new")
