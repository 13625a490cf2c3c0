"""Aggregates of expressions: equal to polars on all rows at once, however rows are cut and states are merged."""

import math
import pickle
import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.columns import _parts as parts
from dpa.columns._text import _MEANT, aggregate_of
from dpa.columns.aggregation import Aggregation, aggregation_of
from dpa.columns.arrow import to_batch
from dpa.errors import ConfigError
from dpa.executors import Groups

N, F, S, B, T = (pl.col(name) for name in "ifsbt")

SCHEMA = pl.Schema({"i": pl.Int32, "f": pl.Float64, "s": pl.String, "b": pl.Boolean, "t": pl.Int64})

INTEGERS = [N, N * 2 + 1, N.filter(B), pl.when(F > 0).then(N), N.drop_nulls(), T.cast(pl.UInt8, strict=False)]
NUMBERS = [*INTEGERS, F, F.drop_nans(), F / 2, N.cast(pl.Float64) + F]
ANY = [*NUMBERS, S, S.str.to_uppercase(), B, S.filter(N > 0)]


def some(values: pl.Expr, found: pl.Expr) -> pl.Expr:
    """Null without values, where polars has zero."""
    return pl.when(values.count() > 0).then(found)


def most(values: pl.Expr) -> pl.Expr:
    """NaN is the greatest number, which polars ignores."""
    return values.nan_max()


CASES: dict[str, list[tuple[pl.Expr, pl.Expr]]] = {
    "len": [(pl.len(), pl.len())],
    "count": [(each.count(), each.count()) for each in ANY],
    "null_count": [(each.null_count(), each.null_count()) for each in ANY],
    "sum": [(each.sum(), some(each, each.cast(pl.Float64).sum())) for each in NUMBERS],
    "mean": [(each.mean(), each.mean()) for each in NUMBERS],
    "min": [(each.min(), each.min()) for each in ANY],
    "nan_min": [(F.nan_min(), F.nan_min())],
    "max": [(each.max(), most(each)) for each in ANY],
    "any": [(B.any(), B.any()), (B.any(ignore_nulls=False), B.any(ignore_nulls=False)), ((N > 0).any(), (N > 0).any())],
    "all": [(B.all(), B.all()), (B.all(ignore_nulls=False), B.all(ignore_nulls=False))],
    "var": [(each.var(ddof), each.var(ddof)) for each in NUMBERS for ddof in (0, 1, 2)],
    "std": [(each.std(), each.std()) for each in NUMBERS],
    "n_unique": [(each.n_unique(), each.n_unique()) for each in ANY],
    "n_unique, no nulls": [(each.drop_nulls().n_unique(), each.drop_nulls().n_unique()) for each in ANY],
    "implode": [(each.implode(), each.sort().implode()) for each in ANY],
    "top_k": [(each.top_k(2), each.drop_nulls().sort(descending=True).head(2).implode()) for each in ANY],
    "bottom_k": [(each.bottom_k(3), each.drop_nulls().sort().head(3).implode()) for each in ANY],
    "mode": [(each.mode(), each.mode().sort().implode()) for each in (N, S, B, N * 2)],
    "last": [
        (S.sort_by("t").last(), S.sort_by("t", "s").last()),
        (N.sort_by("s", descending=True).last(), N.sort_by("s", "i", descending=[True, False]).last()),
        (F.sort_by("t", nulls_last=True).first(), F.sort_by("t", "f", nulls_last=[True, False]).first()),
        (S.min_by("t"), some(T, pl.struct("t", "s").sort_by("t", "s", nulls_last=True).first().struct.field("s"))),
        (S.max_by("t"), some(T, pl.struct("t", "s").sort_by("t", "s").last().struct.field("s"))),
    ],
    "around": [
        (N.sum() / pl.len(), some(N, N.sum()) / pl.len()),
        ((F.max() - F.min()).round(3), (most(F) - F.min()).round(3)),
        (pl.when(N.count() > 1).then(S.max()), pl.when(N.count() > 1).then(S.max())),
        (pl.struct(a=S.min(), b=pl.len()).struct.field("a"), S.min()),
        (N.implode().list.len() + N.null_count(), pl.len().cast(pl.Int64) + N.null_count()),
    ],
}  # fmt: skip
"""Of each aggregate some expressions, with what polars computes of all rows at once."""

