"""The helpers for users' tests: a local run equals a naive one, and a reducer that breaks a law is caught."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import Total, naive, pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.aggregates import Count, Distinct, Mean, Sum, TopK
from dpa.errors import ExecutorError, KeyTypeError
from dpa.executors import AnyReducer, BatchReducer, Groups, Reducer, batch_mapper
from dpa.testing import LawError, check_reducer_laws, run_local

records = st.lists(st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.integers(-99, 99)}), max_size=40)
ways = st.fixed_dictionaries(
    {"reducers": st.integers(1, 5), "combine": st.booleans(), "batch_records": st.integers(1, 9)}
)


def add(left: int, right: int) -> int:
    return left + right


@batch_mapper
def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = pa.array([2 * value for value in batch.column("value").to_pylist()], pa.int64())
    return pa.record_batch({"key": batch.column("key").cast(pa.string()), "value": values})


class Order(Reducer[list[int], int]):
    """All values in the order in which they came: cannot merge, so every key must stay where it is."""

    def zero(self) -> list[int]:
        return []

    def reduce(self, state: list[int], value: int) -> list[int]:
        return [*state, value]


class Lists(Reducer[list[int], list[int]]):
    """The sum of values that are lists of two numbers each."""

    def zero(self) -> list[int]:
        return [0, 0]

    def reduce(self, state: list[int], value: list[int]) -> list[int]:
        return [state[0] + value[0], state[1] + value[1]]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return self.reduce(left, right)


# --- local runs


@pytest.mark.parametrize(
    ("mapper", "reducer", "of_values"),
    [
        (pairs, add, sum),
        (pairs, Total(), sum),
        (None, Sum(), sum),
        (doubled, Sum(), lambda values: 2 * sum(values)),
        (doubled, add, lambda values: 2 * sum(values)),
        (pairs, Order(), list),
    ],
    ids=["function", "reducer", "no mapper", "batches", "batches to function", "no merge"],
)
@settings(max_examples=20)
@given(data=records, how=ways)
def test_a_local_run_gives_what_plain_python_gives(mapper, reducer, of_values, data, how: dict[str, Any]) -> None:
    how["combine"] &= not isinstance(reducer, Order)
    table = pa.Table.from_pylist(data, pa.schema({"key": pa.string(), "value": pa.int64()}))
    found = run_local(mapper, reducer, table, **how)
    keys = found["key"].to_pylist()
    assert keys == sorted(keys)
    values = found["value"].to_pylist() if keys else []
    assert dict(zip(keys, values, strict=True)) == naive(((row["key"], row["value"]) for row in data), of_values)


@pytest.mark.parametrize("keys", [["b", "a", "b"], [5, -1, 5], [b"\xff", b"", b"\xff"], [None, "a", None], [None] * 3])
def test_keys_of_every_kind_come_through(keys: list[Any]) -> None:
    found = run_local(None, Count(), pa.table({"key": keys})).to_pylist()
    assert {row["key"]: row["count"] for row in found} == naive(((key, 1) for key in keys), len)


def test_key_and_value_may_have_other_names() -> None:
    table = pa.table({"n": [1, 2], "word": ["a", "a"], "other": [7, 7]})
    assert run_local(None, Sum("n"), table, key="word", value=["n"]).to_pylist() == [{"word": "a", "n": 3}]


def test_records_may_be_dicts_or_scalars() -> None:
    assert run_local(lambda record: [(record["value"], 1)], add, ["x", "y", "x"]).to_pylist() == [
        {"key": "x", "value": 2},
        {"key": "y", "value": 1},
    ]


def test_an_exception_in_a_reducer_names_it_and_the_key_and_where_it_was_raised() -> None:
    class Unlucky(Total):
        def reduce(self, state: int, value: int) -> int:
            if value == 13:
                raise LookupError("no luck")
            return state + value

    with pytest.raises(ExecutorError, match=r"Unlucky\.reduce failed on key 'b'") as error:
        run_local(pairs, Unlucky(), [{"key": "a", "value": 1}, {"key": "b", "value": 13}])
    assert "LookupError: no luck" in str(error.value)
    assert 'raise LookupError("no luck")' in str(error.value)


@pytest.mark.parametrize(
    ("base", "method"), [(Total, "zero"), (Total, "merge"), (Total, "finish"), (Count, "merge"), (Count, "finish")]
)
def test_an_exception_in_any_other_method_names_it_too(base: type[AnyReducer], method: str) -> None:
    def fail(*arguments: Any) -> Any:
        raise LookupError("no luck")

    broken = type("Broken", (base,), {method: fail})
    with pytest.raises(ExecutorError, match=rf"Broken\.{method} failed on (key '|\d keys)"):
        run_local(pairs, broken(), [{"key": str(number % 9), "value": number} for number in range(40)], batch_records=2)


@pytest.mark.parametrize("reducer", [add, Count()], ids=["records", "batches"])
@pytest.mark.parametrize("other", [int, lambda number: str(number).encode()], ids=["integers", "bytes"])
@pytest.mark.parametrize("reducers", [1, 5])
def test_a_job_whose_batches_have_keys_of_two_types_is_refused(reducer: Any, other: Any, reducers: int) -> None:
    for number in range(8):  # some of which share a reducer with the first key, while others do not
        keys = ["a", other(number)]
        with pytest.raises(KeyTypeError, match="a key is a string"):
            run_local(
                lambda record, keys=keys: [(keys[record["value"]], 1)],
                reducer,
                [0, 1],
                batch_records=1,
                reducers=reducers,
            )


# --- the laws


@pytest.mark.parametrize(
    ("reducer", "values"),
    [
        (add, [1, 5, -3, 0]),
        (Total(), [1, 5, -3, 0]),
        (max, ["a", "", "xyz"]),
        (Lists(), [[1, 2], [3, 4], [0, -1]]),
        (TopK(2), [3, 1, 3, 2]),
        (Distinct(), ["a", "b", "a"]),
        (Sum(), [{"value": 1}, {"value": 2.5}, {"value": None}]),
        (Mean(), [{"value": 1.0}, {"value": 4.0}]),
    ],
    ids=["sum", "reducer", "max", "values that are lists", "top", "distinct", "column", "mean"],
)
def test_a_lawful_reducer_passes(reducer: Any, values: list[Any]) -> None:
    check_reducer_laws(reducer, values)


class Last(Total):
    """Keeps the value that came last: depends on the order."""

    def reduce(self, state: int, value: int) -> int:
        return value

    def merge(self, left: int, right: int) -> int:
        return right


class FromOne(Total):
    """Starts at one: the state of no values is no identity."""

    def zero(self) -> int:
        return 1


class Halves(Total):
    """Merges as an average of both: not associative."""

    def merge(self, left: float, right: float) -> float:
        return (left + right) / 2


Nested = tuple[int, tuple[int, ...]]


class ForgetsNested(Reducer[Nested, int]):
    """Keeps what was merged in beside its own total, but not what that had been merged with: not associative."""

    def zero(self) -> Nested:
        return 0, ()

    def reduce(self, state: Nested, value: int) -> Nested:
        return state[0] + value, state[1]

    def merge(self, left: Nested, right: Nested) -> Nested:
        return left[0], (*left[1], right[0])

    def finish(self, state: Nested) -> int:
        return state[0] + sum(state[1])


class MeanOfMeans(BatchReducer):
    """Forgets how many values a mean was made of."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"value": groups.aggregate("value", "mean")})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return self.reduce(groups)


