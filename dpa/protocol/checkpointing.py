"""The coordinator's side of checkpoints: it takes the job's chain over, says what the tasks begin with, and adds
checkpoints to the chain."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dpa.checkpoints import CheckpointStore, DataFiles, FileRef, Manifest, Part, TaskParts
from dpa.errors import CheckpointError, CheckpointStoreError, ClaimLostError
from dpa.protocol._archive import Archive, NotWritten, StoredLetters, WrittenSnapshot, read_snapshots
from dpa.protocol.checkpoint_format import below_head, headed, read
from dpa.protocol.graph import CheckpointTimes, Graph
from dpa.protocol.published import require_known
from dpa.protocol.recovery import SavedJob
from dpa.protocol.restore import AskedStage, asked, begins_with, continued
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CheckpointFailed, CheckpointWritten
from dpa.protocol.wire.snapshots import JobSnapshot
from dpa.sinks.sink import Newest, Sink


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
        """Let a task's user code begin with its part of the states.

        Raises:
            CheckpointError: they cannot be read, or are not what was written.
        """
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
        which epochs are committed.

        Raises:
            ClaimLostError: a later generation has it.
            CheckpointError: the newest checkpoint cannot be read, or is not the one from which a sink continues.
        """
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
        """Add a checkpoint to the chain, and remove those that are too old; `warn` if these stay.

        Raises:
            ClaimLostError: a later generation has the chain.
        """
        try:
            tasks = [
                TaskParts(name, index, _parts(written))
                for name, stage in cut.operators.items()
                for index, written in stage.snapshots.items()
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


def _parts(written: object) -> tuple[Part, ...]:
    """A task's snapshot in a manifest; CheckpointError if it could not be written."""
    if isinstance(written, NotWritten):
        raise CheckpointError(written.reason)
    assert isinstance(written, WrittenSnapshot)
    return written.parts
