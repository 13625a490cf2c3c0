"""Expressions of polars, as SQL, have the same values in a real Spark."""

import datetime as dt
import random
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from dpa.errors import TableError
from dpa.spark import compute
from dpa.spark.comparison import compare
from dpa.spark.expressions import translation

NAN, INF = float("nan"), float("inf")
LONG = 2**62

ROWS = pl.DataFrame(
    {
        "id": range(10),
        "a": [7, -7, 7, -7, 0, None, LONG, -LONG, 1, 3],
        "b": [2, 2, -2, -2, 0, 1, None, 3, 7, 1],
        "i": [100, -100, 5, 0, None, 2, 3, 50, 60, -1],
        "u": [1, 200, 0, None, 7, 2**31, 5, 6, 7, 8],
        "x": [1.5, -0.0, NAN, INF, -2.5, None, 0.49999999999999994, 1e300, -INF, 2.5],
        "y": [0.0, -0.0, 2.0, 2.0, -2.0, 1.0, NAN, 3.5, 0.1, None],
        "f": [0.5, 1.1, NAN, -0.0, None, 3.25, INF, 100.0, -7.5, 0.1],
        "d": [*map(Decimal, ["1.25", "-1.25", "0.05", "3.35", "99999.99", "0"]), None, *map(Decimal, "789")],
        "p": [True, False, None, True, False, True, None, False, True, False],
        "q": [True, True, True, None, None, None, False, False, False, True],
        "s": ["ab", "", "İßé", " a.c\n", None, "\t日本 ", "aXbXc", "12", "-3.5", "ab"],
        "z": ["b", "a", "", None, "x", "日", "X", "12", ".", "ab"],
        "day": [dt.date(1969, 12, 31), dt.date(2000, 2, 29), None, *(dt.date(2021, 1, each) for each in range(1, 8))],
        "t": [
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_001),
            None,
            *(dt.datetime(2024, 2, 28 + each, 13 + each, 7, 5, 123_456) for each in (0, 1)),
            *(dt.datetime(2020, each, 15, each, each, each) for each in range(1, 7)),
        ],
        "e": [dt.datetime(2020, 1 + each, 1, 12, each, 59) for each in range(10)],
        "l": [[1, 2], [], None, [None, 3], [5], [1], [7, 8, 9], [0], [2, 2], [4]],
    },
    schema_overrides={
        "i": pl.Int8,
        "u": pl.UInt32,
        "f": pl.Float32,
        "d": pl.Decimal(10, 2),
        "e": pl.Datetime("us", "Europe/Berlin"),
        "l": pl.List(pl.Int64),
    },
)

a, b, i, u, x, y, f, d, p, q, s, z, day, t, e, l = map(pl.col, ROWS.columns[1:])  # noqa: E741
small = pl.when(a.abs() < 100).then(a)

