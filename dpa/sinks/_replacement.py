"""Replaces the result in a directory as a whole: after any failure the old result or the new one is there.

The new result is prepared in a work directory that this process owns. If the target can be renamed, the work directory
lies beside it, and two renames exchange the directories. A target that cannot be renamed, such as a mount point, is
filled in place: the work directory lies in it, and files are moved one by one. `_job.yaml` is moved out first and moved
in last, so it is there only beside a whole result.

    .lock      held by the owner
    shares/    what the new result is made of, if all of it becomes one file
    new/       the new result, with its `_job.yaml` until that is in the target
    aside/     in place only: the part of the old result that has moved; files in the target are of the old result
    old/       the old result; in place, files in the target are of the new result now

The work directory beside `out` is `.out.` and 32 hexadecimal digits. In place its name is `.dpa-result-` and as many:
it must differ from a work directory of `out/out`, and be found if `out` is mounted under another name. If the owner is
killed, the next user of the target undoes what it did.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dpa._util import owned
from dpa._util.disk import sync
from dpa._util.owned import OwnedDirectory
from dpa.sinks.encodings import COMPRESSED, ENCODINGS

MARK = "_job.yaml"
"""The resolved configuration beside a result. Readers of Parquet directories ignore names with an underscore."""

_IN_PLACE = ".dpa-result-"

ENDING = rf"(?:{'|'.join(re.escape(each.ending) for each in ENCODINGS)})(?:{'|'.join(COMPRESSED.values())})?"
"""Of the names of files, as a pattern."""

PART = re.compile(rf"part-\d{{5}}{ENDING}")


def part_name(task: int, writer: str = "", epoch: int | None = None) -> str:
    """The name of a task's file without its ending, which `PART` then matches if there is no `writer`."""
    of_writer, of_epoch = f"-{writer}" if writer else "", "" if epoch is None else f"-{epoch:06d}"
    return f"part-{task:05d}{of_writer}{of_epoch}"


