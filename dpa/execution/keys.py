"""Key columns as distinct keys and codes: a key that comes a million times in a batch is hashed and looked up once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.routing.hashing import key_type


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
    encoded = column.cast(wanted).dictionary_encode(null_encoding="encode")
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int32, copy=False)


def _used(dictionary: pa.Array, indices: npt.NDArray[np.integer]) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Drop what no row uses: the dictionary of a Parquet row group serves many batches."""
    used = np.zeros(len(dictionary), dtype=bool)
    used[indices] = True
    if used.all():
        return dictionary, indices.astype(np.int32, copy=False)
    place = np.cumsum(used, dtype=np.int32) - 1
    return dictionary.filter(pa.array(used)), place.take(indices)
