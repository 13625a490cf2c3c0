"""Python objects by key, each with two counts of records: the states of record reducers and processes."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ProtocolError
from dpa.execution._held import deep_size
from dpa.execution._parts import intervals
from dpa.execution.block import Block
from dpa.execution.states import Gone, ObjectPart, Sweep
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, within
from dpa.routing.keys import Key, in_words, one_type, to_arrow, to_python
from dpa.routing.table import Owning, RoutingTable

NEVER = 2**63 - 1
"""The due time of a key without a timer."""

_SAMPLE = 64  # states that are measured to estimate the size of all
_BESIDES = 140  # bytes for each key beside itself and its state: entries in a dict, two lists and two arrays
_MOST_CHANGED = 0.5  # if a larger share of the keys has changed, `gone` returns None
_LAST = 20_000  # keys whose states are swept at once before all change


class ObjectTable:
    """A key keeps its position until `pack` takes other keys out.

    Each key's hash is stored beside its state. Taking keys out then costs a look at all hashes, a few milliseconds for
    a million, and work for the keys taken.

    Attributes:
        keys: the keys, as Python values; shape (size,).
        states: their states, shape (size,).
        due: when the timer of each key is due, in microseconds since 1970, shape (at least size,); `NEVER`: it has
            none.
        dead: as `States` has it.
    """

    def __init__(self, zero: Callable[[Key], Any]) -> None:
        self.keys: list[Key] = []
        self.states: list[Any] = []
        self._zero = zero
        self.due: npt.NDArray[np.int64] = np.full(1024, NEVER)
        self.dead: Collection[int] = ()
        self._places: dict[Key, int] = {}
        self._type = pa.null()  # of all keys so far: it does not follow from Python's values
        self._counts = np.zeros((1024, 2), dtype=np.int64)
        self._hashes: Hashes = np.zeros(1024, dtype=np.uint32)
        self._changed = np.zeros(1024, dtype=bool)  # since the sweep before
        self._removed: list[Key] | None = None  # since then; None: there was none, or there are too many
        self._unswept = np.zeros(1024, dtype=bool)  # by the sweep that goes on
        self._sweep: Sweep | None = None
        self._guard: AbstractContextManager[Any] = nullcontext()
        self._random = np.random.default_rng(0)

    @property
    def size(self) -> int:
        return len(self.keys)

    @property
    def column(self) -> pa.Array:
        return to_arrow(self.keys, self._type)

    @property
    def records(self) -> npt.NDArray[np.int64]:
        return self._counts[: self.size, 0].copy()

    @property
    def mapped(self) -> npt.NDArray[np.int64]:
        return self._counts[: self.size, 1].copy()

    @property
    def nbytes(self) -> int:
        """Estimated from a sample with unequal probabilities (Hansen and Hurwitz, 1943): half of it is drawn by the
        number of records, since states with most records may be the largest."""
        size = self.size
        if not size:
            return 0
        counts = np.cumsum(self._counts[:size, 0] + 1)
        by_records = np.searchsorted(counts, self._random.integers(0, counts[-1], _SAMPLE // 2), side="right")
        places = np.concatenate([by_records, self._random.integers(0, size, _SAMPLE // 2)])
        chance = (1 / size + (self._counts[places, 0] + 1) / counts[-1]) / 2
        found = [deep_size(self.states[place]) + deep_size(self.keys[place]) for place in places.tolist()]
        return int(np.mean(np.array(found) / chance)) + size * _BESIDES

    def lacks(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        return np.array([key not in self._places for key in to_python(keys)], dtype=bool)

    def add_block(self, block: Block) -> list[int]:
        """Count a block's records. Returns the position of each record's key, shape (rows,)."""
        places = self.add(block.keys, block.hashes, block.counts(), block.mapped())
        found: list[int] = places.take(block.codes).tolist()
        return found

    def put(self, places: Sequence[int], states: Sequence[Any]) -> None:
        for place, state in zip(places, states, strict=True):
            self.states[place] = state

    def drop(self, dead: Sequence[int], places: Sequence[int], weights: npt.NDArray[np.int64] | None) -> None:
        """Subtract some rows of a block, and drop keys without other records; `places`: the position of each row's
        key."""
        self.dead = dead
        for row in dead:
            self._counts[places[row]] -= (1, 1 if weights is None else weights[row])
        if dead:
            keys = np.array(sorted({places[row] for row in dead}), dtype=np.intp)
            self._remove(keys[self._counts[keys, 0] == 0])

    def install(self, part: ObjectPart) -> None:
        before = self.size
        places = self.add(part.keys, part.hashes, part.records, part.mapped, part.states)
        if len(places) and int(places.min()) < before:
            twice = in_words(self.keys[int(places.min())])
            raise ProtocolError(f"there are two states of one key on one task, {twice}, which are not to be merged")

    def add_part(self, part: ObjectPart) -> npt.NDArray[np.intp]:
        """Count the records of another table's states. Returns the position of each key."""
        return self.add(part.keys, part.hashes, part.records, part.mapped)

    def add(
        self,
        keys: pa.Array,
        hashes: Hashes,
        records: npt.NDArray[np.int64],
        mapped: npt.NDArray[np.int64],
        states: Sequence[Any] | None = None,
    ) -> npt.NDArray[np.intp]:
        """Count records of keys. Returns the position of each key, shape (keys,). A new key gets zero, or its state of
        `states`, shape (keys,); a known key keeps its state. Raises KeyTypeError where types of keys do not go
        together."""
        self._type = one_type([self._type, keys.type])
        before = size = self.size
        given = to_python(keys)
        found = [*map(self._places.get, given)]
        for number in [number for number, place in enumerate(found) if place is None]:
            found[number] = place = self._places.setdefault(given[number], size)  # a block may have a key twice
            if place == size:
                self.states.append(self._zero(given[number]) if states is None else states[number])
                self.keys.append(given[number])
                size += 1
        with self._guard:
            while size > len(self._counts):
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
                self._hashes = np.concatenate([self._hashes, np.zeros_like(self._hashes)])
                self._changed = np.concatenate([self._changed, np.zeros_like(self._changed)])
                self._unswept = np.concatenate([self._unswept, np.zeros_like(self._unswept)])
                self.due = np.concatenate([self.due, np.full_like(self.due, NEVER)])
            places = np.array(found, dtype=np.intp)
            self._take(places)
        if size > before:
            self._hashes[places] = hashes
        self._changed[places] = True
        np.add.at(self._counts, places, np.stack([records, mapped], axis=1))
        return places

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        gone = self._gone(table, keep, ALL_HASHES)
        return intervals(self._hashes[gone], self._counts[gone, 0], most)

    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, ObjectPart]:
        gone = self._gone(table, keep, interval)
        owners = table.owners_of(self._hashes[gone])
        parts = {int(owner): self._part(gone[owners == owner]) for owner in np.unique(owners)}
        self._remove(gone)
        return parts

    def snapshot(self) -> ObjectPart | None:
        return self._part(np.arange(self.size)) if self.size else None

    def touch_place(self, place: int) -> None:
        """Called before the state at a position changes without a record."""
        if self._sweep is not None:
            with self._guard:
                self._take(np.array([place]))
        self._changed[place] = True

    def gone(self) -> Gone | None:
        if self._removed is None:
            return None
        changed = int(np.count_nonzero(self._changed[: self.size]))
        if changed + len(self._removed) > _MOST_CHANGED * self.size:
            return None
        return Gone(to_arrow(self._removed, self._type))

    def begin_sweep(self, sweep: Sweep, *, only_changed: bool = False) -> bool:
        """A state is swept just before it changes or leaves the table, or else by `sweep`."""
        self._unswept[: self.size] = self._changed[: self.size] if only_changed else True
        self._changed[:] = False
        self._removed = []
        self._sweep, self._guard = sweep, sweep.guard
        return True

    def sweep(self, most: int) -> bool:
        with self._guard:
            places = np.flatnonzero(self._unswept[: self.size])[:most]
            self._keep(places)
        return len(places) == most

    def end_sweep(self) -> None:
        with self._guard:
            self._sweep = None

    def take_all(self) -> None:
        """Called before all states change: sweeps the rest."""
        while self._sweep is not None and self.sweep(_LAST):
            pass

    def _take(self, places: npt.NDArray[np.intp]) -> None:
        """Called before states at these positions change: sweeps those not yet swept."""
        if self._sweep is not None:
            self._keep(np.sort(places[self._unswept[places]]))

    def _keep(self, places: npt.NDArray[np.intp]) -> None:
        if self._sweep is not None and len(places):
            self._unswept[places] = False
            self._sweep.keep(self._part(places[np.diff(places, prepend=-1) > 0]))

    def touched(self, block: Block) -> ObjectPart | None:
        places = self.places(block.keys)
        return self._part(np.array(places, dtype=np.intp)) if places else None

    def places(self, keys: pa.Array) -> list[int]:
        return [place for key in to_python(keys) if (place := self._places.get(key)) is not None]

    def forget(self, places: Iterable[int]) -> None:
        self._remove(np.array(sorted(places), dtype=np.intp))

    def _gone(self, table: Owning, keep: int, interval: Interval) -> npt.NDArray[np.intp]:
        """The positions of keys in the interval that belong to other tasks."""
        hashes = self._hashes[: self.size]
        inside = None if interval == ALL_HASHES else np.flatnonzero(within(hashes, interval))
        owners = table.owners_of(hashes if inside is None else hashes[inside])
        others = np.flatnonzero(owners != keep)
        return others if inside is None else inside[others]

    def _part(self, rows: npt.NDArray[np.intp]) -> ObjectPart:
        places = rows.tolist()
        keys = to_arrow([self.keys[place] for place in places], self._type)
        states, counts = [self.states[place] for place in places], self._counts[rows]
        return ObjectPart(keys, states, counts[:, 0], counts[:, 1], self._hashes[rows])

    def _remove(self, gone: npt.NDArray[np.intp]) -> None:
        """Remove the keys at these positions, ascending. The last remaining keys move to the freed positions."""
        size = self.size - len(gone)
        stays = np.ones(len(gone), dtype=bool)
        stays[gone[gone >= size] - size] = False
        free, last = gone[gone < size], np.flatnonzero(stays) + size
        removed = [self.keys[place] for place in gone.tolist()]
        with self._guard:
            self._take(gone)
            for place, old in zip(free.tolist(), last.tolist(), strict=True):
                self.keys[place], self.states[place] = self.keys[old], self.states[old]
            for column in (self._counts, self._hashes, self._changed, self._unswept, self.due):
                column[free] = column[last]
            self._counts[size : self.size], self._unswept[size : self.size] = 0, False
            self.due[size : self.size] = NEVER
            del self.keys[size:], self.states[size:]
        if self._removed is not None:
            few = len(self._removed) + len(removed) <= _MOST_CHANGED * size
            self._removed = [*self._removed, *removed] if few else None
        if len(removed) > size:
            self._places = {key: place for place, key in enumerate(self.keys)}
            return
        for key in removed:
            del self._places[key]
        self._places.update((self.keys[place], place) for place in free.tolist())
