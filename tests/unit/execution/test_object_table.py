"""Keys and states that leave a store of objects."""

from builders import (
    block_of,
    naive,
    records_of,
    table_giving,
)
from hypothesis import given
from hypothesis import strategies as st

from dpa.execution._object_table import ObjectTable
from dpa.routing.hashing import hash_key


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
