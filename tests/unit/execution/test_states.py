"""States: whatever the division into blocks, combiner, redistributions and merges, they end as one fold of all."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import (
    Total,
    block_of,
    chunks,
    key_array,
    key_lists,
    map_task,
    naive,
    name_for,
    records_of,
    reduce_task,
    rings,
    table_giving,
)
from hypothesis import given
from hypothesis import strategies as st

from dpa.aggregates import Sum, TopK
from dpa.errors import ExecutorError, KeyTypeError
from dpa.execution import _parts
from dpa.execution import keys as keys_of
from dpa.execution.block import Block
from dpa.execution.key_stats import KeyStats
from dpa.execution.keys import key_columns
from dpa.execution.receivers import receiver_of, store_of
from dpa.execution.states import States
from dpa.executors import AnyReducer, Groups, Reducer
from dpa.operators import JoinOptions
from dpa.routing.hashing import hash_column, within
from dpa.routing.keys import Key, to_python
from dpa.routing.table import RoutingTable
from dpa.sources.splits import memory_splits

SEED_OF_BLOCKS = st.just(0)
"""Stores keep the hashes that blocks bring: those of the tables of a stage, which all have one seed."""

both_stores = pytest.mark.parametrize("reducer", [Total(), Sum()], ids=["records", "batches"])


def result_of(store: States, *, so_far: bool = False) -> dict[Key, tuple[Any, int, int]]:
    """Of each key the result, the processed and the mapped records."""
    reduced = store.preview("key") if so_far else store.finish("key")
    values = reduced.table["value"].to_pylist() if reduced.table.num_rows else []
    keys = to_python(reduced.table["key"])
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, zip(values, reduced.records.tolist(), reduced.mapped.tolist(), strict=True), strict=True))


def blocks_of(
    keys: list[Key], reducer: AnyReducer, *, combine: bool, split_rows: int, batch_records: int
) -> list[Block]:
    name = name_for(keys)
    table = pa.table({**key_columns(key_array(keys), name), "value": pa.array(range(len(keys)), pa.int64())})
    task = map_task(None, reducer, key=name, combine=combine, batch_records=batch_records)
    steps = (step for split in memory_splits(table, split_rows) for step in task.steps(split, lambda: 0.0))
    return [block for step in steps for _, block in step.blocks]


@pytest.fixture(params=[1, 3, None, 2], ids=["fold always", "fold soon", "fold at the end", "keys may repeat"])
def fold_from(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partial states are folded from this number on, not only where there are very many, as are texts left as they are
    in blocks and numbered by hashes."""
    if request.param == 2:
        monkeypatch.setattr(keys_of, "_MANY", 1)
        monkeypatch.setattr("dpa.execution.block._RARE", math.inf)
        monkeypatch.setattr("dpa.execution.block._MOST_ROWS", math.inf)
    if request.param is not None:
        monkeypatch.setattr(_parts, "_FOLD_FROM", request.param)


@both_stores
@pytest.mark.parametrize("combine", [False, True], ids=["plain", "combined"])
@pytest.mark.usefixtures("fold_from")
@given(data=st.data(), keys=key_lists())
def test_states_are_one_fold_whatever_the_division_into_blocks(reducer, combine, data, keys: list[Key]) -> None:
    rows = {name: data.draw(st.integers(1, 12)) for name in ("split_rows", "batch_records")}
    blocks = blocks_of(keys, reducer, combine=combine, **rows)
    store = store_of(receiver_of(reducer))
    for block in blocks:
        store.reduce(block)
    processed = naive(((key, 1) for block in blocks for key, _ in records_of(block)), len)
    expected = naive(zip(keys, range(len(keys)), strict=True), lambda values: (sum(values), len(values)))
    assert result_of(store) == {key: (total, processed[key], mapped) for key, (total, mapped) in expected.items()}


