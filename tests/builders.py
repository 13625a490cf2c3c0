"""What many tests are built of: random keys, routing tables, blocks and executors."""

from __future__ import annotations

import itertools
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import timezone
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from dpa.execution.block import Block, Values
from dpa.execution.keys import column_of
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.stateless import StatelessReceiver
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.schemas import ShareSchema, agreed, as_agreed
from dpa.execution.snapshots import TaskSnapshot
from dpa.executors import AnyMapper, Reducer
from dpa.protocol.flow_control import CreditLimits, FlowControl
from dpa.routing.assignment import Assignment, KeySplit, Single
from dpa.routing.hashing import hash_key
from dpa.routing.keys import Key, KeyName, to_python
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable

M = TypeVar("M")

# --- keys and tables

KEY_TYPES = {
    "strings": pa.string(),
    "integers": pa.int64(),
    "large integers": pa.uint64(),
    "bytes": pa.binary(),
    "booleans": pa.bool_(),
    "dates": pa.date32(),
    "timestamps": pa.timestamp("us"),
    "instants": pa.timestamp("us", "UTC"),
    "decimals": pa.decimal128(12, 3),
}
_SOME = {
    "strings": st.text(max_size=6),
    "integers": st.integers(-(2**63), 2**63 - 1),
    "large integers": st.integers(0, 2**64 - 1),
    "bytes": st.binary(max_size=6),
    "booleans": st.booleans(),
    "dates": st.dates(),
    "timestamps": st.datetimes(),
    "instants": st.datetimes(timezones=st.just(timezone.utc)),
    "decimals": st.decimals(-(10**9), 10**9, places=3),
}
COMPOSITE = ("one", "two")
"""The names of the components of composite keys."""

seeds = st.integers(0, 2**32 - 1)
composites = st.tuples(*(st.one_of(st.none(), *_SOME.values()) for _ in COMPOSITE))
keys = st.one_of(st.none(), *_SOME.values(), composites)


@st.composite
def key_lists(draw: st.DrawFn, *, least: int = 0, most: int = 40, composite: bool = True) -> list[Key]:
    """Keys of one type, nulls among them, most of which come more than once; `composite` ones too."""
    components = [st.one_of(st.none(), _SOME[draw(st.sampled_from(list(_SOME)))]) for _ in COMPOSITE]
    some = st.tuples(*components) if composite and draw(st.booleans()) else components[0]
    drawn: list[Key] = draw(st.lists(some, min_size=1, max_size=8))
    return draw(st.lists(st.sampled_from(drawn), min_size=least, max_size=most))


def name_for(of_keys: Sequence[Key]) -> KeyName:
    """What a job that has these keys calls them."""
    return COMPOSITE if any(isinstance(key, tuple) for key in of_keys) else "key"


def key_array(of_keys: Sequence[Key]) -> pa.Array:
    """These keys as a key column."""
    return column_of(of_keys, name_for(of_keys))


@st.composite
def rings(draw: st.DrawFn, *, max_reducers: int = 5, of_seeds: st.SearchStrategy[int] = seeds) -> TokenRing:
    """A ring after some changes."""
    ring = TokenRing(draw(st.integers(1, max_reducers)), draw(st.integers(1, 6)), seed=draw(of_seeds))
    for _ in range(draw(st.integers(0, 4))):
        ring.set_tokens(draw(st.integers(0, ring.reducers - 1)), draw(st.integers(1, 12)))
    return ring


@st.composite
def key_splits(draw: st.DrawFn, reducers: int) -> KeySplit:
    """A split over some of the reducers (at least two), with weights that are not all even."""
    of = draw(st.lists(st.integers(0, reducers - 1), min_size=2, max_size=min(reducers, 6), unique=True))
    parts = draw(st.lists(st.integers(1, 1000), min_size=len(of), max_size=len(of)))
    former = draw(st.lists(st.integers(0, 1000), min_size=len(of), max_size=len(of)))
    weights = tuple(part / sum(parts) for part in parts)
    before = tuple(part / max(sum(former), 1) for part in former)
    return KeySplit(tuple(of), weights, before, since=draw(st.integers(1, 9)))


@st.composite
def tables(draw: st.DrawFn, *, version: int = 9, reducers: int = 5) -> RoutingTable:
    """A table with tokens anywhere, at the ends of the circle and close together too, and some arcs split."""
    splits = draw(st.lists(key_splits(reducers), max_size=3, unique=True))
    assignments = draw(st.permutations([*(Single(reducer) for reducer in range(reducers)), *splits]))
    near = st.one_of(seeds, st.integers(0, 20), st.integers(2**32 - 3, 2**32 - 1))
    positions = sorted(draw(st.sets(near, min_size=1, max_size=12)))
    each = st.integers(0, len(assignments) - 1)
    assigned = draw(st.lists(each, min_size=len(positions), max_size=len(positions)))
    return RoutingTable(
        version, np.array(positions, dtype=np.uint32), np.array(assigned, dtype=np.int32), tuple(assignments), reducers
    )


