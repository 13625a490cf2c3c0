"""States that leave in pieces, whatever the store."""

import pyarrow as pa
import pytest
from builders import Total, block_of, reduce_task, table_giving
from hypothesis import given
from hypothesis import strategies as st

from dpa.aggregates import Sum
from dpa.operators import JoinOptions
from dpa.routing.hashing import hash_column, within


@pytest.mark.parametrize(
    "receiver", [Total(), Sum(), JoinOptions("inner", (("key",), ("key",)))], ids=["objects", "columns", "rows"]
)
@given(data=st.data(), size=st.integers(0, 60), most=st.integers(1, 20))
def test_pieces_together_have_all_that_others_own_the_hottest_first(receiver, data, size: int, most: int) -> None:
    names = [f"key {number}" for number in range(size)]
    owners = {name: data.draw(st.integers(0, 2)) for name in names} or {"": 0}
    table, task = table_giving(owners, reducers=3), reduce_task(receiver)
    records = [name for name in names for _ in range(data.draw(st.integers(1, 5)))]
    task.process(block_of(records))
    pieces = [task.extract_piece(table, most)]
    while not pieces[-1].is_last:
        pieces.append(task.extract_piece(table, most))
    found = {key: to for piece in pieces for to, part in piece.parts.items() for key in part.keys.to_pylist()}
    gone = {name: to for name, to in owners.items() if to and name}
    assert found == gone
    sizes = [sum(len(part.keys) for part in piece.parts.values()) for piece in pieces]
    assert sum(sizes) == len(gone), "no two of these keys have the same hash"
    assert max(sizes) <= (most if isinstance(receiver, Total) else max(most, -(-len(gone) // 16)))
    heat = [sum(int(part.records.sum()) for part in piece.parts.values()) for piece in pieces]
    assert heat == sorted(heat, reverse=True)
    for piece in pieces:
        inside = within(hash_column(pa.array(names, pa.string())), piece.interval)
        of_piece = {key for part in piece.parts.values() for key in part.keys.to_pylist()}
        assert of_piece == {name for name, has in zip(names, inside.tolist(), strict=True) if has and name in gone}
