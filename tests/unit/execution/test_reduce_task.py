"""A queue-fed task: a reducer, a process or nothing behind the same calls, and what follows of its rows."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import (
    Total,
    block_of,
    chunks,
    key_lists,
    map_task,
    naive,
    name_for,
    records_of,
    reduce_task,
    table_giving,
    tables,
)
from hypothesis import given
from hypothesis import strategies as st

from dpa._given import as_process, as_reducer
from dpa.aggregates import Count, Sum, TopRows
from dpa.errors import ConfigError, ExecutorError, ProtocolError
from dpa.execution.block import joined
from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of
from dpa.execution.receivers.base import Extent
from dpa.execution.rows import OneBatch
from dpa.execution.schemas import agreed
from dpa.executors import BatchReducer, Groups, Process, RowsReducer
from dpa.operators import JoinOptions, RowKind, as_row_operator
from dpa.routing.keys import Key, to_python
from dpa.sources.splits import MemorySplit


class Rising(Process[Any, int]):
    """Emits each value that is greater than the one before, and the last one at the end."""

    def zero(self) -> Any:
        return None

    def process(self, key: Any, state: Any, value: int) -> tuple[int, list[dict[str, Any]]]:
        return value, [{"of": key, "to": value}] if state is not None and value > state else []

    def finish(self, key: Any, state: int) -> Iterable[dict[str, Any]]:
        yield {"of": key, "last": state}


def values(of_keys: list[Any], numbers: list[int]) -> Any:
    return block_of(of_keys, pa.record_batch({"value": pa.array(numbers, pa.int64())}))


def edge(key: Any = "of", **changes: Any) -> MapTask:
    return map_task(None, changes.pop("reducer", Count()), key=key, batch_records=100, **changes)


@pytest.mark.parametrize("reducer", [Total(), Sum()], ids=["records", "batches"])
@given(data=st.data(), keys=key_lists(least=1, composite=False))
def test_tasks_that_exchange_states_agree_on_one_result(reducer, data, keys: list[Key]) -> None:
    tasks = [reduce_task(reducer, name_for(keys), index) for index in range(3)]
    for some in chunks(keys, [len(keys) // 3, len(keys) // 2]):
        tasks[data.draw(st.integers(0, 2))].process(values(some, [1] * len(some)))
    table = data.draw(tables(reducers=3))
    parts: list[list[Any]] = [[], [], []]
    for task in tasks:
        for owner, part in task.extract(table).items():
            parts[owner].append(part)
    previews = []
    for task, of_task in zip(tasks, parts, strict=True):
        task.merge(of_task)
        previews.append(task.preview().table)
    schema = agreed([task.finish() for task in tasks])
    for task in tasks:
        task.conform(schema)
    for index, (task, preview) in enumerate(zip(tasks, previews, strict=True)):
        assert preview.num_rows == task.share.table.num_rows == task.key_stats().distinct
        assert {table.key_lookup(key) for key in to_python(task.share.keys)} <= {index}
        assert task.loads(table).tolist() == [int(task.share.records.sum()) * (at == index) for at in range(3)]
    whole = pa.concat_tables([task.share.table for task in tasks])
    found = dict(zip(to_python(whole["key"]), whole["value"].to_pylist(), strict=True))
    assert found == naive(((key, 1) for key in keys), sum)


def test_the_share_is_emitted_as_rows_and_counted_by_any_table() -> None:
    task = reduce_task(Sum())
    assert task.process(values(["a", "b", "a"], [1, 2, 3])) == ()
    task.conform(agreed([task.finish()]))
    assert task.most_keys == 2
    assert task.loads(table_giving({"a": 0, "b": 2})).tolist() == [2, 0, 1]
    emission = Emission((edge("key", reducer=Sum()),))
    [step] = emission.steps(task.rows(), lambda: 0.0)
    assert dict(records_of(step.blocks[0][1])) == {"a": 4, "b": 2}
    columns = pa.table({"key": pa.nulls(0, pa.string()), "value": pa.nulls(0, pa.int64())})
    for is_first in (True, False):
        empty = reduce_task(Sum(), empty=columns)
        empty.conform(agreed([empty.finish()]), is_first=is_first)
        assert empty.share.table.equals(columns) == is_first, "of all shares, one has what no record gives"


class Twice(RowsReducer):
    """Each sum in two rows."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"value": groups.sum("value")})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return self.reduce(groups)

    def finish_rows(self, states: pa.RecordBatch) -> Any:
        places = np.repeat(np.arange(states.num_rows), 2)
        return states.take(pa.array(places)), places


