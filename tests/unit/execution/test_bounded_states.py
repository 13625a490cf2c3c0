"""States within a budget far below their size give what all of them in memory give, whatever the kind."""

import gc
from pathlib import Path
from typing import Any

import pytest
from builders import chunks, key_lists, receiver, tables
from hypothesis import given, settings
from hypothesis import strategies as st
from test_receivers import EXAMPLES, blocks_of, every_kind, rows_of

from dpa.execution.receivers.base import Receiver
from dpa.execution.spill.bounded import BoundedStates
from dpa.execution.spill.room import Room


@every_kind
@settings(max_examples=25)
@given(data=st.data(), keys=key_lists(least=1, composite=False))
def test_a_store_that_spills_gives_what_one_in_memory_gives(
    kind: type[Receiver], data: Any, keys: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """States are spilled after every block; some move to another such store on the way."""
    made, table = receiver(EXAMPLES[kind]), data.draw(tables(reducers=2))
    room = Room(data.draw(st.sampled_from([1, 300, 3000])), path=str(tmp_path_factory.getbasetemp() / "spill"))
    whole, stores = made.store(), [BoundedStates(made, room), BoundedStates(made, room)]
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
            assert rows_of(made, [store.preview("key") for store in stores]) == rows_of(made, [whole.preview("key")])
    shares = [store.finish("key") for store in stores]
    assert rows_of(made, shares) == rows_of(made, [whole.finish("key")])
    assert sum(int(share.records.sum()) for share in shares) == len(keys) * (1 + made.has_sides)


@every_kind
def test_what_lies_on_disk_goes_with_the_store_though_the_process_goes_on(kind: type[Receiver], tmp_path: Path) -> None:
    """One that is kept for the next generation drops the states that it had before these are finished."""
    store = BoundedStates(receiver(EXAMPLES[kind]), Room(1, path=str(tmp_path)))
    store.reduce(blocks_of(["a", "b"], [0])[0])
    assert store.spilled
    del store
    gc.collect()
    assert not [*tmp_path.iterdir()]
