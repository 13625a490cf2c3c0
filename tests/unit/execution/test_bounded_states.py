"""States within a budget far below their size give what all of them in memory give, whatever the kind."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import chunks, key_lists, receiver, tables
from hypothesis import given, settings
from hypothesis import strategies as st
from test_receivers import EXAMPLES, blocks_of, every_kind, rows_of

from dpa.aggregates import Sum, TopRows
from dpa.execution.block import Block
from dpa.execution.receivers import store_of
from dpa.execution.receivers._process import ProcessReceiver
from dpa.execution.receivers._record import RecordReceiver
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.batch import BatchReceiver
from dpa.execution.spill.bounded import BoundedStates
from dpa.execution.spill.room import Room
from dpa.execution.windowing import Windowing
from dpa.protocol.checkpoint_format import written
from dpa.routing.hashing import hash_column
from dpa.routing.table import RoutingTable
from dpa.windows.options import END, START, session, tumbling

OF_ANOTHER = RoutingTable.unsplit(1, np.array([5], dtype=np.uint32), np.array([1], dtype=np.int32), 2, 0)
"""All keys are of reducer 1."""


@every_kind
@settings(max_examples=25)
@given(data=st.data(), keys=key_lists(least=1, composite=False))
def test_a_store_that_spills_gives_what_one_in_memory_gives(
    kind: type[Receiver], data: Any, keys: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """States are spilled after every block; some move to another such store on the way."""
    made, table = receiver(EXAMPLES[kind]), data.draw(tables(reducers=2))
    room = Room(data.draw(st.sampled_from([1, 300, 3000])), path=str(tmp_path_factory.getbasetemp() / "spill"))
    whole, stores = store_of(made), [BoundedStates(made, room), BoundedStates(made, room)]
    moved = data.draw(st.integers(0, 4))
    for number, part in enumerate(chunks(keys, data.draw(st.lists(st.integers(0, len(keys)), max_size=3)))):
        for block in blocks_of(list(part), range(1 + made.has_sides)) if part else ():
            whole.reduce(block)
            for owner, own in block.by_key(table.owners_of(block.hashes)) if number > moved else [(0, block)]:
                stores[owner].reduce(own)
        if number == moved:
            for interval in stores[0].pieces(table, 0, 2):
                for owner, states in stores[0].pack(table, 0, interval).items():
                    stores[owner].install(states)
        if made.can_merge and data.draw(st.booleans()):
            assert rows_of([store.preview("key") for store in stores]) == rows_of([whole.preview("key")])
    shares = [store.finish("key") for store in stores]
    assert rows_of(shares) == rows_of([whole.finish("key")])
    assert sum(int(share.records.sum()) for share in shares) == len(keys) * (1 + made.has_sides)


@pytest.mark.parametrize("kind", [BatchReceiver, RecordReceiver])
def test_sessions_are_found_on_disk_by_the_hash_of_their_keys_alone(kind: type[Receiver], tmp_path: Path) -> None:
    """There are more than lie in one segment, so that parts of segments are read."""
    made = replace(receiver(EXAMPLES[kind]), windowing=Windowing(session(10)))
    own = pa.array(range(5_000))
    hashes = hash_column(own, 0)
    shares = []
    for store in (store_of(made), BoundedStates(made, Room(100_000, path=str(tmp_path)))):
        for at in (0, 5_000_000, 60_000_000):  # the first two make one session of each key
            times = [pa.array([time] * len(own), pa.timestamp("us")) for time in (at, at + 10_000_000)]
            keys = pa.StructArray.from_arrays([own, *times], names=("key", START, END))
            values = pa.record_batch({"value": own})
            store.reduce(Block(keys, hashes, np.arange(len(own), dtype=np.int32), values))
        shares.append(store.finish(("key", START, END) if made.gives_key else ()))
    assert rows_of(shares[1:]) == rows_of(shares[:1])
    assert shares[0].table.num_rows == 2 * len(own)


def test_parts_of_segments_are_whole_keys_of_any_type_and_written_alone(tmp_path: Path) -> None:
    """A checkpoint has of a slice no more than the slice."""
    store = BoundedStates(receiver(Sum()), Room(100_000, path=str(tmp_path)))
    texts = pa.array([f"a key of some length, {number}" for number in range(5_000)])
    keys = pa.StructArray.from_arrays([texts, pa.nulls(5_000)], names=["a", "b"])
    for _ in range(2):
        store.reduce(Block.of(keys, pa.record_batch({"value": pa.array(range(5_000))}), 0))
    for first in range(0, 2**32, 2**26):
        store.pack(OF_ANOTHER, 0, (first, first + 2**25 - 1))
    rest = list(store.on_disk())
    assert sum(len(part.keys) for part in rest) < 6_000
    assert sum(len(written(part)) for part in rest) < 120 * sum(len(part.keys) for part in rest)
    assert store.finish(("a", "b")).table.num_rows == pytest.approx(2_500, rel=0.1)


def test_what_lies_on_disk_is_counted_whatever_range_was_taken(tmp_path: Path) -> None:
    store = BoundedStates(receiver(EXAMPLES[ProcessReceiver]), Room(1, path=str(tmp_path)))
    keys = list(range(3_000))
    store.reduce(blocks_of(keys, [0])[0])
    left, last = len(keys), 2**32 - 1
    for interval in ((0, 5), (7, 2**24 + 3), (2**24 + 4, 2**24 + 9), (2**30, 2**31 + 2**19), (last - 2**21, last)):
        left -= sum(len(part.keys) for part in store.pack(OF_ANOTHER, 0, interval).values())
        assert store.keys_on_disk == left == sum(len(part.keys) for part in store.on_disk())
    assert 0 < left < len(keys)


def test_dictionaries_of_several_windows_come_from_disk_as_their_values(tmp_path: Path) -> None:
    made = replace(receiver(TopRows(1, "value")), windowing=Windowing(tumbling(10)))
    store = BoundedStates(made, Room(1, path=str(tmp_path)))
    for window in range(3):
        times = [pa.array([at * 10_000_000], pa.timestamp("us")) for at in (window, window + 1)]
        keys = pa.StructArray.from_arrays([pa.array(["a"]), *times], names=("key", START, END))
        cities = pa.array([f"city {window}"]).dictionary_encode()
        store.reduce(Block.of(keys, pa.record_batch({"value": [1], "city": cities}), 0))
    found = store.finish(("key", START, END)).table
    assert sorted(found["city"].to_pylist()) == ["city 0", "city 1", "city 2"]


def test_keys_of_one_hash_come_back_together(tmp_path: Path) -> None:
    """Null and the empty string have one."""
    store = BoundedStates(receiver(EXAMPLES[ProcessReceiver]), Room(1, path=str(tmp_path)))
    for keys in ([None, "a"], [""], ["", None, "b"]):
        store.reduce(blocks_of(keys, [0])[0])
    rows = store.finish("key").table.to_pylist()
    assert sorted(map(repr, rows)) == sorted(
        repr({"of": key, "values": values}) for key, values in {None: 2, "": 2, "a": 1, "b": 1}.items()
    )


@every_kind
def test_what_lies_on_disk_goes_with_the_store_though_the_process_goes_on(kind: type[Receiver], tmp_path: Path) -> None:
    """One that is kept for the next generation drops the states that it had before these are finished."""
    store = BoundedStates(receiver(EXAMPLES[kind]), Room(1, path=str(tmp_path)))
    store.reduce(blocks_of(["a", "b"], [0])[0])
    assert store.spilled
    del store
    gc.collect()
    assert not [*tmp_path.iterdir()]
