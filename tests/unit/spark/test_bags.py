"""Tables whose rows have no key are compared as bags."""

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpa.spark.comparison import Comparison, compare

NAN, INFINITY = float("nan"), float("inf")

NESTED = pa.list_(pa.struct([("n", pa.int64()), ("f", pa.float64())]))
SCHEMA = pa.schema({"s": pa.string(), "n": pa.int64(), "f": pa.float64(), "l": NESTED})

floats = st.none() | st.sampled_from([0.0, -0.0, 1.5, NAN, INFINITY])
structs = st.none() | st.fixed_dictionaries({"n": st.none() | st.integers(0, 1), "f": floats})
rows = st.fixed_dictionaries(
    {
        "s": st.none() | st.sampled_from("ab"),
        "n": st.none() | st.integers(0, 2),
        "f": floats,
        "l": st.none() | st.lists(structs, max_size=2),
    }
)
tables = st.lists(rows, min_size=1, max_size=12)
columns = st.sampled_from([["s", "n", "f", "l"], ["s"], ["f"], ["l"], ["f", "l"], ["n", "l"]])


def table(content: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(content, schema=SCHEMA)


def bag(content: list[dict[str, Any]], names: list[str]) -> Counter[str]:
    """Rows as text, in which NaN equals NaN and zero has no sign."""
    ordered = table(content).select(names).to_pylist()  # and the fields of structs in one order
    return Counter(repr(row).replace("-0.0", "0.0") for row in ordered)


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# --- laws


@given(tables, columns, st.data())
def test_rows_match_in_any_order(content: list[dict[str, Any]], names: list[str], data: st.DataObject) -> None:
    turned = data.draw(st.permutations(content))
    for tolerance in (0.0, 1e-9, 0.5):
        compared = compare(table(content).select(names), table(turned).select(names[::-1]), (), tolerance)
        assert compared == Comparison(True, len(content))


@given(tables, tables, columns)
def test_tables_match_exactly_if_each_row_is_in_both_as_often(
    first: list[dict[str, Any]], second: list[dict[str, Any]], names: list[str]
) -> None:
    same = bag(first, names) == bag(second, names)
    assert compare(table(first).select(names), table(second).select(names), ()).matches == same


@given(tables, columns, st.data())
def test_a_row_too_few_or_many_is_named(content: list[dict[str, Any]], names: list[str], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(content) - 1))
    shuffled = data.draw(st.permutations([row for other, row in enumerate(content) if other != number]))
    fewer, all_rows = table(shuffled).select(names), table(content).select(names)
    left = bag(shuffled, names)[next(iter(bag([content[number]], names)))]
    (sentence,) = compare(fewer, all_rows, ()).differences
    missing = f"occurs {times(left)} in the result and {left + 1} times in the reference"
    assert sentence.endswith(missing if left else "is missing in the result")
    (sentence,) = compare(all_rows, fewer, ()).differences
    repeated = f"occurs {left + 1} times in the result and {times(left)} in the reference"
    assert sentence.endswith(repeated if left else "is missing in the reference")


@given(tables, st.data())
def test_a_value_that_is_changed_is_named_with_its_row(content: list[dict[str, Any]], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(content) - 1))
    changed = data.draw(st.permutations([{**row, "f": 7.0} if row is content[number] else row for row in content]))
    assume(sum(row["f"] == 7.0 for row in changed) == 1)
    (sentence,) = compare(table(content), table(changed), ()).differences
    s, n, f = (content[number][name] for name in ("s", "n", "f"))
    row = f"row (s {'null' if s is None else repr(s)}, n {'null' if n is None else n})"
    value = "null" if f is None else f
    assert sentence.replace("-0.0", "0.0") == f"{row}: f is {value}, but 7.0 in the reference".replace("-0.0", "0.0")


numbers = st.floats(1e-300, 1e300) | st.floats(-1e300, -1e-300) | st.just(NAN)


