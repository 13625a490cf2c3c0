"""Arrow arrays of Python objects, the common type of several arrays, and types on which every step can work.

A common type does not depend on which values came together. Arrow's own inference does. Next to a date, a timestamp
becomes a date and loses its time. Next to a decimal, an integer gets too few digits for a whole column of integers. And
integers beyond int64 fail next to smaller ones. Arrow also lacks functions for some ways of keeping values, such as
views."""

import functools
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from dpa.errors import TableError

ArrayT = TypeVar("ArrayT", pa.Array, pa.ChunkedArray)

_DIGITS = {  # the most decimal digits of an integer type
    **{pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19},
    **{pa.uint8(): 3, pa.uint16(): 5, pa.uint32(): 10, pa.uint64(): 20},
}


def array_of(values: Sequence[Any], kinds: Set[type] | None = None) -> pa.Array:
    """Make an array of the common type of all values, as `promoted` finds it; `kinds` are their Python types, if
    they are known, without None's. Raises pa.ArrowInvalid if there is no common type; other Arrow exceptions,
    OverflowError, TypeError or UnicodeError if no Arrow type holds a value."""
    if kinds is None:
        kinds = set(map(type, values)) - {type(None)}
    if any(kind.__name__ == "NaTType" for kind in kinds):  # of pandas, which Arrow takes for a time only among others
        return array_of([None if type(value).__name__ == "NaTType" else value for value in values])
    if len(kinds) == 1 and not any(issubclass(kind, datetime) for kind in kinds):
        return _of_one_kind(values)
    rows_of: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        kind = (type(value), value.tzinfo) if isinstance(value, datetime) else type(value)
        rows_of.setdefault(kind, []).append(row)
    arrays = [_of_one_kind([values[row] for row in rows]) for rows in rows_of.values()]
    if len(arrays) < 2:
        return arrays[0] if arrays else pa.nulls(0)
    common = one_type(array.type for array in arrays)
    places = np.argsort(np.concatenate(list(rows_of.values())))
    return pa.concat_arrays([as_type(array, common) for array in arrays]).take(pa.array(places))


