"""The ready-made reducers: what plain Python computes, for any values and divisions, and the laws of merging."""

import math
import pickle
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import naive
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.aggregates import READY_MADE, Distinct, Max, Mean, Min, Sum, TopK, TopRows
from dpa.errors import ConfigError, ExecutorError
from dpa.execution.receivers import receiver_of
from dpa.executors import AnyReducer, BatchReducer, Groups
from dpa.testing import check_reducer_laws, run_local


def some(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


NAIVE: dict[str, tuple[str, Callable[[list[Any]], Any]]] = {
    "count": ("count", len),
    "sum": ("value", lambda values: sum(some(values)) if some(values) else None),
    "min": ("value", lambda values: min(some(values), default=None)),
    "max": ("value", lambda values: max(some(values), default=None)),
    "mean": ("value", lambda values: sum(some(values)) / len(some(values)) if some(values) else None),
    "top_k": ("top", lambda values: sorted(some(values), reverse=True)[:10]),
    "distinct": ("distinct", lambda values: len(set(some(values)))),
}
"""The result column of each reducer, and what it holds."""

BIG = 2**57
VALUES = {
    "integers": (pa.int64(), st.integers(-9, 9)),
    "big integers": (pa.int64(), st.integers(2**53, BIG) | st.integers(-BIG, -(2**53))),
    "floats": (pa.float64(), st.floats(-1e6, 1e6)),
    "texts": (pa.string(), st.text(max_size=3)),
}
ORDERED = ("count", "min", "max", "top_k", "distinct")
CASES = [(name, kind) for name in NAIVE for kind in VALUES if kind != "texts" or name in ORDERED]

every_reducer = pytest.mark.parametrize("name", NAIVE)


def rows_of(kind: str) -> st.SearchStrategy[list[tuple[str, Any]]]:
    return st.lists(st.tuples(st.sampled_from("abcde"), st.none() | VALUES[kind][1]), max_size=30)


def run(reducer: AnyReducer, rows: list[tuple[Any, Any]], kind: pa.DataType, **how: Any) -> dict[Any, dict[str, Any]]:
    table = pa.table({"key": [key for key, _ in rows], "value": pa.array([value for _, value in rows], kind)})
    return {row.pop("key"): row for row in run_local(None, reducer, table, **how).to_pylist()}


def alike(found: Any, expected: Any, of_size: float = 1e6) -> bool:
    """Equal, or floats that are as close as those computed of numbers up to `of_size` can be."""
    both = isinstance(found, float) and isinstance(expected, float | int)
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12 * of_size) if both else found == expected


def test_every_ready_made_reducer_is_tested_here() -> None:
    assert READY_MADE.keys() == {*NAIVE, "top_rows"}
    assert all(receiver_of(made()).can_merge for made in READY_MADE.values())


@pytest.mark.parametrize(("name", "kind"), CASES)
@settings(max_examples=20)
@given(combine=st.booleans(), data=st.data())
def test_a_ready_made_reducer_gives_what_plain_python_gives(
    name: str, kind: str, combine: bool, data: st.DataObject
) -> None:
    rows = data.draw(rows_of(kind))
    column, of_values = NAIVE[name]
    found = run(READY_MADE[name](), rows, VALUES[kind][0], combine=combine, batch_records=data.draw(st.integers(1, 9)))
    expected = naive(rows, of_values)
    assert found.keys() == expected.keys()
    assert all(found[key].keys() == {column} for key in found)
    size = float(BIG) if kind == "big integers" else 1e6
    assert all(alike(found[key][column], value, size) for key, value in expected.items()), (found, expected)


@pytest.mark.parametrize(("name", "kind"), CASES)
@settings(max_examples=8)
@given(data=st.data())
def test_a_ready_made_reducer_keeps_the_laws_of_merging(name: str, kind: str, data: st.DataObject) -> None:
    reducer = READY_MADE[name]()
    values = data.draw(st.lists(VALUES[kind][1], min_size=1, max_size=12))
    if kind == "floats" or name == "mean":  # sums that cancel agree to fewer digits
        values = [abs(value) for value in values]
    examples = [{"value": value} for value in values] if isinstance(reducer, BatchReducer) else values
    check_reducer_laws(reducer, examples, trials=4)