@given(st.lists(st.tuples(st.sampled_from("ab"), numbers, numbers), min_size=1, max_size=20), st.data())
def test_numbers_may_differ_in_their_last_digits(content: list[tuple[str, float, float]], data: st.DataObject) -> None:
    def shaken(value: float) -> float:
        return float(np.nextafter(value, data.draw(st.sampled_from([-INFINITY, value, INFINITY]))))

    others = data.draw(st.permutations([(s, shaken(x), shaken(y)) for s, x, y in content]))
    schema = {"s": pa.string(), "x": pa.float64(), "y": pa.float64()}
    one, other = (
        pa.table({name: pa.array([row[i] for row in side], kind) for i, (name, kind) in enumerate(schema.items())})
        for side in (content, others)
    )
    assert compare(one, other, (), 1e-9) == Comparison(True, len(content))


@pytest.mark.parametrize("keys", [{}, {"s": ["a", "a", "b"]}], ids=str)
def test_numbers_of_one_column_match_if_any_pairs_of_them_do(keys: dict[str, list[str]]) -> None:
    one, other = ([1.02, 1.06, 7.0], [1.02, 0.97, 7.0])
    assert compare(pa.table({**keys, "f": one}), pa.table({**keys, "f": other}), (), 0.05) == Comparison(True, 3)
    (*_, last) = compare(pa.table({**keys, "f": one}), pa.table({**keys, "f": [*other[:2], 9.0]}), (), 0.05).differences
    assert "9.0" in last


# --- what is large


def many(rows: int, shaken: bool) -> tuple[pa.Table, pa.Table]:
    """A table of prices in cents, many of them equal, and its rows in another order with other last digits."""
    random = np.random.default_rng(5)
    prices = {name: random.integers(0, 40, rows) / 100 + 1 for name in "xy"}
    order = random.permutation(rows)
    noise = {name: 1 + 1e-14 * random.standard_normal(rows) * shaken for name in "xy"}
    return pa.table(prices), pa.table({name: (prices[name] * noise[name])[order] for name in "xy"})


@pytest.mark.parametrize("tolerance", [0.0, 1e-9])
def test_many_rows_match_and_one_of_them_that_is_missing_is_named(tolerance: float) -> None:
    one, other = many(20_000, shaken=tolerance > 0)
    assert compare(one, other, (), tolerance) == Comparison(True, 20_000)
    own = pa.table({"x": [1.005], "y": [1.5]})
    (sentence,) = compare(one, pa.concat_tables([other, own]), (), tolerance).differences
    assert sentence == "row (x 1.005, y 1.5) is missing in the result"


# --- the tolerance


def test_rows_match_within_the_tolerance_of_floats_integers_and_decimals() -> None:
    assert compare(pa.table({"x": [1.0, 0.95]}), pa.table({"x": [1.05, 1.0]}), (), 0.1).matches
    one = pa.table({"s": ["a", "b", "a"], "x": [123456789.05, 5.0, 100.0], "y": [1.0, 2.0, 3.0]})
    other = pa.table({"s": ["a", "a", "b"], "x": [100.0, 123456789.05000002, 5.0], "y": [3.0, 1.0, 2.0]})
    assert compare(one, other, (), 1e-9).matches, "numbers on both sides of where they are rounded"
    one = pa.table({"s": ["a", "b"], "n": [99, 200], "d": [Decimal("1.00"), Decimal("3.00")]})
    other = pa.table({"s": ["b", "a"], "n": [200, 100], "d": [Decimal("3.01"), Decimal("1.00")]})
    assert compare(one, other, (), 0.02).matches
    assert not compare(one, other, (), 0.001).matches


def test_rows_whose_order_misleads_within_a_coarse_tolerance_do_not_match() -> None:
    one, other = pa.table({"x": [1.0, 1.06], "y": [5, 7.0]}), pa.table({"x": [1.06, 1.0], "y": [5, 7.0]})
    assert not compare(one, other, (), 0.1).matches
    assert compare(one, other, "y", 0.1).matches


# --- sentences

TRADES = pa.table({"symbol": ["a", "b", "a"], "size": [3, 4, 3], "saving": [1.5, 2.5, 3.5]})


