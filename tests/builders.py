"""What many tests are built of: random keys, tables and blocks, and a wire that plays all other tasks to a machine."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timezone
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from dpa.balance.measure.latency import LatencySketch
from dpa.execution.block import Block, Values
from dpa.execution.keys import column_of
from dpa.execution.mapping import MapTask
from dpa.execution.schemas import ShareSchema
from dpa.executors import AnyMapper, AnyReducer, Reducer
from dpa.protocol.channel import Outbox
from dpa.protocol.coordinator import CoordinatorMachine
from dpa.protocol.machine import Instruction, Machine, Process, ProcessDone, Send, Start
from dpa.protocol.messages import (
    BALANCER,
    Address,
    MapperReport,
    Merged,
    Message,
    Push,
    ReducerReport,
    TableUpdate,
    mapper,
    reducer,
)
from dpa.protocol.metrics import MapperStats, ReducerStats
from dpa.protocol.reducer import ReducerMachine, ReducerOptions
from dpa.routing.change import TableChange
from dpa.routing.hashing import hash_key
from dpa.routing.keys import Key, KeyName, to_python
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable, Spread
from dpa.splits import MemorySplit

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
def rings(draw: st.DrawFn, *, most_nodes: int = 5) -> TokenRing:
    """A ring after some changes."""
    ring = TokenRing(draw(st.integers(1, most_nodes)), draw(st.integers(1, 6)), seed=draw(seeds))
    for _ in range(draw(st.integers(0, 4))):
        ring.set_tokens(draw(st.integers(0, ring.nodes - 1)), draw(st.integers(1, 12)))
    return ring


@st.composite
def spreads(draw: st.DrawFn, reducers: int) -> Spread:
    """A spread over some of so many reducers (at least two), with weights that are not all even."""
    of = draw(st.lists(st.integers(0, reducers - 1), min_size=2, max_size=min(reducers, 6), unique=True))
    parts = draw(st.lists(st.integers(1, 1000), min_size=len(of), max_size=len(of)))
    former = draw(st.lists(st.integers(0, 1000), min_size=len(of), max_size=len(of)))
    weights = tuple(part / sum(parts) for part in parts)
    before = tuple(part / max(sum(former), 1) for part in former)
    return Spread(tuple(of), weights, before, since=draw(st.integers(1, 9)))


@st.composite
def tables(draw: st.DrawFn, *, epoch: int = 9, reducers: int = 5) -> RoutingTable:
    """A table with tokens anywhere, at the ends of the circle and close together too, and some arcs spread."""
    shared = tuple(draw(st.lists(spreads(reducers), max_size=3)))
    near = st.one_of(seeds, st.integers(0, 20), st.integers(2**32 - 3, 2**32 - 1))
    positions = sorted(draw(st.sets(near, min_size=1, max_size=12)))
    places = draw(
        st.lists(st.integers(0, reducers + len(shared) - 1), min_size=len(positions), max_size=len(positions))
    )
    return RoutingTable(
        epoch, np.array(positions, dtype=np.uint32), np.array(places, dtype=np.int32), reducers, 0, shared
    )


def table_giving(
    owners: Mapping[Key, int], *, epoch: int = 0, reducers: int | None = None, seed: int = 0
) -> RoutingTable:
    """A routing table in which each of these keys has the owner that is asked for."""
    points = sorted((hash_key(key, seed) + 1, owner) for key, owner in owners.items())
    positions = np.array([position for position, _ in points], dtype=np.uint32)
    of_token = np.array([owner for _, owner in points], dtype=np.int32)
    return RoutingTable(epoch, positions, of_token, reducers or max(owners.values()) + 1, seed)


def update_between(old: RoutingTable, new: RoutingTable) -> TableUpdate:
    """The message that makes the second table of the first."""
    return TableUpdate(TableChange.between(old, new))


def same_table(one: RoutingTable, other: RoutingTable) -> bool:
    """Whether two tables are equal in all that they say."""
    return (
        (one.epoch, one.reducers, one.seed, one.spreads) == (other.epoch, other.reducers, other.seed, other.spreads)
        and np.array_equal(one.positions, other.positions)
        and np.array_equal(one.places, other.places)
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


def map_task(mapper: AnyMapper | None, reducer: AnyReducer, **changes: Any) -> MapTask:
    """A map task with the key column `key`, batches of 5 records and no combiner; `changes` replace fields."""
    fields = {"key": "key", "values": None, "combine": False, "seed": 0, "batch_records": 5, "step_seconds": 1.0}
    return MapTask(mapper=mapper, reducer=reducer, **{**fields, **changes})


# --- machines


class Wire:
    """Plays all other tasks to one machine: numbers what they send to it, in order, and hands it over."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._outboxes: dict[Address, Outbox] = {}

    def __call__(self, sender: Address, message: Message, now: float = 0.0) -> list[Instruction]:
        outbox = self._outboxes.setdefault(sender, Outbox(sender))
        return self.machine.handle(outbox.envelope(self.machine.address, message), now)


