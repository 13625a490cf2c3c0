"""Values in a form in which rows of two tables can be sorted and joined: one type on both sides, and numbers that a
tolerance lets differ are rounded. What is equal nearly always has one form; what has one form need not be equal."""

from __future__ import annotations

import math

import polars as pl

from dpa.spark._equality import Kind, common


def digits_of(tolerance: float) -> int | None:
    """The significant digits to which numbers are rounded, such that those of one form differ by about the relative
    `tolerance` at most; None: they are not rounded."""
    return math.ceil(-math.log10(min(tolerance, 1.0))) + 1 if tolerance else None


def steady(values: pl.Expr, own: Kind, other: Kind, digits: int | None) -> pl.Expr:
    """Values in their form for sorting and joining.

    Args:
        values: of the type `own`.
        other: the type of the column that they are compared with.
        digits: as `digits_of` returns them.
    """
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
