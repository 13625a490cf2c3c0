"""Emissions: operators give what plain Python gives, each runs once, steps keep their limits, errors name the row."""

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from builders import Total, map_task, pairs, records_of
from hypothesis import given
from hypothesis import strategies as st

from dpa._given import as_mapper
from dpa.aggregates import Count, Sum
from dpa.errors import ConfigError, ExecutorError, KeyTypeError
from dpa.execution.emission import Emission
from dpa.execution.failures import running
from dpa.execution.mapping import Emitted
from dpa.executors import batch_mapper
from dpa.operators import RowKind, RowOperator, as_row_operator, batch_filter
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


@given(records=rows, batch_records=st.integers(1, 9))
def test_one_edge_without_operators_is_its_map_task(records, batch_records: int) -> None:
    task = map_task(as_mapper(pairs), Total(), batch_records=batch_records)
    emission = steps_of(Emission((task,)), table_of(records))
    alone = list(task.steps(MemorySplit(table_of(records)), lambda: 0.0))
    assert [(step.read, step.mapped) for step in emission] == [(step.read, step.mapped) for step in alone]
    assert records_for(0, emission) == records_for(0, alone)


def test_a_shared_operator_runs_once_for_all_edges() -> None:
    seen: list[str] = []

    def noted(record: dict[str, Any]) -> dict[str, Any]:
        seen.append(record["key"])
        return record

    emission = Emission((to(), Emission((to(), to()))), (as_row_operator(RowKind.MAP, noted),))
    steps_of(emission, table_of([("a", 1), ("b", 2)]))
    assert seen == ["a", "b"]


@pytest.mark.parametrize("operator", [OPERATORS[2], OPERATORS[4]], ids=["of records", "of batches"])
def test_columns_keep_their_types_in_a_filter(operator: RowOperator) -> None:
    [step] = steps_of(Emission((to(),), (operator,)), table_of([("a", 1)]))
    assert step.blocks[0][1].columns.schema.field("value").type == pa.int32()


@pytest.mark.parametrize("operator", OPERATORS[:3], ids=["map", "flat_map", "filter"])
def test_record_functions_hand_over_what_they_have_when_their_time_is_up(operator: RowOperator) -> None:
    clock = itertools.count()
    emission = Emission((to(batch_records=100, step_seconds=3.0),), (operator,))
    steps = steps_of(emission, table_of([("a", 1)] * 20), lambda: float(next(clock)))
    assert len(steps) > 2
    assert all(step.mapped < 20 for step in steps)
    assert sum(step.mapped for step in steps) == sum(step.read for step in steps) == 20


def test_what_a_flat_map_makes_of_one_row_is_cut() -> None:
    many = as_row_operator(RowKind.FLAT_MAP, lambda record: [record] * 12)
    steps = steps_of(Emission((to(batch_records=5),), (many,)), table_of([("a", 1)]))
    assert [step.mapped for step in steps] == [5, 5, 2]
    assert sum(step.read for step in steps) == 1


# --- keys


@given(records=rows, batch_records=st.integers(1, 9))
def test_a_function_gives_the_key_and_columns_keep_their_types(records, batch_records: int) -> None:
    function = as_row_operator(RowKind.KEY, lambda record: record["key"] * 2)
    steps = steps_of(Emission((to("double", key_function=function, batch_records=batch_records),)), table_of(records))
    found = records_for(0, steps)
    assert found == [(key * 2, {"key": key, "value": value}) for key, value in records]
    assert all(block.columns.schema == SCHEMA for step in steps for _, block in step.blocks)


def test_a_function_of_the_key_hands_over_what_it_has_when_its_time_is_up() -> None:
    clock = itertools.count()
    function = as_row_operator(RowKind.KEY, lambda record: record["key"])
    emission = Emission((to(key_function=function, batch_records=100, step_seconds=3.0),))
    steps = steps_of(emission, table_of([("a", 1)] * 20), lambda: float(next(clock)))
    assert len(steps) > 2 and sum(step.read for step in steps) == 20


def test_a_key_of_no_columns_is_one_null_for_all_rows() -> None:
    [step] = steps_of(Emission((to(()),)), table_of([("a", 1), ("b", 2)]))
    [(_, block)] = step.blocks
    assert (block.keys.to_pylist(), block.codes.tolist()) == ([None], [0, 0])
    assert block.columns.schema == SCHEMA


def test_keys_of_an_unsupported_type_name_the_function() -> None:
    function = as_row_operator(RowKind.KEY, lambda record: 0.5)
    with pytest.raises(KeyTypeError, match=r"<lambda>\.key_by yields keys that do not do"):
        steps_of(Emission((to(key_function=function),)), table_of([("a", 1)]))


# --- what user code gets wrong


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


@pytest.mark.parametrize(
    ("edge", "message"),
    [
        (to("tag"), "the rows that are keyed by 'tag' have no such column; they have key, amount"),
        (to(("key", "tag")), "the rows that are keyed by 'tag' have no such column; they have key, amount"),
        (to(values=("value",)), "the rows whose value is 'value' have no such column; they have key, amount"),
        (
            to(values=("value",), key_function=as_row_operator(RowKind.KEY, lambda record: 1)),
            "the rows whose value is 'value' have no such column; they have key, amount",
        ),
    ],
    ids=["key", "composite key", "value", "value beside a function of the key"],
)
def test_rows_without_a_column_that_their_edge_takes_are_an_error(edge: Any, message: str) -> None:
    renamed = as_row_operator(RowKind.MAP, lambda record: {"key": record["key"], "amount": record["value"]})
    with pytest.raises(ExecutorError) as caught:
        steps_of(Emission((edge,), (renamed,)), table_of([("a", 1)]))
    assert str(caught.value) == message


def test_a_record_with_text_that_is_not_utf8_is_a_bad_one() -> None:
    column = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(ExecutorError, match="column 'key': Python has no value for the string"):
        steps_of(Emission((to(),), (OPERATORS[2],)), pa.table({"key": column, "value": [1]}))


@pytest.mark.parametrize("given_function", [3, dict, odd], ids=["no function", "a class", "another mark"])
def test_what_is_no_function_of_a_record_is_refused(given_function: Any) -> None:
    with pytest.raises(ConfigError, match="map"):
        as_row_operator(RowKind.MAP, given_function)


# --- which piece of user code runs

seen: list[str | None] = []


def look(record: dict[str, Any]) -> dict[str, Any]:
    seen.append(running(sys._getframe()))
    return record


def look_late(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    seen.append(running(sys._getframe()))
    yield record


@pytest.mark.parametrize(
    ("kind", "function", "where"),
    [
        (RowKind.MAP, look, "test_emission.look.map, on record {'key': 'a', 'value': 1}"),
        (RowKind.FILTER, look, "test_emission.look.filter, on record {'key': 'a', 'value': 1}"),
        (RowKind.FLAT_MAP, look_late, "test_emission.look_late.flat_map, on record {'key': 'a', 'value': 1}"),
    ],
)
def test_the_operator_that_runs_is_named_with_its_row(kind: RowKind, function: Any, where: str) -> None:
    seen.clear()
    steps_of(Emission((to(reducer=Count()),), (OPERATORS[2], as_row_operator(kind, function))), table_of([("a", 1)]))
    assert seen == [where]