DECIMALS = [(5, 2), (18, 0), (28, 10), (34, 30), (38, 0), (38, 2), (38, 18), (38, 36), (38, 38)]


def rounded_mean(values: list[Decimal], scale: int) -> Decimal:
    with localcontext(Context(prec=200, rounding=ROUND_HALF_UP)):
        return (sum(values) / Decimal(len(values))).quantize(Decimal(1).scaleb(-min(38, scale + 4)))


@pytest.mark.parametrize(("digits", "scale"), DECIMALS)
@settings(max_examples=15)
@given(data=st.data())
def test_sums_and_means_of_decimals_are_decimals_as_in_spark(digits: int, scale: int, data: st.DataObject) -> None:
    most = 10 ** min(digits, 33) - 1  # a mean of (38, 0) has room for 34 digits before the point
    numbers = st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-scale, Context(prec=40)))
    rows = data.draw(st.lists(st.tuples(st.sampled_from("ab"), st.none() | numbers), min_size=1, max_size=12))
    kind = pa.decimal128(digits, scale)
    table = pa.table({"key": [key for key, _ in rows], "value": pa.array([value for _, value in rows], kind)})
    with localcontext(Context(prec=200)):
        sums = naive(rows, lambda values: sum(some(values)) if some(values) else None)
    means = naive(rows, lambda values: rounded_mean(some(values), scale) if some(values) else None)
    for reducer, expected, more in ((Sum(), sums, (10, 0)), (Mean(), means, (4, 4))):
        found = run_local(None, reducer, table, batch_records=data.draw(st.integers(1, 5)))
        assert dict(zip(*found.to_pydict().values(), strict=True)) == expected
        assert found.schema.field("value").type == pa.decimal128(min(38, digits + more[0]), min(38, scale + more[1]))


NINES = Decimal("9" * 38)


def test_a_sum_of_decimals_may_be_too_great_on_the_way_but_not_in_the_end() -> None:
    kind = pa.decimal128(38, 0)
    rows = [("a", NINES), ("a", NINES), ("a", NINES.copy_negate())]
    assert run(Sum(), rows, kind, batch_records=1)["a"]["value"] == NINES
    with pytest.raises(ExecutorError, match=r"Sum\.finish .*a sum of 'value' does not fit in decimal128\(38, 0\)"):
        run(Sum(), rows[:2], kind)
    with pytest.raises(ExecutorError, match=r"Mean\.finish .*a mean of 'value' does not fit in decimal128\(38, 4\)"):
        run(Mean(), rows, kind)


def test_a_sum_of_decimals_in_groups_is_exact_or_an_error_and_not_another_number() -> None:
    groups = Groups(pa.array(["a"]), np.zeros(2, np.int32), pa.record_batch({"n": pa.array([NINES, NINES])}))
    with pytest.raises(OverflowError, match=r"a sum of 'n' does not fit in decimal128\(38, 0\)"):
        groups.sum("n")


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("combine", [False, True], ids=["plain", "combined"])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize(
    ("values", "least", "greatest", "distinct", "top"),
    [
        ([1.0, NAN, INF, None, NAN, -1.0], -1.0, NAN, 4, [NAN, NAN, INF]),
        ([NAN, None, NAN], NAN, NAN, 1, [NAN, NAN]),
        ([2.0, NAN], 2.0, NAN, 2, [NAN, 2.0]),
        ([0.0, 1.0], 0.0, 1.0, 2, [1.0, 0.0]),
        ([None], None, None, 0, []),
    ],
    ids=["some", "all", "one", "none", "nulls"],
)
def test_what_is_not_a_number_is_one_value_and_the_greatest_as_in_spark(
    values: list[Any], least: Any, greatest: Any, distinct: int, top: list[float], kind: pa.DataType, combine: bool
) -> None:
    expected = {Min(): least, Max(): greatest, Distinct(): distinct, TopK(3): top}
    for order in (values, values[::-1]):
        rows = [(key, value) for value in order for key in "ab"]
        for reducer, result in expected.items():
            found = run(reducer, rows, kind, combine=combine, batch_records=1)
            assert [repr(*row.values()) for row in found.values()] == [repr(result)] * 2


