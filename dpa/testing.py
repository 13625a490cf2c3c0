"""Helpers for tests of your own jobs: run executors in this process, and check the laws that a mergeable reducer must
keep.

Neither needs Ray or Spark. `run_local` goes through the same blocks and states as a real run, split over several
reducers with a redistribution half way, so what only shows with more than one reducer shows here.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.errors import DpaError, ExecutorError
from dpa.execution.calls import columns
from dpa.execution.empty import empty_result
from dpa.execution.mapping import MapTask
from dpa.execution.schemas import one_table
from dpa.execution.states import StatePart, States, states_for
from dpa.executors import AnyReducer, BatchReducer, Groups, Reducer, as_mapper, as_reducer, is_mergeable, name_of
from dpa.routing.change import TableChange
from dpa.routing.groupings.ring import RingGrouping
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable, Spread
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
        reducers: how many reducers share the keys; half way they are redistributed, and one key is spread over all of
            them, if the reducer can merge.
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
    given = as_table(data)
    ring = TokenRing(reducers, 8)
    table = ring.snapshot(0)
    grouping = RingGrouping(table)
    stores = [states_for(made) for _ in range(reducers)]
    blocks = [
        step.block
        for split in memory_splits(given, 1_000)
        for step in task.blocks(split, lambda: 0.0)
        if step.block is not None
    ]
    for number, block in enumerate(blocks):
        if number == len(blocks) // 2 and reducers > 1 and is_mergeable(made):
            ring.set_tokens(0, 1)
            table = _with_spread(ring.snapshot(1), int(block.hashes[0]))
            grouping.adopt(table)
        for owner, part in block.route(grouping):
            stores[owner].reduce(part)
    if is_mergeable(made):
        _exchange(stores, table)
    result = one_table([store.finish(key).table for store in stores], key)
    if not result.num_rows:
        return empty_result(task, given.schema).table
    return result if pa.types.is_null(result.schema.field(key).type) else result.sort_by(key)


def _with_spread(table: RoutingTable, hashed: int) -> RoutingTable:
    """The next table, in which all reducers share one key."""
    everybody, epoch = tuple(range(table.reducers)), table.epoch + 1
    evenly = tuple(1 / table.reducers for _ in everybody)
    spread = Spread(everybody, evenly, tuple(float(node == 0) for node in everybody), epoch)
    before = int(table.places_of(np.array([(hashed - 1) % 2**32], dtype=np.uint32))[0])
    after = (hashed + 1) % 2**32
    return TableChange.of(table, {hashed: before, after: table.reducers}, (spread,)).apply(table)


def check_reducer_laws(reducer: Any, values: Iterable[Any], *, trials: int = 100, seed: int = 0) -> None:
    """Check on random parts of `values` what merging relies on.

    The laws: merge is associative and commutative, the state of no values is its identity, and merged states of parts
    give what the whole gives. Results are compared after `finish`; floating-point numbers to nine digits.

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
            "merge must be associative": [a, _Together([b, c])],
            "the state of no values must be the identity of merge": [[], sample, []],
        }.items():
            found = _merged(made, parts)
            if not _alike(found, whole):
                raise LawError(f"{name_of(made)}: {law}; for {sample!r} in parts {parts!r}: {found!r}, not {whole!r}")


class _Together(list[list[Any]]):
    """Parts whose states are merged with each other before they meet the rest."""


def _merged(reducer: AnyReducer, parts: Sequence[list[Any]]) -> Any:
    """The finished merge of states of parts."""
    if isinstance(reducer, BatchReducer):
        state = _merge_columns(reducer, parts)
        return None if state is None else columns(reducer, "finish", state, 1).to_pylist()
    return reducer.finish(_merge_states(reducer, parts))


def _merge_states(reducer: Reducer[Any, Any], parts: Sequence[list[Any]]) -> Any:
    states = [
        _merge_states(reducer, part) if isinstance(part, _Together) else _reduced(reducer, part) for part in parts
    ]
    return functools.reduce(reducer.merge, states)


def _reduced(reducer: Reducer[Any, Any], values: list[Any]) -> Any:
    return functools.reduce(reducer.reduce, values, reducer.zero())


def _merge_columns(reducer: BatchReducer, parts: Sequence[list[Any]]) -> pa.RecordBatch | None:
    """One state of all parts, merged two at a time; None if they are empty: a batch reducer never sees an empty
    group."""
    merged: pa.RecordBatch | None = None
    for part in parts:
        if not part:
            continue
        if isinstance(part, _Together):
            state = _merge_columns(reducer, part)
        else:
            state = columns(reducer, "reduce", _one_group(_as_columns(part)), 1)
        if state is not None and merged is not None:
            both = pa.concat_tables(
                [pa.Table.from_batches([each]) for each in (merged, state)], promote_options="permissive"
            )
            state = columns(reducer, "merge", _one_group(both.combine_chunks().to_batches()[0]), 1)
        merged = merged if state is None else state
    return merged


def _as_columns(values: list[Any]) -> pa.RecordBatch:
    names = dict.fromkeys(name for value in values for name in value)
    return pa.record_batch({name: pa.array([value.get(name) for value in values]) for name in names})


def _one_group(rows: pa.RecordBatch) -> Groups:
    return Groups(pa.array(["key"]), np.zeros(rows.num_rows, dtype=np.int32), rows)


def _exchange(stores: list[States], table: Any) -> None:
    """Hand every state to the store that owns its key, as the final merge does."""
    parts: list[tuple[int, StatePart]] = []
    for index, store in enumerate(stores):
        parts.extend(store.pack(table, index).items())
    for owner, part in parts:
        stores[owner].merge(part)


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


__all__ = ["ExecutorError", "LawError", "check_reducer_laws", "run_local"]
