"""Calls into a user's reducer or process where errors are tolerated: a record on which it raises leaves no trace.

A reducer may have changed a state before it raises. So before a block the states of its keys are pickled, all together,
and that of a key is made anew of these bytes, and of the block's records before the one on which it raises. States that
are too large for that stay aside, if they can be merged: the block's records are folded into new ones, which are merged
with them at its end. Nothing is done for a record; what is done for a key of a block is measured by `python -m
experiments.tolerance`.
"""

from __future__ import annotations

import datetime
import decimal
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from operator import itemgetter, length_hint
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dpa.errors import DpaError, ExecutorError
from dpa.execution._held import held, value_of
from dpa.execution.block import Block
from dpa.execution.calls import fold, zero
from dpa.execution.failures import USER_ERRORS, at, shown, tolerated
from dpa.execution.rows import require_record
from dpa.execution.running import described
from dpa.executors import NOTHING, Process, Record, Reducer, name_of
from dpa.routing.keys import in_words
from dpa.tolerance import Tolerance

_Pairs: TypeAlias = "Iterator[tuple[int, Any]]"
Copies: TypeAlias = "Callable[[], list[Any]]"

_UNCHANGING = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, type(NOTHING)),
        *(decimal.Decimal, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, uuid.UUID),
    }
)
"""Types of states that user code cannot change."""

_LARGE = 64
"""From this number of bytes for each record of a block on, its states are rather merged than pickled."""


class Touched(NamedTuple):
    """The places of a block's keys in a store: of those that it had before, and that of each row's."""

    known: list[int]
    rows: list[int]


class Tolerant:
    """Work on the states of one store."""

    def __init__(
        self, executor: Reducer[Any, Any] | Process[Any, Any], states: list[Any], keys: list[Any], tolerance: Tolerance
    ) -> None:
        """`states`, `keys`: of the store."""
        self.executor = executor
        self.states = states
        self.keys = keys
        self.tolerance = tolerance
        self._may_merge = tolerance.merges and isinstance(executor, Reducer)
        self._merges = False

    def through(self, block: Block, touched: Touched) -> tuple[list[Record], set[int]]:
        """Process a block's records; states change in place.

        Returns:
            What a process emits, and the rows on which user code raises, which are left out.

        Raises:
            ExecutorError: states or values cannot be copied, which that takes; `zero` or `merge` raises.
        """
        before, data = _items(self.states, touched.known), None
        if not self._merges:
            data = _pickled(before)
            self._merges = self._may_merge and (data is None or len(data) > _LARGE * block.rows)
        if not self._merges:
            return _Work(self, block, touched, _copies(self.executor, before, data, "states")).done()
        for code in touched.known:
            self.states[code] = zero(self.executor, self.keys[code])
        found = _Work(self, block, touched, None).done()
        made = [self.states[code] for code in touched.known]
        for code, state in zip(touched.known, before, strict=True):
            self.states[code] = state
        assert isinstance(self.executor, Reducer)
        fold(self.executor, "merge", self.states, touched.known, made, self.keys)
        return found


def copies(executor: object, objects: Sequence[Any], what: str) -> Copies:
    """What gives objects of a block or a store as they are now, whatever the executor makes of them.

    Raises:
        ExecutorError: they cannot be copied; `what` they are, for the message.
    """
    return _copies(executor, objects, _pickled(objects), what)


def _copies(executor: object, objects: Sequence[Any], data: bytes | None, what: str) -> Copies:
    if data is not None:
        return lambda: list(pickle.loads(data))
    try:
        kept = deepcopy(objects)  # such as objects of classes that the driver has defined
    except Exception as error:  # whatever objects of the user's raise
        needs = f"{what} must be such as `pickle` or `copy.deepcopy` can copy, for `on_error`"
        raise ExecutorError(f"{name_of(executor)}: {needs}: {type(error).__name__}: {error}") from None
    return lambda: list(deepcopy(kept))