def test_what_is_not_a_number_stays_one_value_when_states_travel() -> None:
    for reducer in (TopK(2), Distinct()):
        state = reducer.reduce(reducer.zero(), NAN)
        merged = reducer.merge(state, pickle.loads(pickle.dumps(state)))
        assert repr(reducer.finish(merged)) in ("{'top': [nan, nan]}", "{'distinct': 1}")


@pytest.mark.parametrize("of", [int, lambda number: Decimal(number) / 4], ids=["integers", "decimals"])
@every_reducer
def test_nulls_of_no_type_in_one_batch_fit_with_numbers_in_the_next(name: str, of: Callable[[int], Any]) -> None:
    def pairs(record: dict[str, Any]) -> list[tuple[str, Any]]:
        return [("a", of(record["value"]) if record["value"] > 20 else None)]

    column, of_values = NAIVE[name]
    [row] = run_local(pairs, READY_MADE[name](), list(range(30))).to_pylist()
    assert row == {"key": "a", column: of_values([None] * 21 + [of(number) for number in range(21, 30)])}


NUMBERS = {
    "int8": (pa.int8(), [100, -100, None, 127, 127]),
    "uint8": (pa.uint8(), [250, 250, None, 255]),
    "uint32": (pa.uint32(), [2**32 - 1, None, 2**32 - 1, 7]),
    "uint64": (pa.uint64(), [2**60, None, 2**60, 7]),
    "float32": (pa.float32(), [0.5, None, 0.25]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.10"), None, Decimal("-0.35")]),
}


@pytest.mark.parametrize("combine", [False, True], ids=["plain", "combined"])
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("name", ["sum", "min", "max", "mean", "count"])
def test_numbers_of_any_type_are_aggregated_with_and_without_nulls(name: str, kind: str, combine: bool) -> None:
    column, of_values = NAIVE[name]
    found_type, values = NUMBERS[kind]
    rows = [("a", value) for value in values * 3]
    found = run(READY_MADE[name](), rows, found_type, combine=combine, batch_records=2)
    expected = of_values(values * 3)
    assert alike(found["a"][column], float(expected) if name == "mean" else expected)


def test_a_sum_beyond_64_bits_is_an_error_and_a_mean_is_found_even_there() -> None:
    with pytest.raises(ExecutorError, match=r"aggregates\.Sum\..*overflow"):
        run(Sum(), [("a", 2**62)] * 4, pa.int64())
    assert run(Mean(), [("a", 2**62)] * 4, pa.int64())["a"]["value"] == pytest.approx(2.0**62)


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("batch_records", [1, 2, 100])
@pytest.mark.parametrize("combine", [False, True])
def test_it_does_not_depend_on_batches_whether_a_sum_fits(encoded: bool, batch_records: int, combine: bool) -> None:
    values = [2**62] * 5 + [-(2**62)] * 4 + [None, 1]
    column = pa.array(values, pa.int64())
    rows = pa.table({"key": ["a"] * len(values), "value": column.dictionary_encode() if encoded else column})
    found = run_local(None, Sum(), rows, combine=combine, batch_records=batch_records)
    assert found.to_pylist() == [{"key": "a", "value": 2**62 + 1}] and found.schema.types == [pa.string(), pa.int64()]


def test_the_aggregated_column_is_chosen_by_name_and_named_if_it_is_not_there() -> None:
    table = pa.table({"key": ["a", "a"], "x": [1, 2], "y": [10, 20]})
    for made, expected in ((Sum, 30), (Min, 10), (Max, 20), (Mean, 15.0)):
        assert run_local(None, made("y"), table).to_pylist() == [{"key": "a", "y": expected}]
        wrong = rf"reducer: .*{made.__name__} reads the column 'other', and .* are value"
        with pytest.raises(ConfigError, match=wrong):
            run(made("other"), [("a", 1)], pa.int64())


def test_the_greatest_values_come_first_and_are_at_most_k() -> None:
    rows = [("a", value) for value in (3, 1, 3, 2, None, 9)]
    for k in (1, 2, 5):
        assert run(TopK(k), rows, pa.int64())["a"]["top"] == [9, 3, 3, 2, 1][:k]
    with pytest.raises(ValueError, match="k must be at least 1, not 0"):
        TopK(0)


def test_values_that_cannot_be_compared_or_hashed_are_explained() -> None:
    for reducer, values in ((TopK(), [1, "x"]), (Distinct(), [[1], [1]])):
        with pytest.raises(ExecutorError, match=rf"{type(reducer).__name__}\.(reduce|merge) failed.*TypeError"):
            run_local(lambda record, values=values: [("a", value) for value in values], reducer, [1])


# --- rows with their rank


RANKED = pa.schema([("tag", pa.string()), ("n", pa.float64()), ("more", pa.int64())])
rows_to_rank = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from([1.0, 2.0, math.nan, -1.5]), st.integers(0, 3)),
    max_size=25,
)


