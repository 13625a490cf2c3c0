"""Records of Kafka as rows: which columns they have, and which records give none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from dpa.sources.columns import only
from dpa.sources.records import Unread, Wrong, parsed, parsed_objects, plain_object

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
"""Columns of every record besides its key and value."""

_ABOUT_OF: dict[str, Callable[[Message], Any]] = {
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": lambda message: message.timestamp()[1] if message.timestamp()[0] else None,
    "headers": lambda message: message.headers(),
}


@dataclass(frozen=True)
class RecordFormat:
    """The columns of records.

    Attributes:
        key, value: their encodings; `bytes` and `string` give the columns `key` and `value`.
        columns: of values that are JSON objects, the fields that become columns. One that has another column's name
            replaces it.
        tolerates: as in `LineFormat`.
    """

    key: Literal["bytes", "string"] = "bytes"
    value: Literal["bytes", "string", "json"] = "bytes"
    columns: pa.Schema | None = None
    tolerates: bool = False

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

    def batch(self, messages: Sequence[Message], names: Sequence[str]) -> tuple[pa.RecordBatch, dict[int, Unread]]:
        """The named columns of the records that can be read, and the others by their place."""
        wanted = only(self.schema, names)
        read = self.schema if self.tolerates else wanted
        fields = only(self.columns or pa.schema([]), read.names)
        texts = [name for name in ("key", "value") if pa.field(name, pa.string()) in {*read} - {*fields}]
        found: list[pa.Table] = []
        wrong: Wrong = {}
        if texts or len(fields):
            line = partial(_line, texts, has_object=len(fields) > 0)
            found, wrong = parsed(messages, line, partial(parsed_objects, schema=fields, spread=True))
        kept = [message for place, message in enumerate(messages) if place not in wrong]
        objects = pa.concat_tables(found or [fields.empty_table()]).combine_chunks()
        columns = [
            objects[field.name].combine_chunks() if field.name in fields.names else _column(field, kept)
            for field in wanted
        ]
        unread = {place: _unread(messages[place], why) for place, why in wrong.items()}
        return pa.record_batch(columns, schema=wanted), unread

    def record(self, data: bytes | None, about: Mapping[str, Any]) -> dict[str, Any]:
        """Read a record again that could not be read. Raises ValueError if it still cannot."""
        kept = {name: partial(lambda value: value, value) for name, value in {**about, "value": data}.items()}
        batch, unread = self.batch([cast("Message", SimpleNamespace(**kept))], self.schema.names)
        if unread:
            raise ValueError(unread[0].message)
        [row] = batch.to_pylist()
        return dict(row)


def _unread(message: Message, why: str) -> Unread:
    kept = ("key", "topic", "partition", "offset", "timestamp", "headers")
    where = f"partition {message.partition()} of the topic {message.topic()}, offset {message.offset():,}"
    shown = f"cannot be read as declared: {why}; its value begins {(message.value() or b'')[:80]!r}"
    return Unread(message.value(), {name: getattr(message, name)() for name in kept}, f"{where}: {shown}")


def _text_or_bytes(kind: str) -> pa.DataType:
    return pa.string() if kind == "string" else pa.binary()


def _column(field: pa.Field, messages: Sequence[Message]) -> pa.Array:
    if field.name in _ABOUT:
        return pa.array(map(_ABOUT_OF[field.name], messages), field.type)
    found = [message.key() if field.name == "key" else message.value() for message in messages]
    return pa.array(found, pa.binary()).cast(field.type)


def _line(texts: Sequence[str], message: Message, *, has_object: bool) -> bytes:
    """A record's value as a JSON object: one without fields if the value is null, or not read."""
    for name in texts:
        _ = (getattr(message, name)() or b"").decode()
    value: bytes | None = message.value() if has_object else None
    found = b"{}" if value is None else plain_object(value)
    if not found:
        raise ValueError("it is empty")
    return found