class MergesOnce(BatchReducer):
    """A mean whose merged states count the states instead of the values: right once, then wrong."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"mean": groups.aggregate("value", "mean"), "n": groups.sizes()})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        means, n = (groups.values.column(name).to_numpy() for name in ("mean", "n"))
        total, count = np.bincount(groups.ids, means * n), np.bincount(groups.ids, n)
        return pa.record_batch({"mean": total / count, "n": groups.sizes()})

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        return states.select(["mean"])


NUMBERS = [3, 5, 8, 1, 9, 2]
COLUMNS = [{"value": float(number)} for number in NUMBERS]


@pytest.mark.parametrize(
    ("reducer", "values"),
    [
        (lambda left, right: left - right, NUMBERS),
        (lambda left, right: right, NUMBERS),
        (Last(), NUMBERS),
        (FromOne(), NUMBERS),
        (Halves(), NUMBERS),
        (ForgetsNested(), NUMBERS),
        (MeanOfMeans(), COLUMNS),
        (MergesOnce(), COLUMNS),
    ],
    ids=[
        "subtraction",
        "last value",
        "last state",
        "no identity",
        "averages",
        "forgets nested",
        "mean of means",
        "merges only once",
    ],
)
def test_an_unlawful_reducer_is_caught_with_a_counter_example(reducer: Any, values: list[Any]) -> None:
    with pytest.raises(LawError, match=r"(must|identity).*; for \[.*\] in parts \["):
        check_reducer_laws(reducer, values)


def test_a_reducer_without_merge_has_no_laws_to_keep() -> None:
    with pytest.raises(LawError, match=r"test_testing\.Order has no merge"):
        check_reducer_laws(Order(), NUMBERS)
