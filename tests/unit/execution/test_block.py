"""Blocks: routing divides the records exactly and keeps their order, slices are what they say, values come back."""

from collections import Counter
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import block_of, key_lists, records_of, tables
from hypothesis import example, given
from hypothesis import strategies as st

from dpa.execution import keys as keys_of
from dpa.execution.arrivals import Input
from dpa.execution.block import Block, joined, object_array
from dpa.execution.keys import encode, encode_hashed
from dpa.routing.groupings.plain import RingGrouping
from dpa.routing.hashing import hash_column, hash_key
from dpa.routing.keys import Key, to_python
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """A block with values of any form, with and without weights, of either side of a join."""
    some: list[Key] = draw(key_lists(least=1))
    numbers, texts = list(range(len(some))), [f"v{number}" for number in range(len(some))]
    objects = object_array([*zip(numbers, texts, strict=True)])
    columns = [objects, pa.record_batch({"n": numbers}), pa.record_batch({"n": [None, *numbers[1:]], "t": texts})]
    block = block_of(some, draw(st.sampled_from(columns)))
    weights = np.array(draw(st.lists(st.integers(1, 9), min_size=len(some), max_size=len(some))), dtype=np.int64)
    combined = Block(block.keys, block.hashes, block.codes, block.values, weights, True)
    return replace(draw(st.sampled_from([block, combined])), side=draw(st.integers(0, 1)))


def weights_of(block: Block) -> list[int]:
    return [1] * block.rows if block.weights is None else block.weights.tolist()


def check_consistent(block: Block, whole: Block) -> None:
    """The keys are used and hashed, and what is not in the records themselves is as in the block it was cut from."""
    assert sorted(set(block.codes.tolist())) == list(range(len(block.keys)))
    assert block.hashes.tolist() == hash_column(block.keys).tolist()
    assert (block.combined, block.side) == (whole.combined, whole.side)
    assert (block.weights is None) == (whole.weights is None)


