"""Rows in the types of a table's columns: what would change there is refused, with the value and both types.

A value is kept if it can be converted to the column's type and back. Times without a zone are in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dpa.errors import TableError

_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "numbers": (types.is_integer, types.is_floating, types.is_decimal),
    "truth values": (types.is_boolean,),
    "text": (types.is_string, types.is_large_string, types.is_string_view),
    "bytes": (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
    "times": (types.is_timestamp, types.is_date),
    "times of day": (types.is_time,),
    "structs": (types.is_struct,),
    "maps": (types.is_map,),
    "lists": (
        types.is_list,
        types.is_large_list,
        types.is_fixed_size_list,
        types.is_list_view,
        types.is_large_list_view,
    ),
}
"""What a column may hold; the types of one kind can be converted to each other, if no value changes."""


def require_columns(have: pa.Schema, wanted: pa.Schema, place: str, filled: Collection[str] = ()) -> None:
    """Check that rows of a result could be in a table; null stands for a type that is not known.

    Args:
        have: the columns of the result.
        wanted: those of the table.
        place: where the table is, for messages.
        filled: columns that the table fills where the result lacks them.

    Raises:
        TableError: they could not: columns are missing, are too many, or are of another kind.
    """
    lacking = {*wanted.names} - {*have.names} - {*filled}
    if lacking or {*have.names} - {*wanted.names} or len({*have.names}) < len(have.names):
        columns = f"the result has the columns {', '.join(have.names)}"
        raise TableError(f"{columns}, and the table at {place} {', '.join(wanted.names)}: give both the same")
    for field in have:
        _require_kind(field.name, field.type, wanted.field(field.name).type, place)


def conformed(rows: pa.Table, wanted: pa.Schema, place: str, filled: Collection[str] = ()) -> pa.Table:
    """The rows in the columns of a table, in that order and in those types; arguments as of `require_columns`.

    Raises:
        TableError: they do not fit, or a value would change.
    """
    require_columns(rows.schema, wanted, place, filled)
    fields = [field for field in wanted if field.name in rows.column_names]
    columns = [_column(rows[field.name], field, place) for field in fields]
    return pa.table(columns, schema=pa.schema(fields))


def storable(schema: pa.Schema, place: str) -> pa.Schema:
    """The columns of a new table for rows with these: integers with a sign, times in microseconds and in UTC. Null
    stands for a type that is not known, and stays.

    Raises:
        TableError: no table holds a type.
    """
    return pa.schema([pa.field(field.name, _storable(field.type, field.name, place)) for field in schema])


def has_types(rows: pa.Table, place: str) -> bool:
    """Whether a new table can be made of rows: none is made of no rows whose types are not known, as it could not take
    other rows afterwards.

    Raises:
        TableError: there are rows, and a column has no type.
    """
    unknown = [field.name for field in rows.schema if _lacks_type(field.type)]
    if unknown and rows.num_rows:
        why = f"column {unknown[0]!r} has only nulls so far, so the new table at {place} cannot have a type for it"
        raise TableError(f"{why}: declare the result's `schema`")
    return not unknown


def _lacks_type(kind: pa.DataType) -> bool:
    inside = (kind.field(at).type for at in range(kind.num_fields))
    return types.is_null(kind) or any(_lacks_type(each) for each in inside)


def _storable(kind: pa.DataType, name: str, place: str) -> pa.DataType:
    if types.is_dictionary(kind):
        return _storable(kind.value_type, name, place)
    if types.is_struct(kind):
        return pa.struct([(field.name, _storable(field.type, name, place)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_storable(kind.key_type, name, place), _storable(kind.item_type, name, place))
    if _kind_of(kind) == "lists":
        return pa.list_(_storable(kind.value_type, name, place))
    if types.is_unsigned_integer(kind):
        return pa.int16() if kind.bit_width == 8 else pa.int32() if kind.bit_width == 16 else pa.int64()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if types.is_date(kind):
        return pa.date32()
    if types.is_time(kind):
        return pa.time64("us")
    if not types.is_null(kind) and (_kind_of(kind) is None or types.is_decimal256(kind)):
        raise TableError(f"column {name!r} of the result is {kind}, which the table at {place} cannot hold: convert it")
    return kind


def _kind_of(kind: pa.DataType) -> str | None:
    return next((name for name, tests in _KINDS.items() if any(test(kind) for test in tests)), None)


def _plain(kind: pa.DataType) -> pa.DataType:
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return kind.value_type if types.is_dictionary(kind) else kind


def _require_kind(name: str, have: pa.DataType, wanted: pa.DataType, place: str) -> None:
    have, wanted = _plain(have), _plain(wanted)
    if types.is_null(have) or have == wanted:
        return
    kind = _kind_of(have)
    if kind is None or kind != _kind_of(wanted):
        raise TableError(
            f"column {name!r} of the result is {have}, and {wanted} in the table at {place}: convert it in the job"
        )
    if kind == "structs":
        if {field.name for field in have} != {field.name for field in wanted}:
            what = f"column {name!r} of the result is {have}, and {wanted} in the table at {place}"
            raise TableError(f"{what}: give both the same fields")
        for field in have:
            _require_kind(f"{name}.{field.name}", field.type, wanted.field(field.name).type, place)
    elif kind == "maps":
        _require_kind(f"{name}.key", have.key_type, wanted.key_type, place)
        _require_kind(f"{name}.value", have.item_type, wanted.item_type, place)
    elif kind == "lists":
        _require_kind(f"{name}.element", have.value_type, wanted.value_type, place)


def _column(column: pa.ChunkedArray, field: pa.Field, place: str) -> pa.ChunkedArray:
    converter = _Converter(place)
    chunks = [converter.converted(chunk, field, field.name) for chunk in column.chunks]
    return pa.chunked_array(chunks, field.type)


class _Converter:
    """Converts values of one column, whose kinds have been checked."""

    def __init__(self, place: str) -> None:
        self._place = place

    def converted(self, values: pa.Array, field: pa.Field, name: str) -> pa.Array:
        """Values in the type of a field."""
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if not field.nullable and values.null_count:
            why = f"column {name!r} of the result has nulls, and the table at {self._place} requires a value"
            raise TableError(f"{why}: fill it in the job")
        wanted = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        made = values if values.type == wanted else self._made(values, wanted, name)
        return made if wanted == field.type else pa.ExtensionArray.from_storage(field.type, made)

    def _made(self, values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
        missing = values.is_null()
        if types.is_null(values.type):
            return pa.nulls(len(values), kind)
        if types.is_struct(kind):
            there = np.flatnonzero(values.is_valid())
            if not len(there):
                blanks = [_blanks(len(values), field) for field in kind]
                return pa.StructArray.from_arrays(blanks, fields=list(kind), mask=missing)
            places = np.where(missing, there[0], np.arange(len(values)))  # so that what is required is there everywhere
            found = [pc.struct_field(values.take(pa.array(places)), field.name) for field in kind]
            parts = zip(found, kind, strict=True)
            inside = [self.converted(each, field, f"{name}.{field.name}") for each, field in parts]
            return pa.StructArray.from_arrays(inside, fields=list(kind), mask=missing)
        if types.is_map(kind):
            packed = values.take(pa.array(np.arange(len(values))))  # whose entries are those of its maps alone
            keys = self.converted(packed.keys, kind.key_field, f"{name}.key")
            items = self.converted(packed.items, kind.item_field, f"{name}.value")
            return pa.MapArray.from_arrays(packed.offsets, keys, items, kind, mask=missing)
        if _kind_of(kind) == "lists":
            made = pa.LargeListArray if types.is_large_list(kind) else pa.ListArray
            inside = self.converted(values.flatten(), kind.value_field, f"{name}.element")
            return made.from_arrays(_offsets(values, made), inside, type=kind, mask=missing)
        made = _kept(values, kind)
        if made is None:
            at = _first(values, kind)
            value = f"column {name!r} of the result has the {values.type} {values[at].as_py()}"
            why = f"which would change in the type {kind} that it has in the table at {self._place}"
            raise TableError(f"{value}, {why}: convert it in the job, or give the table a wider type")
        return made


def _offsets(values: pa.Array, of: type) -> pa.Array:
    """Where the lists in some values begin and end once they lie one after the other."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64() if of is pa.LargeListArray else pa.int32())


def _blanks(count: int, field: pa.Field) -> pa.Array:
    """What stands in a struct that is null: no nulls, where the struct requires a value."""
    nulls = pa.nulls(count, field.type)
    if field.nullable or types.is_nested(field.type):
        return nulls
    return pa.Array.from_buffers(field.type, count, [None, *nulls.buffers()[1:]])


def _kept(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values in a type; None if one of them would change."""
    try:
        whole = types.is_integer(values.type) and types.is_decimal(kind)  # wide at first, as Arrow looks at types alone
        made = (values.cast(pa.decimal256(76, kind.scale)) if whole else values).cast(kind)
        back = made.cast(values.type, safe=False)
    except pa.ArrowException:
        return None
    same = pc.equal(back, values)
    if types.is_floating(values.type):
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(values)))
    return made if pc.all(same, min_count=0).as_py() else None


def _first(values: pa.Array, kind: pa.DataType) -> int:
    """The first of some values, one of which would change, that does."""
    start, end = 0, len(values)
    while end - start > 1:
        half = (start + end) // 2
        start, end = (start, half) if _kept(values.slice(start, half - start), kind) is None else (half, end)
    return start
