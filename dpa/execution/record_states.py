"""States of per-record reducers: Python objects in a list, found by key through a dict."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.aggregates import Distinct, TopK
from dpa.errors import ExecutorError
from dpa.execution.block import Block
from dpa.execution.calls import fold, zero
from dpa.execution.failures import USER_ERRORS, at, executor_error
from dpa.execution.running import described
from dpa.execution.schemas import differs, result_column
from dpa.execution.states import Reduced, StatePart, result_table
from dpa.executors import Reducer, name_of
from dpa.routing.hashing import hash_column
from dpa.routing.keys import Key, KeyName, in_words, one_type, to_arrow, to_python
from dpa.routing.table import RoutingTable

_ONLY_READ = (Reducer.finish, TopK.finish, Distinct.finish)
"""Implementations of `finish` that leave a state as it is, so that a preview needs no copy of it."""


class RecordStates:
    """The store. `_places` gives each key its position in `_states` and in the two columns of counts."""

    def __init__(self, reducer: Reducer[Any, Any]) -> None:
        self._reducer = reducer
        self._places: dict[Key, int] = {}
        self._type = pa.null()  # of all keys so far: Python's values alone would not tell it
        self._states: list[Any] = []
        self._counts = np.zeros((1024, 2), dtype=np.int64)

    @property
    def size(self) -> int:
        """How many keys it holds."""
        return len(self._states)

    def reduce(self, block: Block) -> None:
        """Fold the block's values into the states of their keys, in order."""
        keys = self._accept(block.keys)
        places = self._places_of(keys, block.counts(), block.mapped())
        values = block.objects()
        if len(set(places)) == len(places):
            self._fold(places, block.codes.tolist(), values, block.combined, keys)
        else:  # the dictionary repeats a key: its records share one state
            self._fold_slowly([places[code] for code in block.codes.tolist()], values, block.combined)

    def merge(self, part: StatePart) -> None:
        """Fold in states that came from another reducer."""
        keys = self._accept(part.keys)
        places = self._places_of(keys, part.records, part.mapped)
        assert isinstance(part.states, list)
        self._fold(places, range(len(keys)), part.states, True, keys)

    def pack(self, table: RoutingTable, keep: int) -> dict[int, StatePart]:
        """Take out the states of all keys that the table does not give to reducer `keep`, by their owner."""
        keys = self._keys()
        owners = table.owners_of(hash_column(keys, table.seed))
        others = np.unique(owners[owners != keep])
        parts = {int(owner): self._select(keys, np.flatnonzero(owners == owner)) for owner in others}
        if parts:
            kept = np.flatnonzero(owners == keep)
            self._states = [self._states[row] for row in kept.tolist()]
            self._counts[: len(kept)] = self._counts[kept]
            self._counts[len(kept) :] = 0
            self._places = {key: place for place, key in enumerate(to_python(keys.take(pa.array(kept))))}
        return parts

    def preview(self, key: KeyName) -> Reduced:
        """What `finish` would give now; the user's `finish` works on a copy of each state, one at a time.

        A copy takes 0.2 us for a number, 1 to 3 us for a small tuple, dict or list, and 7 us for a dataclass. `pickle`
        takes half of that, but cannot look up classes that the driver defined in `__main__`.
        """
        finish = self._reducer.finish
        only_read = type(self._reducer).finish in _ONLY_READ
        return self._finished(key, finish if only_read else lambda state: finish(deepcopy(state)))

    def finish(self, key: KeyName) -> Reduced:
        """The result, with the key column named `key`, or the columns of a composite key. The last call: the reducer
        may change the states."""
        return self._finished(key, self._reducer.finish)

    @described(lambda local: at(local["self"]._reducer, "finish", f"key {in_words(local['name'])}"))
    def _finished(self, key: KeyName, finish: Callable[[Any], Any]) -> Reduced:
        finished = []
        for name, place in self._places.items():
            try:
                finished.append(finish(self._states[place]))
            except USER_ERRORS as error:
                raise executor_error(self._reducer, "finish", f"key {in_words(name)}", error) from None
        columns = self._columns(finished)
        counts = self._counts[: len(self._states)]
        table = result_table(self._reducer, key, self._keys(), columns)
        return Reduced(table, counts[:, 0].copy(), counts[:, 1].copy())

    def _fold(self, places: list[int], codes: Any, values: list[Any], merging: bool, keys: list[Key]) -> None:
        states = [self._states[place] for place in places]
        fold(self._reducer, "merge" if merging else "reduce", states, codes, values, keys)
        for place, state in zip(places, states, strict=True):
            self._states[place] = state

    def _fold_slowly(self, places: list[int], values: list[Any], merging: bool) -> None:
        names = {place: key for key, place in self._places.items()}
        for place, value in zip(places, values, strict=True):
            self._fold([place], [0], [value], merging, [names[place]])

    def _places_of(self, keys: list[Key], records: npt.NDArray[np.int64], mapped: npt.NDArray[np.int64]) -> list[int]:
        """The position of each key, new ones with a state of zero, and count its records."""
        places, states = self._places, self._states
        result = []
        for key in keys:
            place = places.setdefault(key, len(states))
            if place == len(states):
                states.append(zero(self._reducer, key))
            result.append(place)
        while len(states) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        np.add.at(self._counts, np.array(result, dtype=np.intp), np.stack([records, mapped], axis=1))
        return result

    def _accept(self, keys: pa.Array) -> list[Key]:
        """Keys that have come, as Python values; all of a job go into one type."""
        self._type = one_type([self._type, keys.type])
        return to_python(keys)

    def _keys(self) -> pa.Array:
        return to_arrow(list(self._places), self._type)

    def _select(self, keys: pa.Array, rows: npt.NDArray[np.intp]) -> StatePart:
        states = [self._states[row] for row in rows.tolist()]
        counts = self._counts[rows]
        return StatePart(keys.take(pa.array(rows)), states, counts[:, 0], counts[:, 1])

    def _columns(self, finished: list[Any]) -> dict[str, pa.Array]:
        """The result columns of what `finish` returned for each key, in the keys' order."""
        keys = list(self._places)
        if not all(isinstance(item, dict) for item in finished):
            finished = [{"value": item} for item in finished]
        first = finished[0] if finished else {}
        odd = next((place for place, item in enumerate(finished) if item.keys() != first.keys()), None)
        try:
            if odd is not None:
                raise differs("columns", ", ".join(first), keys[0], ", ".join(finished[odd]), keys[odd])
            return {name: result_column(name, keys, [item[name] for item in finished]) for name in first}
        except ExecutorError as error:
            raise ExecutorError(f"{name_of(self._reducer)}.finish: {error}") from None
