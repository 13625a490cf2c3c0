"""Key columns as distinct keys and codes: a key that comes a million times in a batch is hashed and looked up once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import KeyTypeError
from dpa.routing.hashing import KEY_RULE, Key, key_type

_FAMILY: dict[type, str] = {
    str: "str",
    bytes: "bytes",
    int: "int",
    **dict.fromkeys((np.int64, np.int32, np.int16), "int"),
}
"""Python and numpy types that go together as keys."""


def encode(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """The keys that occur in a column, and for each row the position of its key; null is a key like any other.

    Returns:
        keys of shape (keys,), of a type that `key_type` returns, and codes of shape (rows,).

    Raises:
        KeyTypeError: keys of this type are not supported.
    """
    wanted = key_type(column.type)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type) and column.null_count == 0 and column.dictionary.null_count == 0:
        return _used(column.dictionary.cast(wanted), column.indices.to_numpy())
    if pa.types.is_null(wanted):
        return pa.nulls(min(len(column), 1)), np.zeros(len(column), dtype=np.int32)
    if pa.types.is_dictionary(column.type):
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(wanted))
    encoded = column.cast(wanted).dictionary_encode(null_encoding="encode")
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int32, copy=False)


def column_of(keys: list[Key]) -> pa.Array:
    """The keys as a column, of a type that `key_type` returns.

    Raises:
        KeyTypeError: they are not of one supported type, or cannot be held by it.
    """
    found = {_FAMILY.get(kind, kind.__name__) for kind in set(map(type, keys)) - {type(None)}}
    if len(found) > 1:
        raise KeyTypeError(f"this job has keys of types {' and '.join(sorted(found))} together; {KEY_RULE}")
    try:
        column = pa.array(keys)
    except (pa.ArrowException, UnicodeError, OverflowError, TypeError) as error:
        raise KeyTypeError(f"keys of type {' '.join(found)}: {error}; {KEY_RULE}") from None
    return column.cast(key_type(column.type))


def one_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """The one type that keys of these types have; null goes with any.

    Raises:
        KeyTypeError: there are two.
    """
    found = {kind for kind in types if not pa.types.is_null(kind)}
    if len(found) > 1:
        raise KeyTypeError(f"this job has keys of types {' and '.join(sorted(map(str, found)))}; {KEY_RULE}")
    return next(iter(found), pa.null())


def _used(dictionary: pa.Array, indices: npt.NDArray[np.integer]) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Drop what no row uses: the dictionary of a Parquet row group serves many batches."""
    used = np.zeros(len(dictionary), dtype=bool)
    used[indices] = True
    if used.all():
        return dictionary, indices.astype(np.int32, copy=False)
    place = np.cumsum(used, dtype=np.int32) - 1
    return dictionary.filter(pa.array(used)), place.take(indices)
