"""Mapping: user code makes blocks of bounded size, all counted; what it gets wrong is said by name, with traceback."""

import itertools
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import COMPOSITE, Total, map_task, naive, pairs, records_of
from hypothesis import given
from hypothesis import strategies as st

from dpa._given import as_mapper
from dpa.aggregates import Count, Max, Mean, Min, Sum
from dpa.errors import ConfigError, DpaError, ExecutorError, KeyTypeError
from dpa.execution.mapping import Emitted, MapTask, check_columns
from dpa.executors import BatchMapper, BatchReducer, Mapper, batch_mapper
from dpa.sources.splits import MemorySplit

rows = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-9, 9)), max_size=40)
NOON = datetime(2026, 1, 31, 12)
ANY = pa.table({"key": ["a", "b"], "value": [1, 2]})


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


# --- blocks and counts


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


def test_a_mapper_may_make_many_records_of_a_row_or_none() -> None:
    def repeated(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
        yield from [(record["key"], number) for number in range(record["value"])]

    steps = steps_of(task_of(repeated, batch_records=4), table_of([("a", 0), ("b", 6), ("c", 0), ("d", 3), ("e", 0)]))
    assert [(step.read, step.mapped) for step in steps] == [(2, 4), (2, 4), (1, 1)]


def test_a_batch_mapper_may_drop_all_rows_and_they_still_count_as_read() -> None:
    nothing = batch_mapper(lambda batch: batch.slice(0, 0))
    steps = steps_of(task_of(nothing, batch_records=2), table_of([("a", 1)] * 5))
    assert steps == [Emitted((), 2, 0), Emitted((), 2, 0), Emitted((), 1, 0)]


def test_what_a_batch_mapper_makes_too_much_is_cut() -> None:
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


# --- what user code gets wrong


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


def test_a_long_record_is_cut_in_messages() -> None:
    with pytest.raises(ExecutorError) as error:
        steps_of(task_of(Failing()), pa.table({"key": ["a" * 10_000], "value": [1]}))
    assert len(str(error.value).splitlines()[0]) < 300


@pytest.mark.parametrize("returned", [None, 5, ["a"], [("a", 1, 2)]], ids=repr)
def test_a_mapper_that_returns_no_pairs_is_named(returned: Any) -> None:
    with pytest.raises(ExecutorError, match=r"test_mapping.*lambda.*\.map failed on record"):
        steps_of(task_of(lambda record: returned))


def test_an_exception_without_a_frame_of_the_users_is_said_once() -> None:
    with pytest.raises(ExecutorError) as error:
        steps_of(task_of(lambda record: None))
    assert str(error.value).count("object is not iterable") == 1


@pytest.mark.parametrize("returned", [None, [("a", 1)], {"key": ["a"]}], ids=repr)
def test_a_batch_mapper_must_return_arrow(returned: Any) -> None:
    wanted = f"map_batch must return a pyarrow.RecordBatch or pyarrow.Table, not {type(returned).__name__}"
    with pytest.raises(ExecutorError, match=wanted):
        steps_of(task_of(batch_mapper(lambda batch: returned)))


def test_a_batch_mapper_must_return_the_key_column() -> None:
    with pytest.raises(ExecutorError, match="map_batch returned no key column 'key'; its columns are value"):
        steps_of(task_of(batch_mapper(lambda batch: batch.select(["value"]))))


@pytest.mark.parametrize("keys", [["a", 1], [1, "a"], ["a", b"a"], [b"a", "a"], [1, True], [2**64], [object()]])
def test_keys_that_do_not_go_together_are_refused_and_the_mapper_named(keys: list[Any]) -> None:
    with pytest.raises(KeyTypeError, match=r"test_mapping.*\.map yields keys .*; a key is a string"):
        steps_of(task_of(lambda record: [(key, 1) for key in keys]))


def test_a_key_that_utf_8_cannot_hold_is_refused_and_the_mapper_named() -> None:
    with pytest.raises(ExecutorError, match=r"test_mapping.*\.map"):
        steps_of(task_of(lambda record: [("\ud800", 1)]))


@pytest.mark.parametrize("key", [1.5, 2**64, ("a", 1), Decimal("NaN"), ["a"], {"a": 1}, timedelta(1)], ids=repr)
def test_a_key_of_an_unsupported_type_is_refused(key: Any) -> None:
    with pytest.raises(
        KeyTypeError, match=r"test_mapping.*\.map yields keys .*a key is a string, an integer of 64 bits"
    ):
        steps_of(task_of(lambda record: [(key, 1)]))


@pytest.mark.parametrize("keys", [[1, True], [date(2026, 1, 1), NOON], [NOON, NOON.replace(tzinfo=timezone.utc)]])
def test_keys_that_python_thinks_alike_are_no_keys_of_one_type(keys: list[Any]) -> None:
    with pytest.raises(KeyTypeError, match="this job has"):
        steps_of(task_of(lambda record: [(key, 1) for key in keys]))


def test_a_tuple_is_refused_where_the_key_has_one_name_and_the_remedy_said() -> None:
    with pytest.raises(KeyTypeError, match=r"composite key: name its components, `key: \[a, b\]`"):
        steps_of(task_of(lambda record: [(("a", 1), 1)]))


@pytest.mark.parametrize("key", ["a", None, ("a",), ("a", 1, 2), ["a", 1]], ids=repr)
def test_a_composite_key_has_as_many_components_as_the_job_names(key: Any) -> None:
    with pytest.raises(KeyTypeError, match=r"no tuple of 2, as `key: \[one, two\]` needs"):
        steps_of(task_of(lambda record: [(key, 1)], key=COMPOSITE))


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


def test_a_batch_mapper_must_return_each_column_of_a_composite_key() -> None:
    with pytest.raises(ExecutorError, match="map_batch returned no key column 'two'; its columns are one"):
        steps_of(task_of(batch_mapper(lambda batch: pa.table({"one": [1]})), key=COMPOSITE))


@pytest.mark.parametrize("values", [[1, "x"], [{"x": 1}, 2], [object()]], ids=["mixed", "dict and scalar", "object"])
def test_values_that_are_no_columns_are_refused_where_columns_are_needed(values: list[Any]) -> None:
    with pytest.raises(
        ExecutorError, match=r"dpa\.aggregates\.Sum works on columns, so values must be of one Arrow type"
    ):
        steps_of(task_of(lambda record: [("a", value) for value in values], reducer=Sum()))


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


def test_text_that_is_not_utf_8_is_explained() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(ExecutorError, match=r"make_valid_utf8\(column\)"):
        steps_of(task_of(pairs), pa.table({"key": broken, "value": [1]}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "word"}, "key: the input has no column 'word'; it has key, value"),
        ({"values": ("n", "value")}, "value: the input has no column 'n'; it has key, value"),
        (
            {"reducer": Sum("valeu")},
            "reducer: reads the column 'valeu', and the columns of the values are value; set `args: {column: value}`",
        ),
        ({"reducer": Mean(), "values": ()}, "reducer: reads the column 'value', and there are no"),
    ],
)
def test_columns_that_are_missing_are_found_before_anything_runs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_columns(task_of(None, **changes), ANY.schema)
    assert message in str(error.value)