def one_type(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """The type to which all of these are promoted. Raises pa.ArrowInvalid if there is none."""
    return functools.reduce(_common, kinds, pa.null())


def promoted(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The common type of two, nested ones too; None if there is none.

    A decimal widens to hold the integers beside it, and never becomes a float. Signed beside unsigned integers become
    unsigned, as keys do. Moments of different time zones become UTC."""
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
    """Cast a column, unless it has the type already: Arrow breaks a list with nested nulls when it casts it to its own
    type."""
    return column if column.type == kind else column.cast(kind)


def lossless(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column to a type that holds the very same values: between integers and floats, integers to decimals,
    between dates and timestamps, between layouts of text or bytes, element by element in nested types, and nulls to
    anything.

    Raises pa.ArrowInvalid if the types are of different kinds, or a value would change."""
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
    if not any(all(any(fits(each) for fits in row) for each in (kind, found)) for row in _KINDS):
        raise pa.ArrowInvalid("these are values of two kinds")
    if not exactly_cast(column, kind)[1]:
        raise pa.ArrowInvalid("a value would change")
    return None


def exactly_cast(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, bool]:
    """Cast a column that is not nested, and say whether the way back gives the same values. Raises pa.ArrowException
    if a value cannot be cast."""
    made = there = _cast(column, kind)
    if pat.is_floating(column.type):  # NaN equals nothing
        there, column = (
            pc.if_else(pc.is_nan(part), None, part) if pat.is_floating(part.type) else part for part in (made, column)
        )
    return made, _cast(there, column.type).equals(column)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (  # types in one row can hold each other's values
    (pat.is_integer, pat.is_floating),
    (pat.is_integer, pat.is_decimal),
    (pat.is_string, pat.is_large_string, pat.is_string_view),
    (pat.is_binary, pat.is_large_binary, pat.is_binary_view, pat.is_fixed_size_binary),
    (pat.is_date, lambda kind: pat.is_timestamp(kind) and kind.tz is None),
    (lambda kind: pat.is_timestamp(kind) and kind.tz is not None,),
    (pat.is_time,),
    (pat.is_duration,),
)


def _is_list(kind: pa.DataType) -> bool:
    return any(fits(kind) for fits in (pat.is_list, pat.is_large_list, pat.is_fixed_size_list))


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast safely. Integers may become decimals of fewer digits than their type's, if the values fit."""
    if pat.is_decimal(kind) and column.type in _DIGITS:
        column = column.cast(pa.decimal128(_DIGITS[column.type], 0)).cast(pa.decimal256(76, max(kind.scale, 0)))
    return column.cast(kind)


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    both = promoted(left, right)
    if both is None:
        raise pa.ArrowInvalid(f"values are of types {left} and {right}")
    return both


def _of_one_kind(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:  # Arrow infers no type for integers beyond int64
        return pa.array(values, pa.uint64())


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """An empty batch, of any types: Arrow makes no array of Python objects for dictionaries of times."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)

_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def known_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that rows have as `known` gives them. Raises TableError if two have one name, or nothing can be done
    with one."""
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise TableError(f"there is more than one column named {twice[0]!r}: name them apart")
    for field in schema:
        require_name(field.name)
        if any(word in str(field.type) for word in ("union<", "list_view<")):
            mend = "leave it out, or make structs or lists of it"
            raise TableError(f"the column {field.name!r} is {field.type}, on which no step works: {mend}")
    return pa.schema([field.with_type(_known(field.type)) for field in schema], schema.metadata)


def require_name(name: object) -> None:
    """Check that a column's name may leave Arrow: polars ends the process where there is a NUL in it. Raises TableError
    if it may not."""
    if "\0" in str(name):
        raise TableError(f"there is a column named {name!r}, and names have no NUL: name it otherwise")


def known(rows: RowsT) -> RowsT:
    """The rows with columns of known types; raises as `known_schema`, and where a column cannot be of such a type."""
    schema = known_schema(rows.schema)
    if schema == rows.schema:
        return rows
    columns = []
    for field, column in zip(schema, rows.columns, strict=True):
        try:
            flat = pc.run_end_decode(column) if pat.is_run_end_encoded(column.type) else column
            columns.append(as_type(flat, field.type))
        except (pa.ArrowException, ValueError) as error:
            raise TableError(f"the column {field.name!r} cannot be {field.type}: {error}") from None
    return type(rows).from_arrays(columns, schema=schema)


def _known(kind: pa.DataType) -> pa.DataType:
    if pat.is_dictionary(kind) or pat.is_run_end_encoded(kind):
        values = _VIEWS.get(kind.value_type, kind.value_type)
        is_flat = pat.is_primitive(values) or values in _TEXTS
        if not (is_flat and pat.is_dictionary(kind)):
            return _known(kind.value_type)
        return pa.dictionary(kind.index_type, values, kind.ordered)
    if isinstance(kind, pa.BaseExtensionType):
        return kind if _known(kind.storage_type) == kind.storage_type else _known(kind.storage_type)
    return with_parts(kind, _known) or _VIEWS.get(kind, kind)


def with_parts(kind: pa.DataType, part: Callable[[pa.DataType], pa.DataType]) -> pa.DataType | None:
    """A nested type with other types of its parts; None if it is not nested."""
    if pat.is_list(kind):
        return pa.list_(kind.value_field.with_type(part(kind.value_type)))
    if pat.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(part(kind.value_type)))
    if pat.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(part(kind.value_type)), kind.list_size)
    if pat.is_map(kind):
        keys, items = kind.key_field, kind.item_field
        return pa.map_(keys.with_type(part(keys.type)), items.with_type(part(items.type)))
    if pat.is_struct(kind):
        return pa.struct([field.with_type(part(field.type)) for field in kind])
    return None
