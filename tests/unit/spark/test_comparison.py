import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.spark.comparison import Comparison, compare

NAN, INFINITY = float("nan"), float("inf")


def compared(values: Any, others: Any, tolerance: float = 0.0) -> Comparison:
    """Compare two tables with the keys 0, 1, ... and these values."""
    tables = [pa.table({"k": pa.array(range(len(column)), pa.int64()), "v": column}) for column in (values, others)]
    return compare(*tables, "k", tolerance)


@pytest.mark.parametrize(
    ("values", "others", "sentence"),
    [
        ([3], [4], "k 0: v is 3, but 4 in the reference"),
        ([None], [0], "k 0: v is null, but 0 in the reference"),
        ([NAN], [None], "k 0: v is nan, but null in the reference"),
        (["a"], ["b"], "k 0: v is 'a', but 'b' in the reference"),
        ([[1, 2]], [[1, 3]], "k 0: v is [1, 2], but [1, 3] in the reference"),
        ([[]], [None], "k 0: v is [], but null in the reference"),
        ([[1]], [[1, 1]], "k 0: v is [1], but [1, 1] in the reference"),
        ([{"a": 1}], [{"a": 2}], "k 0: v is {'a': 1}, but {'a': 2} in the reference"),
        ([dt.date(2020, 1, 1)], [dt.date(2020, 1, 2)], "k 0: v is 2020-01-01, but 2020-01-02 in the reference"),
        (["a"], [1], "column 'v' is string in the result and int64 in the reference"),
        ([[1]], [["a"]], "column 'v' is int64 in the result and string in the reference"),
        (pa.array([2**63 + 1], pa.uint64()), [Decimal(2**63)], f"k 0: v is {2**63 + 1}, but {2**63} in the reference"),
        ([True], [1], "column 'v' is boolean in the result and int64 in the reference"),
    ],
)
def test_a_difference_is_told_in_a_sentence(values: Any, others: Any, sentence: str) -> None:
    assert compared(values, others) == Comparison(False, 1, (sentence,))


def test_the_tolerance_is_relative_to_the_greater_number_of_two_finite_ones() -> None:
    assert compared([99.0, 100], [100.0, 99], tolerance=0.01).matches
    assert not compared([98.9], [100.0], tolerance=0.01).matches
    assert compared([-1e-300], [-1.001e-300], tolerance=0.01).matches
    assert compared([99], [100], tolerance=0.01).matches, "of integers too"
    assert compared([[99.0, None]], [[100.0, None]], tolerance=0.01).matches, "and inside of lists"
    for value, other in ((INFINITY, 5.0), (NAN, 5.0), (None, 5.0), (0.0, 1e-300)):
        assert not compared([value, 1.0], [other, 1.0], tolerance=0.5).matches


ORDERS = pa.table(
    {
        "country": ["DE", "DE", None, None],
        "day": [dt.date(2026, 1, 31), None, dt.date(2026, 1, 31), None],
        "n": [1, 2, 3, 4],
    }
)


def test_rows_match_in_any_order_and_columns_too_by_one_key_or_several_of_any_physical_type() -> None:
    result = pa.table({"k": ["a", None, "b"], "n": [1, 2, 3]})
    reference = pa.table({"n": [3, 1, 2], "k": pa.array(["b", "a", None], pa.large_string())})
    assert compare(result, reference, "k") == Comparison(True, 3)
    turned = ORDERS.take([2, 0, 3, 1]).select(["n", "day", "country"])
    assert compare(ORDERS, turned, ("country", "day")) == Comparison(True, 4)
    result = pa.table({"a": pa.array([2**63, None], pa.uint64()), "b": pa.array([1, 2], pa.int64()), "n": [1, 2]})
    reference = pa.table({"a": [Decimal(2**63), None], "b": pa.array([1, 2], pa.int32()), "n": [1, 2]})
    assert compare(result, reference, ("a", "b")).matches
    assert compare(reference, result, ("a", "b")).matches


def test_keys_that_differ_are_named_in_their_order_null_first_and_the_first_of_them() -> None:
    result = pa.table({"k": ["z", "b", "b", "a"], "n": [1, 2, 2, 9]})
    reference = pa.table({"k": ["a", "b", None, "c", "c"], "n": [1, 2, 3, 4, 4]})
    assert compare(result, reference, "k").differences == (
        "k null is missing in the result",
        "k 'a': n is 9, but 1 in the reference",
        "k 'b' occurs 2 times in the result",
        "k 'c' is missing in the result",
        "k 'c' occurs 2 times in the reference",
        "k 'z' is missing in the reference",
    )
    differences = compare(pa.table({"k": range(0)}), pa.table({"k": range(2000)}), "k").differences
    assert differences == (*(f"k {k} is missing in the result" for k in range(5)), "1,995 more keys differ")
    empty = pa.table({"k": pa.array([], pa.null()), "v": pa.array([], pa.string())})
    assert compare(empty, pa.table({"k": ["a"], "v": [1]}), "k").differences == ("k 'a' is missing in the result",)
    result, reference = (pa.table({"k": [b"x"], "a": [n], "b": [n]}) for n in (1, 2))
    assert compare(result, reference, "k").differences == (
        "k b'x': a is 1, but 2 in the reference",
        "k b'x': b is 1, but 2 in the reference",
    )


def test_a_difference_names_all_components_of_its_key() -> None:
    other = ORDERS.set_column(2, "n", [[1, 9, 3, 4]]).slice(0, 3)
    assert compare(ORDERS, other, ("country", "day")).differences == (
        "(country, day) (None, None) is missing in the reference",
        "(country, day) ('DE', None): n is 2, but 9 in the reference",
    )
    twice = pa.concat_tables([ORDERS, ORDERS.slice(0, 1)])
    (sentence,) = compare(twice, ORDERS, ("country", "day")).differences
    assert sentence == "(country, day) ('DE', 2026-01-31) occurs 2 times in the result"


def test_columns_that_are_missing_come_twice_or_are_keys_of_another_kind_are_named() -> None:
    one = pa.table({"k": [1]})
    comparison = compare(pa.table({"k": [1], "cnt": [1], "x": [1]}), pa.table({"k": [1], "count": [1]}), "k")
    assert comparison.differences == (
        "the result has no column 'count' (it has k, cnt, x)",
        "the reference has no columns 'cnt', 'x' (it has k, count)",
    )
    neither = ("neither the result nor the reference has the key column 'q'",)
    assert compare(one, one, "q").differences == compare(one, one, ("k", "q")).differences == neither
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["k", "k"])
    assert compare(twice, one, "k").differences == ("the result has more than one column 'k'",)
    [sentence] = compare(pa.table({"k": ["1"]}), one, "k").differences
    assert sentence == "column 'k' is string in the result and int64 in the reference"


def test_a_long_value_is_cut() -> None:
    [sentence] = compared(["a" * 1000], ["b" * 1000]).differences
    assert len(sentence) < 250


rows = st.dictionaries(
    st.none() | st.sampled_from("abcde"),
    st.tuples(st.none() | st.integers(0, 2), st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2)),
    max_size=5,
)


@settings(deadline=None)
@given(rows, rows)
def test_tables_match_exactly_if_their_rows_are_the_same(first: dict, second: dict) -> None:
    types = pa.schema({"k": pa.string(), "n": pa.int64(), "l": pa.list_(pa.int64())})
    tables = [
        pa.Table.from_pylist([{"k": key, "n": n, "l": items} for key, (n, items) in content.items()], schema=types)
        for content in (first, second)
    ]
    assert compare(*tables, "k").matches == (first == second)
