"""Mapping: user code makes blocks of bounded size, all counted; what it gets wrong is said by name, with traceback."""

import itertools
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from builders import COMPOSITE, Total, map_task, naive, pairs, records_of
from hypothesis import given
from hypothesis import strategies as st

from dpa._given import as_mapper
from dpa.aggregates import Count, Max, Mean, Min, Sum
from dpa.errors import ConfigError, ExecutorError, KeyTypeError
from dpa.execution.mapping import Emitted, MapTask, check_columns
from dpa.executors import BatchMapper, BatchReducer, Mapper, batch_mapper
from dpa.sources.splits import MemorySplit

rows = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-9, 9)), max_size=40)
NOON = datetime(2026, 1, 31, 12)
ANY = pa.table({"key": ["a", "b"], "value": [1, 2]})
NOT_ADDED = (pa.string(), pa.list_(pa.int64()), pa.struct({"a": pa.int64()}))


@batch_mapper
def columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["value", "key"])


def table_of(records: list[tuple[Any, Any]]) -> pa.Table:
    keys, values = zip(*records, strict=True) if records else ((), ())
    return pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.int64())})


def steps_of(task: MapTask, table: pa.Table = ANY, clock: Any = lambda: 0.0) -> list[Emitted]:
    return list(task.steps(MemorySplit(table), clock))


def blocks_of(task: MapTask, table: pa.Table) -> list[Any]:
    return [block for step in steps_of(task, table) for _, block in step.blocks]


def task_of(mapper: Any, **changes: Any) -> MapTask:
    return map_task(None if mapper is None else as_mapper(mapper), changes.pop("reducer", Total()), **changes)


every_kind = pytest.mark.parametrize("mapper", [pairs, columns, None], ids=["records", "batches", "none"])


@every_kind
@given(records=rows, batch_records=st.integers(1, 12))
def test_blocks_hold_all_records_in_order_and_are_never_too_large(mapper, records, batch_records: int) -> None:
    steps = steps_of(task_of(mapper, batch_records=batch_records), table_of(records))
    blocks = [block for step in steps for _, block in step.blocks]
    assert [record for block in blocks for record in records_of(block)] == records
    assert all(0 < block.rows <= batch_records for block in blocks)
    assert [step.mapped for step in steps] == [sum(block.rows for _, block in step.blocks) for step in steps]
    assert sum(step.read for step in steps) == len(records)


@every_kind
@pytest.mark.parametrize("reducer", [Total(), Sum()], ids=["objects", "columns"])
@given(records=rows, batch_records=st.integers(1, 12))
def test_a_combiner_leaves_one_record_a_key_that_stands_for_all(mapper, reducer, records, batch_records: int) -> None:
    task = task_of(mapper, reducer=reducer, batch_records=batch_records, combine=True)
    plain = task_of(mapper, reducer=reducer, batch_records=batch_records)
    for step, before in zip(steps_of(task, table_of(records)), steps_of(plain, table_of(records)), strict=True):
        assert (step.read, step.mapped) == (before.read, before.mapped)
        for (_, combined), (_, single) in zip(step.blocks, before.blocks, strict=True):
            assert combined.combined
            assert dict(records_of(combined)) == naive(records_of(single), sum)
            assert combined.mapped().tolist() == single.counts().tolist()


