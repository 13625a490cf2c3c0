"""Key columns as distinct keys and codes: a key that comes a million times in a batch is hashed and looked up once."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.inference import array_of
from dpa.errors import KeyTypeError
from dpa.execution._held import to_show
from dpa.routing.hashing import Hashes
from dpa.routing.keys import KEY_RULE, KeyName, key_type, names_of, unsupported
from dpa.windows.times import EventTime

Codes = npt.NDArray[np.int32]

_FAMILIES: dict[type, str] = {  # numpy types that may be mixed with a Python type as keys
    **dict.fromkeys((np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64), "int"),
    np.bool_: "bool",
}

_DENSE = 4  # largest range of values, for each row, that is numbered by a table of all values and not by a hash table
_MANY = 8_192  # the fewest rows whose keys are numbered by their hashes
_SAMPLE = 4_096  # rows in which repeated keys are counted


def encode(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, Codes]:
    """The distinct keys of a column, shape (keys,), and for each row the position of its key, shape (rows,). Null is a
    key. Raises KeyTypeError where keys of this type are not supported, or a key is out of range."""
    column = _whole(column)
    return (_encode_composite if pa.types.is_struct(column.type) else _encode_component)(column)


def rows_a_key(column: pa.Array) -> float:
    """About how many rows of many texts there would be for each key, if keys were equally frequent: n rows repeat keys
    about n**2 / 2 / keys times. Infinite where it is not looked at."""
    if len(column) < _MANY or not _is_text(column.type):
        return math.inf
    some = column.slice(0, _SAMPLE)
    return 2 * (len(some) - len(some.unique())) / len(some) ** 2 * len(column)


def encode_hashed(keys: pa.Array | pa.ChunkedArray, hashes: Hashes | None) -> tuple[pa.Array, Codes]:
    """As `encode`. With the hashes of many texts, sorts these: the table of a dictionary would not fit the cache."""
    keys, rows = _whole(keys), len(keys)
    if hashes is None or rows < _MANY or not _is_text(keys.type):
        return encode(keys)
    import polars as pl

    order, numbers = hashes.astype("<u8"), np.arange(rows, dtype=np.uint32)
    order <<= np.uint64(32)  # in place: to get memory for such columns takes as long as to sort them
    order |= numbers
    places, hashes = pl.Series(order).sort().to_numpy().view("<u4").reshape(rows, 2).T
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
    first = np.empty(rows, dtype=np.uint32)  # for each row, the first one with its hash
    first[places] = np.repeat(places[starts], np.diff(starts, append=rows))
    texts = pl.Series(keys)
    others = np.flatnonzero(texts.gather(first).ne_missing(texts))
    if len(others):  # these share a hash with another text
        _, codes = _encode_component(keys.take(pa.array(others)))
        first[others] = others[np.unique(codes, return_index=True)[1]][codes]
    is_first = first == numbers
    codes = np.empty(rows, dtype=np.int32)
    codes[is_first] = numbers[: np.count_nonzero(is_first)]
    return keys.filter(pa.array(is_first)), codes.take(first)


def hashes_by(codes: Codes, hashes: Hashes, keys: int) -> Hashes:
    """The hash of each of `keys` keys, from those of the rows."""
    found = np.empty(keys, dtype=np.uint32)
    found[codes] = hashes
    return found


def key_column(records: pa.RecordBatch | pa.Table, key: KeyName) -> pa.Array:
    """The column of that name, or a struct of a composite key's columns; nulls for a key without columns. Raises
    KeyTypeError if the single column is a struct."""
    if not names_of(key):
        return pa.nulls(records.num_rows)
    columns = [_whole(records.column(name)) for name in names_of(key)]
    if not isinstance(key, str):
        return pa.StructArray.from_arrays(columns, names=list(key))
    if pa.types.is_struct(columns[0].type):
        raise unsupported(columns[0].type)
    return columns[0]


def key_columns(keys: pa.Array, key: KeyName) -> dict[str, pa.Array]:
    """The inverse of `key_column`."""
    if isinstance(key, str):
        return {key: keys}
    columns = keys.flatten() if pa.types.is_struct(keys.type) else [keys] * len(key)  # where all are null, of no type
    return dict(zip(key, columns, strict=True))


def column_of(keys: Sequence[Any], key: KeyName = "key") -> pa.Array:
    """A column of keys that user code made. Raises KeyTypeError if they are not of one supported type, do not fit it,
    or lack components that `key` names."""
    if isinstance(key, str):
        return _component(keys)
    for given in keys:
        if not isinstance(given, tuple) or len(given) != len(key):
            raise KeyTypeError(f"{given!r} is no tuple of {len(key)}, as `key: [{', '.join(key)}]` needs; {KEY_RULE}")
    components = list(zip(*keys, strict=True)) or [()] * len(key)
    return pa.StructArray.from_arrays([_component(component) for component in components], names=list(key))


def cast(keys: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises KeyTypeError if a key does not fit, such as a negative number among unsigned ones."""
    try:
        return keys if keys.type == kind else keys.cast(kind)
    except pa.ArrowInvalid as error:
        both = f"keys of type {keys.type} do not go with keys of type {kind}"
        raise KeyTypeError(f"{both}: {error}; {KEY_RULE}") from None


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.binary())


def _encode_component(column: pa.Array) -> tuple[pa.Array, Codes]:
    """As `encode`, for simple keys, or one component of composite keys."""
    wanted = key_type(column.type)
    if pa.types.is_null(wanted):
        return pa.nulls(min(len(column), 1)), np.zeros(len(column), dtype=np.int32)
    if pa.types.is_dictionary(column.type):
        dictionary = _as_key_type(column.dictionary, wanted)
        if dictionary.null_count == 0:
            indices = column.indices.cast(pa.int32()).fill_null(len(dictionary))
            known = [dictionary, pa.nulls(1, wanted)] if column.null_count else [dictionary]
            return _used(pa.concat_arrays(known), indices.to_numpy())
        column = pa.DictionaryArray.from_arrays(column.indices, dictionary).cast(wanted)
    else:
        column = _as_key_type(column, wanted)
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int32, copy=False)


