"""The columns that a step declares its rows to have: what user code gives is checked against them, and an empty result
has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dpa._util._arrow_types import type_named
from dpa._util.inference import lossless
from dpa.errors import ExecutorError


@dataclass(frozen=True)
class Declared:
    """Columns that a step's rows are declared to have.

    Attributes:
        place: the key path at which they are declared, for messages; it names the step.
        schema: the columns, in order.
    """

    place: str
    schema: pa.Schema

    def conformed(self, rows: pa.RecordBatch, giver: str, key: Sequence[str] = ()) -> pa.RecordBatch:
        """Rows of user code with these columns.

        Args:
            rows: the rows.
            giver: the method that gave them, for messages.
            key: the key columns of the rows. They come first; those that are not declared stay as they are.

        Raises:
            ExecutorError: the rows have other columns, or a value would change in the declared type.
        """
        names = [*key, *(name for name in self.schema.names if name not in key)]
        given, declared = rows.schema.names, ", ".join(self.schema.names)
        for name in given:
            if name not in names:
                raise self._error(f"{giver} gives a column {name!r}, and those declared are {declared}")
        columns = {}
        for name in names:
            if name not in given:
                raise self._error(f"{giver} gives no column {name!r}, which is declared; it gives {', '.join(given)}")
            column = columns[name] = rows.column(given.index(name))
            if name not in self.schema.names:
                continue
            kind = self.schema.field(name).type
            try:
                columns[name] = lossless(column, kind)
            except pa.ArrowInvalid as error:
                found = f"{giver} gives the column {name!r} as {column.type}, and it is declared as {kind}: {error}"
                raise self._error(f"{found}; a value is cast only where it stays the same") from None
        return pa.record_batch(columns)

    def _error(self, message: str) -> ExecutorError:
        return ExecutorError(message, self.place)


def type_names(schema: object) -> dict[str, str]:
    """The columns of a schema, each with the name of its type.

    Args:
        schema: a mapping of columns to Arrow types or their names, or an Arrow schema. Whether a column may be null is
            not kept.

    Raises:
        ValueError: it is none, has no column, one twice, or a type that has no name.
    """
    if isinstance(schema, pa.Schema):
        items = list(zip(schema.names, schema.types, strict=True))
    else:
        items = list(schema.items()) if isinstance(schema, Mapping) else []
    if not items or not all(isinstance(name, str) for name, _ in items):
        raise ValueError("a schema is a mapping of columns to Arrow types, such as `{word: string, n: int64}`")
    found = {name: str(type_named(str(kind))) for name, kind in items}
    if len(found) < len(items):
        raise ValueError(f"a column is twice in the schema {', '.join(name for name, _ in items)}")
    return found


def schema_named(types: Mapping[str, str]) -> pa.Schema:
    """The schema of columns, each with the name of its type."""
    return pa.schema([(name, type_named(kind)) for name, kind in types.items()])