def test_a_reducer_reads_a_column_of_the_values_and_not_any_of_the_input() -> None:
    schema = pa.schema({"key": pa.string(), "seconds": pa.int64(), "bytes": pa.int64()})
    check_columns(task_of(None, reducer=Sum("seconds")), schema)
    check_columns(task_of(None, reducer=Sum("seconds"), values=("seconds",)), schema)
    check_columns(task_of(None, reducer=Count(), values=()), schema)
    with pytest.raises(ConfigError, match="reads the column 'seconds', and the columns of the values are bytes"):
        check_columns(task_of(None, reducer=Sum("seconds"), values=("bytes",)), schema)
    with pytest.raises(ConfigError, match=r"reads the column 'value', .* are seconds, bytes; set `args: {column: NAME"):
        check_columns(task_of(None, reducer=Sum()), schema)


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int64()), pa.struct({"a": pa.int64()})], ids=str)
def test_a_sum_of_what_cannot_be_added_is_refused_before_anything_runs(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"reducer: cannot work on the column 'value', which is"):
        check_columns(task_of(None, reducer=Sum()), pa.schema({"key": pa.string(), "value": kind}))


@pytest.mark.parametrize("reducer", [Sum(), Min(), Max(), Mean()], ids=lambda made: type(made).__name__)
@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(9, 2), pa.null()], ids=str)
def test_numbers_are_taken_by_every_reducer_of_numbers(reducer: BatchReducer, kind: pa.DataType) -> None:
    check_columns(task_of(None, reducer=reducer), pa.schema({"key": pa.string(), "value": kind}))


def test_keys_of_a_type_that_is_not_supported_are_found_before_anything_runs() -> None:
    schema = pa.schema({"key": pa.list_(pa.string()), "value": pa.int64()})
    with pytest.raises(ConfigError, match=r"key: the column 'key': keys of Arrow type list<.*`to_json"):
        check_columns(task_of(None), schema)


def test_with_a_mapper_the_columns_are_its_own_affair() -> None:
    check_columns(task_of(pairs, key="word"), ANY.schema)
    assert issubclass(ConfigError, DpaError)
