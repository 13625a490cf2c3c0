"""Executors: what a job may name becomes a mapper or a reducer, and grouped columns aggregate as plain Python does."""

import functools
import operator
import pickle
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import Total, naive, pairs
from hypothesis import given
from hypothesis import strategies as st

from dpa._given import as_mapper, as_reducer
from dpa.aggregates import Count, Sum
from dpa.errors import ConfigError
from dpa.execution.receivers import receiver_of
from dpa.executors import (
    BatchMapper,
    FunctionBatchMapper,
    FunctionMapper,
    FunctionReducer,
    Groups,
    Mapper,
    Reducer,
    batch_mapper,
    name_of,
)


class Words(Mapper):
    def map(self, record: dict[str, Any]) -> Iterable[tuple[str, int]]:
        return [(word, 1) for word in record["line"].split()]


class Same(BatchMapper):
    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


class Cut(Words):
    def __init__(self, length: int) -> None:
        self.length = length


class Last(Reducer[Any, Any]):
    def zero(self) -> Any:
        return None

    def reduce(self, state: Any, value: Any) -> Any:
        return value


@batch_mapper
def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def add(left: int, right: int) -> int:
    return left + right


# --- what may be given


MADE: list[tuple[Any, Any, type]] = [
    *((as_mapper, given, made) for given, made in ((Words(), Words), (Words, Words), (Same, Same))),
    *((as_mapper, given, made) for given, made in ((pairs, FunctionMapper), (same, FunctionBatchMapper))),
    *((as_reducer, given, made) for given, made in ((Total(), Total), (Total, Total), (Count, Count))),
    (as_reducer, add, FunctionReducer),
]


def test_an_instance_a_class_or_a_function_is_a_mapper_or_a_reducer() -> None:
    assert [type(make(given)) for make, given, _ in MADE] == [made for _, _, made in MADE]


REFUSED: list[tuple[Any, str, list[Any]]] = [
    (as_mapper, r"is no mapper: give a dpa\.Mapper", [5, "count", None, dict, Total]),
    (as_reducer, r"is no reducer: give a dpa\.Reducer", [5, "count", None, dict, Words]),
    (as_mapper, "Cut", [Cut]),  # which cannot be made without arguments
    (as_mapper, "Mapper", [Mapper]),
    (as_reducer, "Reducer", [Reducer]),
]


