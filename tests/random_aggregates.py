"""Random steps of aggregates by key, also in windows, with what polars makes of all rows at once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import polars as pl
from random_columns import Drawn

import dpa
from dpa.flow import Stream

_KEYS = (pl.Int64, pl.Int8, pl.UInt64, pl.String, pl.Boolean, pl.Date, pl.Datetime, pl.Decimal, pl.Binary, pl.Null)
_NUMBERS = (pl.Int64, pl.Int8, pl.UInt64, pl.Float64, pl.Float32)
_EXACT = Context(prec=100)
_TAME = 1e6
"""Floats up to this are summed up in any order, if they are multiples of 2**-12."""


@dataclass(frozen=True)
class Part:
    """An aggregate.

    Attributes:
        given: an expression, or a SQL text.
        wanted: what polars is given.
        finish: what becomes of the column that polars makes, in Python.
    """

    given: Any
    wanted: pl.Expr
    finish: Callable[[pl.Series], pl.Series] = lambda found: found


class TooLargeError(Exception):
    """A sum does not fit; says what the message of the job does."""


def aggregated(drawn: Drawn, options: dict[str, Any]) -> None:
    """Draw a step of aggregates; `options` are those of the step."""
    chance, windows = drawn.chance, None
    before, change = drawn.frame, _same
    if "d" in drawn.passed and drawn.passed["d"].name == "d" and chance.random() < 0.4:
        windows = chance.choice(["tumbling", "sliding"])
        before, change = _windowed(before, windows), functools.partial(_window, windows)
    keys = _keys(drawn)
    by_function = (
        len(keys) == 1
        and before[keys[0]].count() > 0
        and before.schema[keys[0]] != pl.Decimal
        and chance.random() < 0.15
    )
    named = {drawn.new(): each for each in (_part(drawn) for _ in range(chance.randint(1, 5))) if each is not None}
    named = named or {drawn.new(): Part("count(*)", pl.len().cast(pl.Int64))}
    by = [*(["window_start", "window_end"] if windows else []), *keys]
    parts = [each.wanted.alias(name) for name, each in named.items()]
    found = before.group_by(by).agg(parts) if by else before.select(parts)
    if drawn.by_function and not before.height:  # whose columns are not known
        found = found.clear()
    try:
        found = found.with_columns(each.finish(found[name]) for name, each in named.items())
    except TooLargeError as error:
        drawn.fails = drawn.fails or str(error)
        found = found.with_columns(pl.lit(None, pl.Int64).alias(name) for name in named)
    found = found.with_columns(pl.col(name).cast(_key_type(found.schema[name])) for name in keys)
    key: Any = functools.partial(_key_of, keys[0]) if by_function else keys or None
    names = {keys[0]: "key"} if by_function else {}
    drawn.by_function |= by_function
    given = {name: each.given for name, each in named.items()}
    order = [*keys, *(["window_start", "window_end"] if windows else []), *named]

    def made(rows: Stream) -> Stream:
        keyed = change(rows).key_by(*(key if isinstance(key, list) else [key]))
        counts = keyed.agg(**given, **options)
        return counts.window(None) if windows else counts

    drawn.do(made, found.select(order).rename(names), {})


def _key_of(name: str, row: dict[str, Any]) -> Any:
    return row[name]


def _same(rows: Stream) -> Stream:
    return rows


def _window(kind: str, rows: Stream) -> Stream:
    return rows.window(dpa.tumbling("24h") if kind == "tumbling" else dpa.sliding("24h", every="6h"))


def _windowed(frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    moment = pl.col("d").dt.cast_time_unit("us")
    known = frame.filter(pl.col("d").is_not_null())
    if kind == "tumbling":
        starts = known.with_columns(window_start=moment.dt.truncate("24h"))
    else:
        last = moment.dt.truncate("6h")
        starts = pl.concat(
            [known.with_columns(window_start=last.dt.offset_by(f"-{hours}h")) for hours in (0, 6, 12, 18)]
        )
    return starts.with_columns(window_end=pl.col("window_start").dt.offset_by("24h"))


def _keys(drawn: Drawn) -> list[str]:
    """Of none, one or two columns by which rows are grouped."""
    fitting = [name for name, kind in drawn.frame.schema.items() if kind in _KEYS or type(kind) in _KEYS]
    fitting += [name for name, kind in drawn.frame.schema.items() if kind == pl.Categorical]
    fitting = [name for name in fitting if name not in drawn.any_kind]
    return drawn.chance.sample(fitting, min(len(fitting), drawn.chance.choice([0, 1, 1, 1, 2])))


def _key_type(kind: pl.DataType) -> Any:
    if kind == pl.Int8:
        return pl.Int64
    if isinstance(kind, pl.Datetime):
        return pl.Datetime("us", "UTC" if kind.time_zone else None)
    return pl.String if kind == pl.Categorical else kind


def _is_exact(values: pl.Series) -> bool:
    """Whether the order in which values are summed up makes no difference."""
    if not values.dtype.is_numeric() or isinstance(values.dtype, pl.Decimal):
        return True
    finite = [float(value) for value in values if value is not None and math.isfinite(value)]
    return all(abs(value) < _TAME and (value * 4096).is_integer() for value in finite)


def some(values: pl.Expr, found: pl.Expr) -> pl.Expr:
    """Null without values, where polars has zero."""
    return pl.when(values.count() > 0).then(found)


def _part(drawn: Drawn) -> Part | None:
    """A random aggregate; None: it fits no column."""
    chance, frame = drawn.chance, drawn.frame
    name = chance.choice([name for name in frame.columns if name not in drawn.any_kind] or [""])
    if not name:
        return None
    kind, values, text = frame.schema[name], pl.col(name), name
    flag = drawn.of_kind(pl.Boolean)
    filtered = ""
    if flag and chance.random() < 0.3:
        values, filtered = values.filter(pl.col(flag)), f" FILTER (WHERE {flag})"
    found = [*_of_any(values, text, filtered)]
    is_exact = _is_exact(frame[name])
    if kind in _NUMBERS and is_exact:
        found += _of_numbers(values, text, filtered)
    if kind in _NUMBERS or isinstance(kind, pl.Decimal) or kind in (pl.Boolean, pl.Duration):
        found += _sums(values, kind, f"sum({text}){filtered}", is_exact)
    if not kind.is_nested() and kind not in (pl.Object, pl.Categorical):
        found += _of_ordered(values, kind, text, filtered)
        found += _ends(drawn, name) if is_exact and kind != pl.Null else []
    if kind == pl.Boolean:
        found += [
            Part(values.any(), values.any()),
            Part(values.all(ignore_nulls=False), values.all(ignore_nulls=False)),
            Part(f"bool_or({text})", some(pl.col(text), pl.col(text).any())),
        ]
    if is_exact and not kind.is_nested() and kind != pl.Categorical:
        found += _listing(values, kind)
    return chance.choice(found)


def _of_any(values: pl.Expr, text: str, filtered: str) -> list[Part]:
    count = values.count().cast(pl.Int64)
    return [
        Part(pl.len(), pl.len().cast(pl.Int64)),
        Part("count(*)", pl.len().cast(pl.Int64)),
        Part(values.count(), count),
        Part(f"count({text}){filtered}", count),
        Part(values.null_count(), values.null_count().cast(pl.Int64)),
        Part(values.count() / pl.len(), values.count() / pl.len()),
    ]


def _of_numbers(values: pl.Expr, text: str, filtered: str) -> list[Part]:
    floats = values.cast(pl.Float64)
    return [
        Part(values.mean(), floats.mean()),
        Part(f"avg({text}){filtered}", floats.mean()),
        Part(values.var(), floats.var()),
        Part(values.std(ddof=0), floats.std(ddof=0)),
        Part(f"stddev({text})" if not filtered else values.std(), floats.std()),
    ]


def _sums(values: pl.Expr, kind: pl.DataType, text: str, is_exact: bool) -> list[Part]:
    if kind.is_float():
        total = some(values, values.cast(pl.Float64).sum())
        both = [Part(values.sum(), total), Part(text, total)]
        return [*both, Part(values.sum() * 2, total * 2)] if is_exact else both
    if kind == pl.Duration:
        return [Part(values.sum(), some(values, values.sum()))]
    found = [Part(values.sum(), values.implode(), functools.partial(_summed, kind))]
    if kind != pl.Boolean:
        found.append(Part(text, values.implode(), functools.partial(_summed, kind)))
    if isinstance(kind, pl.Decimal) and kind.precision < 20:
        found.append(Part(values.mean(), values.implode(), functools.partial(_averaged, kind)))
    return found


def _total(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    if known and isinstance(known[0], Decimal):
        return functools.reduce(_EXACT.add, known)
    return sum(known) if known else None


def _summed(kind: pl.DataType, lists: pl.Series) -> pl.Series:
    totals = [_total(values) for values in lists.to_list()]
    if isinstance(kind, pl.Decimal):
        digits = min(kind.precision + 10, 38)
        if any(total is not None and abs(total).scaleb(kind.scale, _EXACT) >= 10**digits for total in totals):
            raise TooLargeError("does not fit in 38 digits")
        return pl.Series(lists.name, totals, pl.Decimal(digits, kind.scale))
    if any(total is not None and not -(2**63) <= total < 2**63 for total in totals):
        raise TooLargeError("does not fit in int64")
    return pl.Series(lists.name, totals, pl.Int64)


def _averaged(kind: pl.Decimal, lists: pl.Series) -> pl.Series:
    means = []
    for values in lists.to_list():
        known = [value for value in values if value is not None]
        rounds = Decimal(1).scaleb(-kind.scale - 4)
        mean = _EXACT.divide(_total(known), Decimal(len(known))) if known else None
        means.append(None if mean is None else mean.quantize(rounds, ROUND_HALF_UP, _EXACT))
    return pl.Series(lists.name, means, pl.Decimal(kind.precision + 4, kind.scale + 4))


def _of_ordered(values: pl.Expr, kind: pl.DataType, text: str, filtered: str) -> list[Part]:
    greatest = values.nan_max() if kind.is_float() else values.max()
    return [
        Part(values.min(), values.min()),
        Part(f"min({text}){filtered}", values.min()),
        Part(values.max(), greatest),
        Part(f"max({text}){filtered}", greatest),
    ]


def _ends(drawn: Drawn, name: str) -> list[Part]:
    """The value of the row with the greatest or least other value."""
    by = drawn.of_kind(pl.Int64, pl.String, pl.Date, pl.UInt64, pl.Binary)
    if by is None or by == name:
        return []
    values, pair = pl.col(name), pl.struct(by, name)

    def end(ordered: pl.Expr) -> pl.Expr:
        return ordered.struct.field(name)

    last = end(pair.sort_by(by, name).last())
    least = end(pair.sort_by(by, name, nulls_last=[True, False]).first())
    known = pl.col(by).count() > 0
    return [
        Part(values.max_by(by), pl.when(known).then(last)),
        Part(f"min_by({name}, {by})", pl.when(known).then(least)),
        Part(values.sort_by(by).last(), last),
        Part(
            values.sort_by(by, descending=True).first(), end(pair.sort_by(by, name, descending=[True, False]).first())
        ),
    ]


def _listing(values: pl.Expr, kind: pl.DataType) -> list[Part]:
    found = [
        Part(values.n_unique(), values.n_unique().cast(pl.Int64)),
        Part(values.implode(), values.sort().implode()),
        Part(values.implode().list.len(), values.len()),
    ]
    if kind != pl.Null:
        found += [
            Part(values.top_k(2), values.drop_nulls().sort(descending=True).head(2).implode()),
            Part(values.bottom_k(3), values.drop_nulls().sort().head(3).implode()),
            Part(values.mode(), values.mode().sort().implode()),
        ]
    return found
