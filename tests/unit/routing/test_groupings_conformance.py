"""What every grouping must keep, whatever its kind: the contract in `dpa.routing.groupings.base`."""

import pickle
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from builders import block_of, chunks, records_of
from grouping_cases import CASES, SPLIT, TABLES, Case, every_case, every_case_and_key_splits, stream_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba.core import caching

from dpa.routing.compiled import compiled
from dpa.routing.groupings.base import CapacityRequest, Grouping, Signal
from dpa.routing.groupings.options import BY_KIND, KINDS, ConsistentOptions, GroupingOptions
from dpa.routing.groupings.plain import KeyGrouping
from dpa.routing.hashing import Hashes


def in_parts(grouping: Grouping, parts: Sequence[Hashes]) -> list[int]:
    return [owner for part in parts for owner in grouping.choose(part).tolist()]


@every_case
@settings(max_examples=5)
@given(st.integers(0, 99), st.lists(st.integers(0, 3_000), max_size=30))
@example(1, list(range(1_200)))
def test_choices_do_not_depend_on_how_records_are_cut_into_blocks(case: Case, seed: int, cuts: list[int]) -> None:
    stream = stream_of(seed)
    assert in_parts(case.create(), chunks(stream, cuts)) == case.create().choose(stream).tolist()


@every_case_and_key_splits
def test_it_does_not_matter_how_hashes_lie_in_memory_and_no_records_are_no_choices(case: Case) -> None:
    stream, with_gaps = stream_of(2), case.create()
    read_only, wide = stream.copy(), np.zeros((len(stream), 3), dtype=np.uint32)
    read_only.setflags(write=False)
    wide[:, 1] = stream
    expected = case.create().choose(stream).tolist()
    for other in (read_only, wide[:, 1], stream[::-1].copy()[::-1]):
        assert case.create().choose(other).tolist() == expected
    assert stream.tolist() == stream_of(2).tolist()
    empty = with_gaps.choose(stream[:0])
    assert (empty.shape, empty.dtype) == ((0,), np.int32)
    parts = stream[:999], stream[999:]
    assert in_parts(with_gaps, [parts[0], stream[:0], parts[1]]) == in_parts(case.create(), parts)


@every_case_and_key_splits
def test_choices_are_of_the_type_and_shape_asked_for_and_allowed_and_alike_of_equal_senders(case: Case) -> None:
    stream, grouping = stream_of(5), case.create(7)
    chosen, owners = grouping.choose(stream), case.create(7).owners_of(stream)
    assert (chosen.shape, chosen.dtype, grouping.reducers) == (stream.shape, np.int32, case.reducers)
    assert (chosen >= 0).all()
    assert (chosen < case.reducers).all()
    for reducer in range(case.reducers):
        allowed = grouping.may_process(reducer, stream)
        assert (allowed.shape, allowed.dtype) == (stream.shape, np.bool_)
        assert allowed[chosen == reducer].all()
    assert owners is None or owners.tolist() == chosen.tolist()
    travelled: Case = pickle.loads(pickle.dumps(case))
    assert travelled.create(7).choose(stream).tolist() == chosen.tolist()


@every_case_and_key_splits
@settings(max_examples=5)
@given(st.lists(st.integers(0, 30), max_size=100))
def test_choices_are_the_same_where_keys_are_looked_up_once(case: Case, codes: list[int]) -> None:
    keys, of_records = np.unique(stream_of(0))[:31], np.array(codes, dtype=np.int32)
    one, other = case.create(), case.create()
    for _ in range(2):  # the second time, with what the first has left
        assert one.choose_by_key(keys, of_records).tolist() == other.choose(keys[of_records]).tolist()


@every_case
def test_a_key_has_one_reducer_unless_it_is_said_to_have_several(case: Case) -> None:
    stream, grouping = stream_of(7), case.create()
    pairs = set(zip(stream.tolist(), grouping.choose(stream).tolist(), strict=True))
    if not grouping.splits_keys or case.options.is_ring:  # the ring has several only after a table said so
        assert len(pairs) == len(set(stream.tolist()))
    assert case.options.splits_keys == (grouping.splits_keys and not case.options.is_ring)


def test_the_records_of_a_split_key_are_distributed_by_weight_however_they_are_cut() -> None:
    hot = np.full(3_000, SPLIT.table.positions[max(SPLIT.table.splits)] - 1, dtype=np.uint32)
    for parts in ([hot], np.array_split(hot, 7), [hot[row : row + 1] for row in range(len(hot))]):
        given = np.bincount(in_parts(SPLIT.create(), parts), minlength=5)
        assert np.abs(given - [0, 1_500, 0, 900, 600]).max() <= 2


BALANCED = {name: case for name, case in CASES.items() if case.options.kind not in ("ring", "key", "partial_key")}


@pytest.mark.parametrize("case", BALANCED.values(), ids=BALANCED)
@pytest.mark.parametrize("key", [0, 2**32 - 1])
def test_a_stream_of_one_key_is_shared_by_all(case: Case, key: int) -> None:
    chosen = case.create().choose(np.full(4_000, key, dtype=np.uint32))
    virtual = case.options.virtual_workers if case.options.kind == "consistent" else 1
    epsilon = min(getattr(case.options, "epsilon", 0.01), case.reducers)
    most = (1 + epsilon) * 4_000 / case.reducers + virtual  # each may be ahead by one
    assert np.bincount(chosen).max() <= most