@both_stores
@pytest.mark.usefixtures("fold_from")
@given(data=st.data(), keys=key_lists(), before=rings(of_seeds=SEED_OF_BLOCKS), after=rings(of_seeds=SEED_OF_BLOCKS))
def test_a_result_is_that_of_the_records_so_far_whatever_was_asked_and_moved(
    reducer, data, keys, before, after
) -> None:
    """As in rounds of aggregation: packed by any tables, folded and finished after any block, and reduced on."""
    stores = [store_of(receiver_of(reducer)) for _ in range(max(before.reducers, after.reducers))]
    tables = [before.snapshot(0), after.snapshot(1)]

    def require_result(table: RoutingTable, seen: int, *, so_far: bool) -> None:
        results = [result_of(store, so_far=so_far) for store in stores]
        found = {key: (index, *of_key) for index, result in enumerate(results) for key, of_key in result.items()}
        values = naive(zip(keys[:seen], range(seen), strict=True), lambda of: (sum(of), len(of), len(of)))
        assert found == {key: (table.key_lookup(key), *of_key) for key, of_key in values.items()}

    seen = 0
    for block in blocks_of(keys, reducer, combine=False, split_rows=100, batch_records=5):
        stores[data.draw(st.integers(0, len(stores) - 1))].reduce(block)
        seen += block.rows
        if data.draw(st.booleans()):
            table = data.draw(st.sampled_from(tables))
            _exchange(stores, table)
            for _ in range(2):
                require_result(table, seen, so_far=True)
    _exchange(stores, tables[-1])
    require_result(tables[-1], len(keys), so_far=False)


class Emptied(TopK):
    """The sum of the greatest values of each key; `finish` takes them out of the state."""

    def finish(self, state: list[int]) -> int:
        return sum(state.pop() for _ in range(len(state)))


class Totals(Reducer[dict[str, list[int]], int]):
    """The total of each key; `finish` empties a list inside the state."""

    def zero(self) -> dict[str, list[int]]:
        return {"values": []}

    def reduce(self, state: dict[str, list[int]], value: int) -> dict[str, list[int]]:
        state["values"].append(value)
        return state

    def merge(self, left: dict[str, list[int]], right: dict[str, list[int]]) -> dict[str, list[int]]:
        return {"values": left["values"] + right["values"]}

    def finish(self, state: dict[str, list[int]]) -> int:
        total = sum(state["values"])
        state["values"].clear()
        return total


@pytest.mark.parametrize("reducer", [Emptied(2), Totals()], ids=["of a ready-made reducer", "deep inside"])
def test_a_finish_that_changes_the_state_has_no_part_in_what_goes_on(reducer: AnyReducer) -> None:
    store = store_of(receiver_of(reducer))
    store.reduce(block_of(["a", "b"]))
    assert result_of(store, so_far=True) == {"a": (0, 1, 1), "b": (1, 1, 1)}
    store.reduce(block_of(["b", "b"]))
    assert result_of(store, so_far=True) == result_of(store) == {"a": (0, 1, 1), "b": (2, 3, 3)}


def test_a_state_that_cannot_be_copied_for_a_preview_is_reported_with_its_key() -> None:
    class Held(Total):
        def zero(self) -> Any:
            return iter([])

        def reduce(self, state: Any, value: int) -> Any:
            return (number for number in (value,))

        def finish(self, state: Any) -> int:
            return sum(state)

    store = store_of(receiver_of(Held()))
    store.reduce(block_of(["a"]))
    with pytest.raises(ExecutorError, match=r"Held\.finish failed on key 'a': TypeError: cannot pickle 'generator'"):
        store.preview("key")


def _exchange(stores: list[States], table: Any) -> None:
    parts = [part for index, store in enumerate(stores) for part in store.pack(table, index).items()]
    for owner, part in parts:
        stores[owner].merge(part)


def test_partial_states_are_folded_on_the_way_so_that_memory_follows_the_number_of_keys(monkeypatch) -> None:
    class Watched(Sum):
        def merge(self, groups: Groups) -> pa.RecordBatch:
            folded.append(len(groups.ids))
            return super().merge(groups)

    monkeypatch.setattr(_parts, "_FOLD_FROM", 10)
    folded: list[int] = []
    store = store_of(receiver_of(Watched()))
    for _ in range(200):
        store.reduce(block_of(list(range(20))))
    assert len(folded) > 50
    assert max(folded) <= 4 * 20


@both_stores
def test_a_dictionary_that_repeats_a_key_makes_one_state_of_it_and_many_keys_as_many(reducer: AnyReducer) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1, 2]), pa.array(["a", "b", "a"]))
    store = store_of(receiver_of(reducer))
    store.reduce(Block.of(column, pa.record_batch({"value": [1, 2, 4, 8]}), 0))
    assert result_of(store) == {"a": (11, 3, 3), "b": (4, 1, 1)}
    store = store_of(receiver_of(reducer))
    for start in range(0, 5000, 1000):
        store.reduce(block_of(list(range(start, start + 1500))))
    result = result_of(store)
    assert len(result) == 5500, "more than there is room for at first"
    assert (result[0][1], result[1200][1], result[5499][1]) == (1, 2, 1)