class Wrong(Twice):
    def finish_rows(self, states: pa.RecordBatch) -> Any:
        return states


def test_a_rows_reducer_has_several_rows_a_key() -> None:
    task = reduce_task(Twice())
    task.process(values(["a", "b", "a"], [1, 2, 3]))
    task.conform(agreed([task.finish()]))
    assert task.share.table.to_pydict() == {"key": ["a", "a", "b", "b"], "value": [4, 4, 2, 2]}
    assert task.share.records.tolist() == [2, 1]
    assert task.key_stats().mapped == 3
    assert isinstance(as_reducer(Twice()), BatchReducer)
    task = reduce_task(Wrong())
    task.process(values(["a"], [1]))
    with pytest.raises(ExecutorError, match=r"Wrong\.finish_rows must return a pyarrow.RecordBatch and an array"):
        task.finish()


@pytest.mark.parametrize(
    ("receiver", "key", "columns"),
    [
        (TopRows(2, "n"), (), {"rank": pa.int64(), "tag": pa.string(), "n": pa.int64()}),
        (Twice(), "tag", {"tag": pa.string(), "value": pa.int64()}),
        (Rising(), "tag", {"tag": pa.string()}),
        (Rising(), ("tag", "n"), {"tag": pa.string(), "n": pa.int64()}),
        (Rising(), (), {}),
    ],
    ids=["top rows", "rows", "process", "process of several keys", "process of one key"],
)
def test_an_empty_result_has_the_columns_that_are_known(receiver: Any, key: Any, columns: dict[str, Any]) -> None:
    value = "value" if isinstance(receiver, Twice) else "n"
    block = edge(key, reducer=receiver).empty_block(pa.schema([("tag", pa.string()), (value, pa.int64())]))
    assert receiver_of(receiver).columns(key, [block], Extent.ALL).schema == pa.schema(columns)


def test_a_process_emits_rows_at_once_and_at_the_end() -> None:
    double = as_row_operator(RowKind.MAP, lambda record: {**record, "to": record["to"] * 2})
    task = reduce_task(Rising(), emission=Emission((edge(), Emission((edge(values=("to",)),), (double,)))))
    blocks = task.process(values(["a", "a", "b", "a"], [1, 3, 5, 4]))
    assert [(to, records_of(block)) for to, block in blocks] == [(0, [("a", 3), ("a", 4)]), (1, [("a", 6), ("a", 8)])]
    assert task.process(values(["b"], [1])) == ()
    task.conform(agreed([task.finish()]))
    assert task.share.table.to_pylist() == [
        {"of": "a", "to": 3, "last": None},
        {"of": "a", "to": 4, "last": None},
        {"of": "a", "to": None, "last": 4},
        {"of": "b", "to": None, "last": 1},
    ]
    [rows] = task.rows().batches(100)
    assert rows.column("last").to_pylist() == [4, 1]
    assert task.share.records.tolist() == [3, 2]
    other = reduce_task(Rising(), emission=Emission((edge(),)), keeps_rows=False)  # without a sink
    other.process(values(["a", "a"], [1, 3]))
    other.conform(agreed([other.finish()]))
    assert other.share.table.to_pylist() == [{"of": "a", "last": 3}]
    tasks = [reduce_task(Rising()) for _ in range(2)]  # whose shares have other columns
    tasks[0].process(values(["a", "a"], [1, 3]))
    tasks[1].process(values(["b"], [1]))
    schema = agreed([task.finish() for task in tasks])
    for task in tasks:
        task.conform(schema)
    assert tasks[1].share.table.to_pylist() == [{"of": "b", "to": None, "last": 1}]