@pytest.mark.parametrize(
    ("make", "message", "wrong"), [(make, message, each) for make, message, wrong in REFUSED for each in wrong]
)
def test_what_is_no_mapper_or_reducer_is_refused_with_what_would_be(make: Any, message: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        make(wrong)


def test_only_a_reducer_that_overrides_merge_or_works_on_batches_can_merge() -> None:
    reducers = [Total(), Count(), as_reducer(add), Last()]
    assert [receiver_of(reducer).can_merge for reducer in reducers] == [True, True, True, False]
    with pytest.raises(NotImplementedError, match="Last has no merge"):
        Last().merge(1, 2)


def one(record: Any) -> Any:
    return record


def two(left: Any, right: Any) -> Any:
    return left


def any_number(*values: Any) -> Any:
    return values


def with_a_default(left: Any, right: Any, scale: float = 1.0) -> Any:
    return left


def with_a_needed_keyword(left: Any, right: Any, *, scale: float) -> Any:
    return left


class OfOne(Total):
    def reduce(self, state: int) -> int:  # type: ignore[override]
        return state


class NoZero(Total):
    def zero(self, key: str) -> int:  # type: ignore[override]
        return 0


class MapsNothing(Mapper):
    def map(self) -> Any:  # type: ignore[override]
        return []


def test_what_takes_a_record_is_a_mapper_and_what_takes_two_values_a_reducer_however_it_is_written() -> None:
    for of_one in (one, any_number, functools.partial(two, 1), str.split, print):
        as_mapper(of_one)
    for of_two in (two, any_number, with_a_default, functools.partial(two), max, operator.add, np.maximum, np.add):
        as_reducer(of_two)


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (as_mapper, two, "test_executors.two is called with (record), and its parameters are (left: Any, right: Any)"),
        (as_mapper, MapsNothing, "test_executors.MapsNothing.map is called with (record), and its parameters are ()"),
        (as_mapper, batch_mapper(functools.partial(two)), "is called with (batch), and its parameters are (left"),
        (as_reducer, one, "test_executors.one is called with (left, right), and its parameters are (record: Any)"),
        (as_reducer, with_a_needed_keyword, "is called with (left, right), and its parameters are (left: Any, right"),
        (as_reducer, sum, "builtins.sum reduces a whole list, and a reducer is called with two values at a time: give"),
        (as_reducer, np.max, "numpy.max reduces a whole list, and a reducer is called with two values at a time: give"),
        (as_reducer, functools.partial(two, 1), "is called with (left, right), and its parameters are (right: Any)"),
        (as_reducer, OfOne, "test_executors.OfOne.reduce is called with (state, value), and its parameters are (state"),
        (as_reducer, NoZero(), "test_executors.NoZero.zero is called with (), and its parameters are (key: str)"),
    ],
    ids=lambda given: getattr(given, "__name__", None),
)
def test_what_cannot_be_called_as_it_will_be_is_refused(make: Any, wrong: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make(wrong)
    assert message in str(error.value)


class OddlyNamed(Words):
    """Has an attribute of the name that wrapped functions have."""

    def __init__(self) -> None:
        self.function = "upper"


NAMES = {
    "test_executors.Words": Words(),
    "test_executors.Cut": Cut(3),
    "builders.pairs": as_mapper(pairs),
    "test_executors.add": as_reducer(add),
    "builders.Total": Total(),
    "dpa.aggregates.Sum": Sum("x"),
    "test_executors.OddlyNamed": OddlyNamed(),
}


@pytest.mark.parametrize(("name", "executor"), NAMES.items(), ids=NAMES)
def test_messages_name_the_class_or_the_function_also_when_it_was_sent_to_a_task(name: str, executor: Any) -> None:
    arrived = pickle.loads(pickle.dumps(executor))
    assert type(arrived) is type(executor) and name_of(executor) == name_of(arrived) == name


# --- functions as reducers


@given(st.lists(st.integers()), st.lists(st.integers()))
def test_a_function_reduces_from_the_first_value_on(some: list[int], more: list[int]) -> None:
    reducer = FunctionReducer(max)
    states = []
    for values in (some, more):
        state = reducer.zero()
        for value in values:
            state = reducer.reduce(state, value)
        states.append(state)
    zero, merged = reducer.zero(), reducer.merge(*states)
    assert pickle.loads(pickle.dumps(zero)) is zero, "a state without values stays itself when it is sent"
    assert merged == max(some + more) if some + more else merged is reducer.zero()


# --- grouped columns


@st.composite
def grouped(draw: st.DrawFn) -> tuple[Groups, list[tuple[int, int | None]]]:
    """Groups, each with a row, and their rows as (group, value)."""
    values = draw(st.lists(st.one_of(st.none(), st.integers(-(2**58), 2**58)), min_size=1, max_size=20))
    ids = draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    used, codes = np.unique(ids, return_inverse=True)
    batch = pa.record_batch({"v": pa.array(values, pa.int64())})
    rows = list(zip(codes.tolist(), values, strict=True))
    return Groups(pa.array(used), codes.astype(np.int32), batch), rows


@given(grouped(), st.sampled_from(["sum", "min", "max"]))
def test_groups_aggregate_as_plain_python_does(
    case: tuple[Groups, list[tuple[int, int | None]]], function: str
) -> None:
    groups, rows = case
    plain = {"sum": sum, "min": min, "max": max}[function]
    expected = naive(rows, lambda values: plain(v) if (v := [value for value in values if value is not None]) else None)
    assert getattr(groups, function)("v").to_pylist() == [expected[code] for code in range(len(groups))]
    groups.sizes()[:] = 0  # what a reducer does with its sizes is its own affair
    assert groups.sizes().tolist() == [sum(code == row for row, _ in rows) for code in range(len(groups))]
    encoded = pa.record_batch({"v": groups.values.column("v").dictionary_encode()})
    assert getattr(replace(groups, values=encoded), function)("v").equals(getattr(groups, function)("v"))


def test_any_aggregation_of_arrow_is_at_hand() -> None:
    groups = Groups(pa.array(["a", "b"]), np.array([1, 0, 0], np.int32), pa.record_batch({"v": [5, 1, 3]}))
    for function, expected in {"mean": [2.0, 5.0], "count": [2, 1], "count_distinct": [2, 1]}.items():
        assert groups.aggregate("v", function).to_pylist() == expected


@pytest.mark.parametrize("total", [2**53 - 1, 2**53 + 1, 2**62 + 1, -(2**63)])
def test_sums_of_integers_are_exact_beyond_what_floats_hold(total: int) -> None:
    groups = Groups(pa.array(["a"]), np.zeros(2, np.int32), pa.record_batch({"v": pa.array([total, 0], pa.int64())}))
    assert groups.sum("v").to_pylist() == [total]