@pytest.mark.parametrize("reducers", [2, 16, 17, 256, 257, 700])
def test_routing_is_exact_for_few_owners_and_for_many(reducers: int) -> None:
    owners = np.arange(reducers, dtype=np.int32)
    positions = (np.arange(1, reducers + 1) * (2**32 // (reducers + 1))).astype(np.uint32)
    table = RoutingTable.unsplit(0, positions, owners, reducers)
    block = block_of([(number * 7919) % 3001 for number in range(4000)])
    expected: dict[int, list[Any]] = {}
    for record in records_of(block):
        expected.setdefault(table.key_lookup(record[0]), []).append(record)
    assert {owner: records_of(part) for owner, part in block.route(RingGrouping(table))} == expected
    assert len(expected) > reducers * 0.9


def test_a_block_whose_keys_have_one_owner_is_passed_on_as_it_is_and_one_without_records_not() -> None:
    block = block_of(["a", "b", "a"])
    [(owner, part)] = block.route(RingGrouping(TokenRing(1, 3).snapshot(0)))
    assert (owner, part) == (0, block)
    empty = Block(pa.array([], pa.string()), np.zeros(0, np.uint32), np.zeros(0, np.int32))
    assert list(empty.route(RingGrouping(TokenRing(2, 3).snapshot(0)))) == []


@given(blocks(), st.data())
def test_a_slice_has_the_records_from_start_up_to_stop(block: Block, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, block.rows - 1))
    stop = data.draw(st.integers(start + 1, block.rows + 5))
    part = block.slice(start, stop)
    check_consistent(part, block)
    check_consistent(part.copy(), block)
    assert records_of(part) == records_of(block)[start:stop]
    assert weights_of(part) == weights_of(block)[start:stop]


@given(blocks())
def test_counts_are_of_records_and_mapped_of_what_they_stand_for(block: Block) -> None:
    names, weights = to_python(block.keys), weights_of(block)
    keys = [key for key, _ in records_of(block)]
    assert block.counts().tolist() == [keys.count(name) for name in names]
    by_key = [sum(weight for key, weight in zip(keys, weights, strict=True) if key == name) for name in names]
    assert block.mapped().tolist() == by_key


@pytest.mark.parametrize(
    ("values", "objects"),
    [
        (None, [None, None]),
        (np.array([{"any": 1}, "thing"], dtype=object), [{"any": 1}, "thing"]),
        (pa.record_batch({"v": [2**62, -1]}), [2**62, -1]),
        (pa.record_batch({"v": pa.array([1.5, None])}), [1.5, None]),
        (pa.record_batch({"v": pa.array([1, 2], pa.uint8())}), [1, 2]),
        (pa.record_batch({"v": ["x", None]}), ["x", None]),
        (pa.record_batch({"v": [1, 2], "w": ["x", None]}), [{"v": 1, "w": "x"}, {"v": 2, "w": None}]),
    ],
    ids=["none", "objects", "integers", "floats with null", "small integers", "strings", "two columns"],
)
def test_values_reach_a_reducer_as_python_objects(values: Any, objects: list[Any]) -> None:
    found = Block.of(pa.array(["a", "b"]), values, 0).objects()
    assert found == objects
    assert [type(item) for item in found] == [type(item) for item in objects]


@given(blocks(), tables(reducers=3), st.integers(0, 9))
def test_routing_with_key_splits_gives_every_record_once_to_one_that_may_have_it_and_keeps_their_order(
    block: Block, table: RoutingTable, seed: int
) -> None:
    records = zip(records_of(block), weights_of(block), strict=True)
    numbered = {repr(record): number for number, record in enumerate(records)}
    found: list[int] = []
    owners = []
    for owner, part in block.route(RingGrouping(table, seed)):
        check_consistent(part, block)
        assert part.rows > 0
        assert table.may_process(owner, part.hashes).all()
        at = [numbered[repr(record)] for record in zip(records_of(part), weights_of(part), strict=True)]
        assert at == sorted(at)
        found += at
        owners.append(owner)
    assert sorted(found) == list(range(block.rows))
    assert owners == sorted(set(owners))


@given(blocks())
@example(block_of([None, "", "a"]))
def test_a_sample_of_a_small_block_is_exact(block: Block) -> None:
    by_hash: Counter[int] = Counter()
    for hashed, records in zip(block.hashes.tolist(), block.counts().tolist(), strict=True):
        by_hash[hashed] += records  # null and the empty string have one hash
    for most in (block.rows, block.rows + 1):
        sample, positions = block.sample(most, np.random.default_rng(0))
        assert list(zip(sample.hashes.tolist(), sample.records.tolist(), strict=True)) == sorted(by_hash.items())
        assert block.hashes[positions].tolist() == sample.hashes.tolist()
        assert sample.rows == block.rows


LARGE = {
    "periodic": [number % 8 for number in range(8_192)],
    "sorted": sorted(number % 8 for number in range(8_192)),
    "one hot": [0 if number % 4 else 1 + number // 4 % 7 for number in range(8_000)],
    "odd length": [number % 3 for number in range(7_001)],
}


@pytest.mark.parametrize("of_keys", LARGE.values(), ids=LARGE)
def test_a_sample_of_a_large_block_has_about_the_shares_of_the_keys_and_all_records(of_keys: list[Key]) -> None:
    block, random = block_of(of_keys), np.random.default_rng(1)
    seen = np.zeros(len(block.keys))
    for _ in range(200):
        sample, positions = block.sample(256, random)
        assert (sample.total, sample.rows) == (pytest.approx(block.rows), 256)
        assert sample.hashes.tolist() == sorted(set(sample.hashes.tolist()))
        assert sample.hashes.tolist() == block.hashes[positions].tolist()
        for position, records in zip(positions.tolist(), sample.records, strict=True):
            seen[position] += records / 200
    assert seen.tolist() == pytest.approx(block.counts().tolist(), rel=0.1)


def weight(of_keys: list[Key], values: Any) -> float:
    """Bytes of a record, which is the only change that weighing makes."""
    block = block_of(of_keys, values)
    weighed = block.weighed()
    rest = [field.name for field in fields(Block) if field.name != "row_bytes"]
    assert all(getattr(weighed, name) is getattr(block, name) for name in rest) and weighed.row_bytes is not None
    return weighed.row_bytes


def test_columns_weigh_what_their_buffers_have_and_records_without_values_their_keys() -> None:
    narrow = weight(["a", "b"], pa.record_batch({"n": [1, 2]}))
    wide = weight(["a", "b"], pa.record_batch({"n": [1, 2], "t": ["x" * 1_000, "y" * 3_000]}))
    assert 8 <= narrow < 40
    assert 2_000 <= wide - narrow < 2_010
    counted = block_of(["a" * 500, "b" * 500], pa.record_batch({"n": [1, 2]}))
    found = replace(counted, values=None).weighed().row_bytes
    assert found is not None and 500 <= found < 530
    assert counted.slice(0, 0).weighed().row_bytes is None


@pytest.mark.parametrize(
    "value",
    ["x" * 1_000, ("x" * 1_000, 1), ["x" * 1_000], {"text": "x" * 1_000}, {"x" * 1_000}],
    ids=lambda value: type(value).__name__,
)
def test_python_objects_weigh_about_what_is_in_them(value: Any) -> None:
    assert 1_000 < weight(["a"] * 1_000, object_array([value] * 1_000)) < 1_500


def test_few_of_many_python_objects_are_looked_at() -> None:
    asked = []

    class Counted:
        def __sizeof__(self) -> int:
            asked.append(self)
            return 64

    block_of(["a"] * 10_000, object_array([Counted() for _ in range(10_000)])).weighed()
    assert 1 <= len(asked) <= 20


@st.composite
def composite_columns(draw: st.DrawFn) -> pa.StructArray:
    """Rows of two to four components: few or many distinct, the same in all rows, going with another, or null."""
    rows = draw(st.integers(0, 30))
    few = st.lists(st.none() | st.integers(0, 2), min_size=rows, max_size=rows)
    many = st.lists(st.integers(0, 10**9), min_size=rows, max_size=rows)
    columns = [draw(few | many) for _ in range(draw(st.integers(1, 2)))]
    more = [[7] * rows, [None if value is None else value + 5 for value in columns[0]], draw(few)]
    columns += draw(st.lists(st.sampled_from(more), min_size=1, max_size=2))
    return pa.StructArray.from_arrays([pa.array(each, pa.int64()) for each in columns], names="abcd"[: len(columns)])


@given(composite_columns())
def test_composite_keys_are_numbered_and_hashed_as_each_row_says(column: pa.StructArray) -> None:
    keys, codes = encode(column)
    assert keys.take(pa.array(codes)).to_pylist() == column.to_pylist()
    assert len(keys) == len({tuple(row.values()) for row in column.to_pylist()})
    assert hash_column(keys, 3).tolist() == [hash_key(key, 3) for key in to_python(keys)]


@given(st.lists(st.none() | st.sampled_from(["", "a", "b", "a rather long text", "c"]), max_size=40), st.integers(1, 8))
def test_texts_are_numbered_by_their_hashes_as_without_them(texts: list[str | None], hashes: int) -> None:
    """Even if many share a hash."""
    column = pa.array(texts, pa.string())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys_of, "_MANY", 1)
        keys, codes = encode_hashed(column, hash_column(column) % np.uint32(hashes))
    expected, places = encode(column)
    assert keys.equals(expected)
    assert codes.tolist() == places.tolist()
    assert codes.dtype == places.dtype


@pytest.mark.parametrize("distinct", [1_000, 50_000, 10**6])
def test_a_large_block_has_its_records_however_often_keys_repeat(distinct: int) -> None:
    column = pa.array([f"k{number}" for number in np.random.default_rng(1).integers(0, distinct, 70_000)])
    values = pa.record_batch({"n": np.arange(len(column))})
    for may_repeat in (False, True):
        block = Block.of(column, values, 0, may_repeat=may_repeat)
        assert block.keys.take(pa.array(block.codes)).equals(column)
        assert block.hashes.tolist() == hash_column(block.keys).tolist()
        assert (len(block.keys) == len(column.unique())) != (may_repeat and distinct == 10**6)


@given(st.lists(blocks(), min_size=1, max_size=5))
def test_blocks_that_go_together_become_one_with_all_their_records_in_order(some: list[Block]) -> None:
    alike = [block for block in some if block.goes_with(some[0])]
    assert some[0] in alike
    [whole] = joined(alike)
    check_consistent(whole, some[0])
    assert whole.combined or len(set(to_python(whole.keys))) == len(whole.keys)
    every = [record for block in some for record in records_of(block)]
    assert [record for block in joined(some) for record in records_of(block)] == every
    assert records_of(whole) == [record for block in alike for record in records_of(block)]
    assert weights_of(whole) == [weight for block in alike for weight in weights_of(block)]


def test_blocks_go_together_only_if_they_are_alike_in_every_way() -> None:
    block = block_of(["a", "b"], pa.record_batch({"n": [1, 2]}))
    weights = np.array([1, 2])
    words = pa.record_batch({"n": pa.array(["x", None]).dictionary_encode()})
    others = [
        block_of([1, 2], block.values),
        block_of(["a", "b"]),
        block_of(["a", "b"], pa.record_batch({"n": [0.5, 2.0]})),
        block_of(["a", "b"], object_array([1, 2])),
        replace(block, weights=weights),
        replace(block, combined=True),
        replace(block, side=1),
        replace(block, arrived={Input("orders", "orders"): pa.schema({"n": pa.int64()})}),
    ]
    assert block.goes_with(block) and not any(block.goes_with(other) or other.goes_with(block) for other in others)
    assert not replace(block, values=words).goes_with(replace(block, values=words))