@given(data=st.data(), rows=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=30))
def test_a_key_may_move_to_another_task_with_its_state(data, rows: list[tuple[str, int]]) -> None:
    tasks = [reduce_task(Rising(), index=index) for index in range(3)]
    routing = [data.draw(tables(version=number, reducers=3)) for number in range(2)]
    for table, some in zip(routing, (rows[: len(rows) // 2], rows[len(rows) // 2 :]), strict=True):
        moved = [part for task in tasks for part in task.extract(table).items()]
        for owner, part in moved:
            tasks[owner].merge([part])
        for key, number in some:
            tasks[table.key_lookup(key)].process(values([key], [number]))
    for task in tasks:
        task.finish()
    found = [row for task in tasks for row in task.share.table.to_pylist()]
    emitted = sorted((row["of"], row["to"]) for row in found if row.get("to") is not None)
    by_key = naive(rows, lambda numbers: [to for at, to in pairwise(numbers) if to > at])
    assert emitted == sorted((key, to) for key, ups in by_key.items() for to in ups)
    last = {row["of"]: row["last"] for row in found if row.get("last") is not None}
    assert last == naive(rows, lambda numbers: numbers[-1])


def test_each_task_begins_again_with_the_rows_that_one_has_emitted() -> None:
    table = table_giving({"a": 0, "b": 1})
    snapshots = []
    for index, key in enumerate("ab"):
        task = reduce_task(Rising(), index=index)
        task.process(values([key, key], [1, 3]))
        snapshots += task.snapshot().slices(1)
    for index, key in enumerate("ab"):
        task = reduce_task(Rising(), index=index)
        task.restore(snapshots, table)
        task.conform(agreed([task.finish()]))
        assert task.share.table.column("of").to_pylist() == [key, key]


def test_two_states_of_one_key_cannot_be_merged() -> None:
    tasks = [reduce_task(Rising()) for _ in range(2)]
    for task in tasks:
        task.process(values(["a"], [1]))
    [part] = tasks[0].extract(table_giving({"a": 1})).values()
    with pytest.raises(ProtocolError, match="two states of one key"):
        tasks[1].merge([part])
    mergeable = [Count(), Total(), TopRows(), JoinOptions("inner", (("a",), ("b",)))]
    assert [receiver_of(executor).can_merge for executor in mergeable] == [True] * 4
    assert not receiver_of(as_process(Rising)).can_merge


class Failing(Rising):
    def process(self, key: Any, state: Any, value: int) -> Any:
        if value == 2:
            raise LookupError("no luck")
        return (None, [value]) if value == 3 else None

    def finish(self, key: Any, state: int) -> Any:
        raise LookupError("no luck")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (2, r"test_reduce_task\.Failing\.process failed on key 'a' and value 2: LookupError: no luck"),
        (3, r"Failing\.process failed on key 'a' and value 3: TypeError: a record is a dict by column name, not 3"),
        (4, r"Failing\.process failed on key 'a' and value 4: TypeError: cannot unpack"),
    ],
)
def test_what_a_process_gets_wrong_names_the_key_and_the_value(number: int, message: str) -> None:
    task = reduce_task(Failing())
    with pytest.raises(ExecutorError, match=message):
        task.process(values(["a"], [number]))
    with pytest.raises(ExecutorError, match=r"Failing\.finish failed on key 'a': LookupError"):
        task.finish()


def test_what_is_no_process_is_refused() -> None:
    class Odd(Rising):
        def process(self, key: Any, state: Any) -> Any:  # type: ignore[override]
            return state, []

    with pytest.raises(ConfigError, match="is no process"):
        as_process(Count)
    with pytest.raises(ConfigError, match=r"Odd\.process is called with \(key, state, value\)"):
        as_process(Odd)


def test_a_stage_without_state_passes_its_rows_on() -> None:
    task = reduce_task(None, (), emission=Emission((edge("tag"),)), keeps_rows=False)
    source = edge((), reducer=None)
    [step] = source.steps(MemorySplit(pa.table({"tag": ["a", "b"], "n": [1, 2]})), lambda: 0.0)
    [(_, sent)] = step.blocks
    [(to, block)] = task.process(sent)
    assert (to, records_of(block)) == (0, [("a", 1), ("b", 2)])
    assert task.finish() is None
    assert task.extract(table_giving({"a": 1})) == {}


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2), st.integers(-9, 9)), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([Sum, Count, Total]),
    st.booleans(),
    st.sampled_from(["key", ("key", "part")]),
)
def test_blocks_processed_as_one_give_what_they_give_one_by_one(
    batches: list[list[tuple[str, int, int]]], reducer: Any, combines: bool, key: Any
) -> None:
    """Also those of states, which are in the order of their keys."""
    mapping = map_task(None, reducer(), key=key, values=("value",), combine=combines)
    blocks = []
    for batch in batches:
        words, parts, numbers = zip(*batch, strict=True)
        rows = OneBatch(pa.record_batch({"key": list(words), "part": list(parts), "value": list(numbers)}))
        blocks += [block for step in mapping.steps(rows, lambda: 0.0) for _, block in step.blocks]
    [whole] = joined(blocks)
    assert whole.combined == combines
    found = []
    for given_blocks in (blocks, [whole]):
        task = reduce_task(reducer(), key)
        for block in given_blocks:
            task.process(block)
        task.finish(())
        found.append(sorted(task.share.table.to_pylist(), key=str))
    assert found[0] == found[1]