FLAT = [(f"{name} {number}", *case) for name, cases in CASES.items() for number, case in enumerate(cases)]

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.integers(0, 3),
            "i": st.none() | st.integers(-4, 4),
            "f": st.none() | st.sampled_from([math.nan, -0.5, 0.0, 1e9, 1e9 + 1]) | st.floats(-5, 5, width=16),
            "s": st.none() | st.sampled_from("abcd"),
            "b": st.none() | st.booleans(),
            "t": st.none() | st.integers(-3, 300),
        }
    ),
    min_size=1,
    max_size=30,
)


def groups_of(frame: pl.DataFrame) -> Groups:
    keys, ids = np.unique(frame["key"].to_numpy(), return_inverse=True)
    rows = frame.drop("key")
    return Groups(pa.array(keys), ids.astype(np.int32), to_batch(rows, pa.schema([])))


def in_pieces(aggregation: Aggregation, frame: pl.DataFrame, random: Any) -> dict[int, dict[str, Any]]:
    """The results by key, of rows that are cut, and states that are merged, at random."""
    cuts = sorted(random.randint(0, frame.height) for _ in range(random.randint(0, 4)))
    pieces = [frame[start:stop] for start, stop in zip([0, *cuts], [*cuts, frame.height], strict=True) if start < stop]
    states = [with_keys(groups, aggregation.reduce(groups)) for groups in map(groups_of, pieces)]
    while len(states) > 1:
        random.shuffle(states)
        states = [merged(aggregation, states[:2]), *states[2:]]
    whole = states[0]
    found = aggregation.finish(whole.drop_columns(["key"]))
    return dict(zip(whole["key"].to_pylist(), found.to_pylist(), strict=True))


def with_keys(groups: Groups, states: pa.RecordBatch) -> pa.RecordBatch:
    return states.append_column("key", groups.keys)


def merged(aggregation: Aggregation, states: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    both = pa.concat_batches(states)
    keys, ids = np.unique(both["key"].to_numpy(), return_inverse=True)
    groups = Groups(pa.array(keys), ids.astype(np.int32), both.drop_columns(["key"]))
    return with_keys(groups, aggregation.merge(groups))


def alike(found: Any, wanted: Any) -> bool:
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(alike, found, wanted))
    if isinstance(found, float | int) and isinstance(wanted, float | int):
        is_nan = math.isnan(found) and math.isnan(wanted)
        return is_nan or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-6)
    return bool(found == wanted)


def require_alike(aggregation: Aggregation, wanted: dict[str, pl.Expr], frame: pl.DataFrame, random: Any) -> None:
    expected = frame.group_by("key").agg(each.alias(name) for name, each in wanted.items())
    found = in_pieces(aggregation, frame, random)
    assert len(found) == expected.height
    for row in expected.to_dicts():
        for name in wanted:
            assert alike(found[row["key"]][name], row[name]), (name, row["key"], found[row["key"]][name], row[name])


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10)
@given(rows=ROWS, random=st.randoms(use_true_random=False))
def test_an_aggregate_of_pieces_is_that_of_polars_of_all_rows(
    name: str, rows: list[dict[str, Any]], random: Any
) -> None:
    frame = pl.DataFrame(rows, schema={"key": pl.Int64, **SCHEMA})
    found, wanted = ({f"x{place}": case[of] for place, case in enumerate(CASES[name])} for of in (0, 1))
    require_alike(Aggregation(found), wanted, frame, random)


@settings(max_examples=40)
@given(data=st.data(), rows=ROWS, random=st.randoms(use_true_random=False))
def test_several_aggregates_at_random_are_those_of_polars(data: Any, rows: list[dict[str, Any]], random: Any) -> None:
    cases = data.draw(st.lists(st.sampled_from(FLAT), min_size=2, max_size=6))
    aggregation = Aggregation({f"c{place}": case[1] for place, case in enumerate(cases)})
    frame = pl.DataFrame(rows, schema={"key": pl.Int64, **SCHEMA})
    require_alike(aggregation, {f"c{place}": case[2] for place, case in enumerate(cases)}, frame, random)
    again = pickle.loads(pickle.dumps(aggregation))
    assert aggregation.result_of(SCHEMA) == again.result_of(SCHEMA)
    groups = groups_of(frame)
    states = Groups(groups.keys, np.arange(len(groups), dtype=np.int32), again.reduce(groups))
    found = again.finish(again.merge(states))
    assert pl.DataFrame(found).schema == aggregation.result_of(SCHEMA)