def test_rows_that_differ_are_named_by_their_exact_columns_the_first_of_them() -> None:
    other = TRADES.set_column(2, "saving", [[1.5, 2.5, 9.0]])
    saving = "row (symbol 'a', size 3): saving is 3.5, but 9.0 in the reference"
    assert compare(TRADES, other, ()) == Comparison(False, 3, (saving,))
    assert compare(TRADES, TRADES.set_column(1, "size", [[3, 5, 3]]), ()).differences == (
        "row (symbol 'b', size 4, saving 2.5) is missing in the reference",
        "row (symbol 'b', size 5, saving 2.5) is missing in the result",
    )
    one, other = (pa.table({"x": [1.0, x], "y": [2.0, 3.0]}) for x in (5.0, 6.0))
    assert compare(one, other, ()).differences == (
        "row (x 5.0, y 3.0) is missing in the reference",
        "row (x 6.0, y 3.0) is missing in the result",
    )
    (taken,) = compare(pa.table({"x": [1.0, 1.16]}), pa.table({"x": [1.08]}), (), 0.1).differences
    assert taken == "row (x 1.16) is missing in the reference"
    none = pa.table({"n": pa.array([], pa.int64())})
    sentences = tuple(f"row (n {n}) is missing in the result" for n in range(5))
    for rows, more in ((6, "1 more row differs"), (7, "2 more rows differ")):
        assert compare(none, pa.table({"n": range(rows)}), ()) == Comparison(False, rows, (*sentences, more))


def test_tables_without_rows_or_columns_match_and_columns_that_only_one_has_are_named() -> None:
    assert compare(pa.table({}), pa.table({}), ()) == Comparison(True, 0)
    assert compare(TRADES.slice(0, 0), TRADES.slice(0, 0), ()) == Comparison(True, 0)
    (sentence,) = compare(TRADES.select(["symbol", "size"]), TRADES, ()).differences
    assert sentence == "the result has no column 'saving' (it has symbol, size)"


def test_a_row_of_many_columns_is_cut() -> None:
    wide = {f"column {number}": ["a" * 1000] for number in range(100)}
    (sentence,) = compare(pa.table(wide), pa.table(wide).slice(0, 0), ()).differences
    assert sentence.startswith("row (column 0 'aaa") and len(sentence) < 500


RANKING = [{"rank": rank, "word": "w" * 50, "counts": [rank, None]} for rank in range(10)]


def ranked(number: int, **changed: Any) -> pa.Table:
    return pa.table({"ranking": [[{**row, **changed} if n == number else row for n, row in enumerate(RANKING)]]})


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        (ranked(7, word="v"), f"ranking[7].word is '{'w' * 50}', but 'v' in the reference"),
        (ranked(9, counts=[8, None]), "ranking[9].counts[0] is 9, but 8 in the reference"),
        (ranked(9, counts=[9, 1]), "ranking[9].counts[1] is null, but 1 in the reference"),
        (ranked(9, counts=[9]), "ranking[9].counts is [9, None], but [9] in the reference"),
        (ranked(9, counts=None), "ranking[9].counts is [9, None], but null in the reference"),
    ],
)
def test_what_is_nested_is_named_where_it_first_differs(reference: pa.Table, sentence: str) -> None:
    one = ranked(10)
    assert compare(one, one, ()).matches
    assert compare(one, reference, ()).differences == (f"the row: {sentence}",)


# --- types

