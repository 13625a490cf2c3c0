"""What every store of states has in common: its interface, the states on their way elsewhere, and the finished share.

Each kind of receiver (`dpa.execution.receivers`) has a store of its own. All stores also count records for each key,
which is what hot keys and the Spark baseline are computed from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.declared import Declared
from dpa._util.deep_size import deep_size
from dpa._util.inference import no_rows
from dpa.errors import ExecutorError
from dpa.execution.block import Block, NumberOf
from dpa.execution.keys import cast, key_columns
from dpa.execution.rows import concatenated, one_batch
from dpa.executors import name_of
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, hash_column
from dpa.routing.keys import KeyName, one_type
from dpa.routing.table import Owning, RoutingTable

_SAMPLE = 64
"""Python states of a part that are measured."""

P = TypeVar("P", bound="StatePart")
K = TypeVar("K", bound="KeyedPart")


@dataclass(frozen=True, eq=False)
class StatePart(ABC):
    """The states of some keys on their way to another reducer; a subclass for each kind of state.

    Attributes:
        keys: shape (keys,), each once.
        states: of these keys.
        records: processed records of each key, shape (keys,).
        mapped: mapped records of each key, shape (keys,).
        hashes: of the keys, in sessions of the keys alone; shape (keys,); None if the store keeps none.
        published: the rows of these keys, and maybe of others, as last published, where changes are.
    """

    keys: pa.Array
    states: pa.RecordBatch | list[Any] | tuple[Block, ...]
    records: npt.NDArray[np.int64]
    mapped: npt.NDArray[np.int64]
    hashes: Hashes | None = None
    published: pa.Table | None = None

    @staticmethod
    def of(*, states: Any, **fields: Any) -> StatePart:
        """The kind follows from the type of `states`: checkpoints do not name it."""
        kind = ObjectPart if isinstance(states, list) else JoinPart if isinstance(states, tuple) else ColumnPart
        return kind(states=states, **fields)

    @classmethod
    @abstractmethod
    def joined(cls, parts: Sequence[Any]) -> Any:
        """The states of several parts of this kind."""

    @abstractmethod
    def by_number(self, number_of: NumberOf) -> Iterator[tuple[int, StatePart]]:
        """Divide it by a number of each key. A number may come several times."""

    def hashed(self, seed: int) -> Hashes:
        """The hashes, shape (keys,), computed where the store keeps none."""
        return hash_column(self.keys, seed) if self.hashes is None else self.hashes


@dataclass(frozen=True, eq=False)
class KeyedPart(StatePart):
    """With one state for each key, in their order."""

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    @abstractmethod
    def take(self: K, rows: npt.NDArray[np.intp]) -> K: ...

    def by_number(self: K, number_of: NumberOf) -> Iterator[tuple[int, K]]:
        numbers, of_key = np.unique(number_of(self.keys), return_inverse=True)
        for place, number in enumerate(numbers.tolist()):
            yield number, self if len(numbers) == 1 else self.take(np.flatnonzero(of_key == place))


@dataclass(frozen=True, eq=False)
class ColumnPart(KeyedPart):
    """Of a batch reducer: a row for each key."""

    states: pa.RecordBatch

    @cached_property
    def nbytes(self) -> int:
        hashes = 0 if self.hashes is None else self.hashes.nbytes
        return int(self.keys.nbytes + self.states.nbytes + self.records.nbytes + self.mapped.nbytes + hashes)

    def take(self, rows: npt.NDArray[np.intp]) -> ColumnPart:
        index, hashes = pa.array(rows), None if self.hashes is None else self.hashes[rows]
        return ColumnPart(self.keys.take(index), self.states.take(index), self.records[rows], self.mapped[rows], hashes)

    @classmethod
    def joined(cls, parts: Sequence[ColumnPart]) -> pa.RecordBatch:
        return one_batch([(part.states, len(part.keys)) for part in parts])


@dataclass(frozen=True, eq=False)
class ObjectPart(KeyedPart):
    """Of a per-record reducer or a process: a Python object for each key, which user code may change."""

    states: list[Any]
    hashes: Hashes

    @property
    def nbytes(self) -> int:
        some = self.states[:: max(1, len(self.states) // _SAMPLE)]
        return int(self.keys.nbytes + sum(map(deep_size, some)) * len(self.states) / max(1, len(some)))

    def take(self, rows: npt.NDArray[np.intp]) -> ObjectPart:
        states = [self.states[row] for row in rows.tolist()]
        return ObjectPart(
            self.keys.take(pa.array(rows)), states, self.records[rows], self.mapped[rows], self.hashes[rows]
        )

    def slice(self, start: int, keys: int) -> ObjectPart:
        of = slice(start, start + keys)
        return ObjectPart(self.keys[of], self.states[of], self.records[of], self.mapped[of], self.hashes[of])

    @classmethod
    def joined(cls, parts: Sequence[ObjectPart]) -> list[Any]:
        return [state for part in parts for state in part.states]


@dataclass(frozen=True, eq=False)
class JoinPart(StatePart):
    """Of a join: the rows themselves, any number for each key."""

    states: tuple[Block, ...]

    def by_number(self, number_of: NumberOf) -> Iterator[tuple[int, JoinPart]]:
        for block in self.states:
            for number, own in block.by_number(number_of):
                yield number, JoinPart(own.keys, (own,), own.counts(), own.mapped(), own.hashes)

    @classmethod
    def joined(cls, parts: Sequence[JoinPart]) -> tuple[Block, ...]:
        return tuple(block for part in parts for block in part.states)


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


class States(ABC, Generic[P]):
    """What a reducer task needs of its store, which keeps states of one kind.

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
    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, P]:
        """Take out the states of all keys that the table does not give to reducer `keep`, by their owner; or only of
        those in an interval of `pieces`."""

    @abstractmethod
    def snapshot(self) -> P | None:
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

    def end_sweep(self) -> None:
        """Stop the sweep. May run on any thread."""

    def touched(self, block: Block) -> P | None:
        """States that a block's records are folded into, by reference; None where records change none."""
        return None

    @abstractmethod
    def merge(self, part: P) -> None:
        """Fold in states that came from another reducer."""

    def install(self, part: P) -> None:
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

    def note_closed(self, until: int) -> None:
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