@both_stores
def test_no_records_give_an_empty_result_with_the_key_column_and_no_statistics(reducer: AnyReducer) -> None:
    reduced = store_of(receiver_of(reducer)).finish("word")
    assert reduced.table.column_names == ["word"]
    assert (reduced.table.num_rows, len(reduced.records), len(reduced.mapped)) == (0, 0, 0)
    stats = KeyStats.of(reduced.table["word"], np.zeros(0, np.int64))
    assert (stats.top, stats.distinct, stats.mapped, stats.cumulative()) == ((), 0, 0, ((), ()))


@both_stores
@pytest.mark.parametrize("other", [[5], [b"a"]], ids=["integers", "bytes"])
def test_keys_of_two_types_are_refused_by_name(reducer: AnyReducer, other: list[Key]) -> None:
    store = store_of(receiver_of(reducer))
    with pytest.raises(KeyTypeError, match=r"this job has keys of types .* and .*; a key is a string"):
        for keys in (["a"], other):
            store.reduce(block_of(keys))
        store.finish("key")


@pytest.mark.parametrize("other", [{"value": "x"}, {"total": 1}, {"value": 1, "more": 1}], ids=["type", "name", "more"])
def test_states_with_different_columns_are_refused_by_the_reducers_name(other: dict[str, Any]) -> None:
    class Changing(Sum):
        def reduce(self, groups: Groups) -> pa.RecordBatch:
            return pa.RecordBatch.from_pylist([{"value": 1} if len(groups) > 1 else other] * len(groups))

    store = store_of(receiver_of(Changing()))
    with pytest.raises(ExecutorError, match=r"Changing\.reduce must return states with the same columns"):
        for keys in (["a", "b"], ["a"]):
            store.reduce(block_of(keys))
        store.finish("key")


def test_state_columns_of_nulls_integers_and_floats_fold_together() -> None:
    store = store_of(receiver_of(Sum()))
    for values in (pa.nulls(2), pa.array([1, None]), pa.array([0.5, 2.0]), pa.nulls(2)):
        store.reduce(block_of(["a", "b"], pa.record_batch({"value": values})))
    assert result_of(store) == {"a": (1.5, 4, 4), "b": (2.0, 4, 4)}


@pytest.mark.parametrize("finish", [lambda state: state, lambda state: {"value": state}], ids=["a value", "a dict"])
def test_a_result_column_may_not_take_the_place_of_the_keys_and_dicts_have_the_same_ones(finish) -> None:
    class Finished(Total):
        def finish(self, state: int) -> Any:
            return finish(state)

    class Uneven(Total):
        def finish(self, state: int) -> dict[str, int]:
            return {"low": state} if state == 0 else {"low": state, "high": state}

    for reducer, keys, key, why in (
        (Finished(), ["a", "b"], "value", "'value'"),
        (Sum(), ["a", "b"], "value", "'value'"),
        (Uneven(), ["a", "b"], "key", "dicts with the same keys"),
        (Uneven(), ["b", "a"], "key", "dicts with the same keys"),
    ):
        store = store_of(receiver_of(reducer))
        store.reduce(Block.of(pa.array(keys), pa.record_batch({"value": [keys.index("b"), keys.index("a")]}), 0))
        with pytest.raises(ExecutorError, match=why):
            store.finish(key)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.lists(st.integers(0, 60), max_size=3))
def test_statistics_of_disjoint_parts_are_those_of_the_whole(counts: list[int], cuts: list[int]) -> None:
    keys = [f"k{number}" for number in range(len(counts))]
    parts = [
        KeyStats.of(pa.chunked_array([pa.array(names)]), np.array([counts[keys.index(name)] for name in names]))
        for names in chunks(keys, cuts)
    ]
    stats = KeyStats.union(parts)
    assert (stats.distinct, stats.mapped) == (len(counts), sum(counts))
    assert [count for _, count in stats.top] == sorted(counts, reverse=True)[:20]
    assert all(counts[keys.index(str(key))] == count for key, count in stats.top)
    ranks, held = stats.cumulative()
    falling = np.cumsum(sorted(counts, reverse=True)) / sum(counts)
    assert held == pytest.approx([falling[rank - 1] for rank in ranks])
    assert (ranks[0], ranks[-1], held[-1]) == (1, len(counts), pytest.approx(1.0))


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
