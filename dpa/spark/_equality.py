"""When two columns hold equal values, whatever their physical types; a form of values in which rows can be sorted and
joined; and where two values first differ. Columns of different kinds are not compared."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from polars.datatypes import DataType, DataTypeClass

from dpa._util.words import shortened

LONGEST = 80

Kind = DataType | DataTypeClass


class IncomparableError(Exception):
    """Two columns of one name are of different kinds."""

    def __init__(self, name: str, left: pl.Series, right: pl.Series) -> None:
        here, there = (str(series.dtype).lower() for series in (left, right))
        super().__init__(f"column {name!r} is {here} in the result and {there} in the reference")


def series_of(table: pa.Table, name: str) -> pl.Series:
    series = pl.from_arrow(table[name])
    assert isinstance(series, pl.Series)
    return series


def common(left: Kind, right: Kind) -> Kind | None:
    """The type in which to compare values of two types; None if they are of different kinds. Lists and structs are not
    looked into."""
    for belongs, kind in _KINDS:
        if belongs(left) and belongs(right):
            return kind(left, right)
    return left if left == right else None


def aligned(name: str, left: pl.Series, right: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Cast two columns to a common type, except for the content of lists and structs. Raises IncomparableError."""
    if left.dtype == pl.Null or not len(left):
        return right.clear(len(left)), right
    if right.dtype == pl.Null or not len(right):
        return left, left.clear(len(right))
    left, right = _in_utc(left), _in_utc(right)
    kind = common(left.dtype, right.dtype)
    if kind is None:
        raise IncomparableError(name, left, right)
    if kind.is_nested():
        return left, right
    try:
        return left.cast(kind), right.cast(kind)
    except pl.exceptions.InvalidOperationError:  # decimals of so different scales that 38 digits do not hold both
        return left.cast(pl.Float64), right.cast(pl.Float64)


def equal(name: str, left: pl.Series, right: pl.Series, tolerance: float) -> pl.Series:
    """Where two columns of the same length hold equal values: booleans without nulls. Raises IncomparableError if they,
    or what they hold, are of different kinds."""
    left, right = aligned(name, left, right)
    if isinstance(left.dtype, pl.List | pl.Array):
        return _equal_lists(name, left, right, tolerance)
    if isinstance(left.dtype, pl.Struct):
        return _equal_structs(name, left, right, tolerance)
    same = left.eq_missing(right)
    if tolerance and left.dtype.is_numeric():
        same |= _close(left.cast(pl.Float64), right.cast(pl.Float64), tolerance)
    return same


def digits_of(tolerance: float) -> int | None:
    """The significant digits to round numbers to, so that those of one form differ by about `tolerance`, relatively;
    None: do not round."""
    return math.ceil(-math.log10(min(tolerance, 1.0))) + 1 if tolerance else None


def steady(values: pl.Expr, own: Kind, other: Kind, digits: int | None) -> pl.Expr:
    """Values of the type `own` in their form for sorting and joining with a column of the type `other`: of one type on
    both sides, and rounded to `digits_of` the tolerance. Equal values nearly always have one form, but values of one
    form need not be equal."""
    if own == pl.Null:
        values, own = values.cast(other), other
    if other == pl.Null:
        other = own
    kind = common(own, other)
    if kind is None:
        return values.is_null()  # Only null equals anything here.
    if isinstance(own, pl.List | pl.Array) and isinstance(other, pl.List | pl.Array):
        lists = values.arr.to_list() if isinstance(own, pl.Array) else values
        return lists.list.eval(steady(pl.element(), own.inner, other.inner, digits))
    if isinstance(own, pl.Struct) and isinstance(other, pl.Struct):
        others = {field.name: field.dtype for field in other.fields}
        fields = sorted((field for field in own.fields if field.name in others), key=lambda field: field.name)
        parts = [steady(values.struct.field(field.name), field.dtype, others[field.name], digits) for field in fields]
        return pl.struct(part.alias(str(number)) for number, part in enumerate([values.is_null(), *parts]))
    if kind.is_float():
        floats = values.cast(pl.Float64)
        return floats.round_sig_figs(digits) if digits else floats
    return values.cast(kind, strict=False)