@pytest.mark.parametrize(
    "options",
    [BY_KIND["random_choices"](), ConsistentOptions(), ConsistentOptions(pooled=True)],
    ids=["random choices", "consistent", "pooled"],
)
@pytest.mark.parametrize("epsilon", [1e18, 1e30, float("inf")])
def test_a_bound_that_is_too_large_for_any_number_is_none(options: GroupingOptions, epsilon: float) -> None:
    stream = stream_of(13)
    chosen = [replace(options, epsilon=each).create(TABLES[5], 0).choose(stream) for each in (1e6, epsilon)]
    assert chosen[0].tolist() == chosen[1].tolist()


CHECKSUMS = {
    "ring": 0xA63BA036,
    "key": 0x77821EC3,
    "shuffle": 0xC2ACD64A,
    "partial_key": 0x1369CE7D,
    "random_choices": 0x3F1F4043,
    "w_choices": 0x292C9CE1,
    "weighted_w_choices": 0xCC7A824D,
    "consistent": 0x186E5A72,
}
"""Of each kind, by `checksum`; a change here means that senders of two versions would choose differently."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_of_another_version_would_choose_the_same(kind: str) -> None:
    of_kind = [checksum(case) for case in (*CASES.values(), SPLIT) if case.options.kind == kind]
    assert zlib.crc32(np.array(of_kind, dtype="<u4").tobytes()) == CHECKSUMS[kind], [hex(each) for each in of_kind]


def checksum(case: Case) -> int:
    """Of the choices of one sender, signals among its records."""
    # made of integers alone: another version of numpy might draw differently
    numbers = np.arange(1, 4_001, dtype=np.uint64)
    stream = (4_000 // numbers[(numbers * np.uint64(1_597)) % np.uint64(4_000)] * np.uint64(2_654_435_761)).astype(
        np.uint32
    )
    grouping, chosen = case.create(1), []
    for slot, part in enumerate(np.array_split(stream, 4)):
        chosen += grouping.choose(part).tolist()
        for reducer in range(case.reducers):
            wish = (CapacityRequest.DECREASE, CapacityRequest.INCREASE)[reducer % 2]
            grouping.observe(reducer, Signal(slot, 0.5 + reducer % 3, wish, 1_000, 0.001 * (1 + (reducer + slot) % 4)))
    return zlib.crc32(np.array(chosen, dtype="<i4").tobytes())


@every_case_and_key_splits
@settings(max_examples=4)
@given(st.lists(st.integers(0, 30), max_size=300))
def test_a_block_is_divided_into_parts_in_order_each_with_one_who_may_process_it(case: Case, keys: list[int]) -> None:
    block = block_of([f"k{key}" for key in keys])
    grouping = case.create()
    found: list[int] = []
    owners = []
    for owner, part in block.route(grouping):
        assert part.rows > 0
        assert grouping.may_process(owner, part.hashes).all()
        numbers = [number for _, number in records_of(part)]
        assert [f"k{keys[number]}" for number in numbers] == [key for key, _ in records_of(part)]
        assert numbers == sorted(numbers)
        assert sorted(set(part.codes.tolist())) == list(range(len(part.keys)))
        found += numbers
        owners.append(owner)
    assert sorted(found) == list(range(len(keys)))
    assert owners == sorted(set(owners))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ring"])
def test_a_grouping_is_compiled_for_what_a_block_will_give_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Hashes] = []
    made = type(BY_KIND[kind]().create(TABLES[5], 0))
    monkeypatch.setattr(made, "choose", lambda _, hashes: seen.append(hashes))
    BY_KIND[kind]().create(TABLES[5], 0)
    [hashes] = seen
    block = block_of(["a", "b"])
    given_by_a_block = block.hashes.take(block.codes)
    assert hashes.dtype == given_by_a_block.dtype
    assert hashes.flags.writeable == given_by_a_block.flags.writeable  # read-only ones are another type to numba
    assert hashes.flags.c_contiguous == given_by_a_block.flags.c_contiguous


@pytest.mark.parametrize("reducers", [0, -1])
def test_a_grouping_needs_a_reducer(reducers: int) -> None:
    with pytest.raises(ValueError, match="at least one reducer"):
        KeyGrouping(reducers)


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("lazily", [True, False])
@pytest.mark.parametrize("writable", [True, False])
def test_a_loop_is_compiled_where_nothing_is_writable(
    lazily: bool, writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not writable:
        monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    loop = compiled(double, None if lazily else "int64(int64)")
    assert loop(21) == 42
    assert loop.signatures


def test_groupings_need_numba_that_say_so_and_no_others() -> None:
    program = """
import sys
sys.modules["numba"] = None
from dpa.routing.groupings.options import BY_KIND
from dpa.routing.ring import TokenRing
table = TokenRing(2, 1).snapshot(0)
for kind, options in BY_KIND.items():
    try:
        options().create(table, 0)
    except ImportError:
        assert options.is_compiled, kind
    else:
        assert not options.is_compiled, kind
"""
    subprocess.run([sys.executable, "-c", program], check=True)
