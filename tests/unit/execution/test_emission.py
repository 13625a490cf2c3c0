"""Emissions: operators give what plain Python gives, each runs once, steps keep their limits, errors name the row; and
which piece of user code runs, which it looks at itself, from its own frame."""

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from builders import map_task, records_of
from hypothesis import given
from hypothesis import strategies as st

from dpa.aggregates import Sum
from dpa.errors import ConfigError, ExecutorError
from dpa.execution.block import Block
from dpa.execution.emission import Emission
from dpa.execution.failures import running
from dpa.execution.mapping import Emitted
from dpa.execution.receivers import receiver_of, store_of
from dpa.execution.rows import Portions
from dpa.executors import BatchMapper, BatchReducer, Groups, Mapper, Reducer, batch_mapper
from dpa.operators import RowKind, RowOperator, as_row_operator, batch_filter
from dpa.routing.ring import TokenRing
from dpa.sources.generated import GeneratedTable, Generator
from dpa.sources.splits import MemorySplit

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int32())])
rows = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-9, 9)), max_size=30)


def table_of(records: list[tuple[Any, Any]]) -> pa.Table:
    keys, values = zip(*records, strict=True) if records else ((), ())
    return pa.table([pa.array(keys, pa.string()), pa.array(values, pa.int32())], SCHEMA)


def to(key: Any = "key", **changes: Any) -> Any:
    return map_task(changes.pop("mapper", None), changes.pop("reducer", Sum()), key=key, **changes)


def doubled(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "value": 2 * record["value"]}


def repeated(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number in range(abs(record["value"]) % 3):
        yield {**record, "value": number}


def positive(record: dict[str, Any]) -> bool:
    return record["value"] > 0


@batch_mapper
def negated(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"key": batch.column("key"), "value": pc.negate(batch.column("value"))})


@batch_filter
def odd(batch: pa.RecordBatch) -> list[bool]:
    return [value % 2 == 1 for value in batch.column("value").to_pylist()]


