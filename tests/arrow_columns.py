"""A column of every Arrow type."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

MOMENT, DAY, NOON = dt.datetime(2020, 1, 1, 2, 3, 4), dt.date(2020, 1, 1), dt.time(12)
UNITS = ("s", "ms", "us", "ns")
NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
TEXTS = (pa.string(), pa.large_string(), pa.string_view())
BYTES = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))


def of(value: Any, *kinds: pa.DataType) -> list[pa.Array]:
    return [pa.array([value, None, value], kind) for kind in kinds]


def extension(kind: pa.DataType, value: Any) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array([value, None], kind.storage_type))


COLUMNS = [
    pa.nulls(3),
    *of(True, pa.bool_()),
    *of(1, *map(pa.type_for_alias, NUMBERS)),
    *of("a", *TEXTS),
    *of(b"a", *BYTES),
    *of(DAY, pa.date32(), pa.date64()),
    *of(NOON, pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *of(MOMENT, *(pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC", "Europe/Vienna", "+01:00"))),
    *of(dt.timedelta(1), *(pa.duration(unit) for unit in UNITS)),
    *of(Decimal("1.5"), pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(38, 2)),
    *of(Decimal("1.5"), pa.decimal256(20, 2), pa.decimal256(60, 2), pa.decimal256(70, 3)),
    *of(Decimal("1500"), pa.decimal128(10, -2)),
    *of((1, 2, 3), pa.month_day_nano_interval()),
    *of("a", *(pa.dictionary(index, text) for index in (pa.int8(), pa.uint8(), pa.int32()) for text in TEXTS[:2])),
    *of("a", pa.dictionary(pa.int32(), pa.string(), ordered=True)),
    *of(7, pa.dictionary(pa.int16(), pa.int64())),
    *of(b"7", pa.dictionary(pa.int32(), pa.binary())),
    pa.array([DAY, None]).dictionary_encode(),
    *of([1, None], pa.list_(pa.int64()), pa.large_list(pa.int8()), pa.list_(pa.int32(), 2)),
    *of([1], pa.list_(pa.field("x", pa.int64(), nullable=False))),
    *of(["a"], pa.list_(pa.string()), pa.list_(pa.large_string()), pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    *of([MOMENT], pa.list_(pa.timestamp("s")), pa.list_(pa.timestamp("us", "UTC"))),
    *of([Decimal("1.5")], pa.list_(pa.decimal32(5, 2)), pa.list_(pa.decimal256(20, 2))),
    *of([[b"a"]], pa.list_(pa.list_(pa.binary(1)))),
    *of({"a": "x", "b": [1]}, pa.struct({"a": pa.string(), "b": pa.list_(pa.int64())})),
    *of({}, pa.struct([])),
    *of([("k", 1)], pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64(), keys_sorted=True)),
    extension(pa.uuid(), b"0" * 16),
    extension(pa.json_(), "{}"),
    extension(pa.bool8(), 1),
    extension(pa.opaque(pa.int8(), "type", "vendor"), 1),
    extension(pa.fixed_shape_tensor(pa.int8(), [1]), [1]),
    pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array([5])),
]
