"""A queue-fed task's user code: its store and its emission, as the protocol's instructions use them.

The Ray actor, the simulator and `run_local` carry out instructions by it; clocks, networks and slowness are theirs."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError, KeyTypeError
from dpa.execution._parts import ends_of
from dpa.execution.arrivals import Input, check, merged
from dpa.execution.block import Block
from dpa.execution.emission import Emission
from dpa.execution.failures import UserCodeError
from dpa.execution.key_stats import KeyStats
from dpa.execution.publishing import EmittedRows, LastPublished, Publishes
from dpa.execution.receivers import store_of
from dpa.execution.receivers.base import Receiver
from dpa.execution.rows import OneBatch, concatenated, plain, whole_of
from dpa.execution.schemas import ShareSchema, as_agreed
from dpa.execution.snapshots import TaskSaving, TaskSnapshot
from dpa.execution.spill.bounded import BoundedStates
from dpa.execution.spill.room import Room
from dpa.execution.states import ObjectPart, Reduced, StatePart
from dpa.execution.trials import Trial, Work, note_death, survived
from dpa.routing.hashing import ALL_HASHES, Interval, hash_column
from dpa.routing.keys import KeyName
from dpa.routing.table import RoutingTable
from dpa.sources.splits import MemorySplit
from dpa.tolerance import Letters, Tolerance

_NONE, _NO_HASHES = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint32)


@dataclass(frozen=True)
class ReduceStage:
    """What all tasks of a queue-fed stage have in common.

    Attributes:
        receiver: what takes the records.
        key: name of the result's key column, or the names of several; of none where all records have one key.
        emission: what becomes of its rows in the stages that follow; None if none do.
        keeps_rows: whether rows that are emitted before the end belong to the share too, as a sink needs them.
        letters: what errors of user code are noted in; None: none are tolerated.
        deaths: how records are tolerated that end their process; None: they fail the job.
        empty: the result without records: its columns, where they are known, and maybe a row.
        publishes: what each of its outputs publishes by epoch; None: nothing before the end. At most one publishes
            `changes`.
    """

    receiver: Receiver
    key: KeyName
    emission: Emission | None = None
    keeps_rows: bool = True
    letters: Letters | None = None
    deaths: Tolerance | None = None
    empty: pa.Table | None = None
    publishes: tuple[Publishes | None, ...] = ("table",)

    @property
    def row_key(self) -> KeyName:
        """None in rows that user code emits."""
        return self.key if self.receiver.gives_key else ()


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of the states that a task gives to others.

    Attributes:
        parts: the states, by the task that owns them now.
        interval: the hashes of whose keys these are all that others own.
        is_last: whether no states are left that others own, in this interval or elsewhere.
        rows: of its share, where it is no member any more: those that it has emitted; with the last piece.
    """

    parts: dict[int, StatePart]
    interval: Interval
    is_last: bool
    rows: tuple[EmittedRows, ...] = ()


