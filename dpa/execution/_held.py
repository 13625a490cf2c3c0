"""Rows and values as Python objects, even where Python has none: a time outside the years 1 to 9999, or text that is
not UTF-8. User code fails on such a row as on any other bad one."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from sys import getsizeof
from typing import Any

import pyarrow as pa

_NONE = (ArithmeticError, LookupError, ValueError)
"""What Arrow raises if Python has no such value; an unknown time zone is a `LookupError`."""

_LOOKED_AT = 32
"""Of what is in one object as many are looked at, and a quarter of that in each of these; the others are taken to be
like them."""

_DEPTH = 6  # so deep inside another is an object looked at

_FLAT = (str, bytes, bytearray, int, float, complex, type(None), type)


@dataclass(frozen=True)
class Unheld:
    """Stands for a row or value that Python cannot hold.

    Attributes:
        value: it, with times of numpy and bytes in place of Python's times and text.
        error: what a function of it fails on.
    """

    value: Any
    error: ValueError


class _Values(list[Any]):
    """Values of which at least one is not held: iterating raises at it."""

    def __iter__(self) -> Iterator[Any]:
        return map(_held, super().__iter__())


def held_of(values: list[Any], taken: Iterator[Any]) -> Iterator[Any]:
    """Iterate over `values` by way of `taken`, which counts them."""
    return map(_held, taken) if isinstance(values, _Values) else taken


def _held(value: Any) -> Any:
    if isinstance(value, Unheld):
        raise value.error
    return value


def objects_of(values: pa.RecordBatch | pa.Array) -> list[Any]:
    """Rows as dicts, or the values of an array, with an `Unheld` for each that Python cannot hold. Iterating raises
    there; `list.__iter__` does not."""
    if isinstance(values, pa.StructArray) and values.type.num_fields and not values.null_count:
        values = pa.RecordBatch.from_struct_array(values)
    try:
        if isinstance(values, pa.RecordBatch) and values.num_columns:
            return _rows_of(tuple(values.schema.names))(*(column.to_pylist() for column in values.columns))
        return list(values.to_pylist())
    except _NONE:
        rows = values.num_rows if isinstance(values, pa.RecordBatch) else len(values)
        return _Values(_one(values, row) for row in range(rows))


@lru_cache(maxsize=256)
def _rows_of(names: tuple[str, ...]) -> Callable[..., list[Any]]:
    """Makes dicts of these names out of lists, one for each name. A display of dicts is compiled, as no other way of
    Python's makes them as fast: it takes half of the time of Arrow's own."""
    values = [f"v{place}" for place in range(len(names))]
    pairs = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    made: Callable[..., list[Any]] = eval(f"lambda *columns: [{{{pairs}}} for {', '.join(values)}, in zip(*columns)]")
    return made


def value_of(found: Any) -> Any:
    return found.value if isinstance(found, Unheld) else found


def to_show(values: pa.RecordBatch | pa.Array) -> list[Any]:
    """Rows or values to show or keep; never raises."""
    return [value_of(found) for found in list.__iter__(objects_of(values))]


def _one(values: pa.RecordBatch | pa.Array, row: int) -> Any:
    value = values.slice(row, 1)
    try:
        return value.to_pylist()[0]
    except UnicodeDecodeError as error:
        mend = "where Spark reads it, `make_valid_utf8(column) AS column` in its `select` replaces such bytes"
        reason = f"{error}; {mend}"
    except _NONE as error:
        reason = str(error)
    if isinstance(value, pa.RecordBatch):
        parts = {name: _one(column, 0) for name, column in zip(value.schema.names, value.columns, strict=True)}
        errors = (f"column {name!r}: {part.error}" for name, part in parts.items() if isinstance(part, Unheld))
        return Unheld({name: value_of(part) for name, part in parts.items()}, ValueError("; ".join(errors)))
    kind, shown = value.type, f"<{value.type}>"
    if pa.types.is_dictionary(kind):
        return _one(value.dictionary_decode(), 0)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind):
        shown = value.to_numpy(zero_copy_only=False)[0]
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        shown = value.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary())[0].as_py()
    return Unheld(shown, ValueError(f"Python has no value for the {kind} {shown}: {reason}"))


def deep_size(found: Any, most: int = _LOOKED_AT, depth: int = _DEPTH) -> float:
    """Bytes of an object and of those in it, as `sys.getsizeof` has them. Of an object that does not show what is in
    it, at least as many as it has when pickled."""
    own = float(getsizeof(found))
    if isinstance(found, _FLAT) or not depth:
        return own
    if isinstance(found, dict):
        some = [*chain.from_iterable(islice(found.items(), most))]
        inside = 2 * len(found)
    elif isinstance(found, list | tuple):
        some, inside = [*found[:: len(found) // most + 1]], len(found)
    elif isinstance(found, set | frozenset):
        some, inside = [*islice(found, most)], len(found)
    elif getattr(found, "__dict__", None):
        some, inside = [vars(found)], 1
    else:
        return max(own, _pickled_size(found))
    return own + inside / max(1, len(some)) * sum(deep_size(item, max(1, most // 4), depth - 1) for item in some)


def _pickled_size(found: Any) -> float:
    try:
        return float(len(pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL)))
    except Exception:  # a user's class may raise anything
        return 0.0