TEXTS = {
    "count(*)": pl.len(),
    "count(i)": N.count(),
    "count(DISTINCT s)": S.drop_nulls().n_unique(),
    "sum(i)": some(N, N.sum()),
    "sum(f * 2)": some(F, (F * 2).sum()),
    "avg(i)": N.mean(),
    "min(s)": S.min(),
    "stddev(i)": N.std(),
    "variance(i)": N.var(),
    "sum(i) / count(*)": some(N, N.sum()) / pl.len(),
    "sum(i) FILTER (WHERE b)": some(N.filter(B), N.filter(B).sum()),
    "sum(CASE WHEN i > 0 THEN 1 ELSE 0 END)": (N > 0).sum(),
    "max_by(s, t)": pl.struct("t", "s").sort_by("t", "s").last().struct.field("s"),
    "bool_or(i > 0)": some(N, (N > 0).any()),
    "bool_and(b)": some(B, B.all()),
    "coalesce(max_by(upper(s), t), ', (')": S.max(),
}


@pytest.mark.parametrize("text", [text for text in TEXTS if "coalesce" not in text])
@settings(max_examples=8)
@given(rows=ROWS, random=st.randoms(use_true_random=False))
def test_a_text_means_what_it_does_in_sql(text: str, rows: list[dict[str, Any]], random: Any) -> None:
    frame = pl.DataFrame(rows, schema={"key": pl.Int64, **SCHEMA}).with_columns(
        f=pl.when(F.is_nan()).then(None).otherwise(F), t=pl.int_range(pl.len())
    )
    require_alike(aggregation_of((), {"x": text}), {"x": TEXTS[text]}, frame, random)


@pytest.mark.parametrize(
    ("right", "word"), [(right, word) for right, words in _MEANT.items() for word in words.split()]
)
def test_a_usual_word_of_others_is_refused_with_the_one_that_there_is(right: str, word: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"unsupported function '{word}'; did you mean `{right}`?\n")):
        aggregate_of(f"1 + {word}(i)")
    aggregate_of(right.replace("...", "i") if "(" in right else f"{right}(i{', 0.5' * right.startswith('quantile')})")


def test_texts_of_aggregates_may_have_quotes_commas_and_parentheses_and_are_refused_with_their_names() -> None:
    found = aggregation_of((), {"x": "coalesce( MAX_BY (replace(s, ',', ' ('), t + (1)), 'max_by(a, b)')"})
    groups = Groups(pa.array([0]), np.zeros(2, dtype=np.int32), pa.record_batch({"s": ["a", "b,c"], "t": [1, 2]}))
    assert found.finish(found.reduce(groups)).to_pylist() == [{"x": "b (c"}]
    with pytest.raises(ConfigError, match="takes 2 arguments, not 1"):
        aggregate_of("max_by(s)")
    with pytest.raises(ConfigError, match="is not closed"):
        aggregate_of("max_by(s, t")
    with pytest.raises(ConfigError, match=r"`sum\(a` ?"):
        aggregation_of((), {"x": "sum(a"})
    with pytest.raises(ConfigError, match="there are two aggregates named 'v'"):
        aggregation_of([V.sum(), V.max()], {})
    with pytest.raises(ConfigError, match="not 3"):
        aggregation_of([], {"x": 3})  # type: ignore[dict-item]
    assert list(aggregation_of([V.sum(), "max(w) AS most"], {"n": pl.len()}).expressions) == ["v", "most", "n"]
    assert list(aggregation_of((), {"x": "sum(i)", "y": "sum(i) + 1"})._parts) == ["sum(i)"]


def of(values: pa.Array, **expressions: pl.Expr) -> dict[str, Any]:
    aggregation = Aggregation(expressions)
    groups = Groups(pa.array([0]), np.zeros(len(values), dtype=np.int32), pa.record_batch({"v": values}))
    [found] = aggregation.finish(aggregation.reduce(groups)).to_pylist()
    return dict(found)


V = pl.col("v")


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_sums_of_durations_are_exact_or_an_error(unit: Any) -> None:
    kind, aggregation = pl.Duration(unit), Aggregation({"y": V.sum()})
    for numbers, whole in (([2**62, 2**62, None, -(2**62)], 2**62), ([None, None], None), ([2**62, 2**62], ...)):
        frame = pl.DataFrame({"key": [0] * len(numbers), "v": pl.Series(numbers, dtype=pl.Int64).cast(kind)})
        states = aggregation.reduce(groups_of(frame))
        for found in (states, aggregation.merge(Groups(pa.array([0]), np.zeros(1, np.int32), states))):
            if whole is ...:
                with pytest.raises(OverflowError, match=r"sum\(v\) does not fit in int64"):
                    aggregation.finish(found)
            else:
                result = pl.DataFrame(aggregation.finish(found))
                assert result["y"].dtype == kind and result["y"].to_physical().to_list() == [whole]


