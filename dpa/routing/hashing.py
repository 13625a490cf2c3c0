"""The one hash of the project: Murmur3 x86 32-bit of a key's canonical text, as the DPA paper uses (section 4.2).

The rule for keys, the same in every process and every run: a string is hashed as its UTF-8 bytes; an integer as its
decimal text; bytes as they are; null as the empty string. So 5 and "5" hash alike, which is harmless: equal hashes
share a reducer, they do not share a state. Other types are refused.
"""

from __future__ import annotations

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from dpa.errors import KeyTypeError

Key = str | int | bytes | None
Hashes = npt.NDArray[np.uint32]

_FEW = 256
"""Up to so many keys, a loop is faster than the fixed cost of a column expression."""

KEY_RULE = "a key is a string, an integer of 64 bits, bytes or null, and one job has keys of one type"


def hash_key(key: Key, seed: int = 0) -> int:
    """The hash of one key, in [0, 2**32).

    Raises:
        KeyTypeError: the key is of another type.
    """
    if isinstance(key, str | bytes):
        return mmh3.hash(key, seed, signed=False)
    if key is None:
        return mmh3.hash(b"", seed, signed=False)
    if isinstance(key, int) and not isinstance(key, bool):
        return mmh3.hash(str(key), seed, signed=False)
    raise KeyTypeError(f"key {key!r} is of type {type(key).__name__}; {KEY_RULE}")


def hash_column(keys: pa.Array, seed: int = 0) -> Hashes:
    """The hashes of a column of keys of a type that `key_type` returns; shape (len(keys),), equal to `hash_key` of
    each."""
    if len(keys) <= _FEW:
        return np.fromiter((hash_key(key, seed) for key in keys.to_pylist()), dtype=np.uint32, count=len(keys))
    import polars as pl
    import polars_hash  # noqa: F401  (registers the `nchash` expressions)

    if pat.is_integer(keys.type):
        keys = keys.cast(pa.string())
    column = (
        pl.Series("key", keys) if not pat.is_null(keys.type) else pl.Series("key", [None] * len(keys), dtype=pl.String)
    )
    empty = pl.lit("" if column.dtype == pl.String else b"")
    hashed = pl.select(pl.lit(column).fill_null(empty).alias("key")).select(pl.col("key").nchash.murmur32(seed=seed))  # type: ignore[attr-defined]
    return hashed.to_series().to_numpy().astype(np.uint32, copy=False)


def key_type(found: pa.DataType) -> pa.DataType:
    """The Arrow type in which keys of an Arrow type are kept: string, int64, binary or null.

    Raises:
        KeyTypeError: keys of this type are not supported.
    """
    if pat.is_dictionary(found):
        return key_type(found.value_type)
    if pat.is_string(found) or pat.is_large_string(found) or pat.is_string_view(found):
        return pa.string()
    if pat.is_integer(found) and found != pa.uint64():
        return pa.int64()
    if (
        pat.is_binary(found)
        or pat.is_large_binary(found)
        or pat.is_fixed_size_binary(found)
        or pat.is_binary_view(found)
    ):
        return pa.binary()
    if pat.is_null(found):
        return pa.null()
    raise KeyTypeError(f"keys of Arrow type {found} are not supported; {KEY_RULE}")
