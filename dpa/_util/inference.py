"""Arrow arrays of Python objects, and the one type of several: neither depends on which values came together.

Arrow's own inference does depend on it. Beside a date it makes a date of a timestamp, whose time is lost; beside a
decimal it makes one of an integer, for which the type of a whole column of integers and another of decimals has too few
digits; and it knows no integer beyond int64 beside one that is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

ArrayT = TypeVar("ArrayT", pa.Array, pa.ChunkedArray)

_DIGITS = {
    **{pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19},
    **{pa.uint8(): 3, pa.uint16(): 5, pa.uint32(): 10, pa.uint64(): 20},
}
"""Decimal digits that integers of a type have at most."""


def array_of(values: Sequence[Any]) -> pa.Array:
    """Values as an array, of the type that `promoted` gives of those that each has.

    Raises:
        pa.ArrowInvalid: they are not of one type.
        pa.ArrowException, OverflowError, TypeError, UnicodeError: no Arrow type holds a value.
    """
    kinds = set(map(type, values)) - {type(None)}
    if any(kind.__name__ == "NaTType" for kind in kinds):  # of pandas, which Arrow takes for a time only among others
        return array_of([None if type(value).__name__ == "NaTType" else value for value in values])
    if len(kinds) == 1 and not any(issubclass(kind, datetime) for kind in kinds):
        return _of_one_kind(values)
    rows_of: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        rows_of.setdefault(_kind(value), []).append(row)
    arrays = [_of_one_kind([values[row] for row in rows]) for rows in rows_of.values()]
    if len(arrays) < 2:
        return arrays[0] if arrays else pa.nulls(0)
    common = one_type(array.type for array in arrays)
    places = np.argsort(np.concatenate(list(rows_of.values())))
    return pa.concat_arrays([as_type(array, common) for array in arrays]).take(pa.array(places))


def one_type(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """The type to which all of these are promoted.

    Raises:
        pa.ArrowInvalid: there is none.
    """
    return functools.reduce(_common, kinds, pa.null())


def promoted(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type to which Arrow promotes two others, nested ones too; None if there is none.

    Decimals hold any integer beside them and do not become binary fractions; signed integers beside unsigned ones are
    taken as such, as among keys; moments of different time zones are in UTC.
    """
    if left == right:
        return left
    if {left, right} == {pa.int64(), pa.uint64()}:
        return pa.uint64()
    if pat.is_decimal(left) or pat.is_decimal(right):
        if pat.is_floating(left) or pat.is_floating(right):
            return None
        left, right = (pa.decimal128(_DIGITS[kind], 0) if kind in _DIGITS else kind for kind in (left, right))
    if pat.is_timestamp(left) and pat.is_timestamp(right) and None not in (left.tz, right.tz):
        left, right = (kind if left.tz == right.tz else pa.timestamp(kind.unit, "UTC") for kind in (left, right))
    try:
        schemas = [pa.schema([("", kind)]) for kind in (left, right)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None


def as_type(column: ArrayT, kind: pa.DataType) -> ArrayT:
    """A column as one of another type. One that has the type already stays as it is: Arrow's cast of a list to its own
    type breaks it where it has nested nulls.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError: a value does not fit.
    """
    return column if column.type == kind else column.cast(kind)


def lossless(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as one of another type that holds the very same values: integers and floats as one another, integers as
    decimals, dates and timestamps as one another, text and bytes in another layout, nested types element by element,
    and nulls as anything.

    Raises:
        pa.ArrowInvalid: values of the column's type are of another kind, or one would change.
    """
    if column.type == kind:
        return column
    if pat.is_dictionary(column.type):
        return column if column.type.value_type == kind else lossless(column.dictionary_decode(), kind)
    try:
        _require_the_same(column, kind)
        return _cast(column, kind)
    except pa.ArrowNotImplementedError as error:
        raise pa.ArrowInvalid(str(error)) from None


def _require_the_same(column: pa.Array, kind: pa.DataType) -> None:
    """Check that a column can be cast to a type, and no value changes.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError: it cannot, or one does.
    """
    found = column.type
    if found == kind or pat.is_null(found):
        return
    if _is_list(found) and _is_list(kind):
        return _require_the_same(column.flatten(), kind.value_type)
    if pat.is_struct(found) and pat.is_struct(kind) and set(found.names) == set(kind.names):
        for name, part in zip(found.names, column.flatten(), strict=True):
            _require_the_same(part, kind.field(name).type)
        return None
    if pat.is_map(found) and pat.is_map(kind):
        _require_the_same(column.keys, kind.key_type)
        return _require_the_same(column.items, kind.item_type)
    if not _may_hold(kind, found):
        raise pa.ArrowInvalid("these are values of two kinds")
    there = _cast(column, kind)
    if pat.is_floating(found):
        there, column = (
            pc.if_else(pc.is_nan(part), None, part) if pat.is_floating(part.type) else part for part in (there, column)
        )
    if not _cast(there, found).equals(column):
        raise pa.ArrowInvalid("a value would change")
    return None


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (pat.is_integer, pat.is_floating),
    (pat.is_integer, pat.is_decimal),
    (pat.is_string, pat.is_large_string, pat.is_string_view),
    (pat.is_binary, pat.is_large_binary, pat.is_binary_view, pat.is_fixed_size_binary),
    (pat.is_date, lambda kind: pat.is_timestamp(kind) and kind.tz is None),
    (lambda kind: pat.is_timestamp(kind) and kind.tz is not None,),
    (pat.is_time,),
    (pat.is_duration,),
)
"""Types of one row may hold each other's values."""


def _may_hold(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of two types are of one kind."""
    return any(all(any(fits(kind) for fits in row) for kind in (left, right)) for row in _KINDS)


def _is_list(kind: pa.DataType) -> bool:
    return any(fits(kind) for fits in (pat.is_list, pat.is_large_list, pat.is_fixed_size_list))


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A safe cast; of integers to decimals of any precision that holds the values, not only all of the type."""
    if pat.is_decimal(kind) and column.type in _DIGITS:
        column = column.cast(pa.decimal128(_DIGITS[column.type], 0)).cast(pa.decimal256(76, max(kind.scale, 0)))
    return column.cast(kind)


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    both = promoted(left, right)
    if both is None:
        raise pa.ArrowInvalid(f"values are of types {left} and {right}")
    return both


def _kind(value: Any) -> Any:
    """What values have in common of which Arrow makes one type."""
    return (type(value), value.tzinfo) if isinstance(value, datetime) else type(value)


def _of_one_kind(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:  # Arrow infers no type for integers beyond int64
        return pa.array(values, pa.uint64())


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows, of types of which Arrow makes no array of Python objects, too: dictionaries of times."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)
