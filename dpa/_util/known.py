"""Rows as every step can work on them: Arrow lacks functions for some ways of keeping values, such as views."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from dpa._util.inference import as_type
from dpa.errors import TableError

RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)

_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def known_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that rows have as `known` gives them.

    Raises:
        TableError: two have one name, or nothing can be done with one.
    """
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
    """Check that a column's name may leave Arrow: polars ends the process where there is a NUL in it.

    Raises:
        TableError: it may not.
    """
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
        is_flat = pat.is_primitive(kind.value_type) or kind.value_type in _TEXTS
        return kind if is_flat and pat.is_dictionary(kind) else _known(kind.value_type)
    if pat.is_list(kind):
        return pa.list_(kind.value_field.with_type(_known(kind.value_type)))
    if pat.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_known(kind.value_type)))
    if pat.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_known(kind.value_type)), kind.list_size)
    if pat.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_known(kind.key_type)), kind.item_field.with_type(_known(kind.item_type))
        )
    if isinstance(kind, pa.BaseExtensionType):
        return kind if _known(kind.storage_type) == kind.storage_type else _known(kind.storage_type)
    if pat.is_struct(kind):
        return pa.struct([field.with_type(_known(field.type)) for field in kind])
    return _VIEWS.get(kind, kind)
