"""Where two values that are not equal first differ, inside of lists and structs, and the sentences that say so."""

from __future__ import annotations

from typing import Any

import polars as pl

from dpa.spark._equality import equal

LONGEST = 80
"""Characters of a value that a sentence shows."""


def shown_value(value: Any) -> str:
    """A value in a sentence: text, bytes, lists and structs as in Python, cut to `LONGEST` characters."""
    text = "null" if value is None else repr(value) if isinstance(value, str | bytes | list | dict) else str(value)
    return cut(text, LONGEST)


def cut(text: str, longest: int) -> str:
    """The first `longest` characters of a text, and whether there are more."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def difference(subject: str, column: str, here: Any, there: Any) -> str:
    """The sentence that a row's value in a column is one in the result, and another one in the reference."""
    return f"{subject}: {column} is {shown_value(here)}, but {shown_value(there)} in the reference"


def divergence(name: str, left: pl.Series, right: pl.Series, tolerance: float) -> tuple[str, Any, Any]:
    """The path to the first difference of two values, such as `ranking[3].score`, and what is there.

    Lists of different lengths and null are not looked into.

    Args:
        name: of the column.
        left: a series of one value.
        right: a series of one value, of the same kind, that is not equal to `left`.
        tolerance: as in `compare`.
    """
    parts = _parts(left, right)
    for step, (one, other) in parts.items():
        if not equal(name, one, other, tolerance)[0]:
            return divergence(name + step, one, other, tolerance)
    return name, left.to_list()[0], right.to_list()[0]


def _parts(left: pl.Series, right: pl.Series) -> dict[str, tuple[pl.Series, pl.Series]]:
    """The elements or fields of two values, by the step from the value to them."""
    if left[0] is None or right[0] is None:
        return {}
    if isinstance(left.dtype, pl.Struct):
        return {f".{field}": (left.struct.field(field), right.struct.field(field)) for field in left.struct.fields}
    if isinstance(left.dtype, pl.List | pl.Array) and len(left[0]) == len(right[0]):
        items = left.explode(), right.explode()
        return {f"[{number}]": (items[0][[number]], items[1][[number]]) for number in range(len(left[0]))}
    return {}
