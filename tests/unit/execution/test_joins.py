"""Joins: whatever the kind, the division into blocks and the moves between stores, the rows are those of SQL."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import chunks, map_task, reduce_task, tables
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.errors import ConfigError, ExecutorError
from dpa.execution.receivers import receiver_of, store_of
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.schemas import agreed
from dpa.operators import JOINS, JoinOptions
from dpa.routing.table import RoutingTable
from dpa.sources.splits import MemorySplit

LEFT = pa.schema([("k", pa.string()), ("x", pa.int32()), ("both", pa.string())])
RIGHT = pa.schema([("id", pa.string()), ("y", pa.decimal128(9, 2)), ("both", pa.bool_())])
ONE = (("k",), ("id",))
TWO = (("k", "x"), ("id", "x"))
VALUES = (pa.schema([*LEFT][1:]), pa.schema([*RIGHT][1:]))

Row = tuple[Any, ...]
every_kind = pytest.mark.parametrize("how", JOINS)
keys = st.one_of(st.none(), st.sampled_from("abc"))


def of(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def expected(left: Sequence[Row], right: Sequence[Row], how: str, width: int = 1) -> Counter[Row]:
    """The rows of a join of rows whose first `width` columns are the key."""

    def matches(one: Row, other: Row) -> bool:
        return one[:width] == other[:width] and None not in one[:width]

    pairs = [(one, other) for one, other in itertools.product(left, right) if matches(one, other)]
    if how in ("semi", "anti"):
        return Counter(one for one in left if any(matches(one, other) for other in right) == (how == "semi"))
    rows = [(*one, *other[width:]) for one, other in pairs]
    if how in ("left", "full"):
        alone = [one for one in left if not any(matches(one, other) for other in right)]
        rows += [(*one, *[None] * (3 - width)) for one in alone]
    if how in ("right", "full"):
        alone = [other for other in right if not any(matches(one, other) for one in left)]
        rows += [(*other[:width], *[None] * (3 - width), *other[width:]) for other in alone]
    return Counter(rows)


def blocks_of(options: JoinOptions, side: int, table: pa.Table, batch_records: int) -> list[Any]:
    on = options.on[side]
    task = map_task(None, options, key=on[0] if len(on) == 1 else on, side=side, batch_records=batch_records)
    return [block for step in task.steps(MemorySplit(table), lambda: 0.0) for _, block in step.blocks]


def rows_of(table: pa.Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def joined(tasks: list[ReduceTask], table: RoutingTable, seen: Sequence[RoutingTable] = ()) -> pa.Table:
    """Exchange by each table, finish and agree on the columns, as the tasks of a stage do."""
    for by in (*seen, table):
        parts = [part for task in tasks for part in task.extract(by).items()]
        for owner, part in parts:
            tasks[owner].merge([part])
    schema = agreed([task.finish() for task in tasks])
    for task in tasks:
        task.conform(schema)
    return pa.concat_tables([task.share.table for task in tasks])


left_rows = st.lists(st.tuples(keys, st.integers(0, 2), st.sampled_from("pq")), max_size=12)
right_rows = st.lists(st.tuples(keys, st.integers(0, 2), st.booleans()), max_size=12)


@every_kind
@pytest.mark.parametrize("on", [ONE, TWO], ids=["one column", "two columns"])
@settings(max_examples=20)
@given(data=st.data(), left=left_rows, right=right_rows, batch_records=st.integers(1, 7))
def test_a_join_is_that_of_sql_wherever_its_rows_were_and_went(
    how, on, data, left: list[Row], right: list[Row], batch_records: int
) -> None:
    right_schema = RIGHT if on == ONE else pa.schema([RIGHT.field(0), ("x", pa.int32()), RIGHT.field(2)])
    values = [pa.schema(list(schema)[len(on[0]) :]) for schema in (LEFT, right_schema)]
    options = JoinOptions(how, on, (values[0], values[1]))
    blocks = [
        *blocks_of(options, 0, of(LEFT, left), batch_records),
        *blocks_of(options, 1, of(right_schema, right), batch_records),
    ]
    order = data.draw(st.permutations(blocks))
    routing = [data.draw(tables(version=number, reducers=3)) for number in range(1, 3)]
    tasks = [reduce_task(options, options.key, index, empty=pa.table({})) for index in range(3)]
    for number, some in enumerate(chunks(order, [len(order) // 2])):
        for block in some:
            tasks[data.draw(st.integers(0, 2))].process(block)
        moved = [part for task in tasks for part in task.extract(routing[min(number, 1)]).items()]
        for owner, part in moved:
            tasks[owner].merge([part])
    result = joined(tasks, routing[-1])
    assert rows_of(result) == expected(left, right, how, len(on[0]))
    loads = sum(task.loads(routing[0]) for task in tasks)
    assert loads.sum() == len(left) + len(right)


def test_the_key_comes_first_then_the_left_and_the_right_columns_with_names_and_types_of_their_own() -> None:
    options = JoinOptions("full", ONE, VALUES)
    store = reduce_task(options, "k")
    for side, schema, rows in ((0, LEFT, [("a", 1, "p")]), (1, RIGHT, [("b", 2, True)])):
        for block in blocks_of(options, side, of(schema, rows), 5):
            store.process(block)
    store.conform(agreed([store.finish()]))
    assert [(field.name, field.type) for field in store.share.table.schema] == [
        ("k", pa.string()),
        ("x", pa.int32()),
        ("both", pa.string()),
        ("y", pa.decimal128(9, 2)),
        ("both_right", pa.bool_()),
    ]
    left, right = (pa.schema([(name, pa.int64()) for name in names]) for names in (["x", "x_right"], ["k", "x", "y"]))
    options = JoinOptions("full", (("k",), ("id",)), (left, right))
    assert options.right_names == {"k": "k_right", "x": "x_right_right", "y": "y"}


def test_columns_that_were_read_as_dictionaries_are_plain_in_the_result() -> None:
    texts = [pa.array(["p", "q"]).dictionary_encode(), pa.array(["q", "r"])]
    options = JoinOptions("inner", (("k",), ("k",)), (pa.schema({"x": texts[0].type}), pa.schema({"x": pa.string()})))
    task = reduce_task(options, "k")
    for side in (0, 1):
        for text in texts:
            for block in blocks_of(options, side, pa.table({"k": text, "x": text}), 5):
                task.process(block)
    task.conform(agreed([task.finish()]))
    assert set(task.share.table.schema.types) == {pa.string()}
    assert rows_of(task.share.table) == Counter({("p", "p", "p"): 1, ("q", "q", "q"): 4, ("r", "r", "r"): 1})


def test_a_column_that_shows_only_in_rows_and_one_of_two_types_are_refused_by_name() -> None:
    options = JoinOptions("inner", (("k",), ("k",)), (pa.schema({"x": pa.int64()}),) * 2)
    for side in (0, 1):
        [block] = blocks_of(options, side, pa.table({"k": ["a"], "x": [1], "y": [2]}), 5)
        why = "a side of a join has a column 'y', and was to have x: declare the `schema`"
        with pytest.raises(ExecutorError, match=why):
            store_of(receiver_of(options)).reduce(block)
    options = JoinOptions("inner", ONE)
    store = store_of(receiver_of(options))
    for values in ([1], ["x"]):
        store.reduce(blocks_of(options, 0, pa.table({"k": ["a"], "x": values}), 5)[0])
    with pytest.raises(ExecutorError, match=r"a side of a join must have columns of one type each: column 'x'"):
        store.finish("k")


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_join_that_has_columns_of_the_left_side_alone_keeps_only_keys_of_the_right_one(how: str) -> None:
    options = JoinOptions(how, ONE)
    store = store_of(receiver_of(options))
    for block in blocks_of(options, 1, of(RIGHT, [("a", 1, True)] * 100), 50):
        store.reduce(block)
    assert store.size == 2
    assert store.finish("k").records.tolist() == [100]
    store.reduce(blocks_of(options, 0, pa.table({"k": ["a", "b"], "x": [1, 2]}), 5)[0])
    assert rows_of(store.finish("k").table) == Counter([("a", 1) if how == "semi" else ("b", 2)])


def test_a_store_keeps_no_memory_of_the_block_that_it_was_given() -> None:
    options = JoinOptions("inner", ONE)
    [block] = blocks_of(options, 0, of(LEFT, [("a", 1, "p"), ("b", 2, "q")]), 5)
    copy = block.copy()
    shared = [(block.codes, copy.codes), (block.hashes, copy.hashes)]
    assert not any(np.shares_memory(one, other) for one, other in shared)
    for one, other in ((block.keys, copy.keys), (block.columns.column("x"), copy.columns.column("x"))):
        addresses = {part.address for array in (one, other) for part in array.buffers() if part is not None}
        assert len(addresses) == sum(part is not None for array in (one, other) for part in array.buffers())


@pytest.mark.parametrize(
    ("how", "on", "message"),
    [
        ("outer", ONE, "how: 'outer' is no join; there are inner, left, right, full, semi, anti"),
        ("inner", (("a", "b"), ("c",)), "as many columns of one side as of the other"),
        ("inner", ((), ()), "as many columns"),
    ],
)
def test_what_is_no_join_is_refused(how: str, on: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        JoinOptions(how, on)
