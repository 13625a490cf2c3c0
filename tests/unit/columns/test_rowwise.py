"""What looks at other rows is refused by name; whatever is accepted gives the same on a frame and on its pieces. SQL
texts as expressions, and the mark under what is wrong in one."""

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest
from random_columns import TRUNCATES

from dpa.columns._rowwise import check_rowwise
from dpa.columns._text import expression_of
from dpa.columns.query import Sql
from dpa.columns.verbs import query_of
from dpa.errors import ConfigError

a, b, s, t, d, tags, pair, place, flag = map(pl.col, ("a", "b", "s", "t", "d", "tags", "pair", "place", "flag"))


def times_ten(value: int) -> int:
    return round(value * 10 + 0.1)


def plus(column: pl.Series) -> pl.Series:
    return column + 1


PLAIN = """
diff pct_change cum_sum cum_count rank rle_id sort arg_sort reverse unique is_first_distinct is_unique is_duplicated
mode value_counts shuffle interpolate lower_bound count first n_unique std null_count drop_nulls implode
"""
REFUSED = {word: getattr(a, word)() for word in PLAIN.split()} | {
    "shift": a.shift(1),
    "over": a.sum().over("b"),
    "cumulative_eval": a.cumulative_eval(pl.element().sum()),
    "sort_by": a.sort_by("b"),
    "slice": a.head(3),
    "gather": a.gather([0]),
    "sample": a.sample(2),
    "sample_n": tags.list.sample(1),
    "rolling_mean": a.rolling_mean(2),
    "ewm_mean": a.ewm_mean(com=1),
    "fill_null_with_strategy": a.fill_null(strategy="forward"),
    "strptime": s.str.to_date(),
    "int_range": pl.int_range(pl.len()),
    "top_k": a.top_k(2),
    "upcast": a.append(b),
    "concat_vertical": s.str.join(),
    "map_batches": a.map_batches(plus, return_dtype=pl.Int64),
    "fold": pl.fold(pl.lit(0), lambda left, right: left + right, [a, b]),
    "to_physical": s.cast(pl.Categorical).to_physical(),
    "sum": a + a.sum(),
    "mean": pl.when(a > b.mean()).then(a),
    "max": a.clip(0, b.max()),
    "min": pl.struct(a.min()),
    "len": pl.len(),
    "quantile": a.quantile(0.5),
    "explode": tags.list.explode(),
    "filter": a.filter(a > 1),
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
    with pytest.raises(ConfigError, match="`select` needs a column"):  # or it would be a row of each batch
        query_of("select", [pl.lit(1)])


ACCEPTED: dict[str, list[pl.Expr]] = {
    "numbers": [a + b * 2 - 1, a / b, a // 3 % 2, -a, a.log1p().round(3), a.reinterpret(signed=False), a.hash(seed=3)],
    "several columns": [pl.max_horizontal(a, b), pl.sum_horizontal("a", "b"), pl.coalesce(a, b, 0), a.fill_null(b)],
    "conditions": [(a > 1) & flag | ~flag, a.is_null() | a.is_between(0, 3), a.is_in([1, 2, None])],
    "sql": [pl.sql_expr("a in (1, 2) and s like 'x%' or b / 2 > 1"), pl.sql_expr("round(a / 3, 1) + pow(b, 2)")],
    "cases": [pl.when(a > 1).then(s).when(flag).then(t).otherwise(pl.lit("none"))],
    "infinity": [(a.cast(pl.Float64) < float("inf")) | (b > float("-inf"))],
    "no number": [a.cast(pl.Float64).fill_nan(float("nan")), pl.when(a > 1).then(pl.lit(float("nan"), pl.Float32))],
    "casts": [a.clip(0, 5).cast(pl.Int8), a.cast(pl.String).cast(pl.Int64), s.cast(pl.Categorical).cast(pl.String)],
    "bins": [a.cut([1, 3], labels=["x", "y", "z"]).cast(pl.String)],
    "replaced": [a.replace({1: 10}), a.replace_strict({1: 10, 2: 20}, default=b)],
    "functions": [a.map_elements(times_ten, return_dtype=pl.Int64)],
    "functions of batches": [a.map_batches(plus, return_dtype=pl.Int64, is_elementwise=True)],
    "put together": [pl.concat_str(s, t, separator="-"), pl.format("{} and {}", s, a), pl.struct(a, s)],
    "texts": [s.str.to_uppercase() + t.str.slice(0, 1), s.str.split("x").list.len(), s.str.len_chars()],
    "parts of texts": [s.str.replace("x", t), s.str.contains_any(["x", "y"]), s.str.extract(r"(\w)", 1)],
    "many in texts": [s.str.replace_many(["x", "y"], ["1", "2"])],
    "times": [d.dt.truncate("1mo").dt.strftime("%Y-%m"), d.dt.offset_by("1d") - d, d.dt.year() + d.dt.weekday()],
    "zones": [
        d.dt.replace_time_zone("Europe/Vienna", ambiguous="earliest", non_existent="null").dt.convert_time_zone("UTC")
    ],
    "elements": [tags.list.eval(pl.element().rank()), tags.list.unique().list.sort(), tags.list.contains(a)],
    "sorted elements": [tags.list.eval(pl.element().sort(descending=True)).list.first()],
    "lists": [
        tags.list.set_union(pl.concat_list(a)),
        tags.list.get(0, null_on_oob=True),
        pl.concat_list(a, b).list.sum(),
    ],
    "arrays": [pair.arr.sum(), pair.arr.to_list().list.reverse()],
    "structs": [place.struct.field("lat") * 2, place.struct.with_fields(both=pl.field("lat") + pl.field("lon"))],
    "made lists": [pl.int_ranges(0, a.abs().fill_null(0)), a.repeat_by(2)],
    "literals": [pl.lit(3), pl.datetime(2020, 1, 1)],
    "selectors": [cs.numeric() * 2, pl.all().exclude("a").is_null().name.suffix("_missing")],
    "names": [pl.col("a", "b").name.map(str.upper), pl.nth(0).alias("first_column")],
}


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


@pytest.mark.parametrize("expression", [each for some in ACCEPTED.values() for each in some], ids=str)
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


WRONG = {
    "cents >": ("found: the end", 7),
    "cents > > 3": ("Expected: an expression, found: >", 8),
    "cents > 1 adn name = 'x'": ("found: name", 14),
    "name = 'x": ("Unterminated string literal", 7),
    "(cents": ("found: the end", 6),
    "cents) > 1": ("found: )", 5),
    "cents is nul": ("found: nul", 9),
    "cents in ()": ("found: )", 10),
    "no_such(cents)": ("unsupported function 'no_such'", 0),
    "cast(cents as money)": ('datatype "money" is not currently supported', 14),
    "extract(foo from day)": ("does not support 'foo' part", 8),
    "lower(user)": ("unsupported function 'user'; a column of this name is written \"user\"", 6),
    "Order + 1": ("(found 'Order' clause); a column of this name is written \"Order\"", 0),
    "length(a, b, c)": ("no function matches the given name", 0),
    "cents > (select max(cents) from other)": ("relation 'other' was not found", 32),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mark_stands_under_the_place_where_a_text_is_wrong(text: str) -> None:
    said, place = WRONG[text]
    with pytest.raises(ConfigError) as error:
        expression_of(text)
    first, shown, mark = str(error.value).splitlines()
    assert first.startswith("this is no SQL expression: ") and said in first
    assert shown == f"    {text}"
    assert mark == f"    {' ' * place}^"


@pytest.mark.parametrize(
    "text",
    [
        "where cents > 1",
        "select cents from self",
        "cents order by day",
        "mean(mean)",
        "foo(foo)",
        "pl.len()",
        "limit 5",
    ],
)
def test_what_is_no_column_is_not_called_one(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        expression_of(text)
    assert "a column of this name" not in str(error.value)


def test_the_mark_of_several_lines_stands_under_the_one_that_is_wrong_and_nothing_has_none() -> None:
    with pytest.raises(ConfigError, match=r"found: >\n    cents\n    > >\n      \^\n    3$"):
        expression_of("cents\n> >\n3")
    with pytest.raises(ConfigError, match="this is no SQL expression"):
        expression_of("")
    made = expression_of("cents / 100 AS euros")
    assert isinstance(made, pl.Expr)
    assert pl.DataFrame({"cents": [150]}).select(made).rows(named=True) == [{"euros": 1.5}]


@pytest.mark.parametrize(
    "text", ["sum(cents)", "count(*)", "rank() over (order by cents)", "lag(cents) over (order by day)"]
)
def test_a_text_that_looks_at_other_rows_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        expression_of(text)
    assert "other rows" in str(error.value) and str(error.value).endswith(f"\n    {text}")


@pytest.mark.skipif(not TRUNCATES, reason="polars has no `date_trunc`")
def test_what_needs_types_is_looked_at_as_well() -> None:
    assert expression_of("date_trunc('day', d) AS day") == Sql("date_trunc('day', d)", "day")
    assert expression_of("date_trunc('month', day)") == Sql("date_trunc('month', day)", "day")
    with pytest.raises(ConfigError, match="`max` in"):
        expression_of("date_trunc('day', max(d))")
    with pytest.raises(ConfigError, match="found: the end"):
        expression_of("date_trunc('day', d")
