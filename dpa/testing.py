"""Helpers for tests of your own jobs: run executors in this process, and check the laws that a mergeable reducer must
keep.

Neither needs Ray or Spark. `run_local` goes through the same blocks and states as a real run, split over several
reducers with a redistribution half way, so what only shows with more than one reducer shows here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.errors import ExecutorError
from dpa.execution.empty import empty_result
from dpa.execution.mapping import MapTask
from dpa.execution.schemas import one_table
from dpa.execution.states import StatePart, States, states_for
from dpa.executors import as_mapper, as_reducer, is_mergeable
from dpa.laws import LawError, check_reducer_laws
from dpa.routing.change import TableChange
from dpa.routing.groupings.ring import RingGrouping
from dpa.routing.keys import names_of
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable, Spread
from dpa.splits import memory_splits
from dpa.tables import as_table


def run_local(
    mapper: Any = None,
    reducer: Any = None,
    data: Any = None,
    *,
    key: str | Sequence[str] = "key",
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
        key: name of the key column, or the names of the columns of a composite key.
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
        key if isinstance(key, str) else tuple(key),
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
    result = one_table([store.finish(task.key).table for store in stores], task.key)
    if not result.num_rows:
        return empty_result(task, given.schema).table
    ordered = [name for name in names_of(task.key) if not pa.types.is_null(result.schema.field(name).type)]
    return result.sort_by([(name, "ascending") for name in ordered]) if ordered else result


def _with_spread(table: RoutingTable, hashed: int) -> RoutingTable:
    """The next table, in which all reducers share one key."""
    everybody, epoch = tuple(range(table.reducers)), table.epoch + 1
    evenly = tuple(1 / table.reducers for _ in everybody)
    spread = Spread(everybody, evenly, tuple(float(node == 0) for node in everybody), epoch)
    before = int(table.places_of(np.array([(hashed - 1) % 2**32], dtype=np.uint32))[0])
    after = (hashed + 1) % 2**32
    return TableChange.of(table, {hashed: before, after: table.reducers}, (spread,)).apply(table)


def _exchange(stores: list[States], table: Any) -> None:
    """Hand every state to the store that owns its key, as the final merge does."""
    parts: list[tuple[int, StatePart]] = []
    for index, store in enumerate(stores):
        parts.extend(store.pack(table, index).items())
    for owner, part in parts:
        stores[owner].merge(part)


__all__ = ["ExecutorError", "LawError", "check_reducer_laws", "run_local"]
