"""Calls into a user's reducer or process if errors are tolerated: a record on which it raises leaves no trace.

A reducer may change a state before it raises, so the states of a block's keys are pickled together first. If user code
raises, they are restored, and the records are processed again without the bad one. Large states that can be merged are
set aside instead: records are folded into new states, which are merged with the old ones afterwards. Nothing is done
for each record; the cost for each key of a block is measured by `python -m experiments.tolerance`."""

import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from operator import itemgetter
from typing import Any

import numpy as np

from dpa.errors import ExecutorError
from dpa.execution._held import value_of
from dpa.execution._object_table import ObjectTable
from dpa.execution.block import Block
from dpa.execution.calls import fold, zero
from dpa.execution.failures import UserCodeError, bisected, pickled, shown, tolerated
from dpa.executors import Process, Record, Reducer, name_of
from dpa.routing.keys import in_words
from dpa.tolerance import Tolerance

_LARGE = 64  # from this many bytes for each record, states are merged rather than pickled


class Tolerant:
    """Processes blocks on the states of one table."""

    def __init__(
        self,
        table: ObjectTable,
        executor: Reducer[Any, Any] | Process[Any, Any],
        call: Callable[[list[int], list[Any]], list[Record]],
        tolerance: Tolerance,
    ) -> None:
        """`call` processes values, given the positions of their keys, and returns what a process emits."""
        self._table = table
        self._executor = executor
        self._call = call
        self._tolerance = tolerance
        self._may_merge = tolerance.merges and isinstance(executor, Reducer)
        self._merges = False

    def process(self, block: Block) -> list[Record]:
        """Returns what a process emits; the table's `dead` are the rows left out. Raises ExecutorError if states or
        values cannot be copied, or if `zero` or `merge` raises."""
        table, size, values = self._table, self._table.size, block.objects()
        places = table.add(block.keys, block.hashes, block.counts(), block.mapped())
        rows, known = places.take(block.codes).tolist(), places[places < size].tolist()
        is_first, dead, made = True, list[int](), list[Record]()

        def work(start: int, stop: int) -> tuple[list[Record], list[int], Sequence[Any] | None]:
            nonlocal is_first
            here, given, spare = rows, values, block.objects
            if not is_first:  # a slice of values forgets that Python has none for some
                here, given = rows[start:stop], type(values)(values[start:stop])
            if not is_first or isinstance(block.values, np.ndarray):
                spare = copies(self._executor, values[start:stop], "values")
            touched = known if is_first else [*set(here)]
            before = _items(table.states, touched)
            states = self._aside(touched, before, stop - start)
            was_first, is_first = is_first, False
            try:
                return self._call(here, given), touched, before if states is None else None
            except UserCodeError:
                table.put(touched, before if states is None else states())
                if was_first:  # states of new keys, which take no copies as long as nothing fails
                    new = range(size, table.size)
                    table.put(new, [zero(self._executor, table.keys[place]) for place in new])
                values[start:stop] = list.__iter__(spare())
                raise

        def dies(row: int, error: UserCodeError) -> None:
            dead.append(row)
            key, value = table.keys[rows[row]], value_of(values[row])
            on = f"key {in_words(key)} and value {shown(value)}"
            tolerated(self._tolerance, self._executor, error.method, on, error.error, value, key)

        for *_, (found, touched, aside) in bisected(work, block.rows, dies):
            made += found
            if aside is not None:  # merged here and not in `work`: no record is to blame for what `merge` raises
                once = [*set(touched)]  # a block may repeat a key
                new = _items(table.states, once)
                table.put(touched, aside)
                assert isinstance(self._executor, Reducer)
                fold(self._executor, "merge", table.states, once, [*new], table.keys)
        table.drop(dead, rows, block.weights)
        return made

    def _aside(self, touched: list[int], before: Sequence[Any], rows: int) -> Callable[[], list[Any]] | None:
        """A function that returns the states as they are now; None if they are set aside and replaced by new ones."""
        data = None if self._merges else pickled(before)
        if self._may_merge and (data is None or len(data) > _LARGE * rows):
            self._merges = True
            self._table.put(touched, [zero(self._executor, self._table.keys[place]) for place in touched])
            return None
        return _copies(self._executor, before, data, "states")


def copies(executor: object, objects: Sequence[Any], what: str) -> Callable[[], list[Any]]:
    """A function that returns these objects as they are now. `what` names them in messages. Raises ExecutorError if
    they cannot be copied."""
    return _copies(executor, objects, pickled(objects), what)


def _copies(executor: object, objects: Sequence[Any], data: bytes | None, what: str) -> Callable[[], list[Any]]:
    if data is not None:
        return lambda: list(pickle.loads(data))
    try:
        kept = deepcopy(objects)  # such as objects of classes that the driver has defined
    except Exception as error:  # objects of the user's may raise anything
        needs = f"{what} must be such as `pickle` or `copy.deepcopy` can copy, for `on_error`"
        raise ExecutorError(f"{name_of(executor)}: {needs}: {type(error).__name__}: {error}") from None
    return lambda: list(deepcopy(kept))


def _items(of: list[Any], places: list[int]) -> Sequence[Any]:
    found: tuple[Any, ...] = itemgetter(*places)(of) if len(places) > 1 else tuple(of[place] for place in places)
    return found
