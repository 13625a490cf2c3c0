"""The interface of all stores of states, states in flight between tasks, and finished shares.

Each kind of receiver (`dpa.execution.receivers`) has its own store. All stores also count records by key, for hot keys
and the Spark baseline."""

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
from dpa._util.inference import no_rows
from dpa.errors import ExecutorError
from dpa.execution._held import deep_size
from dpa.execution.block import Block, NumberOf
from dpa.execution.keys import cast, key_columns
from dpa.execution.rows import concatenated, one_batch
from dpa.executors import name_of
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, hash_column
from dpa.routing.keys import KeyName, one_type
from dpa.routing.table import Owning, RoutingTable

_SAMPLE = 64  # Python states of a part that are measured

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

    @staticmethod
    def joined(parts: Sequence[Any]) -> Any:
        """The states of several parts of this kind."""
        return type(parts[0].states)(state for part in parts for state in part.states)

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
    def _states_at(self, rows: npt.NDArray[np.intp]) -> Any: ...

    def take(self: K, rows: npt.NDArray[np.intp]) -> K:
        keys, hashes = self.keys.take(pa.array(rows)), None if self.hashes is None else self.hashes[rows]
        return type(self)(keys, self._states_at(rows), self.records[rows], self.mapped[rows], hashes)

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

    def _states_at(self, rows: npt.NDArray[np.intp]) -> pa.RecordBatch:
        return self.states.take(pa.array(rows))

    @staticmethod
    def joined(parts: Sequence[ColumnPart]) -> pa.RecordBatch:
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

    def _states_at(self, rows: npt.NDArray[np.intp]) -> list[Any]:
        return [self.states[row] for row in rows.tolist()]

    def slice(self, start: int, keys: int) -> ObjectPart:
        of = slice(start, start + keys)
        return ObjectPart(self.keys[of], self.states[of], self.records[of], self.mapped[of], self.hashes[of])


@dataclass(frozen=True, eq=False)
class JoinPart(StatePart):
    """Of a join: the rows themselves, any number for each key."""

    states: tuple[Block, ...]

    def by_number(self, number_of: NumberOf) -> Iterator[tuple[int, JoinPart]]:
        for block in self.states:
            for number, own in block.by_number(number_of):
                yield number, JoinPart(own.keys, (own,), own.counts(), own.mapped(), own.hashes)


@dataclass(frozen=True, eq=False)
class Gone:
    """Keys that a store had at the last sweep, and has given away or finished since. A key may appear several times,
    and the store may have it again."""

    keys: pa.Array


@dataclass(frozen=True)
class Sweep:
    """Receives the states of a store at a cut, while the store continues.

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
        """Fold a block's records, or combined states, into the states of their keys. Returns rows that are emitted at
        once; None if the store emits only at its end."""

    @abstractmethod
    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """Intervals of hashes that cover all keys which the table does not give to reducer `keep`, about `most` keys
        each, or more if pieces are costly; those with most processed records first."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """About how many bytes of memory its states take."""

    @abstractmethod
    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, P]:
        """Take out the states of keys that the table does not give to reducer `keep`, by owner; or only those in an
        interval of `pieces`."""

    @abstractmethod
    def snapshot(self) -> P | None:
        """All states; None without any. Python states are not copied: the caller writes them before the store
        changes."""

    def gone(self) -> Gone | None:
        """None without an earlier sweep, if the store does not know, or if most keys are new: the caller then writes
        all states."""
        return None

    def begin_sweep(self, sweep: Sweep, *, only_changed: bool = False) -> bool:
        """Start giving `sweep.keep` the states as they are now, even if they change before their turn: all of them, or
        with `only_changed` those changed since the last sweep. Returns False if the store cannot."""
        return False

    def sweep(self, most: int) -> bool:
        """Give about `most` keys to the sweep. Returns whether more may be left. May run on any thread."""
        return False

    def end_sweep(self) -> None:
        """Stop the sweep. May run on any thread."""

    def touched(self, block: Block) -> P | None:
        """The states of a block's keys, by reference; None if records change none."""
        return None

    @abstractmethod
    def merge(self, part: P) -> None:
        """Fold in states that came from another reducer."""

    def install(self, part: P) -> None:
        """Take in states of keys that it does not have. Raises ProtocolError if there is a state of such a key already,
        where the store can see that."""
        self.merge(part)

    @property
    def first_open(self) -> int | None:
        """The event time, in microseconds since 1970, that closes the first open window; None without one."""
        return None

    def close(self, until: int, key: KeyName) -> Reduced | None:
        """Finish windows to which no record of time `until` (microseconds since 1970) or later belongs, and drop their
        states; None without any. Later records of them are late."""
        return None

    def note_closed(self, until: int) -> None:
        """Records of windows that `close` would finish at this time, in microseconds since 1970, are late from now
        on."""

    def preview(self, key: KeyName) -> Reduced:
        """The result of `finish` now, without changing states."""
        return self.finish(key)

    @abstractmethod
    def finish(self, key: KeyName) -> Reduced:
        """With the key column, or columns, named `key`. The last call: it may change states."""


def together(shares: Sequence[Reduced], keep: Callable[[pa.Array], pa.Array] = lambda column: column) -> Reduced:
    """Concatenate shares of different keys. `keep` stores each column of keys and counts, in memory or on disk. Raises
    ExecutorError if columns have different types."""
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
    """The key columns and result columns, as declared if there are rows. Raises ExecutorError if a result column has a
    key column's name, or the columns are not those declared."""
    named = key_columns(keys, key)
    for name in named.keys() & results.keys():
        mend = "leave it out of `value`, or give it another name before"
        raise ExecutorError(f"{name_of(reducer)}.finish gives a column {name!r}, which is the key column; {mend}")
    table = pa.table({**named, **results})
    if declared is None or not table.num_rows:
        return table
    giver, names = f"{name_of(reducer)}.finish", list(named)
    return pa.Table.from_batches([declared.conformed(rows, giver, names) for rows in table.to_batches()])
