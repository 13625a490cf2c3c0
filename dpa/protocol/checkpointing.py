"""Checkpoints of a job in a store. A task writes its snapshots as files, and begins with those of its stage. The
coordinator takes the job's chain over, says what the tasks begin with, and adds checkpoints to the chain.

A task writes all its states once and then increments, as long as each increment is in the checkpoint of the slot before
the next. If that is in doubt, as after a failed checkpoint, it writes everything again. The coordinator need not report
what became of a file, and cannot add a checkpoint with a file that its last one lacks (`Chain.commit`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from dpa._util.outages import HERE
from dpa.checkpoints import CheckpointStore, DataFiles, FileRef, Manifest, Part, TaskParts
from dpa.errors import CheckpointError, CheckpointStoreError, ClaimLostError
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.snapshots import TaskSaving, TaskSnapshot, folded
from dpa.protocol.checkpoint_format import below_head, headed, read, written
from dpa.protocol.graph import CheckpointTimes, Graph
from dpa.protocol.published import require_known
from dpa.protocol.recovery import SavedJob
from dpa.protocol.restore import AskedStage, asked, begins_with, continued
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CheckpointFailed, CheckpointWritten
from dpa.protocol.wire.snapshots import JobSnapshot
from dpa.routing.hashing import ALL_HASHES
from dpa.sinks.sink import Newest, Sink
from dpa.tolerance import Failed, Letter

_MOST_INCREMENTS = 16  # behind one snapshot: as many more files are read to begin with it
_INCREMENTS = 0.5  # of the bytes of a snapshot: as soon as increments have more, the next one is written


Written: TypeAlias = tuple[Part, ...] | str
"""What a task has in a checkpoint, a snapshot and the increments since; or why that could not be written."""


@dataclass
class Archive:
    """The snapshots of one task of one generation; `dumps` pickles Python states, and `guard` keeps the thread that
    writes from that of user code."""

    data: DataFiles
    address: Address
    dumps: Callable[[object], bytes]
    guard: AbstractContextManager[Any] = field(default_factory=nullcontext)
    _slot: int = field(default=0, init=False)
    _parts: tuple[Part, ...] = field(default=(), init=False)

    def start_saving(self, slot: int, task: ReduceTask) -> Callable[[], Written]:
        """Mark what a task has, or what of it has changed, for a slot of the store's chain. Returns what writes it. Any
        thread may call that, once, before the next cut, while the task continues."""
        before = self._parts if slot == self._slot + 1 and not self._is_long() else ()
        self._parts = ()
        saving = task.start_saving(partial(written, dumps=self.dumps), self.guard, increment=bool(before))
        write = partial(self._write, slot, saving, before if saving.is_increment else ())
        if saving.goes_on:
            return write
        done = write()
        return lambda: done

    def _write(self, slot: int, saving: TaskSaving, before: tuple[Part, ...]) -> Written:
        try:
            file = self.data.write(slot, str(self.address), saving.pieces())
        except CheckpointError as error:
            return str(error)
        finally:
            saving.end()
        self._slot, self._parts = slot, (*before, Part(file, ALL_HASHES, saving.keys, is_increment=bool(before)))
        return self._parts

    def _is_long(self) -> bool:
        sizes = [part.file.size for part in self._parts]
        return len(sizes) > _MOST_INCREMENTS or sum(sizes[1:]) > _INCREMENTS * sum(sizes[:1])


def read_snapshots(data: DataFiles, tasks: Iterable[Sequence[FileRef]]) -> Iterator[TaskSnapshot]:
    """The snapshots in the files of some tasks, each with its increments, in parts. Raises CheckpointError if one
    cannot be read, or is not what was written."""
    for files in tasks:
        own = ((partial(data.read, file), f"{data.job}/{file.path}") for file in reversed(files))
        yield from folded(read(HERE.bear(content), place) for content, place in own)


_STAGE = "dead letters"  # by which they go in manifests: no stage has such a name
_SMALL = 2**20  # a file of fewer bytes is written anew with the next letters


@dataclass(frozen=True)
class StoredLetters:
    """Dead letters in the order in which they were noted. Can be pickled; read a file at a time.

    Attributes:
        parts: the files that have them.
        rest: those that are in no file.
    """

    data: DataFiles
    parts: tuple[Part, ...] = ()
    rest: tuple[Letter, ...] = ()

    @classmethod
    def of(cls, data: DataFiles, checkpoint: Manifest | None) -> StoredLetters:
        tasks = () if checkpoint is None else checkpoint.tasks
        return cls(data, next((task.parts for task in tasks if task.stage == _STAGE), ()))

    def __len__(self) -> int:
        return sum(part.keys for part in self.parts) + len(self.rest)

    def __iter__(self) -> Iterator[Letter]:
        """Read all; CheckpointError if they cannot be read, or are not what was written."""
        for part in self.parts:
            yield from self._read(part)
        yield from self.rest

    @property
    def tasks(self) -> Sequence[TaskParts]:
        return [TaskParts(_STAGE, 0, self.parts)] if self.parts else []

    def with_rest(self, noted: Failed) -> StoredLetters:
        return replace(self, rest=noted.letters[len(self) - noted.earlier :])

    def written(self, slot: int) -> StoredLetters:
        """All of them in files, for a slot of the chain; CheckpointError if they cannot be written."""
        if not self.rest:
            return self
        parts, letters = self.parts, self.rest
        if parts and parts[-1].file.size < _SMALL:
            parts, letters = parts[:-1], (*self._read(parts[-1]), *letters)
        file = self.data.write(slot, "letters", written(letters))
        return replace(self, parts=(*parts, Part(file, ALL_HASHES, len(letters))), rest=())

    def _read(self, part: Part) -> tuple[Letter, ...]:
        letters: tuple[Letter, ...]
        [letters] = read(self.data.read(part.file), f"{self.data.job}/{part.file.path}")
        return letters


@dataclass(frozen=True)
class Beginning:
    """What one task begins with.

    Attributes:
        graph: of the generation, without splits.
        files: with the states of the tasks of its stage, by their order: of each, those of its parts; empty: it begins
            with none.
        before: what had been asked for of the stage then.
    """

    graph: Graph
    archive: Archive
    files: Sequence[Sequence[FileRef]] = ()
    before: AskedStage | None = None

    def restore(self, code: UserCode) -> None:
        """Let a task's user code begin with its part of the states. Raises CheckpointError if they cannot be read, or
        are not what was written."""
        if self.files:
            address = self.archive.address
            files, table = begins_with(self.graph[address.stage], self.files, address.index, self.before)
            code.reduce_task.restore(read_snapshots(self.archive.data, files), table)


class Checkpointing:
    """The chain of one generation, which no earlier one can add to any more.

    Attributes:
        graph: of the job as it continues from the newest checkpoint.
        letters: the dead letters that the newest one has.
    """

    def __init__(
        self,
        store: CheckpointStore,
        saved: SavedJob,
        graph: Graph,
        generation: int,
        dumps: Callable[[object], bytes],
        sinks: Iterable[Sink] = (),
    ) -> None:
        """Take the chain over; `dumps` pickles states, also of classes that only travel by value; `sinks` are those to
        which epochs are committed. Raises ClaimLostError if a later generation has it; CheckpointError if the newest
        checkpoint cannot be read, or is not the one from which a sink continues."""
        self.has_written = False
        self._keep = saved.options.keep
        self._about = saved.about
        self._asked = asked(*graph.stages)
        self._before: Mapping[str, AskedStage] = {}
        self._dumps = dumps
        self._chain = store.chain(saved.job)
        found = self._chain.claim(generation + 1)  # who made the job has the first claim
        self._sinks = [sink for sink in sinks if sink.with_checkpoints]
        for sink in self._sinks:
            require_known(_newest(sink), sink.place, found, store.place, saved.job)
        self._know_line(found)
        self._read = 0 if found is None else found.records
        self.letters = StoredLetters.of(self._data, found)
        self._files: Mapping[str, Sequence[Sequence[FileRef]]] = {}
        times = CheckpointTimes(saved.options.every, self._chain.next, self._read)
        if found is not None:
            cut: JobSnapshot
            [(cut, self._before)] = read(below_head(self._data, found)[1], self._data.job)
            graph = continued(graph, cut, self._before)
            times = replace(times, epoch=cut.epoch, staged=cut.staged)
            self._files = {
                name: [[part.file for part in of.parts] for of in found.tasks if of.stage == name]
                for name in cut.operators
            }
        self.graph = replace(graph, checkpoints=times)

    def _know_line(self, checkpoint: Manifest | None) -> None:
        for sink in self._sinks:
            sink.know(replace(sink.job_context, line=() if checkpoint is None else checkpoint.line))

    @property
    def _data(self) -> DataFiles:
        return self._chain.data

    def beginning(self, address: Address) -> Beginning:
        """What a task begins with; one that comes while records flow begins with nothing."""
        is_first = address.index < self.graph[address.stage].tasks
        files = self._files.get(address.stage, ()) if is_first else ()
        archive = Archive(self._data, address, self._dumps)
        return Beginning(self.graph.without_splits(), archive, files, self._before.get(address.stage))

    def write(self, cut: JobSnapshot, warn: Callable[[str], None]) -> CheckpointWritten | CheckpointFailed:
        """Add a checkpoint to the chain, and remove those that are too old; `warn` if these stay. Raises ClaimLostError
        if a later generation has the chain."""
        try:
            tasks = [
                TaskParts(name, index, _parts(snapshot))
                for name, stage in cut.operators.items()
                for index, snapshot in stage.snapshots.items()
            ]
            bare = {name: replace(stage, snapshots={}) for name, stage in cut.operators.items()}
            letters = self.letters.with_rest(cut.failed).written(cut.slot)
            failed = replace(cut.failed, letters=(), earlier=len(letters))
            now = replace(cut, operators=bare, failed=failed), self._asked
            manifest = self._chain.commit(
                epoch=cut.epoch,
                coordinator=self._data.write(cut.slot, "coordinator", headed(self._about, now, self._dumps)),
                tasks=[*tasks, *letters.tasks],
                records=self._read + cut.read,
                seconds=cut.seconds,
            )
        except ClaimLostError:
            raise
        except CheckpointError as error:
            return CheckpointFailed(str(error), self._chain.next)
        self.has_written, self.letters = True, letters
        self._know_line(manifest)
        try:
            self._chain.collect(self._keep)
        except CheckpointError as error:
            warn(f"old checkpoints could not be removed: {error}")
        return CheckpointWritten(self._chain.next, manifest.written, len(letters))


def _newest(sink: Sink) -> Newest | None:
    """What of the job is at a sink's place; CheckpointStoreError if the sink does not say."""
    try:
        return sink.newest()
    except Exception as error:  # any library may write there
        raise CheckpointStoreError(f"{sink.place} does not say what is there: {error}") from error


def _parts(snapshot: Any) -> tuple[Part, ...]:
    """A task's snapshot in a manifest; CheckpointError if it could not be written."""
    if isinstance(snapshot, str):
        raise CheckpointError(snapshot)
    parts: tuple[Part, ...] = snapshot
    return parts
