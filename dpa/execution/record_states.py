"""States of per-record reducers: one Python object a key."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import pyarrow as pa

from dpa._util.declared import Declared
from dpa.aggregates import Distinct, TopK
from dpa.errors import ExecutorError
from dpa.execution.block import Block
from dpa.execution.calls import fold, zero
from dpa.execution.failures import USER_ERRORS, at, executor_error
from dpa.execution.object_table import ObjectTable
from dpa.execution.running import described
from dpa.execution.schemas import differs, result_column
from dpa.execution.states import Reduced, StatePart, result_table
from dpa.executors import Reducer, name_of
from dpa.routing.hashing import ALL_HASHES, Interval
from dpa.routing.keys import KeyName, in_words
from dpa.routing.table import RoutingTable

_ONLY_READ = (Reducer.finish, TopK.finish, Distinct.finish)
"""Implementations of `finish` that leave a state as it is, so that a preview needs no copy of it."""


class RecordStates:
    """The store."""

    def __init__(self, reducer: Reducer[Any, Any], declared: Declared | None = None) -> None:
        """`declared` are the columns that the result is declared to have."""
        self._reducer = reducer
        self._declared = declared
        self._table = ObjectTable(partial(zero, reducer))

    @property
    def size(self) -> int:
        """How many keys it holds."""
        return self._table.size

    def reduce(self, block: Block) -> None:
        """Fold the block's values into the states of their keys, in order."""
        method = "merge" if block.combined else "reduce"
        places = self._table.add_block(block)
        fold(self._reducer, method, self._table.states, places, block.objects(), self._table.keys)

    def install(self, part: StatePart) -> None:
        """Take in states that came from another reducer, of keys that it has none of."""
        self._table.install(part)

    def merge(self, part: StatePart) -> None:
        """Fold in states that came from another reducer."""
        assert isinstance(part.states, list)
        places = self._table.add_part(part).tolist()
        fold(self._reducer, "merge", self._table.states, places, part.states, self._table.keys)

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """The keys that the table does not give to reducer `keep`, in pieces of about `most`, the hottest first."""
        return self._table.pieces(table, keep, most)

    def pack(self, table: RoutingTable, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        """Take out the states of all keys in an interval of hashes that the table does not give to reducer `keep`, by
        their owner."""
        return self._table.pack(table, keep, interval)

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
        finished, held = [], self._table
        for name, state in zip(held.keys, held.states, strict=True):
            try:
                finished.append(finish(state))
            except USER_ERRORS as error:
                raise executor_error(self._reducer, "finish", f"key {in_words(name)}", error) from None
        keys = held.column
        table = result_table(self._reducer, key, keys, self._columns(finished), self._declared)
        return Reduced(table, keys, held.records, held.mapped)

    def _columns(self, finished: list[Any]) -> dict[str, pa.Array]:
        """The result columns of what `finish` returned for each key, in the keys' order."""
        keys = self._table.keys
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