@pytest.mark.parametrize(
    ("most", "kind", "room"), [(2**63 - 1, pl.Int64, "int64"), (10**38 - 1, pl.Decimal(38, 0), "38 digits")], ids=str
)
def test_it_does_not_depend_on_pieces_whether_a_sum_fits(most: int, kind: Any, room: str) -> None:
    numbers = [most, most, most, 5, None, -most, -most, -most, most - 7]
    aggregation = Aggregation({"x": V.sum()})
    for seed in range(20):
        for more, fits in ((0, True), (2, True), (3, False)):
            values = [None if each is None else Decimal(each) for each in [*numbers, more]]
            frame = pl.DataFrame({"key": [0] * len(values), "v": pl.Series(values, dtype=pl.Decimal(38, 0)).cast(kind)})
            if fits:
                assert in_pieces(aggregation, frame, Random(seed))[0]["x"] == most - 2 + more
            else:
                with pytest.raises(OverflowError, match=rf"sum\(v\) does not fit in {room}"):
                    in_pieces(aggregation, frame, Random(seed))


@pytest.mark.parametrize("digits", range(1, 39))
def test_sums_and_means_of_decimals_of_any_length_are_exact(digits: int) -> None:
    scale = min(digits, 3)
    frame = pl.DataFrame({"key": [0] * 8, "v": pl.Series([1, None, -7, 5, 5, 9, 0, 3], dtype=pl.Int64)}).with_columns(
        v=V.cast(pl.Decimal(38, 0)) * Decimal(1).scaleb(-scale)
    )
    frame = frame.with_columns(v=V.cast(pl.Decimal(digits, scale)))
    aggregation = Aggregation({"x": V.sum(), "y": V.mean()})
    for seed in range(8):
        found = in_pieces(aggregation, frame, Random(seed))[0]
        assert found["x"] == Decimal(16).scaleb(-scale)
        places = Decimal(1).scaleb(-min(scale + 4, 38))
        assert found["y"] == (found["x"] / 7).quantize(places, ROUND_HALF_UP)


def test_sums_and_means_are_exact_even_of_long_decimals_which_have_the_types_of_spark() -> None:
    kinds = Aggregation({"x": V.sum(), "y": V.mean(), "z": V.max()}).result_of(pl.Schema({"v": pl.Decimal(5, 2)}))
    assert kinds == {"x": pl.Decimal(15, 2), "y": pl.Decimal(9, 6), "z": pl.Decimal(5, 2)}
    values = pa.array([Decimal("1.10"), Decimal("2.25"), None, Decimal("0.01")], pa.decimal128(5, 2))
    found = of(values, x=V.sum(), y=V.mean(), z=V.max())
    assert found == {"x": Decimal("3.36"), "y": Decimal("1.120000"), "z": Decimal("2.25")}
    assert of(pa.array([2**62, 2**62, -(2**62)]), x=V.sum()) == {"x": 2**62}
    assert of(pa.array([200, 100], pa.uint8()), x=V.sum()) == {"x": 300}
    values = pa.array([Decimal("9" * 30 + ".1250"), Decimal("9" * 30 + ".3750"), None] * 40, pa.decimal128(34, 4))
    assert of(values, x=V.mean()) == {"x": Decimal("9" * 30 + ".25")}


def test_columns_keep_their_types_where_values_are_taken_as_they_are() -> None:
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.date32(), pa.timestamp("ms", "Europe/Berlin")):
        values = pa.record_batch({"v": pa.nulls(1, kind), "t": [1]})
        aggregation = Aggregation({"x": V.max(), "y": V.min()})
        found = aggregation.finish(aggregation.reduce(Groups(pa.array([0]), np.zeros(1, dtype=np.int32), values)))
        assert found.schema.types == [kind, kind]


def test_sketches_are_within_the_bounds_that_are_promised() -> None:
    pytest.importorskip("datasketches")
    random = np.random.default_rng(7)
    numbers = random.lognormal(0, 2, 60_000)
    frame = pl.DataFrame({"key": np.arange(60_000) % 2, "v": numbers, "w": random.integers(0, 20_000, 60_000)})
    aggregation = Aggregation(
        {
            "q": V.quantile(0.9),
            "m": V.median(),
            "n": pl.col("w").approx_n_unique(),
            "text": pl.col("w").cast(pl.String).approx_n_unique(),
        }
    )
    found = in_pieces(aggregation, frame, Random(3))
    for key in (0, 1):
        own = frame.filter(pl.col("key") == key)
        for name, share in (("q", 0.9), ("m", 0.5)):
            rank = (own["v"] <= found[key][name]).mean()
            assert rank == pytest.approx(share, abs=0.01)
        exact = own["w"].n_unique()
        assert found[key]["n"] == pytest.approx(exact, rel=0.03)
        assert found[key]["text"] == pytest.approx(exact, rel=0.03)