ALIKE = {
    "columns": pl.col("a", "s"),
    "a constant": pl.lit(1.5),
    "text with a quote": pl.lit("it's ${x} \\ ü"),
    "a null": pl.lit(None, pl.Int64),
    "a moment": pl.lit(dt.datetime(2020, 1, 1, 3, tzinfo=dt.timezone.utc)),
    "sum of integers": small + b * 2 - 1,
    "negative": -small,
    "quotient": a / b,
    "quotient of floats": x / y,
    "quotient of float32": f / i,
    "floor division": a // b,
    "floor division of floats": x // y,
    "remainder": a % b,
    "remainder of floats": pl.when(x.abs() < 1e9).then(x) % y,
    "product of floats": x * y + f,
    "decimals": d * d + d - 1,
    "halved decimal": d / 2,
    "decimal and integer": d + b,
    "decimal and float": d + y,
    "sql quotient": pl.sql_expr("a / b"),
    "sql quotient by a decimal": pl.sql_expr("b / 2.0"),
    "sql decimal quotient": pl.sql_expr("d / 3"),
    "sql remainder": pl.sql_expr("a % b"),
    "sql integer quotient": pl.sql_expr("a // b"),
    "sql product with a constant": pl.sql_expr("b * 1.5 + d"),
    "sql float with a constant": pl.sql_expr("y * 1.5"),
    "equal": a == b,
    "not equal": a != b,
    "less": x < y,
    "NaN is the greatest": x > 1e300,
    "equal or both null": s.eq_missing(z),
    "unequal or one null": x.ne_missing(y),
    "texts in order": s < z,
    "integer and float": a > 2.5,
    "decimal and constant": d > 1.2,
    "float32 and constant": f >= 1.1,
    "dates": day > dt.date(2021, 1, 3),
    "moments": t >= dt.datetime(2020, 3, 1),
    "and": p & q,
    "or": p | q,
    "xor": p ^ q,
    "not": ~p,
    "bits": (small & 3) | (b ^ 1),
    "any": pl.any_horizontal(p, q, a > 0),
    "all": pl.all_horizontal("p", "q"),
    "is null": a.is_null() | s.is_not_null(),
    "is nan": x.is_nan(),
    "is not nan": x.is_not_nan(),
    "is finite": x.is_finite(),
    "is infinite": f.is_infinite(),
    "integer is finite": a.is_finite(),
    "is in": a.is_in([7, 0]),
    "is in with null": a.is_in([7, None]),
    "is in nothing": a.is_in([]),
    "is in texts": s.is_in(["ab", "12"]),
    "is in floats": x.is_in([NAN, 0.0, 2.5]),
    "sql in": pl.sql_expr("a in (7, null)"),
    "sql not in": pl.sql_expr("s not in ('ab', 'x')"),
    "between": x.is_between(0, 2.5),
    "between, left": a.is_between(b, 7, closed="left"),
    "sql between": pl.sql_expr("a between -7 and 1"),
    "when": pl.when(a > 0).then(a).when(x < 0).then(x).otherwise(b),
    "when without else": pl.when(p).then(pl.lit("yes")),
    "sql case": pl.sql_expr("case when a > 0 then 'p' when a < 0 then 'n' end"),
    "coalesce": pl.coalesce("a", "b", pl.lit(9)),
    "fill null": x.fill_null(0),
    "fill null by float": b.fill_null(0.5),
    "fill nan": x.fill_nan(0.0),
    "nullif": pl.sql_expr("nullif(a, 7)"),
    "greatest": pl.max_horizontal("x", "y"),
    "least": pl.min_horizontal("x", "y"),
    "clip": x.clip(-1, 2),
    "clip integers": a.clip(lower_bound=1),
    "abs": small.abs() + 0 * b,
    "abs of floats": x.abs(),
    "floor": x.floor(),
    "ceil": x.ceil(),
    "round": x.round(),
    "round to digits": (y * 1.005).round(2),
    "round away": x.round(0, mode="half_away_from_zero"),
    "round float32": f.round(1),
    "round decimals": d.round(1),
    "round integers": a.round(1),
    "sql round": pl.sql_expr("round(x)"),
    "sign": x.sign(),
    "sign of integers": a.sign(),
    "square": b**2,
    "power": y**3,
    "power of float": y**0.5,
    "root": b.sqrt(),
    "exponential": pl.when(y.abs() < 10).then(y).exp(),
    "logarithm": y.log(),
    "logarithm to 10": pl.sql_expr("log10(y)"),
    "upper": s.str.to_uppercase(),
    "lower": pl.concat_str("z", "z").str.to_lowercase(),
    "length": s.str.len_chars(),
    "bytes": s.str.len_bytes(),
    "starts": s.str.starts_with("a"),
    "ends": s.str.ends_with("b"),
    "starts with a column": s.str.starts_with(z),
    "contains literally": s.str.contains("a.", literal=True),
    "contains a pattern": s.str.contains(r"^\w.$"),
    "digits": s.str.contains(r"\d"),
    "sql like": pl.sql_expr("s like '%a_c%'"),
    "sql like prefix": pl.sql_expr("s like 'ab%' or z like '%b'"),
    "sql ilike": pl.sql_expr("s ilike 'AX%'"),
    "replace all": s.str.replace_all("X", "$1", literal=True),
    "replace one": s.str.replace("X", "-", literal=True),
    "replace a pattern": s.str.replace_all(r"([ab])", "<${1}>"),
    "strip": s.str.strip_chars(),
    "strip characters": s.str.strip_chars("ac"),
    "strip at the end": s.str.strip_chars_end(),
    "strip a prefix": s.str.strip_prefix("a"),
    "strip a suffix": s.str.strip_suffix("b"),
    "slice": s.str.slice(1, 2),
    "slice from the end": s.str.slice(-2, 1),
    "head": s.str.head(2),
    "all but the last": s.str.head(-1),
    "tail": s.str.tail(2),
    "all but the first": s.str.tail(-1),
    "sql substr": pl.sql_expr("substr(s, 2, 2)"),
    "sql left": pl.sql_expr("left(s, 2)"),
    "split": s.str.split("X"),
    "pad": z.str.pad_start(4, "*") + z.str.pad_end(3, "."),
    "concatenate": s + z,
    "concatenate with numbers": pl.concat_str("s", "b", separator="-"),
    "concatenate without nulls": pl.concat_str("s", "z", "b", separator="-", ignore_nulls=True),
    "sql concat": pl.sql_expr("concat(s, b)"),
    "sql bars": pl.sql_expr("s || '-' || z"),
    "reverse": z.str.reverse(),
    "year": t.dt.year() * 100 + day.dt.year(),
    "month": t.dt.month(),
    "day": t.dt.day(),
    "week": day.dt.week(),
    "weekday": day.dt.weekday(),
    "iso year": day.dt.iso_year(),
    "quarter": t.dt.quarter(),
    "day of the year": t.dt.ordinal_day(),
    "hour": t.dt.hour(),
    "minute": t.dt.minute(),
    "second": t.dt.second(),
    "millisecond": t.dt.millisecond(),
    "microsecond": t.dt.microsecond(),
    "hour in a zone": e.dt.hour(),
    "date in a zone": e.dt.date(),
    "date": t.dt.date(),
    "hours": t.dt.truncate("1h"),
    "quarters of an hour": t.dt.truncate("15m"),
    "days": t.dt.truncate("1d"),
    "weeks": t.dt.truncate("1w"),
    "months": t.dt.truncate("1mo"),
    "months of dates": day.dt.truncate("1mo"),
    "weeks of dates": day.dt.truncate("1w"),
    "start of the month": day.dt.month_start(),
    "later by days": t.dt.offset_by("3d"),
    "later by months": day.dt.offset_by("1mo"),
    "sql interval": pl.sql_expr("t + interval '2 hours'"),
    "later": t + dt.timedelta(hours=5, microseconds=7),
    "date later": day + dt.timedelta(days=40),
    "between moments": (t - dt.datetime(2020, 1, 1)).dt.total_seconds(),
    "between dates": (day - dt.date(2020, 1, 1)).dt.total_days(),
    "milliseconds": (t - dt.datetime(2020, 1, 1)).dt.total_milliseconds(),
    "since 1970": t.dt.timestamp("us"),
    "milliseconds since 1970": t.dt.timestamp("ms"),
    "seconds since 1970": t.dt.epoch("s"),
    "format": t.dt.strftime("%Y-%m-%d at %H:%M"),
    "parse": day.cast(pl.String).str.to_date("%Y-%m-%d"),
    "to float": a.cast(pl.Float64),
    "to a shorter integer": a.cast(pl.Int8, strict=False),
    "float to integer": x.cast(pl.Int32, strict=False),
    "float to float32": y.cast(pl.Float32),
    "float to decimal": y.cast(pl.Decimal(10, 1), strict=False),
    "decimal to decimal": d.cast(pl.Decimal(10, 1)),
    "decimal to integer": d.cast(pl.Int64),
    "integer to text": a.cast(pl.String),
    "decimal to text": d.cast(pl.String),
    "boolean to text": p.cast(pl.String),
    "date to text": day.cast(pl.String),
    "boolean to integer": p.cast(pl.Int64),
    "integer to boolean": b.cast(pl.Boolean),
    "text to integer": s.cast(pl.Int64, strict=False),
    "text to float": s.cast(pl.Float64, strict=False),
    "sql cast": pl.sql_expr("try_cast(s as bigint)"),
    "moment to date": t.cast(pl.Date),
    "date to moment": day.cast(pl.Datetime("us")),
    "unsigned": u + 1,
    "length of a list": l.list.len(),
    "element": l.list.get(1, null_on_oob=True),
    "last element": l.list.last(),
    "greatest element": l.list.max(),
    "field": pl.struct("a", "s").struct.field("s"),
    "name": (b + 1).name.suffix("_more"),
}


