"""The one hash of the project: Murmur3 x86 32-bit of a key's canonical text, as the DPA paper uses (section 4.2).

The rule for keys, the same in every process and every run:

- a string: its UTF-8 bytes; bytes: as they are; null: the empty string;
- an integer: its decimal text; a decimal: its plain decimal text without zeros at the end, so `1.50` as `1.5`;
- a boolean: `true` or `false`; a date: `2026-01-31`;
- a timestamp: `2026-01-31 12:00:00.000000`; one with a time zone: the same in UTC, followed by `Z`;
- a composite key: the hashes of its components, four bytes each, the least significant first; `ff ff ff ff` for null.

So 5 and "5" hash alike, which is harmless: equal hashes share a reducer, they do not share a state. Other types are
refused. Hashes instead of texts of a composite key's components need no escaping, and columns of them are made fast.
"""

from datetime import date, datetime, timezone
from decimal import Decimal

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from dpa.errors import KeyTypeError
from dpa.routing.keys import KEY_RULE, Component, Key, to_python

Hashes = npt.NDArray[np.uint32]

Interval = tuple[int, int]
"""Hashes from the first to the second, both included."""

_FEW = 256  # up to this many keys, a loop is faster than the fixed cost of a column expression

ALL_HASHES: Interval = (0, 2**32 - 1)

_NULL_COMPONENT = 2**32 - 1


def hash_key(key: Key, seed: int = 0) -> int:
    """In [0, 2**32). Raises KeyTypeError if the key is of another type."""
    if isinstance(key, str | bytes):
        return mmh3.hash(key, seed, signed=False)
    if isinstance(key, tuple):
        parts = (_NULL_COMPONENT if part is None else mmh3.hash(_text(part), seed, signed=False) for part in key)
        return mmh3.hash(b"".join(part.to_bytes(4, "little") for part in parts), seed, signed=False)
    return mmh3.hash(_text(key), seed, signed=False)


def within(hashes: Hashes, interval: Interval) -> npt.NDArray[np.bool_]:
    inside: npt.NDArray[np.bool_] = (hashes >= interval[0]) & (hashes <= interval[1])
    return inside


def hash_column(keys: pa.Array, seed: int = 0) -> Hashes:
    """The hashes of a key column (see `dpa.routing.keys`), shape (len(keys),), equal to `hash_key` of each."""
    if pat.is_struct(keys.type):
        return _hash_composite(keys, seed)
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid as error:
        raise KeyTypeError(f"keys of type {keys.type} are not as such keys must be: {error}") from None
    if len(keys) <= _FEW:
        return np.fromiter((hash_key(key, seed) for key in to_python(keys)), dtype=np.uint32, count=len(keys))
    import polars as pl
    import polars_hash  # noqa: F401  (registers the `nchash` expressions)

    column = pl.Series("key", _texts(keys))
    if column.null_count():
        column = column.fill_null("" if column.dtype == pl.String else b"")
    hashed = column.to_frame().select(pl.col("key").nchash.murmur32(seed=seed))  # type: ignore[attr-defined]
    return hashed.to_series().to_numpy().astype(np.uint32, copy=False)


def _hash_composite(keys: pa.StructArray, seed: int) -> Hashes:
    components = keys.flatten()
    hashes = np.stack([_hash_component(component, seed) for component in components], axis=1).astype("<u4")
    for position, component in enumerate(components):
        hashes[component.is_null().to_numpy(zero_copy_only=False), position] = _NULL_COMPONENT
    width = pa.binary(4 * len(components))
    return hash_column(pa.Array.from_buffers(width, len(keys), [None, pa.py_buffer(hashes)]).cast(pa.binary()), seed)


def _hash_component(component: pa.Array, seed: int) -> Hashes:
    if pat.is_string(component.type) or pat.is_binary(component.type):
        return hash_column(component, seed)
    # To write the text of a time or a number takes longer than to hash it, and few components of composite keys differ,
    # such as the bounds of windows.
    encoded = component.dictionary_encode(null_encoding="encode")
    hashes: Hashes = hash_column(encoded.dictionary, seed)[encoded.indices.to_numpy()]
    return hashes


def _text(key: Component) -> str | bytes:
    match key:
        case str() | bytes():
            return key
        case None:
            return ""
        case bool():
            return "true" if key else "false"
        case int():
            return str(key)
        case datetime(tzinfo=None):
            return key.isoformat(" ", "microseconds")
        case datetime():
            return key.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ", "microseconds") + "Z"
        case date():
            return key.isoformat()
        case Decimal() if key.is_finite():
            text = format(key, "f") if key else "0"
            return text.rstrip("0").rstrip(".") if "." in text else text
    raise KeyTypeError(f"key {key!r} is of type {type(key).__name__}; {KEY_RULE}")


def _texts(keys: pa.Array) -> pa.Array:
    """As `_text`, nulls left as they are."""
    if pat.is_binary(keys.type):
        return keys
    if pat.is_decimal(keys.type) and keys.type.scale:
        return _decimal_texts(keys)
    if pat.is_timestamp(keys.type) and keys.type.tz is not None:
        local = keys.cast(pa.timestamp("us")).cast(pa.string())  # Arrow itself writes the zone, at a tenth of the speed
        return pc.binary_join_element_wise(local, "Z", "")
    return keys.cast(pa.string())


def _decimal_texts(keys: pa.Array) -> pa.Array:
    import polars as pl

    plain = pl.Series(keys).cast(pl.String)  # Arrow writes small numbers with an exponent
    return plain.str.strip_chars_end("0").str.strip_chars_end(".").to_arrow().cast(pa.string())
