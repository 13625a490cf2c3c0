"""A random walk over a store of checkpoints, on which whatever can go wrong does: coordinators are killed between any
two operations of the file system, others act in between, writes are torn, lists are old, the power fails.

After each step the newest checkpoint is complete, and what was committed is in the chain, each by one coordinator.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from dpa._util import disk
from dpa._util.owned import read_trusted
from dpa.checkpoints import Chain, CheckpointStore, Manifest, Part, TaskParts
from dpa.checkpoints._manifest import Slot
from dpa.errors import CheckpointError, ClaimLostError
from dpa.storage import Files, _directory


class Killed(BaseException):
    """The process of who works ends here."""


class Faults:
    """What happens at an operation to come, counted from now."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Nothing."""
        self.kind = ""
        self.steps = 0
        self.action: Callable[[], None] | None = None
        self.is_killed = False
        self.late = 0

    def step(self, kind: str) -> None:
        """An operation of the file system is about to begin."""
        if self.is_killed:
            raise Killed
        if self.action is not None and self.kind in ("any", kind):
            if self.steps:
                self.steps -= 1
            else:
                action, self.action = self.action, None
                action()

    def kill(self) -> None:
        """End the process."""
        self.is_killed = True
        raise Killed

    def shown(self, created: Sequence[str], names: Iterable[str]) -> list[str]:
        """A list of names that lacks some that were created last; the next one lacks fewer."""
        hidden = set(created[-self.late :]) if self.late else set()
        self.late = max(0, self.late - 1)
        return [name for name in names if name not in hidden]


class FaultyOs:
    """The module `os` for `dpa.storage._directory`, with faults, and with what a loss of power takes."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._created: list[str] = []
        self._opened: dict[int, str] = {}
        self._unsynced_data: set[str] = set()
        self._unsynced_names: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._faults.step("open")
        file = os.open(path, flags, mode)
        self._opened[file] = path
        if flags & os.O_CREAT:
            self._is_new(path)
            self._unsynced_data.add(path)
        return file

    def fdopen(self, file: int, mode: str) -> io.BufferedWriter:
        faulty = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                return faulty.write(self.fileno(), memoryview(data))

        return io.BufferedWriter(Raw(file, mode))

    def write(self, file: int, data: memoryview) -> int:
        if self._faults.is_killed:
            raise Killed  # as a stream is closed that could not be flushed
        try:
            self._faults.step("write")
        except Killed:
            os.write(file, data[: len(data) // 2])
            raise
        return os.write(file, data)

    def fsync(self, file: int) -> None:
        self._faults.step("fsync")
        path = self._opened[file].rstrip("/")
        self._unsynced_data.discard(path)
        self._unsynced_names -= {name for name in self._unsynced_names if str(Path(name).parent) == path}

    def link(self, source: str, target: str) -> None:
        self._faults.step("put")
        os.link(source, target)
        self._is_new(target)

    def unlink(self, path: str) -> None:
        self._faults.step("delete")
        Path(path).unlink()
        self._unsynced_data.discard(path)
        self._unsynced_names.discard(path)

    def read_trusted(self, path: str) -> bytes:
        """In place of the function, whose own `os` is the real one."""
        self._faults.step("read")
        return read_trusted(path)

    def listdir(self, path: str) -> list[str]:
        self._faults.step("list")
        return self._faults.shown(self._created, [entry.name for entry in Path(path).iterdir()])

    def _is_new(self, path: str) -> None:
        self._created.append(Path(path).name)
        self._unsynced_names.add(path)

    def lose_power(self) -> None:
        """Lose what was not synced."""
        for path in self._unsynced_data:
            os.truncate(path, Path(path).stat().st_size // 2)
        for path in self._unsynced_names:
            Path(path).unlink()
        self._unsynced_data, self._unsynced_names = set(), set()


class FaultyFiles(Files):
    """Files with faults before and after each operation."""

    def __init__(self, files: Files, faults: Faults) -> None:
        self.place = files.place
        self.purpose = files.purpose
        self._files = files
        self._faults = faults
        self._created: list[str] = []

    def make(self, *directories: str) -> None:
        self._files.make(*directories)

    def remove(self, directory: str) -> None:
        self._files.remove(directory)

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        self._faults.step("write")
        with self._files.writing(path) as stream:
            yield stream
        self._created.append(path.rpartition("/")[2])
        self._faults.step("written")

    def put(self, path: str, data: bytes, tag: str | None = None, draft: str | None = None) -> str | None:
        self._faults.step("put")
        new = self._files.put(path, data, tag, draft)
        self._created += [path.rpartition("/")[2]] * (new is not None)
        self._faults.step("written")
        return new

    @contextmanager
    def reading(self, path: str) -> Iterator[Any]:
        self._faults.step("read")
        with self._files.reading(path) as file:
            yield file

    def names(self, directory: str) -> list[str]:
        self._faults.step("list")
        return self._faults.shown(self._created, self._files.names(directory))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._faults.step("delete")
            self._files.delete([path])


class Coordinator:
    """One of those that write; its next checkpoint is a number of bytes that nobody else writes."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.last: Manifest | None = None