def in_both(spark, expressions: dict[str, pl.Expr]) -> dict[str, str]:
    """How Spark's values differ from polars', by name. One query computes all; where it fails, each has its own."""
    made = translation(ROWS.schema)
    texts, own = {}, {"id": ROWS["id"].to_arrow()}
    for name, expression in expressions.items():
        of_polars = ROWS.select("id", expression)  # a constant has as many rows
        for column, text in made.columns([expression]).items():
            texts[f"{name}: {column}"] = text
            own[f"{name}: {column}"] = of_polars[column].to_arrow()
    listed = ", ".join(f"{text} AS `{name}`" for name, text in texts.items())
    view = {"input": ROWS.to_arrow(compat_level=pl.CompatLevel.oldest())}
    try:
        other = compute(spark, view, f"SELECT id, {listed} FROM input")
    except TableError as error:
        if len(expressions) == 1:
            return dict.fromkeys(expressions, f"{listed}: {error}")
        return {name: why for each in expressions.items() for name, why in in_both(spark, dict([each])).items()}
    columns = {
        name: compare(pa.table({"id": own["id"], name: own[name]}), other.select(["id", name]), "id", 1e-15)
        for name in texts
    }
    return {name: f"{texts[name]}: {found.differences}" for name, found in columns.items() if not found.matches}


