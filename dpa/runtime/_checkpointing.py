"""The coordinator's side of checkpoints on Ray: it takes the job's chain over, says what the tasks begin with, and adds
checkpoints to the chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dpa.checkpoints import CheckpointStore, DataFiles, FileRef, Part, TaskParts
from dpa.errors import CheckpointError, ClaimLostError
from dpa.protocol.graph import CheckpointTimes, Graph
from dpa.protocol.recovery import CheckpointOptions
from dpa.protocol.restore import begins_with, continued
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.cut import Cut
from dpa.protocol.wire.events import CheckpointFailed, CheckpointWritten
from dpa.routing.hashing import ALL_HASHES
from dpa.runtime._archive import Archive, NotWritten, WrittenSnapshot, read_snapshots


@dataclass(frozen=True)
class SavedJob:
    """Where the checkpoints of a job are."""

    store: CheckpointStore
    job: str
    options: CheckpointOptions

    @staticmethod
    def create(name: str, options: CheckpointOptions) -> SavedJob:
        """A place for those of a new job.

        Raises:
            CheckpointError: nothing can be written there.
        """
        store = CheckpointStore.open(options.path)
        return SavedJob(store, store.create(name).job, options)

    def remove(self, warn: Callable[[str], None]) -> None:
        """Remove them, as the job has ended well."""
        try:
            self.store.chain(self.job).remove()
        except CheckpointError as error:
            warn(f"the checkpoints of the job are still there: {error}")


@dataclass(frozen=True)
class Beginning:
    """What one task begins with.

    Attributes:
        graph: of the generation, without splits.
        archive: takes the task's snapshots.
        files: with the states of the tasks of its stage, by their order; empty: it begins with none.
    """

    graph: Graph
    archive: Archive
    files: Sequence[FileRef] = ()

    def restore(self, code: UserCode) -> None:
        """Let a task's user code begin with its part of the states.

        Raises:
            CheckpointError: they cannot be read, or are not what was written.
        """
        if self.files:
            address = self.archive.address
            files, table = begins_with(self.graph[address.stage], self.files, address.index)
            code.reduce_task.restore(read_snapshots(self.archive.data, files), table)


class Checkpointing:
    """The chain of one generation, which no earlier one can add to any more.

    Attributes:
        graph: that of the job, as it goes on behind the newest checkpoint.
    """

    def __init__(self, saved: SavedJob, graph: Graph, generation: int) -> None:
        """Take the chain over.

        Raises:
            ClaimLostError: a later generation has it.
            CheckpointError: the newest checkpoint cannot be read.
        """
        from ray import cloudpickle

        self._options = saved.options
        self._chain = saved.store.chain(saved.job)
        found = self._chain.claim(generation + 1)  # who made the job has the first claim
        self._read = 0 if found is None else found.records
        self._files: Mapping[str, Sequence[FileRef]] = {}
        if found is not None:
            cut: Cut = cloudpickle.loads(self._chain.data.read(found.coordinator))
            graph = continued(graph, cut)
            self._files = {
                name: [part.file for of in found.tasks if of.stage == name for part in of.parts]
                for name in cut.operators
            }
        times = CheckpointTimes(saved.options.every, self._chain.next, self._read)
        self.graph = replace(graph, checkpoints=times)

    @property
    def _data(self) -> DataFiles:
        return self._chain.data

    def beginning(self, address: Address) -> Beginning:
        """What a task begins with; one that comes while records flow begins with nothing."""
        is_first = address.index < self.graph[address.stage].tasks
        files = self._files.get(address.stage, ()) if is_first else ()
        return Beginning(self.graph.without_splits(), Archive(self._data, address), files)

    def write(self, cut: Cut, warn: Callable[[str], None]) -> CheckpointWritten | CheckpointFailed:
        """Add a checkpoint to the chain, and remove those that are too old; `warn` if these stay.

        Raises:
            ClaimLostError: a later generation has the chain.
        """
        from ray import cloudpickle

        try:
            tasks = [
                TaskParts(name, index, (_part(written),))
                for name, stage in cut.operators.items()
                for index, written in stage.snapshots.items()
            ]
            bare = {name: replace(stage, snapshots={}) for name, stage in cut.operators.items()}
            known = cloudpickle.dumps(replace(cut, operators=bare))
            manifest = self._chain.commit(
                epoch=cut.epoch,
                coordinator=self._data.write(cut.slot, "coordinator", known),
                tasks=tasks,
                records=self._read + cut.read,
                seconds=cut.seconds,
            )
        except ClaimLostError:
            raise
        except CheckpointError as error:
            return CheckpointFailed(str(error), self._chain.next)
        try:
            self._chain.collect(self._options.keep)
        except CheckpointError as error:
            warn(f"old checkpoints could not be removed: {error}")
        return CheckpointWritten(self._chain.next, manifest.written)


def _part(written: object) -> Part:
    """A task's snapshot in a manifest.

    Raises:
        CheckpointError: it could not be written.
    """
    if isinstance(written, NotWritten):
        raise CheckpointError(written.reason)
    assert isinstance(written, WrittenSnapshot)
    return Part(written.file, ALL_HASHES, written.keys)