class _Work:
    """The records of a block.

    Attributes:
        made: what a process emits.
        dead: the rows that are left out.
    """

    def __init__(self, of: Tolerant, block: Block, touched: Touched, before: Copies | None) -> None:
        """`before` gives the states of the keys that the store had before; None: they are new, too."""
        self.made: list[Record] = []
        self.dead: set[int] = set()
        self._of = of
        self._touched = touched
        self._values = block.objects()
        has_objects = isinstance(block.values, np.ndarray)
        self._spare = copies(of.executor, self._values, "values") if has_objects else block.objects
        self._fresh: list[Any] | None = None
        self._before = before
        self._old: dict[int, Any] | None = None
        self._marks: dict[int, tuple[int, Copies]] = {}  # of a key: from which row on it is known, and its state there

    def done(self) -> tuple[list[Record], set[int]]:
        """Process all records."""
        taken = list.__iter__(self._values)
        values = taken if type(self._values) is list else map(held, taken)
        pairs = zip(self._touched.rows, values, strict=False)
        while (error := self._raised(pairs, self.made)) is not None:
            row = len(self._values) - length_hint(taken) - 1
            self._leave_out(row, error)
            if not _is_unchanging(self._of.states[self._touched.rows[row]]):
                self._restore(row)
        return self.made, self.dead

    def _raised(self, pairs: _Pairs, into: list[Record]) -> BaseException | None:
        """Process records up to the end, or to one on which user code raises: what that is."""
        executor, states, keys = self._of.executor, self._of.states, self._of.keys
        try:
            if isinstance(executor, Reducer):
                _fold(executor, states, keys, pairs)
            else:
                _process(executor, states, keys, into, pairs)
        except DpaError:
            raise
        except USER_ERRORS as error:
            return error
        return None

    def _leave_out(self, row: int, error: BaseException) -> None:
        if self._fresh is None:
            self._fresh = self._spare()
        executor, value = self._of.executor, value_of(self._fresh[row])
        key = self._of.keys[self._touched.rows[row]]
        method = "reduce" if isinstance(executor, Reducer) else "process"
        on = f"key {in_words(key)} and value {shown(value)}"
        tolerated(self._of.tolerance, executor, method, on, error, value, key)
        self.dead.add(row)

    def _restore(self, row: int) -> None:
        """Bring the state of a row's key to what it was before that row."""
        code = self._touched.rows[row]
        since, state = self._marks.get(code) or (0, self._at_first(code))
        rows = np.flatnonzero(np.array(self._touched.rows[since:row]) == code) + since
        again = [each for each in rows.tolist() if each not in self.dead]
        while True:
            [self._of.states[code]] = state()
            assert self._fresh is not None
            taken, values = iter(again), self._fresh
            error = self._raised(((code, values[each]) for each in taken), [])
            if error is None:
                break
            odd = again[len(again) - length_hint(taken) - 1]  # it raises on one on which it did not before
            again.remove(odd)
            self._fresh = None
            self._leave_out(odd, error)
        with suppress(ExecutorError):  # if it cannot be copied, it is made anew from where it was known on
            self._marks[code] = row + 1, copies(self._of.executor, [self._of.states[code]], "states")

    def _at_first(self, code: int) -> Copies:
        """The state of a key before the block."""
        if self._old is None:
            self._old = {} if self._before is None else dict(zip(self._touched.known, self._before(), strict=True))
        if code in self._old:
            return copies(self._of.executor, [self._old[code]], "states")
        return lambda: [zero(self._of.executor, self._of.keys[code])]


@described(lambda local: at(local["reducer"], "reduce", f"key {in_words(local['keys'][local['code']])}"))
def _fold(reducer: Reducer[Any, Any], states: list[Any], keys: list[Any], pairs: _Pairs) -> None:
    function = reducer.reduce
    for code, value in pairs:
        states[code] = function(states[code], value)


@described(lambda local: at(local["process"], "process", f"key {in_words(local['keys'][local['code']])}"))
def _process(process: Process[Any, Any], states: list[Any], keys: list[Any], into: list[Record], pairs: _Pairs) -> None:
    for code, value in pairs:
        state, made = process.process(keys[code], states[code], value)
        records = list(made)
        for record in records:
            require_record(record)
        states[code] = state
        into += records


def _items(of: list[Any], places: list[int]) -> Sequence[Any]:
    found: tuple[Any, ...] = itemgetter(*places)(of) if len(places) > 1 else tuple(of[place] for place in places)
    return found


def _is_unchanging(state: Any) -> bool:
    return _UNCHANGING.issuperset(map(type, state)) if type(state) is tuple else type(state) in _UNCHANGING


def _pickled(objects: Sequence[Any]) -> bytes | None:
    try:
        return pickle.dumps(objects, protocol=5)
    except Exception:  # whatever objects of the user's raise
        return None