def test_expressions_have_in_spark_the_values_that_they_have_in_polars(spark) -> None:
    differences = in_both(spark, ALIKE)
    assert not differences, "\n".join(f"{name}: {why}" for name, why in differences.items())


def number(draw: random.Random, depth: int) -> pl.Expr:
    """An expression that is a float, an integer or null; small enough not to overflow."""
    if not depth:
        return draw.choice([b, i.cast(pl.Int64), x.clip(-100, 100), y, pl.lit(draw.randint(-3, 3)), pl.lit(0.5)])
    one, other = (number(draw, depth - 1) for _ in range(2))
    return draw.choice(
        [
            lambda: one + other,
            lambda: one - other,
            lambda: one * other,
            lambda: one / other,
            lambda: one // pl.lit(draw.choice([2, -3, 0])),
            lambda: one % pl.lit(draw.choice([2, -3, 5])),
            one.abs,
            lambda: -one,
            one.floor,
            one.round,
            lambda: one.fill_null(other),
            lambda: pl.max_horizontal(one.cast(pl.Float64), other.cast(pl.Float64)),
            lambda: pl.when(truth(draw, depth - 1)).then(one).otherwise(other),
            lambda: pl.coalesce(one, other),
            lambda: string(draw, depth - 1).str.len_chars().cast(pl.Int64),
            lambda: t.dt.hour().cast(pl.Int64) + day.dt.weekday(),
            lambda: truth(draw, depth - 1).cast(pl.Int64),
        ]
    )()


def truth(draw: random.Random, depth: int) -> pl.Expr:
    if not depth:
        return draw.choice([p, q, x.is_nan(), s.is_null()])
    one, other = (number(draw, depth - 1) for _ in range(2))
    return draw.choice(
        [
            lambda: one < other,
            lambda: one >= other,
            lambda: one == other,
            lambda: one.ne_missing(other),
            lambda: truth(draw, depth - 1) & truth(draw, depth - 1),
            lambda: truth(draw, depth - 1) | truth(draw, depth - 1),
            lambda: ~truth(draw, depth - 1),
            lambda: string(draw, depth - 1).str.contains(draw.choice(["a", "X", "."]), literal=True),
            lambda: string(draw, depth - 1) > string(draw, depth - 1),
            lambda: one.is_between(-1, 2),
            lambda: b.is_in([1, 2, draw.randint(0, 9)]),
        ]
    )()


def string(draw: random.Random, depth: int) -> pl.Expr:
    if not depth:
        return draw.choice([s, z, pl.lit("it's"), b.cast(pl.String)])
    one, other = (string(draw, depth - 1) for _ in range(2))
    return draw.choice(
        [
            lambda: one + other,
            lambda: one.str.slice(draw.randint(-2, 2), draw.randint(0, 3)),
            one.str.strip_chars,
            lambda: one.str.replace_all("a", draw.choice(["", "bb"]), literal=True),
            lambda: pl.concat_str(one, other, separator="|", ignore_nulls=True),
            lambda: pl.when(truth(draw, depth - 1)).then(one).otherwise(other),
            lambda: pl.coalesce(one, other),
            lambda: one.str.pad_start(draw.randint(0, 6), "."),
        ]
    )()


@pytest.mark.parametrize("seed", range(3))
def test_random_expressions_have_the_same_values(spark, seed) -> None:
    draw = random.Random(seed)
    kinds = [draw.choice([number, truth, string]) for _ in range(40)]
    expressions = {f"e{place}": kind(draw, 3).alias(f"e{place}") for place, kind in enumerate(kinds)}
    made = translation(ROWS.schema).columns(list(expressions.values()))
    listed = ", ".join(f"{text} AS `{name}`" for name, text in made.items())
    view = {"input": ROWS.to_arrow(compat_level=pl.CompatLevel.oldest())}
    other = compute(spark, view, f"SELECT id, {listed} FROM input")
    compared = compare(ROWS.select("id", *expressions.values()).to_arrow(), other, "id", 1e-14)
    assert compared.matches, [f"{each}: {found}" for each in compared.differences for found in _named(made, each)]


def _named(made: dict[str, str], difference: str) -> list[str]:
    return [text for name, text in made.items() if f" {name} " in difference]


DIFFERENT = {
    "integers that overflow": (a * 4, "overflow"),
    "unsigned integers below zero": (u - 10, "4294967287"),
    "years of two digits": (pl.concat_str("s", pl.lit("-01-01")).str.to_date("%Y-%m-%d", strict=False), "0012-01-01"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_differences_that_the_docs_name_are_still_there(spark, name) -> None:
    expression, why = DIFFERENT[name]
    [found] = in_both(spark, {name: expression}).values()
    assert why in found.lower()
