"""What looks at other rows is refused by name; whatever is accepted gives the same on a frame and on its pieces."""

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest

from dpa.columns._rowwise import check_rowwise
from dpa.columns.verbs import query_of
from dpa.errors import ConfigError

a, b, s, t, d, tags, pair, place, flag = map(pl.col, ("a", "b", "s", "t", "d", "tags", "pair", "place", "flag"))


def times_ten(value: int) -> int:
    return round(value * 10 + 0.1)


def plus(column: pl.Series) -> pl.Series:
    return column + 1


REFUSED = {
    "shift": a.shift(1),
    "diff": a.diff(),
    "pct_change": a.pct_change(),
    "over": a.sum().over("b"),
    "cum_sum": a.cum_sum(),
    "cum_count": a.cum_count(),
    "cumulative_eval": a.cumulative_eval(pl.element().sum()),
    "rank": a.rank(),
    "rle_id": a.rle_id(),
    "sort": a.sort(),
    "sort_by": a.sort_by("b"),
    "arg_sort": a.arg_sort(),
    "reverse": a.reverse(),
    "slice": a.head(3),
    "gather": a.gather([0]),
    "unique": a.unique(),
    "is_first_distinct": a.is_first_distinct(),
    "is_unique": a.is_unique(),
    "is_duplicated": a.is_duplicated(),
    "mode": a.mode(),
    "value_counts": a.value_counts(),
    "sample": a.sample(2),
    "shuffle": a.shuffle(),
    "sample_n": tags.list.sample(1),
    "rolling_mean": a.rolling_mean(2),
    "ewm_mean": a.ewm_mean(com=1),
    "fill_null_with_strategy": a.fill_null(strategy="forward"),
    "interpolate": a.interpolate(),
    "strptime": s.str.to_date(),
    "int_range": pl.int_range(pl.len()),
    "top_k": a.top_k(2),
    "upcast": a.append(b),
    "concat_vertical": s.str.join(),
    "map_batches": a.map_batches(plus, return_dtype=pl.Int64),
    "fold": pl.fold(pl.lit(0), lambda left, right: left + right, [a, b]),
    "to_physical": s.cast(pl.Categorical).to_physical(),
    "lower_bound": a.lower_bound(),
    "sum": a + a.sum(),
    "mean": pl.when(a > b.mean()).then(a),
    "max": a.clip(0, b.max()),
    "min": pl.struct(a.min()),
    "count": a.count(),
    "len": pl.len(),
    "first": a.first(),
    "n_unique": a.n_unique(),
    "quantile": a.quantile(0.5),
    "std": a.std(),
    "null_count": a.null_count(),
    "explode": tags.list.explode(),
    "drop_nulls": a.drop_nulls(),
    "filter": a.filter(a > 1),
    "implode": a.implode(),
}