class ReduceTask:
    """One task: its store and, at the end, its share.

    Call `process`, `extract`, `extract_piece`, `install`, `merge` and `published` any number of times, then `finish`,
    `conform`, and what reads the share.

    Attributes:
        most_keys: the most keys that it has held when that was looked at.
        dead: records that it has not processed, as user code raised on them.
    """

    def __init__(self, stage: ReduceStage, index: int, room: Room | None = None) -> None:
        """`index`: the task's number in routing tables; `room`: memory for its states, None without a limit."""
        self.most_keys = self.dead = 0
        self._stage = stage
        self._index = index
        self._states = store_of(stage.receiver)
        if room is not None and stage.receiver.keeps_states:
            self._states = BoundedStates(stage.receiver, room)
        self._kept: list[EmittedRows] = []
        self._emitted = 0
        self._ended: list[tuple[int, frozenset[int]]] = []
        self._pieces: list[Interval] = []
        self._finished: Reduced | None = None
        self._arrived: dict[Input, pa.Schema] = {}
        self._published = LastPublished(stage.key) if "changes" in stage.publishes else None
        self._closed: int | None = None
        self._first_open: int | None = None
        self._knows_first = False

    @property
    def state_use(self) -> tuple[int, int]:
        """The most bytes that states took in memory, and bytes written to disk; zeros without a limit of memory."""
        states = self._states
        return (states.most_held, states.spilled) if isinstance(states, BoundedStates) else (0, 0)

    @property
    def receiver(self) -> Receiver:
        return self._stage.receiver

    def process(self, block: Block) -> tuple[tuple[int, Block], ...]:
        """Returns the emitted blocks, each with the position of its edge."""
        if block.arrived:
            self._arrived = merged((self._arrived, block.arrived))
            check(self._arrived, is_all=False)
        letters = self._stage.letters
        before = 0 if letters is None else letters.count
        with self._explained():
            rows = self._states.reduce(block)
        if letters is not None:
            self.dead += letters.count - before
        if self.receiver.windowing is not None:
            self._opened(block)
        return () if rows is None else self._emit(rows)

    @property
    def first_open(self) -> int | None:
        """The event time, in microseconds since 1970, that closes the first open window or calls the first timer; None
        without either. Sessions that have grown may end later. A timer in the past is due right away."""
        if self.receiver.has_timers or not self._knows_first:
            first, closed = self._states.first_open, self._closed
            first = first if first is None or closed is None else max(first, closed + 1)
            self._first_open, self._knows_first = first, True
        return self._first_open

    def _opened(self, block: Block) -> None:
        """Update `first_open` by a block's windows: searching all open windows costs more."""
        assert self.receiver.windowing is not None
        ends = ends_of(block.keys) + self.receiver.windowing.windows.past_end_us
        if self._closed is not None:
            ends = ends[ends > self._closed]
        if len(ends):
            first = int(ends.min())
            self._first_open = first if self._first_open is None else min(first, self._first_open)

    def close(self, until: int) -> tuple[tuple[int, Block], ...]:
        """Close windows to which no record of time `until` (microseconds since 1970) or later belongs. Their results,
        and those of timers due before it, join the share and are emitted, as in `process`; their states are dropped,
        and later records too. Nothing happens unless `until` is later than before. A snapshot does not hold it: call
        this again after `restore`. Raises ExecutorError."""
        if not self.note_closed(until):
            return ()
        with self._explained():
            share = self._states.close(until, self._stage.row_key)
        if share is None or not share.table.num_rows:
            return ()
        return self._emit(whole_of(plain(share.table)))

    def note_closed(self, until: int) -> bool:
        """All tasks have closed windows up to this time: records of these are late. Returns whether it closes any."""
        if self._closed is not None and until <= self._closed:
            return False
        self._states.note_closed(until)
        self._closed, self._knows_first = until, False
        return True

    def _emit(self, rows: pa.RecordBatch) -> tuple[tuple[int, Block], ...]:
        if not rows.num_rows:
            return ()
        if self._stage.keeps_rows:
            self._kept.append(EmittedRows(rows))
        if self._stage.emission is None:
            return ()
        steps = self._stage.emission.steps(OneBatch(rows), lambda: 0.0)  # a quantum is short enough for one step
        return tuple(emitted for step in steps for emitted in step.blocks)

    def process_in_trial(self, work: tuple[StatePart | None, Block]) -> None:
        """Process a block on its keys' states alone, in the process of a trial, which may die of it."""
        part, block = work
        if part is not None:
            self._states.install(part)
        self.process(block)

    def process_tried(self, block: Block, trial: Trial, tolerance: Tolerance) -> tuple[tuple[int, Block], ...]:
        """As `process`, without records that end their process. Each part is tried on the states that the parts before
        it left."""

        def dies(row: int, error: UserCodeError) -> None:
            key, record = block.shown(row, as_object=self.receiver.takes_objects)
            note_death(tolerance, error, record, key)
            self.dead += 1

        def work(start: int, stop: int) -> Work:
            part = block.slice(start, stop)
            return self._states.touched(part), part

        parts = (block.slice(start, stop) for start, stop in survived(trial, work, block.rows, dies))
        return tuple(made for part in parts for made in self.process(part))

    def extract(self, table: RoutingTable) -> dict[int, StatePart]:
        self.most_keys = max(self.most_keys, self._states.size)
        return self._packed(table)

    def _packed(self, table: RoutingTable, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        parts = self._states.pack(table, self._index, interval)
        rows = {} if self._published is None else self._published.pack(table, self._index, interval)
        nothing = ObjectPart(pa.nulls(0), [], _NONE, _NONE, _NO_HASHES)
        return parts | {owner: replace(parts.get(owner, nothing), published=found) for owner, found in rows.items()}

    def extract_piece(self, table: RoutingTable, most: int) -> Piece:
        """Take out the states of about `most` keys that the table gives to other tasks, the hottest first. Call it with
        the same table until the last piece is out."""
        if not self._pieces:
            self.most_keys = max(self.most_keys, self._states.size)
            self._pieces = self._states.pieces(table, self._index, most)[::-1]
        rows: tuple[EmittedRows, ...] = ()
        interval = self._pieces.pop()
        if not self._pieces and self._index not in table.members:
            rows, self._kept = tuple(self._kept), []
        return Piece(self._packed(table, interval), interval, not self._pieces, rows)

    def add_rows(self, rows: Iterable[EmittedRows]) -> None:
        """Add the rows that a task which has left had emitted into its share."""
        self._kept += rows

    def start_saving(
        self, dumps: Callable[[object], bytes], guard: AbstractContextManager[Any], *, increment: bool
    ) -> TaskSaving:
        """What a checkpoint writes of this task; with `increment`, only the changes since the last checkpoint if these
        are fewer. `dumps` pickles. `guard` is a lock: another thread may write while this one continues."""
        head = TaskSnapshot(None, self._batches, dict(self._arrived))
        return TaskSaving(self._states, head, self.snapshot, dumps, guard, increment=increment)

    def snapshot(self) -> TaskSnapshot:
        """The caller writes it before the task continues: Python states are not copied."""
        states, kept, arrived = self._states, self._batches, dict(self._arrived)
        if not isinstance(states, BoundedStates):
            return TaskSnapshot(states.snapshot(), kept, arrived)
        return TaskSnapshot(states.snapshot(), kept, arrived, states.on_disk(), states.keys_on_disk)

    def restore(self, snapshots: Iterable[TaskSnapshot], table: RoutingTable | None) -> None:
        """Begin with the stage's tasks at a checkpoint: all their states, or those that a table gives to this task.
        Emitted rows have no owner, so members take the tasks' rows in turn."""
        turn = itertools.count()
        for found in snapshots:
            self._arrived = merged((self._arrived, found.arrived))
            if found.rows and (table is None or table.members[next(turn) % len(table.members)] == self._index):
                self._kept += (EmittedRows(rows, self._published_before) for rows in found.rows)
            for part in found.parts():
                own: StatePart | None = part
                if table is not None:
                    store = store_of(self._stage.receiver)
                    store.install(part)
                    own = store.pack(table, keep=-1).get(self._index)
                if own is not None:
                    (self._states.merge if self._stage.receiver.can_merge else self._states.install)(own)
        if self._published is not None:  # what there is at a checkpoint was published then
            self._published.replace(self.preview().table)

    def install(self, parts: Iterable[StatePart]) -> None:
        self._take_in(parts, self._states.install)

    def merge(self, parts: Iterable[StatePart]) -> None:
        self._take_in(parts, self._states.merge)

    def _take_in(self, parts: Iterable[StatePart], into: Callable[[StatePart], None]) -> None:
        self._knows_first = False
        for part in parts:
            if self._published is not None and part.published is not None:
                self._published.add(part.published)
            if len(part.keys) or part.published is None:
                into(part)

    @property
    def _batches(self) -> tuple[pa.RecordBatch, ...]:
        return tuple(kept.rows for kept in self._kept)

    @property
    def _published_before(self) -> frozenset[int]:
        """The outputs that have the rows of a checkpoint for good. Where all outputs are such, there are none."""
        by_rows = {number for number, how in enumerate(self._stage.publishes) if how in ("final", "changes")}
        return frozenset(by_rows if len(by_rows) < len(self._stage.publishes) else ())

    def published(self, epoch: int, output: int = 0) -> pa.Table:
        """The rows of an epoch to publish in an output, while the stage runs."""
        how = self._stage.publishes[output]
        kept = plain(self._together([each.rows for each in self._kept if output not in each.published]))
        if how != "table":
            noted = (EmittedRows(each.rows, each.published | {output}) for each in self._kept)
            # Outputs that have all rows in the end never publish one for good, and so keep them here.
            self._kept = [each for each in noted if len(each.published) < len(self._stage.publishes)]
        if how == "final":
            return kept
        found = now = self.preview().table
        if kept.num_rows:  # of windows that are closed
            found = pa.concat_tables([kept, now], promote_options="permissive") if now.num_rows else kept
        if how != "changes" or self._published is None:
            return found
        changes = self._published.changes(found, epoch)
        self._published.replace(now)
        return changes

    def published_last(self, epoch: int, output: int = 0) -> pa.Table:
        """The rows of the last epoch to publish in an output, after `conform`."""
        found = self.share.table
        if any(output in published for _, published in self._ended):
            left = [output not in published for _, published in self._ended]
            mask = np.repeat([*left, True], [*(rows for rows, _ in self._ended), found.num_rows - self._emitted])
            found = found.filter(pa.array(mask))
        if self._stage.publishes[output] != "changes" or self._published is None:
            return found
        return self._published.changes(found, epoch)

    def preview(self) -> Reduced:
        share = self._states.preview(self._stage.row_key)
        return replace(share, table=plain(share.table))

    def finish(self, parts: Iterable[StatePart] = ()) -> ShareSchema | None:
        """Merge the last states and finish. Returns the share's schema, None if it is empty."""
        with self._explained():
            self.merge(parts)
            self.most_keys = max(self.most_keys, self._states.size)
            found = self._states.finish(self._stage.row_key)
        if self._kept:
            found = replace(found, table=self._with_kept(found.table))
        found = self._finished = replace(found, table=plain(found.table))
        may_lack = self.receiver.may_lack_columns
        return ShareSchema.of(found.table, self._stage.row_key, may_lack=may_lack, arrived=self._arrived)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """If user code raises, first report inputs whose columns are incompatible: they may be the cause."""
        try:
            yield
        except (ExecutorError, KeyTypeError):
            check(self._arrived, is_all=True)
            raise

    def _with_kept(self, last: pa.Table) -> pa.Table:
        batches = [*self._batches, *last.to_batches()]
        self._ended = [(kept.rows.num_rows, kept.published) for kept in self._kept]
        self._kept, self._emitted = [], sum(rows for rows, _ in self._ended)
        return self._together(batches)

    @staticmethod
    def _together(batches: Sequence[pa.RecordBatch]) -> pa.Table:
        try:
            return pa.table(concatenated([(rows, rows.num_rows) for rows in batches]))
        except pa.ArrowInvalid as error:
            raise ExecutorError(f"the rows of a stage must have columns of one type each: {error}") from None

    def conform(self, schema: pa.Schema | None, *, is_first: bool = True) -> None:
        """Cast the share to the schema of all shares, from `dpa.execution.schemas.agreed`. None: all shares are empty,
        and that of the first task is the stage's `empty`. Raises ExecutorError or KeyTypeError if a value or key does
        not fit."""
        table = self.share.table
        if schema is not None:
            table = as_agreed(table, schema, self._stage.row_key)
        elif is_first and self._stage.empty is not None:
            table = plain(self._stage.empty)
        self._finished = replace(self.share, table=table)

    @property
    def share(self) -> Reduced:
        """Has the common schema only after `conform`."""
        assert self._finished is not None
        return self._finished

    def rows(self) -> MemorySplit:
        """The share's rows for the stages downstream, without those emitted before the end."""
        return MemorySplit(self.share.table.slice(self._emitted))

    def key_stats(self) -> KeyStats:
        return KeyStats.of(self.share.keys, self.share.mapped)

    def loads(self, table: RoutingTable) -> npt.NDArray[np.int64]:
        """Processed records of its keys by the reducer that owns them in the table, shape (reducers,). Summed over all
        tasks: the load under this table alone."""
        owners = table.owners_of(hash_column(self.share.keys, table.seed))
        return np.bincount(owners, self.share.records, table.reducers).astype(np.int64)
