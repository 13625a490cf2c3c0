"""Helpers for tests of your own jobs: run executors in this process, and check the laws that a mergeable reducer must keep.

Neither needs Ray or Spark. `run_local` goes through the same blocks and states as a real run, split over several reducers
with a redistribution half way, so what only shows with more than one reducer shows here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from dpa.errors import DpaError, ExecutorError
from dpa.execution.block import Block
from dpa.execution.mapping import MapTask
from dpa.execution.states import StatePart, States, states_for
from dpa.executors import AnyReducer, BatchReducer, Reducer, as_mapper, as_reducer, is_mergeable, name_of
from dpa.routing.ring import TokenRing
from dpa.splits import memory_splits
from dpa.tables import as_table


class LawError(DpaError, AssertionError):
    """A reducer breaks a law that merging relies on; the message holds a counter-example."""


def run_local(
    mapper: Any = None,
    reducer: Any = None,
    data: Any = None,
    *,
    key: str = "key",
    value: Sequence[str] | None = None,
    reducers: int = 3,
    combine: bool = False,
    batch_records: int = 7,
) -> pa.Table:
    """Map and reduce `data` in this process and return the result, a row a key, ordered by key.

    Args:
        mapper: as in a job; None takes `key` and `value` columns from the data.
        reducer: as in a job.
        data: an Arrow table, a list of records, or a DataFrame.
        key: name of the key column.
        value: without a mapper, the columns that are the value.
        reducers: how many reducers share the keys; half way they are redistributed, if the reducer can merge.
        combine: whether to combine in the mapper.
        batch_records: most records in a batch: small, so that there are several.

    Raises:
        ExecutorError: an executor failed; names it, the key and the traceback.
    """
    made = as_reducer(reducer)
    task = MapTask(
        None if mapper is None else as_mapper(mapper),
        key,
        None if value is None else tuple(value),
        made,
        combine,
        0,
        batch_records,
        float("inf"),
    )
    ring = TokenRing(reducers, 8)
    table = ring.snapshot(0)
    stores = [states_for(made) for _ in range(reducers)]
    blocks = [
        step.block
        for split in memory_splits(as_table(data), 1_000)
        for step in task.blocks(split, lambda: 0.0)
        if step.block is not None
    ]
    for number, block in enumerate(blocks):
        if number == len(blocks) // 2 and reducers > 1 and is_mergeable(made):
            ring.set_tokens(0, 1)
            table = ring.snapshot(1)
        for owner, part in block.route(table):
            stores[owner].reduce(part)
    if is_mergeable(made):
        _exchange(stores, table)
    tables = [reduced.table for reduced in (store.finish(key) for store in stores) if reduced.table.num_rows]
    return pa.concat_tables(tables, promote_options="permissive").sort_by(key) if tables else pa.table({key: pa.nulls(0)})


def check_reducer_laws(reducer: Any, values: Iterable[Any], *, trials: int = 100, seed: int = 0) -> None:
    """Check on random parts of `values` what merging relies on.

    The laws: merge is associative and commutative, the state of no values is its identity, and merged states of parts give
    what the whole gives. Results are compared after `finish`; floating-point numbers to nine digits.

    Args:
        reducer: as in a job, with `merge`.
        values: examples of values, as the mapper makes them (for a batch reducer: dicts by column name).
        trials: how many random divisions to try.
        seed: of the random divisions.

    Raises:
        LawError: a law is broken; shows the values for which.
    """
    made = as_reducer(reducer)
    if not is_mergeable(made):
        raise LawError(f"{name_of(made)} has no merge")
    values, draw = list(values), random.Random(seed)
    for _ in range(trials):
        sample = draw.sample(values, draw.randint(0, len(values)))
        cuts = sorted(draw.randint(0, len(sample)) for _ in range(2))
        a, b, c = sample[: cuts[0]], sample[cuts[0] : cuts[1]], sample[cuts[1] :]
        whole = _merged(made, [sample])
        for law, parts in {
            "parts merged must give what the whole gives": [a, b, c],
            "merge must be commutative": [c, b, a],
            "merge must be associative": [a, [b, c]],
            "the state of no values must be the identity of merge": [[], sample, []],
        }.items():
            found = _merged(made, parts)
            if not _alike(found, whole):
                raise LawError(f"{name_of(made)}: {law}; for {sample!r} in parts {parts!r}: {found!r}, not {whole!r}")


def _merged(reducer: AnyReducer, parts: list[Any]) -> Any:
    """The finished merge of states of parts; a list within a list is merged first."""
    if isinstance(reducer, BatchReducer):
        return _merged_columns(reducer, parts)
    state = None
    for part in parts:
        nested = bool(part) and all(isinstance(item, list) for item in part)
        new = _merge_states(reducer, part) if nested else _reduced(reducer, part)
        state = new if state is None else reducer.merge(state, new)
    return reducer.finish(state)


def _merge_states(reducer: Reducer[Any, Any], parts: list[list[Any]]) -> Any:
    state = _reduced(reducer, parts[0])
    for part in parts[1:]:
        state = reducer.merge(state, _reduced(reducer, part))
    return state


def _reduced(reducer: Reducer[Any, Any], values: list[Any]) -> Any:
    state = reducer.zero()
    for value in values:
        state = reducer.reduce(state, value)
    return state


def _merged_columns(reducer: BatchReducer, parts: list[Any]) -> Any:
    flat = [part for part in parts if part and not isinstance(part[0], list)]
    flat += [inner for part in parts if part and isinstance(part[0], list) for inner in part if inner]
    store = states_for(reducer)
    for part in flat:
        store.reduce(Block.of(pa.array(["key"] * len(part)), pa.RecordBatch.from_pylist(part), 0))
    return store.finish("key").table.to_pylist()


def _exchange(stores: list[States], table: Any) -> None:
    """Hand every state to the store that owns its key, as the final merge does."""
    parts: list[tuple[int, StatePart]] = []
    for index, store in enumerate(stores):
        parts.extend(store.pack(table, index).items())
    for owner, part in parts:
        stores[owner].merge(part)


def _alike(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or abs(left - right) <= 1e-9 * max(abs(left), abs(right)) or (left != left and right != right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_alike(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_alike, left, right))
    return bool(left == right)


__all__ = ["ExecutorError", "LawError", "check_reducer_laws", "run_local"]