@pytest.mark.parametrize("word", REFUSED)
def test_what_looks_at_other_rows_is_refused_by_name(word: str) -> None:
    named = "eval" if word == "cumulative_eval" else word
    with pytest.raises(ConfigError, match=rf"`{named}\w*` in ") as error:
        check_rowwise(REFUSED[word].alias("x"))
    assert "rows" in str(error.value) or "random" in str(error.value) or "number" in str(error.value)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (a + pl.lit(pl.Series([1, 2])), "a Series has a value for each row of a whole table"),
        (a.is_in(b), "stands for its values in all rows there: give literals"),
        (a.replace(b, pl.lit(1)), "stands for its values in all rows there: give literals"),
        (s.str.contains_any(t), "stands for its values in all rows there: give literals"),
        (a.map_elements(times_ten), "a Python function needs `return_dtype`"),
        (a.is_in(list(range(200_000))), r"holds literals of 1\.\d MB, and at most 1 MB of them is sent to every task"),
        (place.struct.with_fields(pl.field("lat").sum()), "`sum` in"),
        (tags.list.eval(pl.element().shuffle()), "`shuffle` in .* is random"),
        (pl.sql_expr("(select 1)"), "`subplan` in .* looks at other rows"),
    ],
    ids=str,
)
def test_what_cannot_be_known_of_a_row_alone_is_refused(expression: pl.Expr, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_rowwise(expression)


def test_a_select_of_no_column_is_refused_as_it_would_be_a_row_of_each_batch() -> None:
    with pytest.raises(ConfigError, match="`select` needs a column"):
        query_of("select", [pl.lit(1)])


ACCEPTED = [
    a + b * 2 - 1,
    a / b,
    a // 3 % 2,
    -a,
    (a > 1) & flag | ~flag,
    a.is_null() | a.is_between(0, 3),
    a.is_in([1, 2, None]),
    pl.sql_expr("a in (1, 2) and s like 'x%' or b / 2 > 1"),
    pl.sql_expr("round(a / 3, 1) + pow(b, 2)"),
    pl.when(a > 1).then(s).when(flag).then(t).otherwise(pl.lit("none")),
    pl.coalesce(a, b, 0),
    a.fill_null(b),
    a.clip(0, 5).cast(pl.Int8),
    (a.cast(pl.Float64) < float("inf")) | (b > float("-inf")),
    a.cast(pl.Float64).fill_nan(float("nan")),
    pl.when(a > 1).then(pl.lit(float("nan"), pl.Float32)),
    a.cast(pl.String).cast(pl.Int64),
    a.hash(seed=3),
    a.cut([1, 3], labels=["x", "y", "z"]).cast(pl.String),
    a.replace({1: 10}),
    a.replace_strict({1: 10, 2: 20}, default=b),
    a.map_elements(times_ten, return_dtype=pl.Int64),
    a.map_batches(plus, return_dtype=pl.Int64, is_elementwise=True),
    a.reinterpret(signed=False),
    a.log1p().round(3),
    pl.max_horizontal(a, b),
    pl.sum_horizontal("a", "b"),
    pl.concat_str(s, t, separator="-"),
    pl.format("{} and {}", s, a),
    pl.struct(a, s),
    pl.concat_list(a, b).list.sum(),
    s.str.to_uppercase() + t.str.slice(0, 1),
    s.str.split("x").list.len(),
    s.str.replace("x", t),
    s.str.contains_any(["x", "y"]),
    s.str.replace_many(["x", "y"], ["1", "2"]),
    s.str.extract(r"(\w)", 1),
    s.str.len_chars(),
    s.cast(pl.Categorical).cast(pl.String),
    d.dt.truncate("1mo").dt.strftime("%Y-%m"),
    d.dt.offset_by("1d") - d,
    d.dt.year() + d.dt.weekday(),
    d.dt.replace_time_zone("Europe/Vienna", ambiguous="earliest", non_existent="null").dt.convert_time_zone("UTC"),
    tags.list.eval(pl.element().rank()),
    tags.list.eval(pl.element().sort(descending=True)).list.first(),
    tags.list.unique().list.sort(),
    tags.list.set_union(pl.concat_list(a)),
    tags.list.contains(a),
    tags.list.get(0, null_on_oob=True),
    pair.arr.sum(),
    pair.arr.to_list().list.reverse(),
    place.struct.field("lat") * 2,
    place.struct.with_fields(both=pl.field("lat") + pl.field("lon")),
    pl.int_ranges(0, a.abs().fill_null(0)),
    a.repeat_by(2),
    pl.lit(3),
    pl.datetime(2020, 1, 1),
    cs.numeric() * 2,
    pl.all().exclude("a").is_null().name.suffix("_missing"),
    pl.col("a", "b").name.map(str.upper),
    pl.nth(0).alias("first_column"),
]


def frame_of(rows: int, chance: random.Random) -> pl.DataFrame:
    def some(make: Callable[[], Any]) -> list[Any]:
        return [make() if chance.random() > 0.2 else None for _ in range(rows)]

    return pl.DataFrame(
        {
            "a": some(lambda: chance.randint(-2, 6)),
            "b": some(lambda: chance.randint(-2, 6)),
            "s": some(lambda: chance.choice(["x", "xy", "", "ä"])),
            "t": some(lambda: chance.choice(["y", "1"])),
            "d": some(lambda: dt.datetime(2020, 1, 1) + dt.timedelta(hours=chance.randint(0, 20_000))),
            "tags": some(lambda: [chance.randint(0, 3) for _ in range(chance.randint(0, 3))]),
            "pair": some(lambda: [1, chance.randint(0, 9)]),
            "place": some(lambda: {"lat": chance.randint(0, 9), "lon": chance.random()}),
            "flag": some(lambda: chance.random() > 0.5),
        },
        schema={
            **{"a": pl.Int64, "b": pl.Int64, "s": pl.String, "t": pl.String, "d": pl.Datetime("us")},
            **{"tags": pl.List(pl.Int64), "pair": pl.Array(pl.Int64, 2), "flag": pl.Boolean},
            "place": pl.Struct({"lat": pl.Int64, "lon": pl.Float64}),
        },
    ).select("a", "b", "s", "t", "d", "tags", "pair", "place", "flag")


@pytest.mark.parametrize("expression", ACCEPTED, ids=str)
def test_what_is_accepted_gives_the_same_on_a_frame_and_on_its_pieces_in_any_order(expression: pl.Expr) -> None:
    query = query_of("with_columns", [expression])
    for seed in range(8):
        chance = random.Random(seed)
        frame = frame_of(30, chance)
        cuts = sorted(chance.sample(range(1, 30), chance.randint(1, 8)))
        pieces = [frame[start:stop] for start, stop in zip([0, *cuts], [*cuts, 30], strict=True)]
        order = chance.sample(range(len(pieces)), len(pieces))
        made = {place: query.lazy(pieces[place].lazy()).collect() for place in order}
        whole = query.lazy(frame.lazy()).collect()
        assert pl.concat([made[place] for place in range(len(pieces))]).equals(whole)
        assert query.lazy(frame[:0].lazy()).collect().schema == whole.schema