def _encode_composite(column: pa.StructArray) -> tuple[pa.StructArray, Codes]:
    """As `encode`. A component that depends on another, as a window's end on its start, or is constant, adds no keys;
    otherwise rows are numbered by pairs."""
    encoded = [_encode_component(each) for each in column.flatten()]
    codes, known = encoded[0][1], len(encoded[0][0])
    positions = [np.arange(known)]
    for place, (keys, more) in enumerate(encoded[1:], start=1):
        twin = next((other for other in range(place) if np.array_equal(encoded[other][1], more)), None)
        if twin is not None:
            positions.append(positions[twin])
        elif len(keys) == 1:
            positions.append(np.zeros(known, dtype=np.intp))
        else:
            found, codes = _numbered(codes.astype(np.int64) * len(keys) + more, known * len(keys))
            left, right = np.divmod(found, max(len(keys), 1))
            positions, known = [*(position[left] for position in positions), right], len(found)
    columns = [keys.take(pa.array(position)) for (keys, _), position in zip(encoded, positions, strict=True)]
    return pa.StructArray.from_arrays(columns, names=column.type.names), codes


def _numbered(values: npt.NDArray[np.int64], bound: int) -> tuple[npt.NDArray[np.integer], Codes]:
    """The distinct values, all below `bound`, and the place of each value among them."""
    if bound <= _DENSE * len(values):
        return renumbered(values, bound)
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()


def _as_key_type(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Raises KeyTypeError if a value would change, or is out of range."""
    if isinstance(values, pa.ExtensionArray):
        return uuid_texts(values.storage)
    try:
        values = values.cast(wanted)
    except pa.ArrowInvalid as error:
        mend = "round timestamps to microseconds, and decimals to 38 digits, before they become keys"
        raise KeyTypeError(f"keys of Arrow type {values.type} cannot be kept as {wanted}: {error}: {mend}") from None
    if pa.types.is_date(wanted) or pa.types.is_timestamp(wanted):
        _, has = EventTime("key").of(pa.record_batch({"key": values.drop_null()}))
        if has is not None:
            [first, *_] = to_show(values.drop_null().filter(pa.array(~has)))
            what = f"dates and timestamps that are keys must be of the years 1 to 9999, and one is {first}"
            raise KeyTypeError(f"{what}: leave out such rows in a step before, as by a batch filter")
    return values


def uuid_texts(storage: pa.Array) -> pa.Array:
    import polars as pl

    digits = pl.Series(storage.cast(pa.binary())).bin.encode("hex")
    cuts = ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))
    parts = [digits.str.slice(start, length).alias(str(start)) for start, length in cuts]
    return pl.DataFrame(parts).select(pl.concat_str(pl.all(), separator="-")).to_series().to_arrow().cast(pa.string())


def _component(keys: Sequence[Any]) -> pa.Array:
    types = set(map(type, keys)) - {type(None)}
    families = {_family(kind) for kind in types}
    if len(families) > 1:
        raise KeyTypeError(f"this job has keys of types {' and '.join(sorted(families))} together; {KEY_RULE}")
    kind = next(iter(families), "")
    if kind == "datetime" and len({key.tzinfo is None for key in keys if key is not None}) > 1:
        raise KeyTypeError(f"this job has timestamps with and without a time zone as keys; {KEY_RULE}")
    if kind == "tuple":
        raise KeyTypeError(f"a tuple is a composite key: name its components, `key: [a, b]`; {KEY_RULE}")
    if kind == "UUID":
        keys, types = [None if key is None else str(key) for key in keys], {str}
    try:
        column = array_of(keys, types)
    except (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError) as error:
        raise KeyTypeError(f"keys of type {kind}: {error}; {KEY_RULE}") from None
    return _as_key_type(column, key_type(column.type))


def _family(kind: type) -> str:
    """Python's own type that a type of keys derives from."""
    known = (str, bytes, bool, int, datetime, tuple, UUID)
    return _FAMILIES.get(kind) or next((base.__name__ for base in known if issubclass(kind, base)), kind.__name__)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _used(dictionary: pa.Array, indices: npt.NDArray[np.integer]) -> tuple[pa.Array, Codes]:
    """Drop unused values: the dictionary of a Parquet row group serves many batches."""
    positions, codes = renumbered(indices, len(dictionary))
    return (dictionary if len(positions) == len(dictionary) else dictionary.take(pa.array(positions))), codes


def renumbered(codes: npt.NDArray[np.integer], keys: int) -> tuple[npt.NDArray[np.intp], Codes]:
    """The positions below `keys` that occur in `codes`, ascending, and the codes as indices into these."""
    used = np.zeros(keys, dtype=bool)
    used[codes] = True
    positions = np.flatnonzero(used)
    if len(positions) == keys:
        return positions, codes.astype(np.int32, copy=False)
    place = np.empty(keys, dtype=np.int32)  # set where it is looked at: a few rows may use a few of very many keys
    place[positions] = np.arange(len(positions), dtype=np.int32)
    return positions, place.take(codes)


def by_position(keys: pa.Array) -> pa.Array:
    """Name components by position: each side of a join has its own names."""
    if not pa.types.is_struct(keys.type):
        return keys
    return pa.StructArray.from_arrays(keys.flatten(), names=[str(place) for place in range(keys.type.num_fields)])