def test_sketches_of_no_values_are_null_and_zero_and_an_empty_text_is_a_value() -> None:
    pytest.importorskip("datasketches")
    found = of(pa.array([None, None], pa.float64()), q=V.median(), n=V.drop_nulls().approx_n_unique())
    assert found == {"q": None, "n": 0}
    assert of(pa.array(["", "a", None]), n=V.approx_n_unique()) == {"n": 3}


def test_a_missing_package_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasketches", None)
    with pytest.raises(ConfigError, match=r"dpa\[sketches\]"):
        Aggregation({"x": V.median()})


def test_lists_of_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpa.columns.aggregation.MOST_VALUES", 3)
    assert of(pa.array([1, 2, 3, 3]), x=V.n_unique()) == {"x": 3}
    with pytest.raises(ValueError, match=r"n_unique\(v\) lists more than 3 values of a key"):
        of(pa.array([1, 2, 3, 4]), x=V.n_unique())
    assert parts.MOST_VALUES == 1_000_000


REFUSED = {
    "outside of an aggregate": [V + 1, V - V.mean(), V],
    "has no aggregate": [pl.lit(1)],
    "looks at other rows": [V.shift().sum(), V.sum().sum(), (V - V.mean()).sum(), V.cum_sum().max(), pl.len().max()],
    "depends on the order in which rows come": [V.first(), V.last(), V.item()],
    "is no aggregate that can be merged": [
        V.skew(),
        V.sum().over("w"),
        V.product(),
        pl.corr("v", "w"),
        V.unique(),
        V.sum().cum_sum(),
        V.sum().rank(),
    ],
    "stands for several columns": [pl.col("v", "w").sum(), pl.all().sum()],
    "Python function": [V.map_elements(lambda value: value).sum()],
    "needs a number that is known": [V.top_k(pl.col("w"))],
    "compares with infinity or NaN, or gives it": [V.filter(float("inf") > V).sum(), V.sum().fill_null(float("nan"))],
    "names no column": [pl.lit(2).sum()],
    "does not have one value for each row": [V.drop_nulls().sort_by("w").last()],
}


@pytest.mark.parametrize(("why", "expression"), [(why, each) for why, all_ in REFUSED.items() for each in all_])
def test_what_cannot_be_merged_is_refused_by_name(why: str, expression: pl.Expr) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        Aggregation({"n": pl.len(), "x": expression})
    assert caught.value.key == "x"


GRADE = S.cast(pl.Enum(["low", "high"]))

WRONG = {
    "needs numbers": [S.sum(), S.mean(), S.std(), B.cast(pl.String).sum()],
    "needs values with an order": [pl.struct("i", "f").max()],
    "an Enum's does not": [GRADE.max(), GRADE.min(), GRADE.top_k(1), N.max_by(GRADE), N.sort_by(GRADE).first()],
    "needs booleans": [N.any()],
    "no column 'z'; the columns of the values are i, f, s, b, t": [pl.col("z").sum()],
    "arithmetic on": [(S * 2).sum()],
    "expected `String`": [N.sum().str.len_chars()],
}


@pytest.mark.parametrize(("why", "expression"), [(why, each) for why, all_ in WRONG.items() for each in all_])
def test_a_wrong_type_or_a_missing_column_is_found_without_rows(why: str, expression: pl.Expr) -> None:
    aggregation = Aggregation({"x": expression})
    with pytest.raises(ConfigError, match=why) as caught:
        aggregation.check_values(pl.DataFrame(schema=SCHEMA).to_arrow().schema)
    assert caught.value.key == "x"


def test_partials_are_for_a_query_of_a_whole_split() -> None:
    aggregation = Aggregation({"n": pl.len(), "x": N.sum() / pl.len(), "y": S.max_by("t")})
    frame = pl.DataFrame({"key": [0, 1, 0], "i": [1, 2, 3], "s": ["a", "b", "c"], "t": [2, 1, 1]})
    values = frame.drop("key").schema
    states = frame.lazy().group_by("key").agg(aggregation.partials(values)).collect(engine="streaming").sort("key")
    found = aggregation.finish(to_batch(states.drop("key"), pa.schema([])))
    assert found.to_pylist() == [{"n": 2, "x": 2.0, "y": "a"}, {"n": 1, "x": 2.0, "y": "b"}]