def sent(instructions: Iterable[Instruction], kind: type[M]) -> list[tuple[Address, M]]:
    """The messages of one kind that are to be sent, each with its receiver."""
    envelopes = [instruction.envelope for instruction in instructions if isinstance(instruction, Send)]
    return [(envelope.receiver, envelope.message) for envelope in envelopes if isinstance(envelope.message, kind)]


def told(instructions: Iterable[Instruction], kind: type[M]) -> list[M]:
    """The instructions of one kind."""
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def push(of_keys: Sequence[Key], *, epoch: int = 0, mapper: int = 0, read_at: float = 0.0, hops: int = 0) -> Push:
    """A push of records with these keys."""
    return Push(block_of(of_keys), epoch, mapper, read_at, hops)


# --- a reducer and a coordinator

REDUCER_TABLES = [
    table_giving({"a": 0, "b": 0, "c": 0, "x": 1, "y": 2}),
    table_giving({"a": 0, "b": 1, "c": 2, "x": 1, "y": 2}, epoch=1),
    table_giving({"a": 0, "b": 1, "c": 0, "x": 1, "y": 2}, epoch=2),
]


class ReducerWire(Wire):
    """Reducer 0 of three, which owns a, b and c by table 0, a by table 1, and a and c by table 2."""

    def __init__(
        self, *, eager: bool = True, every: int | None = None, idle: bool = False, most: int = 1000, **more
    ) -> None:
        options = ReducerOptions(report_every=every, report_when_idle=idle, eager=eager, slice_records=most, **more)
        self.reducer = ReducerMachine(0, REDUCER_TABLES[0], options)
        super().__init__(self.reducer)

    def push(self, keys: str, *, epoch: int = 0, from_mapper: int = 0, now: float = 0.0) -> list[Instruction]:
        return self(mapper(from_mapper), push(list(keys), epoch=epoch, mapper=from_mapper), now)

    def update(self, epoch: int) -> list[Instruction]:
        """All tables up to this one come, in order."""
        steps = REDUCER_TABLES[self.reducer.table.epoch : epoch + 1]
        return [told for old, new in itertools.pairwise(steps) for told in self(BALANCER, update_between(old, new))]

    def done(self, seconds: float = 0.0) -> list[Instruction]:
        """The records given to user code have been processed."""
        return self.reducer.handle(ProcessDone(seconds), seconds)


def processing(instructions: list[Instruction]) -> list[str]:
    """The keys of the records that user code is to process."""
    return ["".join(key for key, _ in records_of(given.block)) for given in told(instructions, Process)]


def forwarded(instructions: list[Instruction]) -> list[tuple[int, str]]:
    """The keys of the records that were forwarded, with their receivers."""
    return [
        (to.index, "".join(key for key, _ in records_of(message.block))) for to, message in sent(instructions, Push)
    ]


INPUT = [MemorySplit(pa.table({"n": range(rows)})) for rows in (3, 2, 1)]


class CoordinatorWire(Wire):
    """The coordinator of two mappers and two reducers."""

    def __init__(self, at: float = 0.0, *, scattered: bool = False) -> None:
        self.coordinator = CoordinatorMachine(INPUT, mappers=2, reducers=2, scattered=scattered)
        super().__init__(self.coordinator)
        self.coordinator.handle(Start(), at)

    def mapped(self, index: int, emitted: int, *, done: bool = False) -> list[Instruction]:
        return self(mapper(index), MapperReport(MapperStats(index, emitted=emitted), done))

    def reduced(self, index: int, processed: int, *, queue: int = 0) -> list[Instruction]:
        return self(reducer(index), ReducerReport(ReducerStats(index, queue=queue, processed=processed)))

    def merged(self, index: int, processed: int, schema: ShareSchema | None = None) -> list[Instruction]:
        return self(reducer(index), Merged(ReducerStats(index, processed=processed), LatencySketch(), schema))
