"""Columns of every type that Arrow has, with values at the edges of each."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

_SIMPLE = (
    *(pa.int8(), pa.int64(), pa.uint64(), pa.uint8(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.time64("ns"), pa.month_day_nano_interval()),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("s", "Europe/Berlin"), pa.timestamp("ns", "+02:00")),
    *(pa.timestamp("us", "Nowhere/AtAll"), pa.duration("s"), pa.duration("ns")),
    *(pa.decimal128(5, 2), pa.decimal128(38, 0), pa.decimal256(76, 10), pa.decimal128(3, -2)),
    *(pa.uuid(), pa.bool8(), pa.opaque(pa.int64(), "thing", "vendor"), pa.json_()),
)
"""Types whose columns are made value by value, or as numbers."""

_TIMES = (
    *(pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.timestamp("s"), pa.timestamp("ns"), pa.date32(), pa.date64()),
    *(pa.dictionary(pa.int32(), pa.timestamp("ms")), pa.int64(), pa.float64(), pa.uint64(), pa.null(), pa.string()),
)
"""Types of a column with the time of rows, some of which are none."""

_NOW = {"s": 1_700_000_000, "ms": 1_700_000_000_000, "us": 1_700_000_000_000_000, "ns": 1_700_000_000_000_000_000}
_EDGES = (0, 1, -1, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63), 253_402_300_799, -62_135_596_801)


def any_type(draw: random.Random, depth: int = 0) -> pa.DataType:
    """A type, nested now and then."""
    if depth > 1 or draw.random() < 0.7:
        return draw.choice(_SIMPLE)
    inner = any_type(draw, depth + 1)
    made: tuple[Callable[[], pa.DataType], ...] = (
        lambda: pa.list_(inner),
        lambda: pa.large_list(inner),
        lambda: pa.list_(inner, 2),
        lambda: pa.list_view(inner),
        lambda: pa.large_list_view(inner),
        lambda: pa.struct([("a", inner), ("b", pa.int64())]),
        lambda: pa.struct([("a", inner), ("a", inner)]),
        lambda: pa.struct([]),
        lambda: pa.map_(pa.string(), inner),
        lambda: pa.dictionary(pa.int8(), inner),
        lambda: pa.dictionary(pa.uint32(), pa.string()),
        lambda: pa.run_end_encoded(pa.int32(), draw.choice(_SIMPLE)) if depth == 0 else inner,
        lambda: pa.dense_union([pa.field("a", inner), pa.field("b", pa.string())]),
        lambda: pa.sparse_union([pa.field("a", inner)]),
    )
    try:
        return draw.choice(made)()
    except (pa.ArrowException, TypeError, ValueError):  # no such nested type
        return inner


def time_type(draw: random.Random) -> pa.DataType:
    """The type of a column with times."""
    return draw.choice(_TIMES)


def column(kind: pa.DataType, rows: int, draw: random.Random) -> pa.Array:
    """A column; of nulls alone where Arrow makes no other of the type."""
    try:
        made = _column(kind, rows, draw)
        made.validate(full=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError):
        made = pa.nulls(rows, kind)
    if pa.types.is_string(kind) and rows and draw.random() < 0.1:
        return pa.array([b"\xff\xfe" if draw.random() < 0.3 else b"text" for _ in range(rows)]).view(kind)
    return made


def _column(kind: pa.DataType, rows: int, draw: random.Random) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _column(kind.storage_type, rows, draw))
    if pa.types.is_dictionary(kind):
        values = column(kind.value_type, 3, draw)
        places = [None if draw.random() < 0.1 else draw.randrange(3) for _ in range(rows)]
        return pa.DictionaryArray.from_arrays(pa.array(places, kind.index_type), values)
    if pa.types.is_run_end_encoded(kind):
        ends = pa.array([rows] if rows else [], kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, column(kind.value_type, len(ends), draw))
    if pa.types.is_union(kind):
        which, children = pa.array([0] * rows, pa.int8()), [column(part.type, rows, draw) for part in kind]
        names = [part.name for part in kind]
        if kind.mode == "dense":
            return pa.UnionArray.from_dense(which, pa.array(range(rows), pa.int32()), children, names)
        return pa.UnionArray.from_sparse(which, children, names)
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.StructArray.from_arrays([column(part.type, rows, draw) for part in kind], fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        places = pa.array(range(rows + 1), pa.int32() if pa.types.is_list(kind) else pa.int64())
        return type(pa.nulls(0, kind)).from_arrays(places, column(kind.value_type, rows, draw), kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_duration(kind):
        return _numbers(rows, draw, _NOW["ms" if pa.types.is_date64(kind) else kind.unit]).view(kind)
    if pa.types.is_date32(kind):
        return pa.array(
            [draw.choice((19_000, 0, -719_163, 2_932_897, 2**31 - 1)) for _ in range(rows)], pa.int32()
        ).view(kind)
    all_null = draw.random() < 0.05
    values = [None if all_null or draw.random() < 0.15 else _value(kind, draw) for _ in range(rows)]
    return pa.array(values, kind)


def _numbers(rows: int, draw: random.Random, now: int) -> pa.Array:
    odd = draw.choice((0.0, 0.0, 0.2))
    values = [draw.choice((*_EDGES, None)) if draw.random() < odd else now + draw.randrange(1_000) for _ in range(rows)]
    return pa.array(values, pa.int64())


def _value(kind: pa.DataType, draw: random.Random) -> Any:
    if pa.types.is_integer(kind):
        width = kind.bit_width
        least, most = (
            (0, 2**width - 1) if pa.types.is_unsigned_integer(kind) else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
        )
        return draw.choice((least, most, 0, 1, 1, 2, 3))
    if pa.types.is_floating(kind):
        value = draw.choice((0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 1e-30, 3.0))
        return np.float16(value) if kind == pa.float16() else value
    if pa.types.is_boolean(kind):
        return draw.random() < 0.5
    if pa.types.is_decimal(kind):
        return draw.choice((Decimal(0), Decimal(1), Decimal(-2)))
    if pa.types.is_fixed_size_binary(kind):
        return bytes(draw.randrange(256) for _ in range(kind.byte_width))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return draw.choice((b"", b"\x00", b"\xff\xfe", b"a", b"a" * 40))
    if pa.types.is_map(kind):
        return [("a", None), ("b", None)]
    if pa.types.is_nested(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else draw.randrange(3)
        return {} if pa.types.is_struct(kind) else [None] * size
    if pa.types.is_time(kind):
        return draw.randrange(80_000)
    if pa.types.is_interval(kind):
        return pa.MonthDayNano([draw.choice((0, 1, -1, 2**31 - 1)), 2, 3])
    return draw.choice(("", "a", "b", "\x00", "ä", "😀", '{"a": 1}', "1", "a" * 40, draw.choice(string.printable)))