def naively(operator: RowOperator, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if operator.function is negated:
        return [{**record, "value": -record["value"]} for record in records]
    if operator.function is odd:
        return [record for record in records if record["value"] % 2 == 1]
    if operator.kind is RowKind.FILTER:
        return list(filter(operator.function, records))
    if operator.kind is RowKind.MAP:
        return list(map(operator.function, records))
    return [made for record in records for made in operator.function(record)]


KEY = as_row_operator(RowKind.KEY, lambda record: record["key"])
OPERATORS = [
    as_row_operator(RowKind.MAP, doubled),
    as_row_operator(RowKind.FLAT_MAP, repeated),
    as_row_operator(RowKind.FILTER, positive),
    as_row_operator(RowKind.MAP, negated),
    as_row_operator(RowKind.FILTER, odd),
]
operators = st.lists(st.sampled_from(OPERATORS), max_size=4).map(tuple)


def steps_of(emission: Emission, table: pa.Table, clock: Any = lambda: 0.0) -> list[Emitted]:
    return list(emission.steps(MemorySplit(table), clock))


def records_for(edge: int, steps: list[Emitted]) -> list[tuple[Any, Any]]:
    return [record for step in steps for to, block in step.blocks if to == edge for record in records_of(block)]


@given(records=rows, shared=operators, first=operators, second=operators, batch_records=st.integers(1, 9))
def test_every_edge_gets_what_the_operators_before_it_make(records, shared, first, second, batch_records: int) -> None:
    inner = Emission((to(batch_records=batch_records), to(batch_records=batch_records)), first)
    last = Emission((to(batch_records=batch_records),), second)
    emission = Emission((inner, to(batch_records=batch_records), last), shared)
    steps = steps_of(emission, table_of(records))
    after = [{"key": key, "value": value} for key, value in records]
    for operator in shared:
        after = naively(operator, after)
    expected = []
    for branch in (first, first, (), second):
        of_edge = after
        for operator in branch:
            of_edge = naively(operator, of_edge)
        expected.append([(record["key"], record["value"]) for record in of_edge])
    assert [records_for(edge, steps) for edge in range(4)] == expected
    assert sum(step.read for step in steps) == len(records)
    assert sum(step.mapped for step in steps) == sum(map(len, expected))
    for step in steps:
        assert len({edge for edge, _ in step.blocks}) == len(step.blocks)
        assert all(0 < block.rows <= batch_records for _, block in step.blocks)


def test_a_shared_operator_runs_once_for_all_edges_and_what_it_makes_of_one_row_is_cut() -> None:
    seen: list[str] = []

    def many(record: dict[str, Any]) -> list[dict[str, Any]]:
        seen.append(record["key"])
        return [record] * 6

    emission = Emission((to(), Emission((to(), to()))), (as_row_operator(RowKind.FLAT_MAP, many),))
    steps = steps_of(emission, table_of([("a", 1), ("b", 2)]))
    assert seen == ["a", "b"]
    assert [step.mapped for step in steps] == [3 * 5, 3 * 5, 3 * 2]
    assert sum(step.read for step in steps) == 2


@pytest.mark.parametrize("operator", [*OPERATORS[:3], KEY], ids=["map", "flat_map", "filter", "key"])
def test_record_functions_hand_over_what_they_have_when_their_time_is_up(operator: RowOperator) -> None:
    clock = itertools.count()
    own = (None, (operator,)) if operator is not KEY else (operator, ())
    emission = Emission((to(key_function=own[0], batch_records=100, step_seconds=3.0),), own[1])
    steps = steps_of(emission, table_of([("a", 1)] * 20), lambda: float(next(clock)))
    assert len(steps) > 2
    assert all(step.mapped < 20 for step in steps)
    assert sum(step.mapped for step in steps) == sum(step.read for step in steps) == 20


@given(records=rows, batch_records=st.integers(1, 9))
def test_a_function_gives_the_key_and_columns_keep_their_types(records, batch_records: int) -> None:
    function = as_row_operator(RowKind.KEY, lambda record: record["key"] * 2)
    edge = to("double", key_function=function, batch_records=batch_records)
    for filters in ((), (OPERATORS[2],), (OPERATORS[4],)):
        steps = steps_of(Emission((edge,), filters), table_of(records))
        left = [{"key": key, "value": value} for key, value in records]
        for operator in filters:
            left = naively(operator, left)
        assert records_for(0, steps) == [(record["key"] * 2, record) for record in left]
        assert all(block.columns.schema == SCHEMA for step in steps for _, block in step.blocks)


def test_a_key_of_no_columns_is_one_null_for_all_rows() -> None:
    [step] = steps_of(Emission((to(()),)), table_of([("a", 1), ("b", 2)]))
    [(_, block)] = step.blocks
    assert (block.keys.to_pylist(), block.codes.tolist()) == ([None], [0, 0])
    assert block.columns.schema == SCHEMA


def failing(record: dict[str, Any]) -> Any:
    raise LookupError(f"no luck with {record['value']}")


def failing_late(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield record
    raise LookupError("no luck")


@pytest.mark.parametrize(
    ("kind", "function", "message"),
    [
        (RowKind.MAP, failing, r"test_emission\.failing\.map failed on record \{'key': 'a', 'value': 1\}: LookupError"),
        (RowKind.FILTER, failing, r"failing\.filter failed on record \{'key': 'a', 'value': 1\}"),
        (RowKind.FLAT_MAP, failing_late, r"failing_late\.flat_map failed on record \{'key': 'a', 'value': 1\}"),
        (RowKind.MAP, batch_mapper(lambda batch: batch["z"]), r"<lambda>\.map failed on a batch of 1 rows: KeyError"),
        (RowKind.MAP, batch_mapper(lambda batch: 1), r"map must return a pyarrow.RecordBatch .* not int"),
        (RowKind.FILTER, batch_filter(lambda batch: [True] * 9), r"<lambda>\.filter failed on a batch of 1 rows"),
        (RowKind.MAP, lambda record: 1, r"a record is a dict by column name, not 1"),
        (RowKind.FLAT_MAP, lambda record: record, r"a record is a dict by column name, not 'key'"),
        (RowKind.MAP, lambda record: {**record, "x": object()}, r"each of one Arrow type: column 'x'"),
        (RowKind.KEY, failing, r"failing\.key_by failed on record"),
        (RowKind.KEY, lambda record: 0.5, r"<lambda>\.key_by yields keys that do not do"),
    ],
)
def test_an_error_names_the_operator_and_the_row(kind: RowKind, function: Any, message: str) -> None:
    operator = as_row_operator(kind, function)
    is_key = kind is RowKind.KEY
    emission = Emission((to(key_function=operator if is_key else None),), () if is_key else (operator, OPERATORS[0]))
    with pytest.raises(ExecutorError, match=message) as caught:
        steps_of(emission, table_of([("a", 1)]))
    if function is failing:
        assert "test_emission.py" in str(caught.value) and "/dpa/execution/" not in str(caught.value)
    broken = pa.table({"key": pa.array([b"\xff"]).view(pa.string()), "value": [1]})
    with pytest.raises(ExecutorError, match="column 'key': Python has no value for the string"):
        steps_of(Emission((to(),), (OPERATORS[2],)), broken)


@pytest.mark.parametrize(
    ("edge", "which"),
    [
        (to("tag"), "that are keyed by 'tag'"),
        (to(("key", "tag")), "that are keyed by 'tag'"),
        (to(values=("value",)), "whose value is 'value'"),
        (to(values=("value",), key_function=KEY), "whose value is 'value'"),
    ],
    ids=["key", "composite key", "value", "value beside a function of the key"],
)
def test_rows_without_a_column_that_their_edge_takes_are_an_error(edge: Any, which: str) -> None:
    renamed = as_row_operator(RowKind.MAP, lambda record: {"key": record["key"], "amount": record["value"]})
    with pytest.raises(ExecutorError) as caught:
        steps_of(Emission((edge,), (renamed,)), table_of([("a", 1)]))
    assert str(caught.value) == f"the rows {which} have no such column; they have key, amount"


@pytest.mark.parametrize("given_function", [3, dict, odd], ids=["no function", "a class", "another mark"])
def test_what_is_no_function_of_a_record_is_refused(given_function: Any) -> None:
    with pytest.raises(ConfigError, match="map"):
        as_row_operator(RowKind.MAP, given_function)


ROWS = pa.table({"key": ["a", "b"], "value": [1, 2]})
seen: list[str | None] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def look(result: Any) -> Any:
    seen.append(running(sys._getframe(1)))
    return result


class Looks(Reducer[int, int]):
    def zero(self) -> int:
        return look(0)

    def reduce(self, state: int, value: int) -> int:
        return look(state + value)

    def merge(self, left: int, right: int) -> int:
        return look(left + right)

    def finish(self, state: int) -> int:
        return look(state)


class LooksAtBatches(BatchReducer):
    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return look(pa.record_batch({"n": [0] * len(groups)}))

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return look(pa.record_batch({"n": [0] * len(groups)}))

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        return look(states)


@pytest.mark.parametrize(
    ("reducer", "methods", "on"),
    [
        (Looks(), ("zero", "reduce", "merge", "finish"), "key 'b'"),
        (LooksAtBatches(), ("reduce", "merge", "finish"), "2 keys"),
    ],
    ids=["records", "batches"],
)
def test_a_reducers_methods_are_named_with_the_key_or_the_number_of_keys(
    reducer: Any, methods: tuple[str, ...], on: str
) -> None:
    made, other = store_of(receiver_of(reducer)), store_of(receiver_of(reducer))
    for states in (made, other):
        states.reduce(Block.of(pa.array(["a", "b"]), pa.record_batch({"value": [1, 2]}), 0))
    for part in other.pack(TokenRing(1, 1).snapshot(0), keep=1).values():
        made.merge(part)
    made.finish("key")
    for method in methods:
        assert f"test_emission.{type(reducer).__name__}.{method}, on {on}" in seen
    assert running(sys._getframe()) is None, "other code is none of the users"
    assert running(None) is None


class Maps(Mapper):
    def map(self, record: dict[str, Any]) -> Iterator[tuple[str, int]]:
        yield look((record["key"], record["value"]))


class MapsBatches(BatchMapper):
    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return look(batch)


def changed(record: dict[str, Any]) -> dict[str, Any]:
    return look(record)


def repeating(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield look(record)


def behind(kind: RowKind, function: Any) -> Emission:
    same = as_row_operator(RowKind.FILTER, lambda record: True)
    return Emission((map_task(None, Looks()),), (same, as_row_operator(kind, function)))


@pytest.mark.parametrize(
    ("task", "last"),
    [
        (map_task(Maps(), Looks()), "Maps.map, on record {'key': 'b', 'value': 2}"),
        (map_task(MapsBatches(), Looks()), "MapsBatches.map_batch, on a batch of 2 rows"),
        (behind(RowKind.MAP, changed), "changed.map, on record {'key': 'b', 'value': 2}"),
        (behind(RowKind.FILTER, changed), "changed.filter, on record {'key': 'b', 'value': 2}"),
        (behind(RowKind.FLAT_MAP, repeating), "repeating.flat_map, on record {'key': 'b', 'value': 2}"),
    ],
    ids=["mapper", "mapper of batches", "map", "filter", "flat_map"],
)
def test_what_runs_is_named_with_the_record_or_the_size_of_the_batch(task: Any, last: str) -> None:
    list(task.steps(MemorySplit(ROWS), lambda: 0.0))
    assert seen[-1] == f"test_emission.{last}"


class LooksWhileItIsRead:
    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from (look(batch) for batch in ROWS.to_batches(max_chunksize=1))


class LooksWhileItGenerates(Generator):
    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        return look(pa.record_batch({"key": (["a", "b"] * rows)[:rows], "value": ([1, 2] * rows)[:rows]}))


@pytest.mark.parametrize("generates", [False, True])
def test_reading_is_not_taken_for_the_record_before_whatever_is_read(generates: bool) -> None:
    read = next(iter(GeneratedTable(LooksWhileItGenerates(), 2).splits(2))) if generates else LooksWhileItIsRead()
    seen.clear()
    portions = Portions(read)
    portions.at_once = 100
    list(map_task(Maps(), Looks()).steps(portions, lambda: 0.0))
    reading, one = "its input, which it reads", "test_emission.Maps.map, on record {'key': 'a', 'value': 1}"
    other = "test_emission.Maps.map, on record {'key': 'b', 'value': 2}"
    assert seen == ([reading, one, other] if generates else [reading, one, reading, other])