def shown(names: list[str]) -> str:
    """The first of some names, and the number of the others."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


class Replacement:
    """The new result of a directory while it is prepared.

    Attributes:
        new: the directory in which it is prepared.
        shares: one for what is needed to prepare it.
        work: the work directory around it.
    """

    def __init__(self, target: Path, work: OwnedDirectory) -> None:
        self.work = work.path
        self.new = work.path / "new"
        self.shares = work.path / "shares"
        self._aside = work.path / "aside"
        self._old = work.path / "old"
        self._owned = work
        self._target = target
        self._is_in_place = work.path.parent == target

    @classmethod
    def begin(cls, target: Path, mark: str) -> Replacement:
        """Prepare a new result of `target`, which need not exist, with `mark` as the text of its `_job.yaml`."""
        try:
            beside = cls._begun(target.parent, target, mark)
        except OSError:
            if not target.is_dir():
                raise
        else:
            if beside._can_rename_target():
                return beside
            beside.settle()
        return cls._begun(target, target, mark)

    @classmethod
    def _begun(cls, parent: Path, target: Path, mark: str) -> Replacement:
        replacement = cls(target, OwnedDirectory.make(parent, _prefix(parent, target)))
        try:
            replacement.new.mkdir()
            replacement.shares.mkdir()
            (replacement.new / MARK).write_text(mark, encoding="utf-8")
        except BaseException:
            with suppress(OSError):
                replacement.settle()
            raise
        return replacement

    def _can_rename_target(self) -> bool:
        """Whether the target can be moved into the work directory."""
        if not self._target.exists():
            return True
        # This rename must fail, as its goal is not empty. With a mount point, which may look like any other directory,
        # or without the right to rename it fails with another error.
        try:
            self._target.rename(self.new)
        except OSError as error:
            return error.errno in (errno.ENOTEMPTY, errno.EEXIST)
        self.new.rename(self._target)  # this file system replaces what is not empty: move it back
        return False

    def publish(self, accept: Callable[[Path], None]) -> None:
        """Put the new result in its place. If this raises, the old one is there; `accept` is given the directory with
        the old one, and raises if that must stay."""
        try:
            sync(self.new / MARK)
            sync(self.new)
            if self._is_in_place:
                self._exchange_files(accept)
            else:
                self._exchange_directories(accept)
        except BaseException:
            with suppress(OSError):  # tried again by `settle`
                self._undo()
            raise

    def _exchange_directories(self, accept: Callable[[Path], None]) -> None:
        if os.path.lexists(self._target):
            self._target.rename(self._old)
            if self._old.is_symlink() or not self._old.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "this is no directory any more", str(self._target))
            accept(self._old)  # nothing new can come to a directory that has moved
        self.new.rename(self._target)

    def _exchange_files(self, accept: Callable[[Path], None]) -> None:
        names = parts_of_result(self._target)
        accept(self._target)
        self._aside.mkdir()
        _move(self._target, self._aside, sorted(names, key=lambda name: name != MARK))
        self._aside.rename(self._old)
        _move(self.new, self._target, _mark_last(self.new))

    def _undo(self) -> None:
        """Bring back the old result, unless it has not moved, or a whole result is there."""
        if not (self.new / MARK).exists() or (self._target / MARK).exists():
            return
        if self._is_in_place:
            if self._old.exists():
                for name in parts_of_result(self._target):
                    _remove(self._target / name)
                self._old.rename(self._aside)
            if self._aside.exists():
                _move(self._aside, self._target, _mark_last(self._aside))
        elif os.path.lexists(self._old):
            self._old.rename(self._target)

    def settle(self) -> None:
        """Undo an incomplete exchange, and remove the work directory. If that fails, the next job that uses the target
        tries again."""
        try:
            self._undo()
            for place in (self._old, self._aside):
                for name in parts_of_result(place):
                    _remove(place / name)
                if place.exists():
                    place.rmdir()  # which fails if it holds anything but a result
            self._owned.remove_directory()
        finally:
            self._owned.release()


def settle_abandoned(target: Path) -> list[Path]:
    """Settle what killed jobs have left; returns the work directories of running jobs."""
    alive: list[Path] = []
    for parent in (target.parent, target):
        abandoned, living = owned.found(parent, _prefix(parent, target))
        alive += living
        for directory in abandoned:
            with suppress(OSError):
                Replacement(target, directory).settle()
    return alive


def is_unsettled(target: Path) -> bool:
    """Whether a job, maybe a killed one, is filling a directory in place."""
    return bool(owned.named(target, _IN_PLACE))


def parts_of_result(directory: Path) -> list[str]:
    """The names of a result's files, and of its directories with nothing but these, in a directory that may be missing.
    Links are not followed."""
    entries = directory.iterdir() if directory.is_dir() and not directory.is_symlink() else ()
    return sorted(entry.name for entry in entries if entry.name == MARK or _is_of_result(entry))


def files_of_result(directory: Path) -> tuple[str, ...]:
    """The relative paths of a result's files but `_job.yaml`."""
    found = [directory / name for name in parts_of_result(directory) if name != MARK]
    files = [file for part in found for file in (sorted(part.rglob("part-*")) if part.is_dir() else [part])]
    return tuple(str(file.relative_to(directory)) for file in files)


def _is_of_result(entry: Path) -> bool:
    if entry.is_symlink():
        return False
    if entry.is_dir():
        return "=" in entry.name and all(map(_is_of_result, entry.iterdir()))
    return entry.is_file() and PART.fullmatch(entry.name) is not None


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink()


def _mark_last(directory: Path) -> list[str]:
    return sorted((entry.name for entry in directory.iterdir()), key=lambda name: name == MARK)


def _move(source: Path, goal: Path, names: list[str]) -> None:
    """Move files. After a loss of power `_job.yaml` is neither where files moved before it are missing, nor where files
    moved after it are."""
    for name in names:
        if name != MARK:
            (source / name).rename(goal / name)
            continue
        sync(goal)
        (source / name).rename(goal / name)
        sync(goal)
        sync(source)


def _prefix(parent: Path, target: Path) -> str:
    """Of the names of work directories in `parent`."""
    return _IN_PLACE if parent == target else f".{target.name}."
