"""A queue-fed task's user code: what its protocol's instructions ask of the stage's store and emission.

The Ray actor, the simulator and `run_local` carry instructions out by it; clocks, networks and slowness are theirs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError, KeyTypeError
from dpa.execution.arrivals import Input, check, merged
from dpa.execution.block import Block
from dpa.execution.emission import Emission
from dpa.execution.key_stats import KeyStats
from dpa.execution.receivers.base import Receiver
from dpa.execution.rows import OneBatch, concatenated, plain
from dpa.execution.schemas import ShareSchema, as_agreed, named
from dpa.execution.states import Reduced, StatePart
from dpa.routing.hashing import Interval, hash_column
from dpa.routing.keys import KeyName
from dpa.routing.table import RoutingTable
from dpa.sources.splits import MemorySplit


@dataclass(frozen=True)
class ReduceStage:
    """What all tasks of a queue-fed stage have in common.

    Attributes:
        receiver: what takes the records.
        key: name of the result's key column, or the names of several; of none where all records have one key.
        emission: what becomes of its rows in the stages that follow; None if none do.
        keeps_rows: whether rows that are emitted before the end belong to the share too, as a sink needs them.
    """

    receiver: Receiver
    key: KeyName
    emission: Emission | None = None
    keeps_rows: bool = True

    @property
    def row_key(self) -> KeyName:
        """The key columns of the rows: none in those that user code emits."""
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
    rows: tuple[pa.RecordBatch, ...] = ()


@dataclass(frozen=True, eq=False)
class TaskSnapshot:
    """What a task has at a cut of the stream, when nothing is queued or on its way.

    Attributes:
        part: its states; None if there are none.
        rows: of its share: those that it has emitted.
        arrived: the schemas of what has come to it.
    """

    part: StatePart | None
    rows: tuple[pa.RecordBatch, ...]
    arrived: dict[Input, pa.Schema]

    def slices(self, keys: int) -> Iterator[TaskSnapshot]:
        """The same in parts, each with the Python states of at most `keys` keys. States in columns stay together."""
        if self.part is None or not isinstance(self.part.states, list):
            yield self
            return
        yield TaskSnapshot(None, self.rows, self.arrived)
        for start in range(0, len(self.part.keys), keys):
            yield TaskSnapshot(self.part.slice(start, keys), (), {})


class ReduceTask:
    """One task: its store, and in the end its share.

    The order of calls: `process`, `extract`, `extract_piece`, `install`, `merge` and `preview` as often as need be,
    then `finish`, `conform`, and what is to be known of the share.

    Attributes:
        most_keys: the most keys that it has held when that was looked at.
    """

    def __init__(self, stage: ReduceStage, index: int) -> None:
        """`index` is the task's number in routing tables."""
        self.most_keys = 0
        self._stage = stage
        self._index = index
        self._states = stage.receiver.store()
        self._kept: list[pa.RecordBatch] = []
        self._emitted = 0
        self._pieces: list[Interval] = []
        self._finished: Reduced | None = None
        self._arrived: dict[Input, pa.Schema] = {}

    @property
    def receiver(self) -> Receiver:
        """What takes the records."""
        return self._stage.receiver

    def process(self, block: Block) -> tuple[tuple[int, Block], ...]:
        """Process a block. Returns the blocks emitted for it, each with the position of its edge."""
        if block.arrived:
            self._arrived = merged((self._arrived, block.arrived))
            check(self._arrived, is_all=False)
        with self._explained():
            rows = self._states.reduce(block)
        if rows is None or not rows.num_rows:
            return ()
        if self._stage.keeps_rows:
            self._kept.append(rows)
        if self._stage.emission is None:
            return ()
        steps = self._stage.emission.steps(OneBatch(rows), lambda: 0.0)  # a quantum is short enough for one step
        return tuple(emitted for step in steps for emitted in step.blocks)

    def extract(self, table: RoutingTable) -> dict[int, StatePart]:
        """Take out the states of all keys that the table gives to other tasks, by their owner."""
        self.most_keys = max(self.most_keys, self._states.size)
        return self._states.pack(table, self._index)

    def extract_piece(self, table: RoutingTable, most: int) -> Piece:
        """Take out the states of about `most` of the keys that the table gives to other tasks, the hottest first. To be
        called with the same table until the last piece is out."""
        if not self._pieces:
            self.most_keys = max(self.most_keys, self._states.size)
            self._pieces = self._states.pieces(table, self._index, most)[::-1]
        interval, rows = self._pieces.pop(), ()
        if not self._pieces and self._index not in table.members:
            rows, self._kept = tuple(self._kept), []
        return Piece(self._states.pack(table, self._index, interval), interval, not self._pieces, rows)

    def keep(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Take in rows that belong to the share, and were emitted by a task that left."""
        self._kept += rows

    def snapshot(self) -> TaskSnapshot:
        """All that it has, which stays: to be written before the task goes on."""
        return TaskSnapshot(self._states.snapshot(), tuple(self._kept), dict(self._arrived))

    def restore(self, snapshots: Iterable[TaskSnapshot], table: RoutingTable | None) -> None:
        """Begin with what tasks of the stage had at a cut: with all of it, or with the states that a table gives to
        this task. Rows that were emitted belong to nobody: those of each task go to one."""
        turn = itertools.count()
        for found in snapshots:
            self._arrived = merged((self._arrived, found.arrived))
            if found.rows and (table is None or table.members[next(turn) % len(table.members)] == self._index):
                self._kept += found.rows
            own = found.part
            if own is not None and table is not None:
                store = self._stage.receiver.store()
                store.install(own)
                own = store.pack(table, keep=-1).get(self._index)
            if own is not None:
                (self._states.merge if self._stage.receiver.can_merge else self._states.install)(own)

    def install(self, parts: Iterable[StatePart]) -> None:
        """Take in states that came from other tasks, of keys that it has none of."""
        for part in parts:
            self._states.install(part)

    def merge(self, parts: Iterable[StatePart]) -> None:
        """Merge states that came from other tasks."""
        for part in parts:
            self._states.merge(part)

    def preview(self, home: RoutingTable) -> Reduced:
        """The share as of now, of the keys that the table gives to this task: what partial results publish."""
        key = self._stage.row_key
        share = self._states.preview(key).owned(key, home, self._index)
        return replace(share, table=named(plain(share.table)))

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
        """A block that runs user code, which may fail only as inputs whose columns must go together had others."""
        try:
            yield
        except (ExecutorError, KeyTypeError):
            check(self._arrived, is_all=True)
            raise

    def _with_kept(self, last: pa.Table) -> pa.Table:
        """The rows that were emitted before the end, and those of the end."""
        batches = [*self._kept, *last.to_batches()]
        self._kept, self._emitted = [], sum(rows.num_rows for rows in self._kept)
        try:
            return pa.table(concatenated([(rows, rows.num_rows) for rows in batches]))
        except pa.ArrowInvalid as error:
            raise ExecutorError(f"the rows of a stage must have columns of one type each: {error}") from None

    def conform(self, schema: pa.Schema | None, empty: pa.Table | None = None) -> None:
        """Bring the share into the schema of all shares.

        Args:
            schema: as `dpa.execution.schemas.agreed` returns it; None if all are empty.
            empty: the result if all are empty, where it is known.

        Raises:
            ExecutorError, KeyTypeError: a value or a key does not fit.
        """
        table = self.share.table
        if schema is not None:
            table = as_agreed(table, schema, self._stage.row_key)
        elif empty is not None:
            table = empty
        self._finished = replace(self.share, table=self.receiver.completed(table))

    @property
    def share(self) -> Reduced:
        """The finished share; in the schema of all only after `conform`."""
        assert self._finished is not None
        return self._finished

    def rows(self) -> MemorySplit:
        """The share's rows, for the stages that follow; without those that were emitted before the end."""
        return MemorySplit(self.share.table.slice(self._emitted))

    def key_stats(self) -> KeyStats:
        """How often its keys came."""
        return KeyStats.of(self.share.keys, self.share.mapped)

    def loads(self, table: RoutingTable) -> npt.NDArray[np.int64]:
        """The processed records of its keys by the reducer to which the table gives them, shape (reducers,): over all
        tasks the load that this table alone would have brought."""
        owners = table.owners_of(hash_column(self.share.keys, table.seed))
        return np.bincount(owners, self.share.records, table.reducers).astype(np.int64)
