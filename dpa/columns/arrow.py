"""Batches of Arrow as frames of polars, and back without a change of type where a column is the same.

A type that polars has not travels as one that it has: an extension type as its storage, a small decimal as a larger
one. Where there is none, values travel as their bytes, on which no expression works."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.types as pat

from dpa._util.inference import as_type, no_rows, require_name, with_parts
from dpa.errors import TableError

_OPAQUE = "dpa.opaque"  # the name of polars extension types for columns that travel as bytes
_DIGITS = 38  # the most digits of a decimal of polars

_MEND = "leave it out, or make another type of it in a step on batches"

_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}

FrameT = TypeVar("FrameT", pl.DataFrame, pl.LazyFrame)

_OLDEST = pl.CompatLevel.oldest()  # without views, which many functions of Arrow lack


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """A block in which a panic of polars is an error of its own: it is no `Exception` otherwise, which
    what tolerates errors or reports them would let through."""
    try:
        yield
    except pl.exceptions.PanicException as error:
        raise pl.exceptions.ComputeError(f"polars panicked: {error}") from None


def to_frame(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """The rows as a frame. Raises TableError where polars has no type for a part of a nested column."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if not table.num_columns:
        return pl.DataFrame()
    opaque = []
    for position, field in enumerate(table.schema):
        try:
            carrier = _carrier(field.type)
        except TableError:
            raise TableError(
                f"the column {field.name!r} is {field.type}, which contains a type that polars does not have: {_MEND}"
            ) from None
        if carrier is None:
            opaque.append(pl.col(field.name).ext.to(pl.Extension(_OPAQUE, pl.Binary, str(field.type))))
            chunks = [_bytes_of(chunk) for chunk in table.column(position).chunks]
            table = table.set_column(position, field.name, pa.chunked_array(chunks, _width(field.type)))
        elif carrier != field.type or "fixed_size_list" in str(carrier):
            chunks = [_carried(chunk, carrier) for chunk in table.column(position).chunks]
            table = table.set_column(position, field.name, pa.chunked_array(chunks, carrier))
    frame = unordered(pl.DataFrame(table))
    return frame.with_columns(opaque) if opaque else frame


def unordered(frame: FrameT) -> FrameT:
    """With texts for enums: tasks send texts, so what an enum's order says would change from step to step."""
    kinds = frame.collect_schema()
    changed: dict[Any, Any] = {name: other for name, kind in kinds.items() if (other := _unordered(kind)) != kind}
    return frame.cast(changed) if changed else frame


def _unordered(kind: Any) -> Any:
    match kind:
        case pl.Enum():
            return pl.String()
        case pl.List(inner=inner):
            return pl.List(_unordered(inner))
        case pl.Array(inner=inner, size=size):
            return pl.Array(_unordered(inner), size)
        case pl.Struct(fields=fields):
            return pl.Struct({field.name: _unordered(field.dtype) for field in fields})
    return kind


def to_batch(frame: pl.DataFrame, like: pa.Schema) -> pa.RecordBatch:
    """The rows of a frame. A column that `like` has and polars holds as it would hold that one gets its type; any other
    gets the plain Arrow type of what it is in polars. Raises TableError where Arrow has none, or no such name."""
    types = held(like)
    columns = {}
    for column in frame.iter_columns():
        require_name(column.name)
        if "Int128" in str(column.dtype):
            mend = "cast it to Int64 or to a decimal"
            raise TableError(f"the column {column.name!r} would be {column.dtype}, which Arrow does not have: {mend}")
        is_like = types.get(column.name) == column.dtype
        columns[column.name] = _returned(column, like.field(column.name).type if is_like else None)
    return pa.record_batch(columns)


@lru_cache(maxsize=256)
def held(schema: pa.Schema) -> pl.Schema:
    return to_frame(no_rows(schema)).schema


def _carrier(kind: pa.DataType) -> pa.DataType | None:
    """The type as which a column goes to polars, None: as bytes. Raises TableError where a part of it would."""
    if isinstance(kind, pa.BaseExtensionType):
        return _carrier(kind.storage_type)
    if pat.is_decimal(kind):
        fits = kind.precision <= _DIGITS and 0 <= kind.scale <= kind.precision
        return pa.decimal128(kind.precision, kind.scale) if fits else None
    if pat.is_interval(kind):
        return None
    return with_parts(kind, _part) or kind


def _part(kind: pa.DataType) -> pa.DataType:
    carrier = _carrier(kind)
    if carrier is None:
        raise TableError(f"polars has no type for {kind}")
    return carrier


def _width(kind: pa.DataType) -> pa.DataType:
    return pa.binary(kind.bit_width // 8)


def _bytes_of(column: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(_width(column.type), len(column), column.buffers(), offset=column.offset)


def _carried(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if (column.offset or column.null_count) and "fixed_size_list" in str(kind):
        # polars takes the nulls of a slice for those of the whole
        column = column.take(pa.array(range(len(column)), pa.int64()))
    return as_type(column, kind)


def _returned(column: pl.Series, kind: pa.DataType | None) -> pa.Array:
    """As an Arrow column of a type, None: of the plain one."""
    if isinstance(column.dtype, pl.BaseExtension):
        column = column.ext.storage()
    found = column.to_arrow(compat_level=_OLDEST)
    if kind is None:
        return as_type(found, _plain(found.type))
    if _carrier(kind) is None:
        found = found.cast(_width(kind))
        return pa.Array.from_buffers(kind, len(found), found.buffers(), offset=found.offset)
    if pat.is_dictionary(kind):
        found = found.dictionary_decode() if pat.is_dictionary(found.type) else found
        encoded = as_type(found, kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            encoded.indices.cast(kind.index_type), encoded.dictionary, ordered=kind.ordered
        )
    return as_type(found, kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that rows made in Python would have, for one that polars gives."""
    if pat.is_dictionary(kind):
        return _plain(kind.value_type)
    if pat.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    return with_parts(kind, _plain) or _SMALL.get(kind, kind)
