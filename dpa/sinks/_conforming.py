"""Converts rows to the types of a table's columns. A value that would change is refused, with both types.

A value does not change if it can be converted to the column's type and back. Times without a zone are in UTC."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dpa._util.inference import exactly_cast
from dpa.errors import TableError

_KINDS = (  # groups of types that can be converted to each other if no value changes
    (types.is_integer, types.is_floating, types.is_decimal),
    (types.is_boolean,),
    (types.is_string, types.is_large_string, types.is_string_view),
    (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
    (types.is_timestamp, types.is_date),
    (types.is_time,),
    (types.is_struct,),
    (types.is_map,),
    _LISTS := (
        types.is_list,
        types.is_large_list,
        types.is_fixed_size_list,
        types.is_list_view,
        types.is_large_list_view,
    ),
)

_STORED = (  # types that tables lack, and what they have instead
    (types.is_uint8, pa.int16()),
    (types.is_uint16, pa.int32()),
    (types.is_unsigned_integer, pa.int64()),
    (types.is_float16, pa.float32()),
    (types.is_date, pa.date32()),
    (types.is_time, pa.time64("us")),
)


def conformed(rows: pa.Table, wanted: pa.Schema, place: str, filled: Collection[str] = ()) -> pa.Table:
    """The rows in the order and the types of a table's columns. Without rows only the columns are checked; there, null
    stands for a type that is not known. Raises TableError if columns are missing, are too many, or have another kind of
    type; or a value would change.

    Args:
        rows: rows of a result.
        wanted: the columns of the table.
        place: where the table is, for messages.
        filled: columns that the table fills where the result lacks them.
    """
    names = rows.column_names
    if {*wanted.names} - {*filled} - {*names} or {*names} - {*wanted.names} or len({*names}) < len(names):
        columns = f"the result has the columns {', '.join(names)}"
        raise TableError(f"{columns}, and the table at {place} {', '.join(wanted.names)}: give both the same")
    fields = [field for field in wanted if field.name in names]
    made = [_column(rows[field.name], field, place) for field in fields]
    return pa.table(made, schema=pa.schema(fields))


def _column(column: pa.ChunkedArray, field: pa.Field, place: str) -> pa.ChunkedArray:
    chunks = column.chunks or [pa.nulls(0, column.type)]
    try:
        return pa.chunked_array([_converted(chunk, field, field.name, place) for chunk in chunks], field.type)
    except pa.ArrowNotImplementedError:
        raise _unfit(field.name, column.type, field.type, place) from None


def _unfit(name: str, have: pa.DataType, kind: pa.DataType, place: str) -> TableError:
    what = f"column {name!r} of the result is {have}, and {kind} in the table at {place}"
    return TableError(f"{what}: convert it in the job")


def storable(schema: pa.Schema, place: str, *, whole: bool = False) -> pa.Schema:
    """The columns of a new table for a result: signed integers, times in microseconds and in UTC. Raises TableError if
    tables cannot hold a type, or it is unknown and must not be.

    Args:
        schema: the columns of the result.
        place: where the table is, for messages.
        whole: whether all types must be known; else null stands for an unknown one, and stays.
    """
    return pa.schema([(field.name, _storable(field.type, field.name, place, whole)) for field in schema])


def of_new_table(rows: pa.Table, place: str) -> pa.Schema | None:
    """The columns of a new table for rows; None: there are no rows, and some types are unknown. Errors are those of
    `storable`."""
    try:
        return storable(rows.schema, place, whole=True)
    except TableError:
        if rows.num_rows:
            raise
        return None  # a table with a column of nulls would not take rows later


def _storable(kind: pa.DataType, *of: Any) -> pa.DataType:
    name, place, whole = of
    if types.is_dictionary(kind):
        return _storable(kind.value_type, *of)
    if types.is_struct(kind):
        return pa.struct([(field.name, _storable(field.type, *of)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_storable(kind.key_type, *of), _storable(kind.item_type, *of))
    if any(test(kind) for test in _LISTS):
        return pa.list_(_storable(kind.value_type, *of))
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if types.is_null(kind) and whole:
        why = f"column {name!r} has only nulls so far, so the new table at {place} cannot have a type for it"
        raise TableError(f"{why}: declare the result's `schema`")
    if not types.is_null(kind) and (_kind_of(kind) is None or types.is_decimal256(kind)):
        raise TableError(f"column {name!r} of the result is {kind}, which the table at {place} cannot hold: convert it")
    return next((stored for test, stored in _STORED if test(kind)), kind)


def _kind_of(kind: pa.DataType) -> int | None:
    return next((at for at, tests in enumerate(_KINDS) if any(test(kind) for test in tests)), None)


def _converted(values: pa.Array, field: pa.Field, name: str, place: str) -> pa.Array:
    """Values of a column, or of a nested part of it, in the type of a field."""
    kind = field.type
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not field.nullable and values.null_count:
        why = f"column {name!r} of the result has nulls, and the table at {place} requires a value"
        raise TableError(f"{why}: fill it in the job")
    if values.type == kind:
        return values
    if types.is_null(values.type) or len(values) == values.null_count > 0:
        return pa.array([None] * len(values), kind)  # pa.nulls would have nulls in required fields of a struct
    if _kind_of(kind) is None or _kind_of(kind) != _kind_of(values.type):
        raise _unfit(name, values.type, kind, place)
    if types.is_nested(kind):
        return _nested(values, kind, name, place)
    if (kept := _kept(values, kind)) is not None:
        return kept
    if not len(values):
        raise _unfit(name, values.type, kind, place)
    start, end = 0, len(values)
    while end - start > 1:
        half = (start + end) // 2
        start, end = (start, half) if _kept(values.slice(start, half - start), kind) is None else (half, end)
    value = f"column {name!r} of the result has the {values.type} {values[start].as_py()}"
    why = f"which would change in the type {kind} that it has in the table at {place}"
    raise TableError(f"{value}, {why}: convert it in the job, or give the table a wider type")


def _nested(values: pa.Array, kind: pa.DataType, name: str, place: str) -> pa.Array:
    missing = values.is_null()
    if types.is_struct(kind):
        if {each.name for each in kind} != {each.name for each in values.type}:
            raise _unfit(name, values.type, kind, place)
        there = pc.index(missing, False).as_py()
        whole = values.take(pa.array(np.where(missing, there, np.arange(len(values))), pa.int64()))  # without nulls
        parts = [_converted(pc.struct_field(whole, each.name), each, f"{name}.{each.name}", place) for each in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if types.is_map(kind):
        packed = values.take(pa.array(np.arange(len(values))))  # a slice would still have the entries of all maps
        keys = _converted(packed.keys, kind.key_field, f"{name}.key", place)
        items = _converted(packed.items, kind.item_field, f"{name}.value", place)
        return pa.MapArray.from_arrays(packed.offsets, keys, items, kind, mask=missing)
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    made, offsets = (pa.LargeListArray, pa.int64()) if types.is_large_list(kind) else (pa.ListArray, pa.int32())
    inside = _converted(values.flatten(), kind.value_field, f"{name}.element", place)
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), offsets)
    return made.from_arrays(ends, inside, type=kind, mask=missing)


def _kept(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values in a type; None if one of them would change."""
    if types.is_float16(values.type):  # of which Arrow makes wrong integers
        return None
    try:
        made, is_same = exactly_cast(values, kind)
    except pa.ArrowException:
        return None
    return made if is_same else None
