"""Names, types and constants of polars as SQL of Spark."""

import math
from datetime import datetime, timedelta, timezone
from typing import Any

import polars as pl

from dpa.errors import TableError
from dpa.spark._errors import quoted

_NAMES: dict[Any, str] = {
    pl.Boolean: "BOOLEAN",
    pl.Int8: "TINYINT",
    pl.Int16: "SMALLINT",
    pl.Int32: "INT",
    pl.Int64: "BIGINT",
    pl.Int128: "DECIMAL(38,0)",
    pl.UInt8: "SMALLINT",
    pl.UInt16: "INT",
    pl.UInt32: "BIGINT",
    pl.UInt64: "DECIMAL(20,0)",
    pl.Float32: "FLOAT",
    pl.Float64: "DOUBLE",
    pl.String: "STRING",
    pl.Categorical: "STRING",
    pl.Enum: "STRING",
    pl.Binary: "BINARY",
    pl.Date: "DATE",
    pl.Duration: "INTERVAL DAY TO SECOND",
    pl.Null: "VOID",
}


def name_of_type(kind: pl.DataType) -> str:
    """The type of Spark that holds a column; TableError if there is none."""
    if isinstance(kind, pl.Decimal):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, pl.Datetime):
        return "TIMESTAMP_NTZ" if kind.time_zone is None else "TIMESTAMP"
    if isinstance(kind, pl.List | pl.Array):
        return f"ARRAY<{name_of_type(kind.inner)}>"  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        fields = (f"{quoted(field.name)}: {name_of_type(field.dtype)}" for field in kind.fields)  # type: ignore[arg-type]
        return f"STRUCT<{', '.join(fields)}>"
    found = _NAMES.get(kind.base_type())
    if found is None:
        raise TableError(f"Spark has no type for {kind}")
    return found


def text(value: str) -> str:
    """A string constant. Spark would put a variable in the place of `${name}`, also there."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def literal(value: Any, kind: pl.DataType) -> str:
    name = name_of_type(kind)
    if value is None:
        return "NULL" if kind == pl.Null else f"CAST(NULL AS {name})"
    if kind == pl.Boolean:
        return str(bool(value)).upper()
    if name == "STRING":
        return text(str(value))
    if kind.is_integer():
        short = {"INT": "", "BIGINT": "L"}.get(name)
        return f"CAST({value} AS {name})" if short is None or int(value) < -(2**31) else f"{int(value)}{short}"
    if kind.is_float():
        number = float(value)
        plain = f"{number!r}D" if math.isfinite(number) else f"CAST('{number}' AS DOUBLE)"
        return plain if kind == pl.Float64 else f"CAST({plain} AS FLOAT)"
    return _other(value, kind, name)


def _other(value: Any, kind: pl.DataType, name: str) -> str:
    if isinstance(kind, pl.Decimal):
        return f"CAST('{value}' AS {name})"
    if kind == pl.Binary:
        return f"X'{value.hex()}'"
    if kind == pl.Date:
        return f"DATE'{value.isoformat()[:10]}'"
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None else " UTC"
        plain = value if value.tzinfo is None else value.astimezone(timezone.utc).replace(tzinfo=None)
        return f"{name}'{plain.isoformat(sep=' ')}{zone}'"
    if isinstance(value, timedelta):
        return f"make_dt_interval({value.days}, 0, 0, {value.seconds}.{value.microseconds:06})"
    if isinstance(kind, pl.List | pl.Array):
        return f"array({', '.join(literal(each, kind.inner) for each in value)})"  # type: ignore[arg-type]
    raise TableError(f"a constant of {kind} is not known to Spark")