def table_giving(
    owners: Mapping[Key, int], *, version: int = 0, reducers: int | None = None, seed: int = 0
) -> RoutingTable:
    """A routing table in which each of these keys has the owner that is asked for."""
    points = sorted((hash_key(key, seed) + 1, owner) for key, owner in owners.items())
    positions = np.array([position for position, _ in points], dtype=np.uint32)
    of_token = np.array([owner for _, owner in points], dtype=np.int32)
    return RoutingTable.unsplit(version, positions, of_token, reducers or max(owners.values()) + 1, seed)


def assignments_of(table: RoutingTable) -> list[Assignment]:
    """The assignment of each token."""
    return [table.assignments[number] for number in table.assigned.tolist()]


def same_table(one: RoutingTable, other: RoutingTable) -> bool:
    """Whether two tables are equal in all that they say."""
    return (
        (one.version, one.reducers, one.seed) == (other.version, other.reducers, other.seed)
        and np.array_equal(one.positions, other.positions)
        and assignments_of(one) == assignments_of(other)
    )


# --- blocks and executors


def chunks(items: Sequence[M], cuts: Iterable[int]) -> list[Sequence[M]]:
    """A sequence cut at these positions, empty pieces left out."""
    edges = [0, *sorted(min(cut, len(items)) for cut in cuts), len(items)]
    return [items[start:stop] for start, stop in itertools.pairwise(edges) if start < stop]


def block_of(of_keys: Sequence[Key], values: Values = None, seed: int = 0) -> Block:
    """A block of these keys, and values beside them; without values each record is numbered."""
    numbered = pa.record_batch({"value": pa.array(range(len(of_keys)), pa.int64())})
    return Block.of(key_array(of_keys), numbered if values is None else values, seed)


def records_of(block: Block) -> list[tuple[Key, Any]]:
    """The records of a block, in order."""
    names = to_python(block.keys)
    return list(zip([names[code] for code in block.codes], block.objects(), strict=True))


def naive(records: Iterable[tuple[Key, Any]], of_values: Callable[[list[Any]], Any]) -> dict[Key, Any]:
    """What a job must give: a function of all values of each key, in order."""
    values: dict[Key, list[Any]] = defaultdict(list)
    for key, value in records:
        values[key].append(value)
    return {key: of_values(of_key) for key, of_key in values.items()}


def pairs(record: dict[str, Any]) -> Iterable[tuple[Any, Any]]:
    """A mapper: the columns `key` and `value` as they are."""
    yield record["key"], record["value"]


class Total(Reducer[int, int]):
    """A sum of integers, one at a time: a reducer with nothing left out and nothing special."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        return state + value

    def merge(self, left: int, right: int) -> int:
        return left + right


def receiver(executor: Any) -> Receiver:
    """What takes records: an executor, options of a join, or None for a stage that keeps no state."""
    return StatelessReceiver() if executor is None else receiver_of(executor)


def reduce_task(executor: Any, key: KeyName = "key", index: int = 0, **options: Any) -> ReduceTask:
    """The task `index` of a stage that has this executor; `options` are those of a `ReduceStage`."""
    return ReduceTask(ReduceStage(receiver(executor), key, **options), index)


def map_task(mapper: AnyMapper | None, reducer: Any, **changes: Any) -> MapTask:
    """A map task with the key column `key`, batches of 5 records and no combiner; `changes` replace fields."""
    fields = {"key": "key", "values": None, "combine": False, "seed": 0, "batch_records": 5, "step_seconds": 1.0}
    return MapTask(mapper=mapper, receiver=receiver(reducer), **{**fields, **changes})


def limits_of(records: int, *, seconds: float | None = None, bytes: int = 2**40) -> CreditLimits:
    """What a sender may have in flight, where windows aim at `seconds`."""
    flow = FlowControl(batch_records=1, in_flight_records=records, in_flight_mb=bytes / 2**20, queue_seconds=seconds)
    return CreditLimits(flow)


def one_table(shares: Sequence[pa.Table], key: KeyName) -> pa.Table:
    schema = agreed(ShareSchema.of(share, key) for share in shares)
    return pa.table({}) if schema is None else pa.concat_tables([as_agreed(share, schema, key) for share in shares])


def written(task: ReduceTask) -> list[TaskSnapshot]:
    """What a checkpoint has of a task, as who begins with it reads it."""
    saving = task.start_saving(pickle.dumps, nullcontext(), increment=False)
    found = [pickle.loads(piece) for piece in saving.pieces()]
    saving.end()
    return found
