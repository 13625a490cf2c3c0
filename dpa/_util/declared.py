"""Arrow types by the names that Arrow prints (`int64`, `timestamp[us, tz=UTC]`, `list<item: string>`), and the columns
that a step declares with them: user code's rows are checked against these, and an empty result has them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dpa._util.inference import lossless
from dpa.errors import ExecutorError

_NESTED: dict[str, Callable[..., pa.DataType]] = {"list": pa.list_, "large_list": pa.large_list, "map": pa.map_}
_SIZED = re.compile(r"(decimal128|decimal256)\((\d+), ?(-?\d+)\)|fixed_size_binary\[(\d+)\]")
_MOMENT = re.compile(r"timestamp\[(s|ms|us|ns), ?tz=([^\]]+)\]")
_BRACKETS = {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}


@dataclass(frozen=True)
class Declared:
    """The columns that a step declares, in order; `place` is the declaration's key path, which names the step in
    messages."""

    place: str
    schema: pa.Schema

    def conformed(self, rows: pa.RecordBatch, giver: str, key: Sequence[str] = ()) -> pa.RecordBatch:
        """Cast rows from user code to these columns, after the rows' key columns, which may be undeclared. Raises
        ExecutorError, with `giver` as the method that returned the rows, if they have other columns or a value would
        change."""
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
    """The name of each column's type, of an Arrow schema or a mapping of columns to types or their names. Nullability
    is dropped. Raises ValueError if it is neither, has no column, a column twice, or a type without a name."""
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
    return pa.schema([(name, type_named(kind)) for name, kind in types.items()])


def type_named(name: str) -> pa.DataType:
    """The Arrow type of a name; list and map elements may be named: `list<int64>`, `list<item: int64>`. Raises
    ValueError if there is no such type."""
    name = name.strip()
    outer, opened, inner = name.partition("<")
    if opened and inner.endswith(">"):
        parts = _parts(inner[:-1])
        if outer == "struct":
            fields = [part.partition(":") for part in parts]
            return pa.struct([(field.strip(), type_named(kind)) for field, _, kind in fields])
        if outer in _NESTED and len(parts) == (2 if outer == "map" else 1):
            return _NESTED[outer](*(type_named(re.sub(r"^\s*\w+:\s*", "", part)) for part in parts))
    if sized := _SIZED.fullmatch(name):
        decimal, digits, scale, width = sized.groups()
        return pa.binary(int(width)) if width else getattr(pa, decimal)(int(digits), int(scale))
    if moment := _MOMENT.fullmatch(name):
        return pa.timestamp(*moment.groups())
    try:
        return pa.type_for_alias(name)
    except ValueError:
        examples = "`int64`, `double`, `string`, `date32`, `timestamp[us]`, `decimal128(10, 2)`, `list<string>`"
        raise ValueError(f"{name!r} is no Arrow type: give one such as {examples}") from None


def _parts(inner: str) -> list[str]:
    """The parts between the outermost commas."""
    parts, depth = [""], 0
    for character in inner:
        depth += _BRACKETS.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]