BERLIN = pa.timestamp("ms", "Europe/Berlin")
NOON = dt.datetime(2020, 1, 1, 12)


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (array([1, 2], pa.int8()), array([2, 1], pa.int64())),
        (array([1, 2], pa.int8()), array([2, 1], pa.uint64())),
        (array([1, 2], pa.int8()), array([2, 1], pa.float64())),
        (array([1, 2**63], pa.uint64()), array([2**63, 1], pa.uint64())),
        (array([1, 2**64 - 1], pa.uint64()), pa.array([Decimal(2**64 - 1), Decimal(1)])),
        (array([1, 2], pa.decimal128(9, 2)), array([2, 1], pa.int64())),
        (pa.array([Decimal("1.10"), Decimal("2.00")]), pa.array([Decimal("2"), Decimal("1.1000")])),
        (pa.array([Decimal("1.5"), None]), pa.array([None, 1.5])),
        (pa.array([Decimal(10) ** 37, None]), pa.array([None, Decimal(10) ** 37 + Decimal("0.0")])),
        (pa.array([1.5, NAN]), pa.array([NAN, 1.5])),
        (pa.array([INFINITY, -0.0]), pa.array([0.0, INFINITY])),
        (pa.array(["a", "b"]), array(["b", "a"], pa.large_string())),
        (pa.array(["a", "b"]), pa.array(["b", "a"]).dictionary_encode()),
        (array([b"a", None], pa.binary()), array([None, b"a"], pa.large_binary())),
        (array([True, None], pa.bool_()), array([None, True], pa.bool_())),
        (array([NOON, None], pa.timestamp("ns", "UTC")), array([None, NOON], pa.timestamp("s"))),
        (pa.array([NOON, None]), array([None, NOON], pa.timestamp("ns", "UTC"))),
        (array([[1], [2]], pa.list_(pa.int8())), array([[2], [1]], pa.list_(pa.float64()))),
        (array([[1], [2]], pa.list_(pa.int8(), 1)), array([[2], [1]], pa.large_list(pa.uint64()))),
        (array([[[1]], [[2]]], pa.list_(pa.list_(pa.int8(), 1))), array([[[2]], [[1]]], pa.list_(pa.list_(pa.int8())))),
        (pa.array([[[1], None], []]), pa.array([[], [[1], None]])),
        (array([["a"], None], pa.list_(pa.string())), array([None, ["a"]], pa.list_(pa.dictionary(pa.int8(), "str")))),
        (array([[], None], pa.list_(pa.null())), array([None, []], pa.list_(NESTED))),
        (array([[None], []], pa.list_(pa.null())), array([[], [None]], pa.list_(pa.int8()))),
        (array([[], None], pa.list_(pa.string())), array([None, []], pa.list_(pa.int8()))),
        (array([[NOON], []], pa.list_(BERLIN)), array([[], [NOON]], pa.list_(pa.timestamp("us", "UTC")))),
        (array([{"a": 1, "b": "x"}, None], None), pa.array([None, {"b": "x", "a": 1.0}])),
        (array([{"a": None}, None], None), array([None, {"a": None}], pa.struct([("a", pa.string())]))),
        (array([[("k", 1)], None], pa.map_("str", "i4")), array([None, [("k", 1)]], pa.map_("str", "i4"))),
        (array([None, None], pa.null()), array([None, None], pa.int64())),
    ],
    ids=lambda value: str(value.type),
)
def test_equal_rows_match_whatever_their_physical_type_with_a_key_or_without(one: pa.Array, other: pa.Array) -> None:
    assert compare(pa.table({"v": one}), pa.table({"v": other}), ()) == Comparison(True, 2)
    assert compare(pa.table({"v": other}), pa.table({"v": one}), ()).matches
    first, second = pa.table({"v": one, "w": [1, 2]}), pa.table({"v": other, "w": [2, 1]})
    assert compare(first, second, (), 1e-6).matches
    assert compare(first, second, "w") == compare(second, first, "w") == Comparison(True, 2)


@pytest.mark.parametrize(("one", "other"), [("a", 1), (["a"], [1]), ({"f": "a"}, {"f": 1}), ([{"f": "a"}], [{"f": 1}])])
def test_columns_of_different_kinds_are_a_difference(one: Any, other: Any) -> None:
    for left, right, words in ((one, other, ("string", "int64")), (other, one, ("int64", "string"))):
        (sentence,) = compare(pa.table({"v": [left]}), pa.table({"v": [right]}), ()).differences
        assert sentence.startswith("column 'v")
        assert sentence.endswith(f"is {words[0]} in the result and {words[1]} in the reference")