def ranked(rows: list[tuple[Any, ...]], k: int, *, descending: bool) -> list[tuple[Any, ...]]:
    """Each group of equal values in the order of the other columns; NaN is the greatest number."""

    def order(row: tuple[Any, ...]) -> tuple[Any, ...]:
        number = (1, 0.0) if math.isnan(row[1]) else (0, row[1])
        return (*((-part for part in number) if descending else number), row[0], row[2])

    best = sorted((row for row in rows if row[1] is not None), key=order)[:k]
    return [(rank, *row) for rank, row in enumerate(best, 1)]


@pytest.mark.parametrize("combine", [False, True], ids=["plain", "combined"])
@pytest.mark.parametrize("descending", [True, False], ids=["greatest", "least"])
@given(rows=rows_to_rank, k=st.integers(1, 6))
def test_the_top_rows_of_a_table_are_those_of_a_sort(rows, k: int, descending: bool, combine: bool) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * len(RANKED)
    table = pa.table([pa.array(values, field.type) for values, field in zip(columns, RANKED, strict=True)], RANKED)
    found = run_local(None, TopRows(k, "n", descending=descending), table, key=None, combine=combine)
    rows_found = sorted(tuple(row.values()) for row in found.to_pylist())
    assert repr(rows_found) == repr(ranked(rows, k, descending=descending))
    assert found.schema == pa.schema([("rank", pa.int64()), *RANKED])


def test_the_top_rows_of_each_key_have_the_key_beside_them() -> None:
    rows = [{"day": day, "tag": tag, "n": n} for day, tag, n in (("Mo", "a", 1), ("Mo", "b", 2), ("Tu", "c", 3))]
    found = run_local(None, TopRows(1, "n"), rows, key="day").to_pylist()
    assert found == [{"day": "Mo", "rank": 1, "tag": "b", "n": 2}, {"day": "Tu", "rank": 1, "tag": "c", "n": 3}]


def test_columns_that_cannot_be_ranked_are_refused() -> None:
    for schema, message in (
        ({"x": pa.int64()}, "ranks by the column 'n', and the columns are x"),
        ({"n": pa.list_(pa.int64())}, "cannot rank by the column 'n', which is list"),
        ({"n": pa.int64(), "rank": pa.int64()}, "a column 'rank', which the rows have already"),
    ):
        with pytest.raises(ConfigError, match=message):
            TopRows(3, "n").check_values(pa.schema(schema))
    with pytest.raises(ValueError, match="k must be at least 1"):
        TopRows(0, "n")