def _close(left: pl.Series, right: pl.Series, tolerance: float) -> pl.Series:
    a, b = pl.col("a"), pl.col("b")
    close = (a - b).abs() <= tolerance * pl.max_horizontal(a.abs(), b.abs())
    finite = a.is_finite() & b.is_finite()  # Or else infinity would be close to everything.
    return pl.DataFrame({"a": left, "b": right}).select((close & finite).fill_null(False)).to_series()


def _equal_lists(name: str, left: pl.Series, right: pl.Series, tolerance: float) -> pl.Series:
    left, right = (series.arr.to_list() if isinstance(series.dtype, pl.Array) else series for series in (left, right))
    lengths = left.list.len()
    same = lengths.eq_missing(right.list.len()).to_numpy().copy()
    filled = np.flatnonzero(same & (lengths.fill_null(0).to_numpy() > 0))
    rows = np.repeat(filled, lengths.gather(filled).to_numpy())
    elements = equal(name, left.gather(filled).explode(), right.gather(filled).explode(), tolerance)
    same[rows[~elements.to_numpy()]] = False
    return pl.Series(same)


def _equal_structs(name: str, left: pl.Series, right: pl.Series, tolerance: float) -> pl.Series:
    if set(left.struct.fields) != set(right.struct.fields):
        raise IncomparableError(name, left, right)
    same = left.is_null() == right.is_null()
    for field in left.struct.fields:
        same &= equal(f"{name}.{field}", left.struct.field(field), right.struct.field(field), tolerance)
    return same


def _in_utc(series: pl.Series) -> pl.Series:
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone is not None:
        return series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return series


def _of_class(*classes: type[DataType]) -> Callable[[Kind], bool]:
    return lambda kind: isinstance(kind, classes)


_KINDS: tuple[tuple[Callable[[Kind], bool], Callable[[Kind, Kind], Kind]], ...] = (
    (lambda kind: kind.is_integer(), lambda left, right: pl.Int128 if pl.UInt64 in (left, right) else pl.Int64),
    (
        lambda kind: kind.is_integer() or kind.is_decimal(),
        lambda left, right: pl.Decimal(38, max(getattr(left, "scale", 0), getattr(right, "scale", 0))),
    ),
    (lambda kind: kind.is_numeric(), lambda left, right: pl.Float64),
    (_of_class(pl.String, pl.Categorical, pl.Enum), lambda left, right: pl.String),
    (_of_class(pl.Datetime), lambda left, right: pl.Datetime("us")),
    (_of_class(pl.Duration), lambda left, right: pl.Duration("us")),
    (_of_class(pl.List, pl.Array), lambda left, right: pl.List),
    (_of_class(pl.Struct), lambda left, right: pl.Struct),
)
"""Kinds of values, and the type in which to compare two columns of a kind. The first that fits both counts."""


def shown_value(value: Any) -> str:
    """A value in a sentence, as Python shows it, cut to `LONGEST` characters."""
    text = "null" if value is None else repr(value) if isinstance(value, str | bytes | list | dict) else str(value)
    return shortened(text, LONGEST)


def difference(subject: str, column: str, here: Any, there: Any) -> str:
    return f"{subject}: {column} is {shown_value(here)}, but {shown_value(there)} in the reference"


def divergence(name: str, left: pl.Series, right: pl.Series, tolerance: float) -> tuple[str, Any, Any]:
    """The path to the first difference of two values, such as `ranking[3].score`, and what is there. The values are
    series of one element, of one kind and not equal. Null, and lists of different lengths, are not looked into."""
    parts = _parts(left, right)
    for step, (one, other) in parts.items():
        if not equal(name, one, other, tolerance)[0]:
            return divergence(name + step, one, other, tolerance)
    return name, left.to_list()[0], right.to_list()[0]


def _parts(left: pl.Series, right: pl.Series) -> dict[str, tuple[pl.Series, pl.Series]]:
    if left[0] is None or right[0] is None:
        return {}
    if isinstance(left.dtype, pl.Struct):
        return {f".{field}": (left.struct.field(field), right.struct.field(field)) for field in left.struct.fields}
    if isinstance(left.dtype, pl.List | pl.Array) and len(left[0]) == len(right[0]):
        items = left.explode(), right.explode()
        return {f"[{number}]": (items[0][[number]], items[1][[number]]) for number in range(len(left[0]))}
    return {}