def slots_of(chain: Chain) -> list[Slot]:
    """Those that are there."""
    return [slot for number in chain.numbers() if (slot := chain.slot(number)) is not None]


FAULTS = st.sampled_from(["none", "kill", "error", "another", "another", "late"])
PLACES = st.tuples(
    st.sampled_from(["any", "open", "write", "fsync", "put", "delete", "list", "read"]), st.integers(0, 4)
)
"""Before which operation: of a kind, and how many of that are before it."""


class CheckpointWalk(RuleBasedStateMachine):
    """Coordinators of a job, of which several believe that they are the one."""

    can_lose_power = True

    def __init__(self) -> None:
        super().__init__()
        self.faults = Faults()
        self.store = self.make_store()
        first = Coordinator(self.store.create("walk"))
        self.job = first.chain.job
        self.coordinators = [first]
        self.won: dict[int, Slot | Manifest] = {}
        self.claims = [(0, 0)]
        self.newest = 0
        self.epoch = 0

    def make_store(self) -> CheckpointStore:
        """A store in a new directory."""
        self._directory = TemporaryDirectory()
        self._os = FaultyOs(self.faults)
        _directory.os = disk.os = self._os  # type: ignore[attr-defined]
        _directory.read_trusted = self._os.read_trusted
        return CheckpointStore.open(self._directory.name)

    def error(self) -> None:
        """What an operation that fails raises."""
        raise OSError(errno.EIO, "Input/output error")

    def lose_power(self) -> None:
        self._os.lose_power()

    def teardown(self) -> None:
        _directory.os = disk.os = os  # type: ignore[attr-defined]
        _directory.read_trusted = read_trusted
        self._directory.cleanup()

    # --- what coordinators do

    @rule(
        who=st.integers(0, 5),
        new=st.integers(0, 2),
        kept=st.integers(0, 3),
        fault=FAULTS,
        at=PLACES,
        other=st.integers(0, 3),
    )
    def commit(self, who: int, new: int, kept: int, fault: str, at: tuple[str, int], other: int) -> None:
        self._with_fault(self._some(who), lambda one: self._commit(one, new, kept), fault, at, other)

    @rule(fault=FAULTS, at=PLACES, other=st.integers(0, 3))
    def claim(self, fault: str, at: tuple[str, int], other: int) -> None:
        one = Coordinator(self.store.chain(self.job))
        self._with_fault(one, self._claim, fault, at, other)

    @rule(who=st.integers(0, 5), keep=st.integers(1, 3), fault=FAULTS, at=PLACES, other=st.integers(0, 3))
    def collect(self, who: int, keep: int, fault: str, at: tuple[str, int], other: int) -> None:
        self._with_fault(self._some(who), lambda one: one.chain.collect(keep), fault, at, other)

    @rule(keep=st.integers(1, 3))
    def collect_all(self, keep: int) -> None:
        """No orphan survives a collection that nothing disturbs."""
        chain = self.store.chain(self.job)
        chain.collect(keep)
        needed = {path for slot in slots_of(chain) for path in slot.files()}
        left = {f"files/{name}" for name in self.store._files.names(f"{self.job}/files")}
        assert {path for path in left if int(path[6:16]) <= self.newest} <= needed
        slots = sorted(self.store._files.names(f"{self.job}/chain"))
        assert slots == [f"{number:010d}.json" for number in chain.numbers()]

    @rule(late=st.integers(0, 5))
    def look(self, late: int) -> None:
        """A reader sees the newest checkpoint, also where lists are old."""
        chain = self.store.chain(self.job)
        self.faults.late = late
        assert chain.newest_slot().number == self.newest
        self.faults.clear()

    @rule(lost=st.booleans())
    def restart_all(self, lost: bool) -> None:
        """Whoever worked is dead, perhaps with the machine."""
        self.coordinators = []
        if lost and self.can_lose_power:
            self.lose_power()
            self.newest = max(self.won, default=0)  # what was never reported may be lost
            self._check()

    def _some(self, who: int) -> Coordinator:
        if not self.coordinators:
            one = Coordinator(self.store.chain(self.job))
            self._claim(one)
        return self.coordinators[who % len(self.coordinators)]

    def _commit(self, one: Coordinator, new: int, kept: int) -> None:
        number = one.chain.next
        self.epoch += 1
        content = b"%d" % self.epoch * 10
        parts = [Part(one.chain.data.write(number, "part", content), (part, part), 1) for part in range(new)]
        old = [part for task in one.last.tasks for part in task.parts][:kept] if one.last is not None else []
        coordinator = one.chain.data.write(number, "coordinator", content)
        tasks = [TaskParts("stage", 0, (*old, *parts))]
        one.last = one.chain.commit(
            epoch=self.epoch, coordinator=coordinator, tasks=tasks, records=self.epoch, seconds=0.0
        )
        self._has_won(number, one.last)

    def _claim(self, one: Coordinator) -> None:
        one.last = one.chain.claim()
        self.coordinators = [*self.coordinators[:2], one]
        self.claims.append((one.chain.next - 1, one.chain._won().generation))
        self._has_won(one.chain.next - 1, one.chain._won())

    def _has_won(self, number: int, what: Slot | Manifest) -> None:
        note(f"won {number}: generation {what.generation}")
        assert number not in self.won, f"slot {number} was won twice"
        assert not self._is_fenced(number, what.generation), f"slot {number} was won by a dead generation"
        self.won[number] = what

    def _is_fenced(self, number: int, generation: int) -> bool:
        """Whether a later generation had claimed the job before that slot."""
        return any(claim <= number and of > generation for claim, of in self.claims)

    # --- faults, and what must hold after them

    def _with_fault(
        self, one: Coordinator, act: Callable[[Coordinator], Any], fault: str, at: tuple[str, int], other: int
    ) -> None:
        before = self.faults
        before.clear()
        before.kind, before.steps = at
        if fault == "kill":
            before.action = before.kill
        elif fault == "error":
            before.action = self.error
        elif fault == "another":
            before.action = lambda: self._act_between(other)
        elif fault == "late":
            before.late = 1 + at[1] % 5
        try:
            act(one)
        except Killed:
            self._forget(one)
        except ClaimLostError:
            before.clear()
            newest = self.store.chain(self.job).newest_slot()
            assert newest.claimant != one.chain._claimant
            self._forget(one)
        except CheckpointError as error:
            note(f"{error}")
            had_seemed_to_fail = "is there already" in str(error) or "is no file of slot" in str(error)
            assert fault == "error" or had_seemed_to_fail
        before.clear()
        self._check()

    def _act_between(self, other: int) -> None:
        """Another coordinator does something while one is in the middle of it."""
        if other == 0:
            self._claim(Coordinator(self.store.chain(self.job)))
        elif other == 1:
            self.store.chain(self.job).collect(1)
        else:
            one = Coordinator(self.store.chain(self.job))
            self._claim(one)
            for _ in range(other):
                self._commit(one, 1, 3)
                one.chain.collect(1)

    def _forget(self, one: Coordinator) -> None:
        if one in self.coordinators:
            self.coordinators.remove(one)

    def _check(self) -> None:
        chain = self.store.chain(self.job)
        newest = chain.newest_slot()
        assert newest.number >= max(self.newest, *self.won, 0)
        self.newest = newest.number
        for slot in slots_of(chain):
            won = self.won.get(slot.number)
            if won not in (None, slot, slot.checkpoint) or self._is_fenced(slot.number, slot.generation):
                assert slot != newest
                continue  # put again after it had been deleted, by one that has lost
            for file in slot.files().values():
                chain.data.read(file)
