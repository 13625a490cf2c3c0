"""What every store of states has in common: its interface, the states on their way elsewhere, and the finished share.

Each kind of receiver (`dpa.execution.receivers`) has a store of its own. All stores also count records for each key,
which is what hot keys and the Spark baseline are computed from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.declared import Declared
from dpa._util.inference import no_rows
from dpa.errors import ExecutorError
from dpa.execution.block import Block
from dpa.execution.keys import cast, key_columns
from dpa.execution.rows import concatenated
from dpa.executors import name_of
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, hash_column
from dpa.routing.keys import KeyName, one_type
from dpa.routing.table import Owning, RoutingTable


@dataclass(frozen=True, eq=False)
class StatePart:
    """The states of some keys on their way to another reducer.

    Attributes:
        keys: shape (keys,), each once.
        states: a row or an object for each key; of a join, the rows themselves.
        records: processed records of each key, shape (keys,).
        mapped: mapped records of each key, shape (keys,).
        hashes: their hashes, of sessions those of their keys alone; shape (keys,); None of a store that does not keep
            any, which none of sessions is.
        published: the rows of these keys, and maybe of others, as they were published last, where changes are.
    """

    keys: pa.Array
    states: pa.RecordBatch | list[Any] | tuple[Block, ...]
    records: npt.NDArray[np.int64]
    mapped: npt.NDArray[np.int64]
    hashes: Hashes | None = None
    published: pa.Table | None = None

    @cached_property
    def nbytes(self) -> int:
        """In bytes; only where the states are columns."""
        assert isinstance(self.states, pa.RecordBatch)
        hashes = 0 if self.hashes is None else self.hashes.nbytes
        return int(self.keys.nbytes + self.states.nbytes + self.records.nbytes + self.mapped.nbytes + hashes)

    def hashed(self, seed: int) -> Hashes:
        """The hashes, shape (keys,), computed where the store keeps none."""
        return hash_column(self.keys, seed) if self.hashes is None else self.hashes

    def take(self, rows: npt.NDArray[np.intp]) -> StatePart:
        """Not for the states of a join, which are no row or object a key."""
        index, hashes = pa.array(rows), None if self.hashes is None else self.hashes[rows]
        if isinstance(self.states, pa.RecordBatch):
            states: pa.RecordBatch | list[Any] = self.states.take(index)
        else:
            states = [self.states[row] for row in rows.tolist()]
        return StatePart(self.keys.take(index), states, self.records[rows], self.mapped[rows], hashes)

    def slice(self, start: int, keys: int) -> StatePart:
        """Only where the states are Python objects."""
        assert isinstance(self.states, list)
        of = slice(start, start + keys)
        hashes = None if self.hashes is None else self.hashes[of]
        return StatePart(self.keys[of], self.states[of], self.records[of], self.mapped[of], hashes)


@dataclass(frozen=True, eq=False)
class Gone:
    """Keys that a store had at the sweep before, and has given away or finished since. A key may be in it several
    times, and the store may have it again."""

    keys: pa.Array


@dataclass(frozen=True)
class Sweep:
    """Who takes the states that a store has at a cut, while the store goes on.

    Attributes:
        keep: takes some of them, which may change as soon as it returns.
        guard: is held meanwhile, and while the store has its states change places, as two threads do that.
    """

    keep: Callable[[StatePart], None]
    guard: AbstractContextManager[Any]


@dataclass(frozen=True, eq=False)
class Reduced:
    """A reducer's finished share of the result.

    Attributes:
        table: the key column, or the columns of a composite key, and the result columns. A reducer's has a row a key,
            in the order of `keys`; that of another store may have any number.
        keys: the keys that the reducer holds, each once; shape (keys,).
        records: processed records of each key, shape (keys,).
        mapped: mapped records of each key, shape (keys,).
    """

    table: pa.Table
    keys: pa.Array
    records: npt.NDArray[np.int64]
    mapped: npt.NDArray[np.int64]

    @staticmethod
    def of_nobody(table: pa.Table) -> Reduced:
        none = np.zeros(0, dtype=np.int64)
        return Reduced(table, pa.nulls(0), none, none)


class States(ABC):
    """What a reducer task needs of its store.

    Attributes:
        dead: the rows of the block that was reduced last on which user code raised, where that is tolerated.
    """

    dead: Collection[int] = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """How many keys it holds."""

    @abstractmethod
    def reduce(self, block: Block) -> pa.RecordBatch | None:
        """Fold a block's records, or the combined states that they are, into the states of their keys. Returns the rows
        that it emits at once, None for a store that emits none before its end."""

    @abstractmethod
    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """The keys that the table does not give to reducer `keep`, in pieces of about `most`, or more where pieces cost
        much: intervals of hashes that together have all, those with most processed records first."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """About how many bytes of memory its states take."""

    @abstractmethod
    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        """Take out the states of all keys that the table does not give to reducer `keep`, by their owner; or only of
        those in an interval of `pieces`."""

    @abstractmethod
    def snapshot(self) -> StatePart | None:
        """All states as they are; None if there are none. Python states are the very objects of the
        store: the caller writes them before the store changes."""

    def gone(self) -> Gone | None:
        """None if there was no sweep before, if the store does not know, or if most keys are new: the caller writes all
        states then."""
        return None

    def begin_sweep(self, sweep: Sweep, *, only_changed: bool = False) -> bool:
        """Begin to give `sweep.keep` the states as they are now, also those that change before their turn: all states,
        or with `only_changed` those changed since the sweep before. Returns False if the store cannot do so."""
        return False

    def sweep(self, most: int) -> bool:
        """Give about this number of keys to the sweep. Returns whether any may be left. May run on any thread."""
        return False

    def end_sweep(self) -> None:  # noqa: B027  (optional)
        """Stop the sweep. May run on any thread."""

    def touched(self, block: Block) -> StatePart | None:
        """States that a block's records are folded into, by reference; None where records change none."""
        return None

    @abstractmethod
    def merge(self, part: StatePart) -> None:
        """Fold in states that came from another reducer."""

    def install(self, part: StatePart) -> None:
        """Take in states that came from another reducer, of keys that it has none of.

        Raises:
            ProtocolError: there is a state of such a key already, where the store can see that.
        """
        self.merge(part)

    @property
    def first_open(self) -> int | None:
        """The event time, in microseconds since 1970, that closes the first open window; None without any."""
        return None

    def close(self, until: int, key: KeyName) -> Reduced | None:
        """Finish windows that no record of this time, in microseconds since 1970, or later belongs to, as `finish`
        does, and drop their states; None without any. Their records are late from now on."""
        return None

    def judge(self, until: int) -> None:  # noqa: B027  (optional)
        """Records of windows that `close` would finish at this time, in microseconds since 1970, are late from now
        on."""

    def preview(self, key: KeyName) -> Reduced:
        """What `finish` would give now. Unlike `finish` it leaves the states as they are."""
        return self.finish(key)

    @abstractmethod
    def finish(self, key: KeyName) -> Reduced:
        """With the key column named `key`, or the columns of a composite key. The last call: it may change states."""


