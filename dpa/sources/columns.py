"""Columns of tables: checks, with messages that name the columns there are."""

from collections.abc import Container, Iterable

import pyarrow as pa

from dpa._util.words import suggestion
from dpa.errors import TableError


def require_columns(present: Iterable[str], wanted: Iterable[str], where: str) -> None:
    """Check that a table has some columns. Raises TableError that names the first missing one, a likely spelling, and
    the columns there are."""
    present = list(present)
    for column in wanted:
        if column not in present:
            likely = suggestion(column, present, before="; ")
            raise TableError(f"{where} has no column {column!r}{likely} (it has {listed(present)})")


def of_json(declared: pa.Schema) -> pa.Schema:
    """Check that Arrow can make the declared types of JSON. Raises TableError if not."""
    from pyarrow import json

    for field in declared:
        try:
            json.read_json(pa.BufferReader(b"{}"), parse_options=json.ParseOptions(explicit_schema=pa.schema([field])))
        except pa.ArrowNotImplementedError:
            mend = "declare a type that JSON has, such as `string`, and convert the column in a step"
            raise TableError(f"the column {field.name!r} is declared as {field.type}: {mend}") from None
    return declared


def only(schema: pa.Schema, columns: Container[str] | None) -> pa.Schema:
    """The names and types of some columns, in the schema's order; None: of all."""
    return pa.schema([(field.name, field.type) for field in schema if columns is None or field.name in columns])


def first_difference(expected: pa.Schema, found: pa.Schema) -> tuple[str, str, str] | None:
    """The first column that differs between schemas, in any order: its name, and its type in each, or `missing`. None
    if there is none."""
    here, there = (dict(zip(schema.names, schema.types, strict=True)) for schema in (expected, found))
    for name in {**here, **there}:
        if here.get(name) != there.get(name):
            return name, str(here.get(name, "missing")), str(there.get(name, "missing"))
    return None


def listed(names: Iterable[str], most: int = 30) -> str:
    """The first `most` names for a message."""
    names = list(names)
    return ", ".join(names[:most] or ["none"]) + (f" and {len(names) - most} more" if len(names) > most else "")
