"""What may be a key: its Arrow type, its Python form, and how a sentence names it.

A key column is an Arrow array whose type travels with it: string, int64, uint64, binary, bool, date32, timestamp in
microseconds without a zone or in UTC, decimal128, or null; a composite key is a struct of these. In Python a key is the
value that Arrow gives for it, and a composite key is a tuple. All of these can be compared, hashed and pickled."""

import functools
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pyarrow.types as pat

from dpa._util.words import converted, shortened, text_hint
from dpa.errors import KeyTypeError

Component: TypeAlias = str | int | bool | bytes | date | Decimal | None
"""A key, or a part of a composite one; a `datetime` is a `date`."""

Key: TypeAlias = Component | tuple[Component, ...]

KeyName: TypeAlias = str | tuple[str, ...]
"""The name of the key column, or the names of the columns of a composite key."""

KEY_RULE = (
    "a key is a string, an integer of 64 bits, bytes, a boolean, a date, a timestamp, a decimal or null, or several of "
    "these (`key: [a, b]`), and one job has keys of one type"
)

_MAX_DIGITS = 38
_INSTANT = pa.timestamp("us", "UTC")


def names_of(key: KeyName) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def key_type(found: pa.DataType) -> pa.DataType:
    """The Arrow type in which keys, or components of keys, of an Arrow type are kept. Raises KeyTypeError, which says
    how to convert them, if they are not supported."""
    if pat.is_dictionary(found):
        return key_type(found.value_type)
    for belongs, kept in _KEPT:
        if belongs(found):
            return kept
    if pat.is_timestamp(found):
        return pa.timestamp("us") if found.tz is None else _INSTANT
    if pat.is_decimal(found):
        scale = max(found.scale, 0)  # a negative scale stands for zeros at the end
        return pa.decimal128(min(found.precision + scale - found.scale, _MAX_DIGITS), min(scale, _MAX_DIGITS))
    raise unsupported(found)


def unsupported(found: pa.DataType) -> KeyTypeError:
    return KeyTypeError(f"keys of Arrow type {found} are not supported; {KEY_RULE}: {_remedy(found)}")


def one_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """The one type that holds the keys of all these types, as `key_type` returns them; null goes with any, and decimals
    and integers of two widths with each other. Raises KeyTypeError if there is none."""
    return functools.reduce(_common, types, pa.null())


def to_python(keys: pa.Array | pa.ChunkedArray) -> list[Key]:
    if not pat.is_struct(keys.type):
        return list(keys.to_pylist())
    components = [component.to_pylist() for component in keys.flatten()]
    return list(zip(*components, strict=True))


def to_arrow(keys: Sequence[Key], kept: pa.DataType) -> pa.Array:
    """Keys in Python as a key column of a type that holds them all: the inverse of `to_python`. Raises KeyTypeError if
    one is of another type."""
    try:
        if not pat.is_struct(kept):
            return pa.array(keys, kept)
        components = list(zip(*keys, strict=True)) or [()] * kept.num_fields
        arrays = [pa.array(values, field.type) for values, field in zip(components, kept, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(kept))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise KeyTypeError(f"this job has keys that are not of type {kept}: {error}; {KEY_RULE}") from None


def in_words(key: Key, limit: int = 200) -> str:
    """Text and bytes as in Python, dates and times in ISO form, cut to `limit` characters."""
    return shortened(_literal(key), limit)


def _literal(key: Key) -> str:
    if isinstance(key, tuple):
        return f"({', '.join(map(_literal, key))})"
    return str(key) if isinstance(key, date | Decimal) else repr(key)


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right or pat.is_null(right):
        return left
    if pat.is_null(left):
        return right
    if {left, right} == {pa.int64(), pa.uint64()}:
        return pa.uint64()
    if pat.is_decimal(left) and pat.is_decimal(right):
        scale = max(left.scale, right.scale)
        digits = scale + max(left.precision - left.scale, right.precision - right.scale)
        if digits <= _MAX_DIGITS:
            return pa.decimal128(digits, scale)
    if pat.is_struct(left) and pat.is_struct(right) and left.names == right.names:
        return pa.struct([(one.name, _common(one.type, other.type)) for one, other in zip(left, right, strict=True)])
    raise KeyTypeError(f"this job has keys of types {' and '.join(sorted(map(str, (left, right))))}; {KEY_RULE}")


def _is_text(found: pa.DataType) -> bool:
    is_uuid = getattr(found, "extension_name", "") == "arrow.uuid"
    return is_uuid or pat.is_string(found) or pat.is_large_string(found) or pat.is_string_view(found)


def _is_bytes(found: pa.DataType) -> bool:
    checks = (pat.is_binary, pat.is_large_binary, pat.is_fixed_size_binary, pat.is_binary_view)
    return any(check(found) for check in checks)


_KEPT = (
    (_is_text, pa.string()),
    (pat.is_uint64, pa.uint64()),
    (pat.is_integer, pa.int64()),
    (_is_bytes, pa.binary()),
    (pat.is_boolean, pa.bool_()),
    (pat.is_date, pa.date32()),
    (pat.is_null, pa.null()),
)
"""Kinds of types, and the type in which each is kept. The first holds."""


def _remedy(found: pa.DataType) -> str:
    if pat.is_floating(found):
        decimals = converted("cast(x AS decimal(18, 6)) AS x", 'Decimal(str(row["x"]))')
        return f"round them to integers, or make decimals of them: {decimals}"
    if pat.is_struct(found):
        fields = converted("x.a AS a, x.b AS b", 'row["x"]["a"]')
        return f"make a column of each field ({fields}), and name them as the key: `[a, b]`"
    if pat.is_nested(found):
        text = converted("to_json(x) AS x", 'json.dumps(row["x"])')
        return f"make text of them: {text}"
    return f"make text of them: {text_hint('x')}"
