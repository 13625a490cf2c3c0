"""Records of Kafka as rows: which columns they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from dpa.errors import TableError

if TYPE_CHECKING:
    from confluent_kafka import Message

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ABOUT = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "headers": _HEADERS,
}
"""Columns of every record, beside its key and its value."""

_ABOUT_OF: dict[str, Callable[[Message], Any]] = {
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": lambda message: message.timestamp()[1] if message.timestamp()[0] else None,
    "headers": lambda message: message.headers(),
}


@dataclass(frozen=True)
class RecordFormat:
    """What the columns of records are.

    Attributes:
        key, value: how they are encoded: `bytes` and `string` are the columns `key` and `value`.
        columns: of values that are JSON objects, the fields that become columns. One with the name of another column
            takes its place.
    """

    key: Literal["bytes", "string"] = "bytes"
    value: Literal["bytes", "string", "json"] = "bytes"
    columns: pa.Schema | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns."""
        kinds: dict[str, pa.DataType] = {"key": _text_or_bytes(self.key)}
        kinds |= _ABOUT
        if self.columns is None:
            kinds["value"] = _text_or_bytes(self.value)
        else:
            kinds |= dict(zip(self.columns.names, self.columns.types, strict=True))
        return pa.schema(list(kinds.items()))

    def batch(self, messages: Sequence[Message], names: Sequence[str]) -> pa.RecordBatch:
        """Records with the columns named.

        Raises:
            TableError: one is not encoded as it should be; names its place.
        """
        schema = pa.schema([field for field in self.schema if field.name in names])
        fields = pa.schema([field for field in self.columns or () if field.name in names])
        columns: dict[str, pa.Array] = {}
        if len(fields):
            columns = _converted(messages, lambda some: _of_json([one.value() for one in some], fields))
        for field in schema:
            if field.name in fields.names:
                continue
            if field.name in _ABOUT:
                columns[field.name] = pa.array(map(_ABOUT_OF[field.name], messages), field.type)
            else:
                columns[field.name] = _converted(messages, partial(_encoded, field.name, field.type))
        return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def _text_or_bytes(kind: str) -> pa.DataType:
    return pa.string() if kind == "string" else pa.binary()


def _encoded(name: str, kind: pa.DataType, messages: Sequence[Message]) -> pa.Array:
    found = [message.key() if name == "key" else message.value() for message in messages]
    return pa.array(found, pa.binary()).cast(kind)


def _of_json(values: list[bytes | None], schema: pa.Schema) -> dict[str, pa.Array]:
    """The fields of objects as columns; of a value that is null all are.

    Raises:
        pa.ArrowInvalid: a value is no object, or a field of it is of another type.
    """
    from pyarrow import json

    lines = b"\n".join(b"{}" if value is None else value for value in values)
    block = json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    options = json.ParseOptions(explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore")
    found = json.read_json(pa.BufferReader(lines), block, options).combine_chunks()
    if found.num_rows != len(values):
        raise pa.ArrowInvalid(f"{len(values)} values are {found.num_rows} objects of JSON")
    return {name: found[name].combine_chunks() for name in schema.names}


def _converted(messages: Sequence[Message], convert: Callable[[Sequence[Message]], Any]) -> Any:
    """What `convert` makes of records.

    Raises:
        TableError: it cannot; names the first record for which it cannot.
    """
    try:
        return convert(messages)
    except pa.ArrowInvalid:
        for message in messages:
            try:
                convert([message])
            except pa.ArrowInvalid as error:
                where = f"partition {message.partition()} of the topic {message.topic()}, offset {message.offset():,}"
                shown = (message.value() or b"")[:80]
                reason = str(error).partition("\n")[0]
                raise TableError(f"{where}: cannot be read as declared: {reason}; its value begins {shown!r}") from None
        raise
