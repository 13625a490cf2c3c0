"""Pairs of columns, as two files of one input may have them, the type that both become, and their values."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = "UTC"


def of(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


WIDENED: dict[str, tuple[pa.Array, pa.Array, pa.DataType, list[Any]]] = {
    "int32 and int64": (of([1], pa.int32()), of([2**40], pa.int64()), pa.int64(), [1, 2**40]),
    "int8 and uint8": (of([-1], pa.int8()), of([200], pa.uint8()), pa.int16(), [-1, 200]),
    "int64 and uint32": (of([-1], pa.int64()), of([2**32 - 1], pa.uint32()), pa.int64(), [-1, 2**32 - 1]),
    "float and double": (of([1.5], pa.float32()), of([0.1], pa.float64()), pa.float64(), [1.5, 0.1]),
    "int64 and double": (of([3], pa.int64()), of([0.1], pa.float64()), pa.float64(), [3.0, 0.1]),
    "string and large_string": (of(["a"], pa.string()), of(["b"], pa.large_string()), pa.large_string(), ["a", "b"]),
    "string and string_view": (of(["a"], pa.string()), of(["b"], pa.string_view()), pa.large_string(), ["a", "b"]),
    "binary and large_binary": (
        of([b"a"], pa.binary()), of([b"b"], pa.large_binary()), pa.large_binary(), [b"a", b"b"],
    ),
    "dictionary and string": (
        of(["a"], pa.dictionary(pa.int32(), pa.string())), of(["b"], pa.string()), pa.string(), ["a", "b"],
    ),
    "durations of ms and us": (
        of([1], pa.duration("ms")), of([2], pa.duration("us")), pa.duration("us"),
        [timedelta(milliseconds=1), timedelta(microseconds=2)],
    ),
    "null and string": (pa.nulls(1), of(["b"], pa.string()), pa.string(), [None, "b"]),
    "int32 and null": (of([1], pa.int32()), pa.nulls(1), pa.int32(), [1, None]),
    "timestamps of ms and us": (
        of([1], pa.timestamp("ms")), of([2], pa.timestamp("us")), pa.timestamp("us"),
        [datetime(1970, 1, 1, 0, 0, 0, 1000), datetime(1970, 1, 1, 0, 0, 0, 2)],
    ),
    "a date and a timestamp": (
        of([date(2024, 1, 1)], pa.date32()), of([datetime(2024, 1, 1, 12)], pa.timestamp("us")), pa.timestamp("us"),
        [datetime(2024, 1, 1), datetime(2024, 1, 1, 12)],
    ),
    "times of ms and us": (
        of([1000], pa.time32("ms")), of([5], pa.time64("us")), pa.time64("us"), ["00:00:01", "00:00:00.000005"],
    ),
    "decimals": (
        of([Decimal("1.25")], pa.decimal128(5, 2)), of([Decimal("10.0625")], pa.decimal128(10, 4)),
        pa.decimal128(10, 4), [Decimal("1.2500"), Decimal("10.0625")],
    ),
    "an integer and a decimal": (
        of([7], pa.int32()), of([Decimal("0.25")], pa.decimal128(5, 2)), pa.decimal128(12, 2),
        [Decimal("7.00"), Decimal("0.25")],
    ),
    "lists of int32 and int64": (
        of([[1, None]], pa.list_(pa.int32())), of([[2]], pa.list_(pa.int64())), pa.list_(pa.int64()), [[1, None], [2]],
    ),
    "structs of int32 and int64": (
        of([{"a": 1}], pa.struct([("a", pa.int32())])), of([{"a": 2}], pa.struct([("a", pa.int64())])),
        pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": 2}],
    ),
    "zones": (
        of([datetime(2024, 1, 1)], pa.timestamp("us", UTC)),
        of([datetime(2024, 1, 1)], pa.timestamp("us", "Asia/Tokyo")),
        pa.timestamp("us", UTC), ["2024-01-01T00:00:00+00:00"] * 2,
    ),
}  # fmt: skip