def test_a_mapper_may_make_many_records_of_a_row_or_none_which_are_cut() -> None:
    def repeated(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
        yield from [(record["key"], number) for number in range(record["value"])]

    steps = steps_of(task_of(repeated, batch_records=4), table_of([("a", 0), ("b", 6), ("c", 0), ("d", 3), ("e", 0)]))
    assert [(step.read, step.mapped) for step in steps] == [(2, 4), (2, 4), (1, 1)]
    nothing = batch_mapper(lambda batch: batch.slice(0, 0))
    steps = steps_of(task_of(nothing, batch_records=2), table_of([("a", 1)] * 5))
    assert steps == [Emitted((), 2, 0), Emitted((), 2, 0), Emitted((), 1, 0)]
    thrice = batch_mapper(lambda batch: pa.Table.from_batches([batch] * 3))
    steps = steps_of(task_of(thrice, batch_records=2), table_of([("a", 1), ("b", 2)]))
    assert [(step.read, step.mapped) for step in steps] == [(2, 2), (0, 2), (0, 2)]


def test_a_slow_mapper_hands_over_what_it_has_when_its_time_is_up() -> None:
    clock = itertools.count()
    steps = steps_of(task_of(pairs, step_seconds=3.0, batch_records=100), table_of([("a", 1)] * 9), lambda: next(clock))
    assert len(steps) > 2
    assert sum(step.mapped for step in steps) == sum(step.read for step in steps) == 9


@pytest.mark.parametrize(
    ("values", "objects"),
    [(None, [{"x": 1, "y": "p"}]), (("x",), [1]), (("y", "x"), [{"y": "p", "x": 1}]), ((), [None])],
)
def test_without_a_mapper_the_named_columns_are_the_value(values: Any, objects: list[Any]) -> None:
    table = pa.table({"x": [1], "word": ["a"], "y": ["p"]})
    [block] = blocks_of(task_of(None, key="word", values=values), table)
    assert (block.keys.to_pylist(), block.objects()) == (["a"], objects)


def test_values_for_a_batch_reducer_become_columns() -> None:
    [single] = blocks_of(task_of(lambda record: [("a", 1), ("a", None)], reducer=Sum()), ANY.slice(0, 1))
    [several] = blocks_of(task_of(lambda record: [("a", {"x": 1}), ("b", {"x": 2, "y": 3})], reducer=Sum("x")), ANY[:1])
    assert single.values.to_pydict() == {"value": [1, None]}
    assert several.values.to_pydict() == {"x": [1, 2], "y": [None, 3]}


class Failing(Mapper):
    def map(self, record: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        yield record["key"], 1
        raise LookupError(f"no luck with {record['value']}")


class FailingBatch(BatchMapper):
    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        raise LookupError("no luck")


class FailingTotal(Total):
    def reduce(self, state: int, value: int) -> int:
        if value == 2:
            raise LookupError("no luck")
        return state + value


@pytest.mark.parametrize(
    ("task", "where"),
    [
        (task_of(Failing()), r"test_mapping\.Failing\.map failed on record \{'key': 'a', 'value': 1\}"),
        (task_of(FailingBatch()), r"test_mapping\.FailingBatch\.map_batch failed on a batch of 2 rows"),
        (task_of(pairs, reducer=FailingTotal(), combine=True), r"test_mapping\.FailingTotal\.reduce failed on key 'b'"),
    ],
    ids=["map", "map_batch", "combiner"],
)
def test_an_exception_names_the_executor_the_record_and_where_it_was_raised(task: MapTask, where: str) -> None:
    with pytest.raises(ExecutorError, match=where) as error:
        steps_of(task)
    message = str(error.value)
    assert "LookupError: no luck" in message
    assert "raise LookupError" in message and "test_mapping.py" in message
    assert "/dpa/execution/" not in message


def test_a_long_record_is_cut_in_messages_and_an_exception_without_a_frame_of_the_users_said_once() -> None:
    with pytest.raises(ExecutorError) as error:
        steps_of(task_of(Failing()), pa.table({"key": ["a" * 10_000], "value": [1]}))
    assert len(str(error.value).splitlines()[0]) < 300
    with pytest.raises(ExecutorError) as error:
        steps_of(task_of(lambda record: None))
    assert str(error.value).count("object is not iterable") == 1


def of_keys(*keys: Any, key: Any = "key") -> MapTask:
    return task_of(lambda record: [(each, 1) for each in keys], key=key)


def returning(returned: Any, **changes: Any) -> MapTask:
    return task_of(batch_mapper(lambda batch: returned), **changes)


NO_ARROW = r"map_batch must return a pyarrow.RecordBatch or pyarrow.Table, not "
UNLIKE = r"test_mapping.*\.map yields keys .*; a key is a string"
OF_NO_TYPE = r"test_mapping.*\.map yields keys .*a key is a string, an integer of 64 bits"
NO_PAIR = r"no tuple of 2, as `key: \[one, two\]` needs"


@pytest.mark.parametrize(
    ("message", "tasks"),
    [
        (
            r"test_mapping.*lambda.*\.map failed on record",
            [task_of(lambda record, made=made: made) for made in (None, 5, ["a"], [("a", 1, 2)])],
        ),
        (f"{NO_ARROW}NoneType", [returning(None)]),
        (f"{NO_ARROW}list", [returning([("a", 1)])]),
        (f"{NO_ARROW}dict", [returning({"key": ["a"]})]),
        (
            "map_batch returned no key column 'key'; its columns are value",
            [task_of(batch_mapper(lambda batch: batch.select(["value"])))],
        ),
        (
            "map_batch returned no key column 'two'; its columns are one",
            [returning(pa.table({"one": [1]}), key=COMPOSITE)],
        ),
        (r"test_mapping.*\.map", [of_keys("\ud800")]),
    ],
)
def test_what_a_mapper_returns_that_is_no_records_is_refused_and_the_mapper_named(
    message: str, tasks: list[MapTask]
) -> None:
    for task in tasks:
        with pytest.raises(ExecutorError, match=message):
            steps_of(task)


@pytest.mark.parametrize(
    ("message", "tasks"),
    [
        (UNLIKE, [of_keys("a", 1), of_keys(1, "a"), of_keys("a", b"a"), of_keys(b"a", "a"), of_keys(object())]),
        (OF_NO_TYPE, [of_keys(key) for key in (1.5, 2**64, ("a", 1), Decimal("NaN"), ["a"], {"a": 1}, timedelta(1))]),
        (
            "this job has",  # though Python thinks them alike
            [of_keys(1, True), of_keys(date(2026, 1, 1), NOON), of_keys(NOON, NOON.replace(tzinfo=timezone.utc))],
        ),
        (r"composite key: name its components, `key: \[a, b\]`", [of_keys(("a", 1))]),
        (NO_PAIR, [of_keys(key, key=COMPOSITE) for key in ("a", None, ("a",), ("a", 1, 2), ["a", 1])]),
    ],
    ids=["not together", "of no type", "alike", "a tuple where one name is", "no tuple of two"],
)
def test_keys_that_do_not_do_are_refused_and_the_mapper_named(message: str, tasks: list[MapTask]) -> None:
    for task in tasks:
        with pytest.raises(KeyTypeError, match=message):
            steps_of(task)


@pytest.mark.parametrize("mapper", [None, batch_mapper(lambda batch: batch)], ids=["none", "batches"])
def test_a_struct_is_refused_as_the_one_key_column(mapper: Any) -> None:
    table = pa.table({"key": [{"a": 1, "b": 2}], "value": [1]})
    with pytest.raises(KeyTypeError, match=r"`key: \[a, b\]`"):
        steps_of(task_of(mapper), table)


@pytest.mark.parametrize("mapper", [None, batch_mapper(lambda batch: batch)], ids=["none", "batches"])
@pytest.mark.parametrize("reducer", [Total(), Sum()], ids=["objects", "columns"])
def test_the_columns_of_a_composite_key_are_no_values(mapper: Any, reducer: Any) -> None:
    table = pa.table({"one": ["x", "y", "x"], "value": [1, 2, 3], "two": [None, 5, None]})
    [block] = blocks_of(task_of(mapper, key=COMPOSITE, reducer=reducer, combine=True), table)
    assert dict(records_of(block)) == {("x", None): 4, ("y", 5): 2}


@pytest.mark.parametrize("values", [[1, "x"], [{"x": 1}, 2], [object()]], ids=["mixed", "dict and scalar", "object"])
def test_values_that_are_no_columns_are_refused_where_columns_are_needed(values: list[Any]) -> None:
    why = r"dpa\.aggregates\.Sum works on columns, so values must be of one Arrow type"
    with pytest.raises(ExecutorError, match=why):
        steps_of(task_of(lambda record: [("a", value) for value in values], reducer=Sum()))
    broken = pa.table({"key": pa.array([b"\xff\xfe"]).view(pa.string()), "value": [1]})
    with pytest.raises(ExecutorError, match=r"make_valid_utf8\(column\)"):
        steps_of(task_of(pairs), broken)


@pytest.mark.parametrize(
    "returned", [5, pa.record_batch({"count": [1]}), pa.table({"count": [1, 1]})], ids=["no batch", "short", "table"]
)
def test_a_combiner_must_return_a_state_a_group(returned: Any) -> None:
    class Wrong(Count):
        def reduce(self, groups: Any) -> Any:
            return returned

    with pytest.raises(
        ExecutorError, match=r"Wrong\.reduce must return a pyarrow\.RecordBatch with one row a group \(2\)"
    ):
        steps_of(task_of(None, reducer=Wrong(), combine=True))


TIMES = pa.schema({"key": pa.string(), "seconds": pa.int64(), "bytes": pa.int64()})
SUM = {"reducer": Sum()}


def valued(kind: pa.DataType) -> pa.Schema:
    return pa.schema({"key": pa.string(), "value": kind})


@pytest.mark.parametrize(
    ("changes", "schema", "message"),
    [
        ({"key": "word"}, ANY.schema, "key: the input has no column 'word'; it has key, value"),
        (
            {"key": "word"},
            pa.schema({"_c0": pa.string(), "_c1": pa.string()}),
            "give the input `options: {header: true}`",
        ),
        ({"values": ("n", "value")}, ANY.schema, "value: the input has no column 'n'; it has key, value"),
        (
            {"reducer": Sum("valeu")},
            ANY.schema,
            "reducer: reads the column 'valeu', and the columns of the values are value; set `args: {column: value}`",
        ),
        ({"reducer": Mean(), "values": ()}, ANY.schema, "reducer: reads the column 'value', and there are no"),
        (
            {"reducer": Sum("seconds"), "values": ("bytes",)},
            TIMES,
            "reads the column 'seconds', and the columns of the values are bytes",
        ),
        (SUM, TIMES, "reads the column 'value', .* are seconds, bytes; set `args: {column: NAME"),
        *((SUM, valued(kind), "reducer: cannot work on the column 'value', which is") for kind in NOT_ADDED),
        (
            {},
            pa.schema({"key": pa.list_(pa.string()), "value": pa.int64()}),
            r"key: the column 'key': keys of Arrow type list<.*`to_json",
        ),
    ],
)
def test_columns_that_do_not_do_are_found_before_anything_runs(
    changes: dict[str, Any], schema: pa.Schema, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_columns(task_of(None, **changes), schema)


def test_a_reducer_reads_a_column_of_the_values_and_with_a_mapper_these_are_its_own_affair() -> None:
    check_columns(task_of(None, reducer=Sum("seconds")), TIMES)
    check_columns(task_of(None, reducer=Sum("seconds"), values=("seconds",)), TIMES)
    check_columns(task_of(None, reducer=Count(), values=()), TIMES)
    check_columns(task_of(pairs, key="word"), ANY.schema)


@pytest.mark.parametrize("reducer", [Sum(), Min(), Max(), Mean()], ids=lambda made: type(made).__name__)
@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(9, 2), pa.null()], ids=str)
def test_numbers_are_taken_by_every_reducer_of_numbers(reducer: BatchReducer, kind: pa.DataType) -> None:
    check_columns(task_of(None, reducer=reducer), valued(kind))
