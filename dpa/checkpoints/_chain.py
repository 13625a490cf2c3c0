"""A store of checkpoints: a directory or a prefix of object storage, with a directory for each job. It holds the data
files of the job's checkpoints, and the chain of these: numbered slots. Each is put once, and coordinators compete for
the next one.

A slot holds a checkpoint, or a claim: the first act of a coordinator. A coordinator that finds the next slot taken has
lost the job to another one. Two rules make this hold although slots and files are deleted:

- Slots are deleted in their order, and never the last two. So a new slot was never there before if its predecessor is
  still there after the put. A coordinator that slept while its next slot was won and deleted has lost.
- A slot needs only files that were written for it, or that the slot before needs. So a file that was written for a slot
  that is taken now, and that neither this slot nor a later one needs, will never be needed. One claim is different: one
  that goes back needs the files of an older checkpoint. It is put while no other process collects.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pickle import PickleBuffer
from urllib.parse import unquote, urlsplit

from dpa._util import lines
from dpa.checkpoints._manifest import FileRef, Manifest, Slot, TaskParts
from dpa.errors import CheckpointDamagedError, CheckpointError, CheckpointStoreError, ClaimLostError
from dpa.storage import DirectoryFiles, Files, Purpose, files_at

_PURPOSE = Purpose("checkpoints", CheckpointStoreError, CheckpointError, is_private=True)

_JOB = re.compile(r"[A-Za-z0-9_.-]*-[0-9a-f]{32}")
"""The directory of a job: its name, without what a path cannot hold, and a unique number."""

_SLOT = re.compile(r"(\d{10})\.json")
_FILE = re.compile(r"(\d{10})-.*")

_LOOKS = 10  # tries to find the newest slot while lists are old and slots come and go

Piece = bytes | bytearray | memoryview | PickleBuffer
"""What is written. Any other object with a buffer will do, too."""


@dataclass(frozen=True)
class DataFiles:
    """The data files of a job. Can be pickled, and used by several threads."""

    _files: Files
    job: str

    def write(self, number: int, hint: str, data: Piece | Iterable[Piece]) -> FileRef:
        """Write a file, which is durable when this returns.

        Args:
            number: the slot (`Chain.next`) for whose checkpoint it is. Once that slot is taken, the file is removed
                unless the checkpoint there names it.
            hint: part of its name, for people.
            data: its bytes, or pieces of them. A piece is no longer held when the next one is taken.
        """
        several = isinstance(data, (list, tuple, Iterator))
        pieces: Iterable[Piece] = data if several else [data]  # type: ignore[assignment, list-item]
        path, digest, size = _data_path(number, hint), hashlib.sha256(), 0
        with self._files.writing(f"{self.job}/{path}") as stream:
            for piece in pieces:
                view = memoryview(piece)
                if view.nbytes:
                    digest.update(view := view.cast("B"))
                    stream.write(view)
                    size += len(view)
        return FileRef(path, size, digest.hexdigest())

    def read(self, file: FileRef) -> bytes:
        """The bytes of a file, as this user has written them. Raises CheckpointDamagedError if it is missing, or not
        what was written; CheckpointError if it cannot be read, or another user can write it."""
        place = f"{self._files.place}/{self.job}/{file.path}"
        data = self._files.read(f"{self.job}/{file.path}")
        if data is None:
            raise CheckpointDamagedError(f"{place} is missing, and a checkpoint needs it")
        if len(data) != file.size:
            raise CheckpointDamagedError(f"{place} is damaged: {len(data):,} bytes, not {file.size:,}")
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise CheckpointDamagedError(f"{place} is damaged: its checksum does not fit")
        return data


@dataclass(frozen=True)
class Collected:
    """What was deleted: slots of the chain, and data files."""

    slots: int = 0
    files: int = 0


class Chain:
    """The chain of a job, as one coordinator or reader sees it. Only `collect` may run in another thread.

    Attributes:
        job: the job's directory.
        data: its data files.
    """

    def __init__(self, files: Files, job: str) -> None:
        self.job = job
        self.data = DataFiles(files, job)
        self._files = files
        self._claimant = uuid.uuid4().hex
        self._last: Slot | None = None

    @classmethod
    def begin(cls, files: Files, job: str, name: str, generation: int) -> Chain:
        """The chain of a new job, claimed. Raises CheckpointError if nothing can be written there, or the place
        replaces what it must not."""
        chain = cls(files, job)
        first = Slot(job, name, 0, generation, chain._claimant, None)
        chain._put(first, None)
        if files.put(chain._path(0), b"", draft=f"{job}/{_data_path(0, 'slot')}") is not None:
            ignored = "it replaces an object although it is asked not to (If-None-Match: *)"
            raise CheckpointError(f"{files.place} cannot hold checkpoints: {ignored}; use another storage")
        chain._last = first
        return chain

    @property
    def next(self) -> int:
        """The number of the next slot, for which files are written now; only after a claim."""
        return self._won().number + 1

    def claim(self, generation: int | None = None, back_to: Manifest | None = None) -> Manifest | None:
        """Take the job over: no earlier coordinator can add to the chain from now on. Raises ClaimLostError if another
        coordinator of this generation, or of a later one, has the job; CheckpointDamagedError if the newest slot is
        damaged, or the chain is gone.

        Args:
            generation: a greater one than any before; by default the next.
            back_to: one of `checkpoints`, which is the newest from now on.

        Returns:
            The newest checkpoint, which this coordinator starts from; None if there is none yet.
        """
        newest = self.newest_slot()
        generation = newest.generation + 1 if generation is None else generation
        for _ in range(_LOOKS):
            if newest.generation >= generation:
                break
            start = back_to or newest.checkpoint
            claim = Slot(self.job, newest.name, newest.number + 1, generation, self._claimant, start)
            self._last = self._put(claim, newest)
            if self._last is not None:
                return self._last.checkpoint
            newest = self.newest_slot()
        raise self._lost(newest)

    def commit(
        self, *, epoch: int, coordinator: FileRef, tasks: Sequence[TaskParts], records: int, seconds: float
    ) -> Manifest:
        """Add a checkpoint; the arguments are those of `Manifest`. Its files were written for slot `next`, or are files
        of the checkpoint before. Raises ClaimLostError if another coordinator has taken over: stop. CheckpointError if
        it could not be written, but may still come into the chain. If it does, the next attempt is refused and must be
        written again."""
        last = self._won()
        now = datetime.now(timezone.utc).timestamp()
        number = last.number + 1
        before = last.checkpoint
        line = lines.extended(before.line if before else (), before.epoch + 1 if before else 0, self._claimant)
        manifest = Manifest(number, last.generation, epoch, now, seconds, records, coordinator, tuple(tasks), line)
        known = last.files()
        for path, file in manifest.files().items():
            if file.number != number and known.get(path) != file:
                raise CheckpointError(f"{path} is no file of slot {number} or {last.number} of {self.job}")
        slot = Slot(self.job, last.name, number, last.generation, self._claimant, manifest)
        self._last = self._put(slot, last)
        if self._last is None:
            raise self._lost(self.newest_slot())
        if self._last != slot:
            raise CheckpointError(f"{self._place(number)} is there already, from an attempt that had seemed to fail")
        return manifest

    def newest(self) -> Manifest | None:
        return self.newest_slot().checkpoint

    def checkpoints(self) -> dict[int, Manifest]:
        """Checkpoints that the job may continue with, by number, the newest first. Those that it went back from are
        not among them."""
        found: dict[int, Manifest] = {}
        number = self.newest_slot().number if self._listed() else -1
        while number >= 0 and (slot := self.slot(number)) is not None and slot.checkpoint is not None:
            found[slot.checkpoint.number] = slot.checkpoint
            number = slot.checkpoint.number if slot.is_claim else number - 1
        return found

    def manifest(self, number: int) -> Manifest:
        slot = self.slot(number)
        if slot is None:
            raise CheckpointDamagedError(f"{self._place(number)} is missing")
        if slot.checkpoint is None or slot.is_claim:
            raise CheckpointError(f"{self._place(number)} is no checkpoint, but the claim of a coordinator")
        return slot.checkpoint

    def slot(self, number: int) -> Slot | None:
        content = self._files.read(self._path(number))
        return None if content is None else Slot.decode(content, self.job, number, self._place(number))

    def numbers(self) -> list[int]:
        """The numbers of the slots, ascending. A slot before a gap does not count: a coordinator that had lost put it
        again after it was deleted."""
        return _without_gap(self._listed())

    def newest_slot(self) -> Slot:
        """The last slot of the chain. Raises CheckpointDamagedError if it is damaged, or there is none."""
        for _ in range(_LOOKS):
            number = max(self._listed(), default=-1)
            # A list may lack the newest slots. A read does not.
            while self._files.read(self._path(number + 1)) is not None:
                number += 1
            if number >= 0 and (slot := self.slot(number)) is not None:
                return slot
        raise CheckpointDamagedError(f"{self._files.place}/{self.job} has no slot of a chain: it was removed")

    def collect(self, keep: int) -> Collected:
        """Delete the checkpoints before the newest `keep`, and the files that no other one needs or will need. If a
        manifest is damaged, everything stays. Raises CheckpointError if something cannot be read or deleted; what is
        left is for the next call."""
        assert keep > 0
        listed = self._listed()
        kept: list[Slot] = []
        for number in reversed(_without_gap(listed)):
            if len(kept) > 1 and sum(not slot.is_claim for slot in kept) >= keep:
                break
            slot = self.slot(number)
            kept += [] if slot is None else [slot]
        old = [number for number in listed if kept and number < kept[-1].number]
        for number in old:  # one by one, as their order matters
            self._files.delete([self._path(number)])
        needed = {path for slot in kept for path in slot.files()}
        newest = max((slot.number for slot in kept), default=-1)
        names = [name for name in self._files.names(f"{self.job}/files") if _FILE.fullmatch(name)]
        orphans = [name for name in names if int(name[:10]) <= newest and f"files/{name}" not in needed]
        self._files.delete(f"{self.job}/files/{name}" for name in orphans)
        return Collected(len(old), len(orphans))

    def remove(self) -> None:
        """Delete everything of the job, whose coordinators have ended. After an error it can be called again."""
        for number in self._listed():
            self._files.delete([self._path(number)])
        self._files.delete(f"{self.job}/files/{name}" for name in self._files.names(f"{self.job}/files"))
        self._files.remove(self.job)
        self._last = None

    def _put(self, slot: Slot, last: Slot | None) -> Slot | None:
        """Put a slot into the chain, after the last known one.

        Returns:
            This coordinator's slot of that number: an earlier attempt's, if that had seemed to fail. None if another
            coordinator has taken the slot.
        """
        draft = f"{self.job}/{_data_path(slot.number, 'slot')}"
        is_put = self._files.put(self._path(slot.number), slot.encode(), draft=draft) is not None
        there = slot if is_put else self.slot(slot.number)
        if there is None or there.claimant != self._claimant:
            return None
        if last is not None and self.slot(last.number) != last:
            return None  # another coordinator's slot was there, and is deleted
        return there

    def _listed(self) -> list[int]:
        found = map(_SLOT.fullmatch, self._files.names(f"{self.job}/chain"))
        return sorted(int(match[1]) for match in found if match)

    def _won(self) -> Slot:
        if self._last is None:
            raise ClaimLostError(f"{self._files.place}/{self.job} is not claimed, or lost to another coordinator")
        return self._last

    def _lost(self, winner: Slot) -> ClaimLostError:
        by = f"slot {winner.number} belongs to generation {winner.generation}"
        return ClaimLostError(f"another coordinator has taken {self._files.place}/{self.job} over: {by}")

    def _path(self, number: int) -> str:
        return f"{self.job}/chain/{number:010d}.json"

    def _place(self, number: int) -> str:
        return f"{self._files.place}/{self._path(number)}"


def _without_gap(numbers: Sequence[int]) -> list[int]:
    """The longest end of ascending numbers without a gap."""
    return [number for place, number in enumerate(numbers) if numbers[-1] - number == len(numbers) - 1 - place]


def _data_path(number: int, hint: str) -> str:
    """A unique path of a file that is written for a slot."""
    return f"files/{number:010d}-{re.sub('[^A-Za-z0-9_.]+', '_', hint)[:80]}-{uuid.uuid4().hex}"


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints below a URI. Can be pickled."""

    _files: Files

    @classmethod
    def open(cls, uri: str) -> CheckpointStore:
        """The store at a path, `file:///path`, or `s3://bucket/prefix` with the options that Arrow knows. A directory
        need not exist. Raises CheckpointError if checkpoints cannot be there."""
        parts = urlsplit(uri)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            uri = unquote(parts.path)
        elif "://" in uri and parts.scheme != "s3":
            place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            right = "name a directory, file:///DIRECTORY or s3://BUCKET/PREFIX"
            raise CheckpointError(f"checkpoints cannot be at {place}: {right}")
        if "://" not in uri:
            uri = os.path.abspath(os.path.expanduser(uri))  # noqa: PTH100, PTH111 - as `..` was always understood
        files = files_at(uri, _PURPOSE)
        files.check()
        return cls(files)

    @staticmethod
    def with_job(uri: str) -> tuple[str, str | None]:
        """The URI of the store, and the job's directory if the URI names one."""
        path, mark, options = uri.partition("?")
        place, slash, last = path.rstrip("/").rpartition("/")
        return (f"{place or slash or '.'}{mark}{options}", last) if _JOB.fullmatch(last) else (uri, None)

    @property
    def place(self) -> str:
        """For messages: without user, password or options."""
        return self._files.place

    def create(self, name: str, generation: int = 0) -> Chain:
        """The chain of a new job of this name, claimed for its first generation."""
        job = f"{re.sub('[^A-Za-z0-9_.-]+', '_', name)[:80]}-{uuid.uuid4().hex}"
        self._files.make(job, f"{job}/chain", f"{job}/files")
        return Chain.begin(self._files, job, name, generation)

    def jobs(self) -> list[str]:
        return sorted(name for name in self._files.names("") if _JOB.fullmatch(name))

    def chain(self, job: str) -> Chain:
        """The chain of a job, named by its directory, to read, claim or collect. Raises CheckpointError if there is no
        such job."""
        if _JOB.fullmatch(job) is None or job not in self.jobs():
            known = ", ".join(self.jobs()) or "none"
            raise CheckpointError(f"{self.place} has no checkpoints of {job}; jobs there: {known}")
        return Chain(self._files, job)

    def room(self, job: str) -> str | None:
        """A directory, not made yet, where the job's input is staged and is removed with the checkpoints; None in
        object storage."""
        return f"{self.place}/{job}/input" if isinstance(self._files, DirectoryFiles) else None
