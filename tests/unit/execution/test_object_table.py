"""Keys and states that leave a store of objects, all together or in pieces."""

import pyarrow as pa
from builders import (
    Total,
    block_of,
    naive,
    records_of,
    table_giving,
)
from hypothesis import given
from hypothesis import strategies as st

from dpa.execution.object_table import ObjectTable
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.routing.hashing import hash_column, hash_key, within


@given(data=st.data(), size=st.integers(0, 60))
def test_a_table_of_objects_from_which_keys_were_taken_is_as_if_it_had_never_had_them(data, size: int) -> None:
    """Whichever positions become free, at its end or before: keys, states, counts and hashes stay together."""
    table, names = ObjectTable(str), [f"key {number}" for number in range(size)]
    gone = data.draw(st.sets(st.sampled_from(names))) if names else set()
    blocks = [block_of(names[:40] * 2), block_of(names[20:] * 3)]
    for block in blocks:
        table.add_block(block)
    owners = {name: int(name in gone) for name in names} or {"": 0}
    [part] = table.pack(table_giving(owners, reducers=2), 0).values() or [None]
    left = [name for name in names if name not in gone]
    assert sorted(table.keys) == sorted(table.states) == sorted(left)
    times = naive(((key, 1) for block in blocks for key, _ in records_of(block)), len)
    assert dict(zip(table.keys, table.records.tolist(), strict=True)) == {name: times[name] for name in left}
    assert table.pack(table_giving(owners, reducers=2), 0) == {}
    if part is not None:
        assert dict(zip(part.keys.to_pylist(), part.states, strict=True)) == {name: name for name in gone}
        assert part.hashes.tolist() == [hash_key(name) for name in part.keys.to_pylist()]
    assert table.add_block(block_of(left)) == [table.keys.index(name) for name in left]
    assert table.size == len(left)


@given(data=st.data(), size=st.integers(0, 60), most=st.integers(1, 20))
def test_pieces_together_have_all_that_others_own_the_hottest_first(data, size: int, most: int) -> None:
    names = [f"key {number}" for number in range(size)]
    owners = {name: data.draw(st.integers(0, 2)) for name in names} or {"": 0}
    table, task = table_giving(owners, reducers=3), ReduceTask(ReduceStage(Total(), "key"), 0)
    records = [name for name in names for _ in range(data.draw(st.integers(1, 5)))]
    task.process(block_of(records))
    pieces = [task.extract_piece(table, most)]
    while not pieces[-1].is_last:
        pieces.append(task.extract_piece(table, most))
    found = {key: to for piece in pieces for to, part in piece.parts.items() for key in part.keys.to_pylist()}
    gone = {name: to for name, to in owners.items() if to and name}
    assert found == gone
    sizes = [sum(len(part.keys) for part in piece.parts.values()) for piece in pieces]
    assert sum(sizes) == len(gone) and max(sizes) <= most, "no two of these keys have the same hash"
    heat = [sum(int(part.records.sum()) for part in piece.parts.values()) for piece in pieces]
    assert heat == sorted(heat, reverse=True)
    for piece in pieces:
        inside = within(hash_column(pa.array(names, pa.string())), piece.interval)
        of_piece = {key for part in piece.parts.values() for key in part.keys.to_pylist()}
        assert of_piece == {name for name, has in zip(names, inside.tolist(), strict=True) if has and name in gone}
