"""The chain of a job's checkpoints: numbered slots, each born once, of which coordinators win one after the other.

A slot holds a checkpoint, or a claim: the first act of a coordinator. Who finds the next slot taken has lost the job to
another one. Two rules make this hold although slots and files are deleted:

- Slots are deleted in their order. So a slot whose predecessor is still there after it was put was never there before,
  and a coordinator that slept while its next slot was won, and deleted, learns that it has lost.
- A checkpoint needs only files that were written for its own slot, or that the slot before needs. So what no slot from
  some slot on needs, and was written for a slot that is taken, nobody will ever need.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from dpa.checkpoints._data import DataFiles, data_path
from dpa.checkpoints._files import Files
from dpa.checkpoints._manifest import FileRef, Manifest, Slot, TaskParts
from dpa.errors import CheckpointDamagedError, CheckpointError, ClaimLostError

_SLOT = re.compile(r"(\d{10})\.json")
_FILE = re.compile(r"(\d{10})-.*")

_LOOKS = 10
"""How often the newest slot is looked for, where lists are old and slots vanish meanwhile."""


@dataclass(frozen=True)
class Collected:
    """What was deleted: slots of the chain, and data files."""

    slots: int = 0
    files: int = 0


class Chain:
    """The chain of a job, as one coordinator or reader sees it. Not for several threads at once, but for `collect`.

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
        """The chain of a new job, claimed.

        Raises:
            CheckpointError: nothing can be written there, or what is written is not safe from others.
        """
        chain = cls(files, job)
        first = Slot(job, name, 0, generation, chain._claimant, None)
        if not chain._put(first) or chain._put(Slot(job, name, 0, generation, "another", None)):
            ignored = "it replaces an object although it is asked not to (If-None-Match: *)"
            raise CheckpointError(f"{files.place} cannot hold checkpoints: {ignored}; use another storage")
        chain._last = first
        return chain

    @property
    def next(self) -> int:
        """The number of the next slot, for which files are to be written now; only after a claim."""
        return self._won().number + 1

    @property
    def generation(self) -> int:
        """That of the claim."""
        return self._won().generation

    def claim(self, generation: int | None = None, base: int | None = None) -> Manifest | None:
        """Take the job over: nobody who did so before can add to the chain from now on.

        Args:
            generation: a greater one than any before; by default the next.
            base: the number of the checkpoint to start from; by default the newest.

        Returns:
            That checkpoint; None if there is none yet.

        Raises:
            ClaimLostError: another coordinator of this generation, or a later one, has it.
            CheckpointDamagedError: the checkpoint is missing or damaged.
        """
        newest = self.newest_slot()
        generation = newest.generation + 1 if generation is None else generation
        while newest.generation < generation:
            checkpoint = newest.checkpoint if base is None else self.manifest(base)
            self._put(Slot(self.job, newest.name, newest.number + 1, generation, self._claimant, checkpoint))
            newest = self.newest_slot()
        if (newest.generation, newest.claimant) != (generation, self._claimant):
            raise self._lost(newest)
        if base is not None:
            self.manifest(base)  # its files stay if it was still there when the claim was
        self._last = newest
        return newest.checkpoint

    def commit(
        self, *, epoch: int, coordinator: FileRef, tasks: Sequence[TaskParts], records: int, seconds: float
    ) -> Manifest:
        """Add a checkpoint; the arguments are those of `Manifest`.

        Its files are those that were written for slot `next`, and any of the checkpoint before.

        Raises:
            ClaimLostError: another coordinator has taken over: stop.
            CheckpointError: it could not be written. It may come into the chain nevertheless, until one that is tried
                later has its place: then that one is refused, and is to be written again.
        """
        last = self._won()
        now = datetime.now(timezone.utc).timestamp()
        number = last.number + 1
        manifest = Manifest(number, last.generation, epoch, now, seconds, records, coordinator, tuple(tasks))
        known = last.files()
        for path, file in manifest.files().items():
            if file.number != number and known.get(path) != file:
                raise CheckpointError(f"{path} is no file of slot {number} or {last.number} of {self.job}")
        slot = Slot(self.job, last.name, number, last.generation, self._claimant, manifest)
        if self._put(slot):
            self._last = slot
            return manifest
        found = self._read(number)
        if found is None or found.claimant != self._claimant:
            self._last = None
            raise self._lost(found or self.newest_slot())
        self._last = found
        raise CheckpointError(f"{self._place(number)} is there already, from an attempt that had seemed to fail")

    def newest(self) -> Manifest | None:
        """The newest checkpoint; None if there is none yet.

        Raises:
            CheckpointDamagedError: it is damaged, or the chain is gone.
        """
        return self.newest_slot().checkpoint

    def manifest(self, number: int) -> Manifest:
        """The checkpoint of a number.

        Raises:
            CheckpointDamagedError: it is missing or damaged.
        """
        slot = self._read(number)
        if slot is None:
            raise CheckpointDamagedError(f"{self._place(number)} is missing")
        if slot.checkpoint is None or slot.is_claim:
            raise CheckpointError(f"{self._place(number)} is no checkpoint, but the claim of a coordinator")
        return slot.checkpoint

    def slots(self) -> list[Slot]:
        """Those that are there, in their order."""
        return [slot for number in self._numbers() if (slot := self._read(number)) is not None]

    def newest_slot(self) -> Slot:
        """The last one of the chain. A list that is too short does not mislead it.

        Raises:
            CheckpointDamagedError: it is damaged, or there is none.
        """
        for _ in range(_LOOKS):
            number = max(self._numbers(), default=-1)
            while self._files.exists(self._path(number + 1)):
                number += 1
            if number >= 0 and (slot := self._read(number)) is not None:
                return slot
        raise CheckpointDamagedError(f"{self._files.place}/{self.job} has no slot of a chain: it was removed")

    def collect(self, keep: int) -> Collected:
        """Delete the checkpoints before the newest `keep`, and the files that no other one needs or will need.

        Files that are written meanwhile for the next checkpoint stay, and so does everything if a manifest is damaged.

        Raises:
            CheckpointError: something cannot be read or deleted; what is left is for the next call.
        """
        assert keep > 0
        checkpoints = 0
        old: list[int] = []
        for number in reversed(self._numbers()):
            if checkpoints == keep:
                old.append(number)
            elif (slot := self._read(number)) is not None and not slot.is_claim:
                checkpoints += 1
        for number in reversed(old):
            self._files.delete([self._path(number)])
        slots = self.slots()  # anew: a claim may have named one of those as its base before it was deleted
        needed = {path for slot in slots for path in slot.files()}
        newest = max((slot.number for slot in slots), default=-1)
        names = [name for name in self._files.names(f"{self.job}/files") if _FILE.fullmatch(name)]
        orphans = [name for name in names if int(name[:10]) <= newest and f"files/{name}" not in needed]
        self._files.delete(f"{self.job}/files/{name}" for name in orphans)
        return Collected(len(old), len(orphans))

    def _put(self, slot: Slot) -> bool:
        """Put a slot into the chain, behind its last one; False if another one was there."""
        path, content = self._path(slot.number), slot.encode()
        if not self._files.put_if_absent(path, content, f"{self.job}/{data_path(slot.number, 'slot')}"):
            try:
                is_own = self._files.read(path) == content  # put by a request of ours whose answer was lost
            except FileNotFoundError:
                is_own = False
            if not is_own:
                return False
        if slot.number and not self._files.exists(self._path(slot.number - 1)):
            self._files.delete([path])  # another one was there, and is deleted
            return False
        return True

    def _read(self, number: int) -> Slot | None:
        """A slot; None if it is not there."""
        try:
            content = self._files.read(self._path(number))
        except FileNotFoundError:
            return None
        return Slot.decode(content, self.job, number, self._place(number))

    def _numbers(self) -> list[int]:
        """Those of the slots that are listed, in their order."""
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