def together(shares: Sequence[Reduced], keep: Callable[[pa.Array], pa.Array] = lambda column: column) -> Reduced:
    """Shares of different keys as one. `keep` stores each column of keys and counts, in memory or on disk. Raises
    ExecutorError where columns have different types."""
    if len(shares) == 1:
        return shares[0]
    batches = [batch for share in shares for batch in share.table.to_batches() or [no_rows(share.table.schema)]]
    try:
        table = pa.table(concatenated([(batch, batch.num_rows) for batch in batches]))
    except pa.ArrowInvalid as error:
        raise ExecutorError(f"the rows of a stage must have columns of one type each: {error}") from None
    kind = one_type(share.keys.type for share in shares)
    keys = keep(pa.concat_arrays([cast(share.keys, kind) for share in shares]))
    counts = zip(*((one.records, one.mapped) for one in shares), strict=True)
    records, mapped = (keep(pa.array(np.concatenate(of))).to_numpy() for of in counts)
    return Reduced(table, keys, records, mapped)


def result_table(
    reducer: object, key: KeyName, keys: pa.Array, results: dict[str, pa.Array], declared: Declared | None = None
) -> pa.Table:
    """The key columns and the result columns beside them; those of a result with rows as declared. Raises ExecutorError
    where a result column has a key column's name, or the columns are not those declared."""
    named = key_columns(keys, key)
    for name in named.keys() & results.keys():
        mend = "leave it out of `value`, or give it another name before"
        raise ExecutorError(f"{name_of(reducer)}.finish gives a column {name!r}, which is the key column; {mend}")
    table = pa.table({**named, **results})
    if declared is None or not table.num_rows:
        return table
    giver, names = f"{name_of(reducer)}.finish", list(named)
    return pa.Table.from_batches([declared.conformed(rows, giver, names) for rows in table.to_batches()])
