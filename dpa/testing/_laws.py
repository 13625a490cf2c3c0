"""The laws that balancing, groupings and rounds of aggregation rely on, checked on random examples.

Keys are checked together and compared with each key alone, because a batch reducer sees many groups at once. Passing
proves nothing: the reducer was just not caught."""

import functools
import math
import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from dpa._given import as_reducer
from dpa.errors import ConfigError, DpaError
from dpa.execution.calls import columns
from dpa.execution.receivers import receiver_of
from dpa.execution.receivers.batch import stacked
from dpa.executors import BatchReducer, Groups, Reducer, name_of

_KEYS = "abc"

_MIN_ROWS = 8  # rows of the largest examples, however few values were given

Rows = list[tuple[str, Any]]

S = TypeVar("S")


class LawError(DpaError, AssertionError):
    """A reducer breaks a law; the message holds a counter-example."""


def check_reducer_laws(reducer: Any, values: Iterable[Any], *, trials: int = 100, seed: int = 0) -> None:
    """Check on random examples what a run relies on.

    The laws:

    - A key's result depends on its own values alone.
    - `merge` is associative and commutative, and the state of no values is its identity.
    - The merged states of parts give what the whole gives.
    - `finish` leaves the state as it is.
    - A batch reducer gives one row a group, also for no groups, always with the same columns.

    Results are compared after `finish`, floating-point numbers to nine digits.

    Args:
        reducer: as in a job, with `merge`.
        values: examples of values as the mapper makes them (for a batch reducer, dicts by column name); at least one.
        trials: how many random examples to try, small ones first.
        seed: of the random examples.

    Raises:
        LawError: a law is broken; shows the keys and values.
        ExecutorError: a method of a batch reducer raised, or did not return one row a group.
        ConfigError: there is no value, or no trial, so nothing would be checked.
    """
    made, values, draw = as_reducer(reducer), list(values), random.Random(seed)
    if not values or trials < 1:
        raise ConfigError(f"to check {name_of(made)} takes at least one value and one trial")
    if not receiver_of(made).can_merge:
        raise LawError(f"{name_of(made)} has no merge")
    most = max(len(values), _MIN_ROWS)
    for trial in range(trials):
        keys = _KEYS[: draw.randint(1, len(_KEYS))]
        rows = [(draw.choice(keys), draw.choice(values)) for _ in range(1 + trial * most // trials)]
        if isinstance(made, BatchReducer):
            _check(name_of(made), _Columns(made, draw), rows, draw)
            _check_no_groups(made, [value for _, value in rows])
        else:
            _check(name_of(made), _Objects(made), rows, draw)


class _States(Protocol[S]):
    """A reducer's calls on the states of several keys."""

    def reduce(self, rows: Rows, onto: S) -> S: ...

    def merge(self, left: S, right: S) -> S: ...

    def finish(self, states: S) -> dict[str, Any]: ...

    def none(self) -> S: ...


class _Objects:
    """A per-record reducer's; a key without a state has that of no values."""

    def __init__(self, reducer: Reducer[Any, Any]) -> None:
        self._reducer = reducer

    def reduce(self, rows: Rows, onto: dict[str, Any]) -> dict[str, Any]:
        for key, value in rows:
            onto[key] = self._reducer.reduce(self._of(onto, key), value)
        return onto

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {key: self._reducer.merge(self._of(left, key), self._of(right, key)) for key in {**left, **right}}

    def finish(self, states: dict[str, Any]) -> dict[str, Any]:
        return {key: self._reducer.finish(state) for key, state in states.items()}

    def none(self) -> dict[str, Any]:
        return {}

    def _of(self, states: dict[str, Any], key: str) -> Any:
        return states[key] if key in states else self._reducer.zero()


_Batch = tuple[list[str], pa.RecordBatch] | None  # keys, and a row of state for each; None if there are none


class _Columns:
    """States of a batch reducer, whose groups are numbered in any order."""

    def __init__(self, reducer: BatchReducer, draw: random.Random) -> None:
        self._reducer = reducer
        self._draw = draw

    def reduce(self, rows: Rows, onto: _Batch) -> _Batch:
        if not rows:
            return onto
        keys, values = zip(*rows, strict=True)
        return self.merge(onto, self._called("reduce", keys, _as_columns(values)))

    def merge(self, left: _Batch, right: _Batch) -> _Batch:
        if left is None or right is None:
            return left or right
        return self._called("merge", [*left[0], *right[0]], stacked(self._reducer, [left[1], right[1]]))

    def finish(self, states: _Batch) -> dict[str, Any]:
        if states is None:
            return {}
        keys, batch = states
        return dict(zip(keys, columns(self._reducer, "finish", batch, len(keys)).to_pylist(), strict=True))

    def none(self) -> _Batch:
        return None

    def _called(self, method: str, of_rows: Iterable[str], values: pa.RecordBatch) -> _Batch:
        of_rows = list(of_rows)
        keys = list(dict.fromkeys(of_rows))
        self._draw.shuffle(keys)
        ids = np.array([keys.index(key) for key in of_rows], dtype=np.int32)
        return keys, columns(self._reducer, method, Groups(pa.array(keys), ids, values), len(keys))


def _check(name: str, states: _States[Any], rows: Rows, draw: random.Random) -> None:
    def reduced(part: Rows) -> Any:
        return states.reduce(part, states.none())

    def merged(*parts: Any) -> Any:
        return functools.reduce(states.merge, parts)

    def finished(part: Rows) -> Any:
        """States that have been finished once, and are used again."""
        found = reduced(part)
        states.finish(found)
        return found

    first, second = sorted(draw.randint(0, len(rows)) for _ in range(2))
    a, b, c = rows[:first], rows[first:second], rows[second:]
    some, rest = rows[: max(first, 1)], rows[max(first, 1) :]
    identity, unchanged = "the state of no values must be the identity of merge", "finish must not change the state"
    laws: list[tuple[str, list[Rows], Callable[[], Any]]] = [
        ("a key's result must depend on its own values alone", [rows], lambda: reduced(rows)),
        (identity, [[], rows], lambda: merged(reduced([]), reduced(rows))),
        (identity, [rows, []], lambda: merged(reduced(rows), reduced([]))),
        ("parts merged must give what the whole gives", [a, b, c], lambda: merged(*map(reduced, (a, b, c)))),
        ("merge must be commutative", [c, b, a], lambda: merged(*map(reduced, (c, b, a)))),
        ("merge must be associative", [a, b, c], lambda: merged(reduced(a), merged(reduced(b), reduced(c)))),
        (unchanged, [some, rest], lambda: states.reduce(rest, finished(some))),
        (unchanged, [some, rest], lambda: merged(finished(some), reduced(rest))),
    ]
    alone = {key: states.finish(reduced([row for row in rows if row[0] == key]))[key] for key, _ in rows}
    for law, parts, of_parts in laws:
        found = states.finish(of_parts())
        if not _alike(found, alone):
            raise LawError(f"{name}: {law}; for {rows!r} in parts {parts!r}: {found!r}, not {alone!r}")


def _check_no_groups(reducer: BatchReducer, values: list[Any]) -> None:
    """Check that no groups give no rows, with the columns that the group of all `values` gives, or such as Arrow
    promotes to them: they are the columns of an empty result."""
    batch = _as_columns(values)
    for method in ("reduce", "merge", "finish"):
        empty = _of_one_key(reducer, method, batch.slice(0, 0), 0).schema
        batch = _of_one_key(reducer, method, batch, 1)
        if not _fits(empty, batch.schema):
            law = f"{method} must give the same columns for no groups as for others"
            raise LawError(f"{name_of(reducer)}: {law}; for {values!r}: {_shown(empty)}, not {_shown(batch.schema)}")


def _fits(schema: pa.Schema, other: pa.Schema) -> bool:
    """Whether batches of the one schema can stand beside those of the other, which stays as it is."""
    try:
        unified = pa.unify_schemas([other, schema], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return bool(schema.names == other.names and unified.equals(other))


def _of_one_key(reducer: BatchReducer, method: str, batch: pa.RecordBatch, groups: int) -> pa.RecordBatch:
    """What a method gives for a batch whose rows are all of one group, or for none."""
    argument = batch
    if method != "finish":
        keys = pa.array(["a"] * groups, pa.string())
        argument = Groups(keys, np.zeros(batch.num_rows, dtype=np.int32), batch)
    return columns(reducer, method, argument, groups)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"


def _as_columns(values: Iterable[Any]) -> pa.RecordBatch:
    values = list(values)
    names = dict.fromkeys(name for value in values for name in value)
    return pa.record_batch({name: pa.array([value.get(name) for value in values]) for name in names})


def _alike(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (
            left == right
            or abs(left - right) <= 1e-9 * max(abs(left), abs(right))
            or (math.isnan(left) and math.isnan(right))
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_alike(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_alike, left, right))
    return bool(left == right)
