"""Locks and temporary directories outlive neither their owner nor its death: the next run sees that it is gone."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpa._util import owned
from dpa._util.owned import OwnedDirectory, found, held, sweep, temporary_directory, users_directory

KILLED = """
import os, signal, sys
from pathlib import Path
from dpa._util.owned import OwnedDirectory
directory = OwnedDirectory.make(Path(sys.argv[1]), "dpa-stage-")
(directory.path / "data").mkdir()
(directory.path / "data" / "part").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""


def abandoned(parent: Path, prefix: str = "dpa-stage-") -> Path:
    """A directory with something in it, whose owner is gone."""
    directory = OwnedDirectory.make(parent, prefix)
    (directory.path / "data").mkdir()
    (directory.path / "data" / "part").touch()
    directory.release()
    return directory.path


def test_what_a_killed_process_leaves_is_swept_by_a_later_one(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=False)
    assert process.returncode == -signal.SIGKILL
    [left] = tmp_path.iterdir()
    assert sorted(entry.name for entry in left.iterdir()) == [".lock", "data"]
    (tmp_path / f"dpa-stage-{'0' * 32}").mkdir()  # it was being made or removed
    sweep(tmp_path, "dpa-stage-")
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_uses_stays(tmp_path: Path) -> None:
    ours = OwnedDirectory.make(tmp_path / "new", "dpa-stage-")
    sweep(tmp_path / "new", "dpa-stage-")
    assert found(tmp_path / "new", "dpa-stage-") == ([], [ours.path])
    ours.remove_directory()
    ours.remove_directory()
    assert list((tmp_path / "new").iterdir()) == []


def test_what_is_not_known_to_be_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lock = tmp_path / f"dpa-stage-{'0' * 32}"
    (without_lock / "data").mkdir(parents=True)
    other_name = abandoned(tmp_path).rename(tmp_path / "dpa-stage-of-mine")
    link = tmp_path / f"dpa-stage-{'1' * 32}"
    link.symlink_to(abandoned(tmp_path / "elsewhere"))
    sweep(tmp_path, "dpa-stage-")
    assert without_lock.exists()
    assert (other_name / "data" / "part").exists()
    assert (link / "data" / "part").exists()
    theirs = abandoned(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    sweep(tmp_path, "dpa-stage-")
    assert theirs.exists()


def test_what_cannot_be_removed_keeps_no_other_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [abandoned(tmp_path), abandoned(tmp_path)]
    remove = owned.shutil.rmtree

    def stubborn(path: Path) -> None:
        if path.parent == places[0]:
            raise OSError(errno.EACCES, "Permission denied")
        remove(path)

    monkeypatch.setattr(owned.shutil, "rmtree", stubborn)
    sweep(tmp_path, "dpa-stage-")
    assert list(tmp_path.iterdir()) == [places[0]]
    monkeypatch.undo()
    sweep(tmp_path, "dpa-stage-")
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_directory_is_the_users_alone_and_sweeps_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned, "gettempdir", lambda: str(tmp_path))
    abandoned(tmp_path, "dpa-spark-")
    with temporary_directory("dpa-spark-") as directory:
        assert list(tmp_path.iterdir()) == [directory]
        assert directory.stat().st_mode & 0o777 == 0o700
        with temporary_directory("dpa-spark-") as second:
            assert sorted(tmp_path.iterdir()) == sorted([directory, second])
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_once_and_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    for _ in range(2):
        with held(file), pytest.raises(BlockingIOError), held(file):
            pass
        assert not file.exists()
        file.touch()  # of somebody who was killed


def test_a_lock_whose_file_was_removed_is_taken_on_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, lock = tmp_path / ".lock", fcntl.flock
    file.touch()
    opened: list[int] = []

    def late(descriptor: int, how: int) -> None:
        if not opened:
            file.unlink()
        opened.append(descriptor)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with held(file):
        assert len(opened) == 2
        with pytest.raises(BlockingIOError), held(file):
            pass


def test_without_locks_there_is_no_guard_and_nothing_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = abandoned(tmp_path)

    def unsupported(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with held(tmp_path / ".lock"), held(tmp_path / ".lock"):
        pass
    sweep(tmp_path, "dpa-stage-")
    assert left.exists()
    directory = OwnedDirectory.make(tmp_path, "dpa-stage-")
    sweep(tmp_path, "dpa-stage-")
    assert directory.path.exists()
    directory.remove_directory()
    assert list(tmp_path.iterdir()) == [left]


def test_a_directory_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, swept = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not swept:
            swept.extend(tmp_path.iterdir())
            sweep(tmp_path, "dpa-stage-")
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    directory = OwnedDirectory.make(tmp_path, "dpa-stage-")
    assert len(swept) == 1
    assert list(tmp_path.iterdir()) == [directory.path]
    assert found(tmp_path, "dpa-stage-") == ([], [directory.path])


def test_a_directory_that_goes_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"dpa-stage-{'0' * 32}").mkdir()
    exists = Path.exists

    def late(self: Path) -> bool:
        self.parent.rmdir()
        return exists(self)

    monkeypatch.setattr(Path, "exists", late)
    assert found(tmp_path, "dpa-stage-") == ([], [])


def test_a_forked_process_has_no_part_in_the_locks_of_its_parent(tmp_path: Path) -> None:
    directory, (ready, say) = OwnedDirectory.make(tmp_path, "dpa-stage-"), os.pipe()
    with held(tmp_path / "lock"):
        if not (forked := os.fork()):
            os.write(say, b".")
            signal.pause()
        os.read(ready, 1)
    try:
        directory.release()
        with held(tmp_path / "lock"):
            assert [each.path for each in found(tmp_path, "dpa-stage-")[0]] == [directory.path]
    finally:
        os.kill(forked, signal.SIGKILL)
        os.waitpid(forked, 0)


def test_directories_whose_names_are_short_are_found_by_that_length_alone(tmp_path: Path) -> None:
    made = [OwnedDirectory.make(tmp_path, "dpa-", digits=1) for _ in range(16)]
    assert {directory.path.name for directory in made} == {f"dpa-{digit:x}" for digit in range(16)}
    made[0].release()
    abandoned, alive = found(tmp_path, "dpa-", digits=1)
    assert [directory.path for directory in abandoned] == [made[0].path]
    assert sorted(alive) == sorted(directory.path for directory in made[1:])
    assert found(tmp_path, "dpa-") == ([], [])


def test_the_directory_of_a_user_is_for_nobody_else(tmp_path: Path) -> None:
    path = users_directory(str(tmp_path))
    assert path.stat().st_mode & 0o777 == 0o700
    path.chmod(0o755)
    assert users_directory(str(tmp_path)).stat().st_mode & 0o777 == 0o700
    path.chmod(0o777)
    with pytest.raises(PermissionError, match=r"is not trusted: it belongs to user .*; remove it, or set TMPDIR"):
        users_directory(str(tmp_path))
    path.rename(tmp_path / "mine")
    path.symlink_to(tmp_path / "mine")
    with pytest.raises(PermissionError, match="is not trusted"):
        users_directory(str(tmp_path))
