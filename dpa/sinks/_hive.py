"""Directories of a result that is partitioned by columns, named as Hive and Spark do: `country=DE/day=2024-01-02`."""

from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dpa.errors import TableError

_NULL = "__HIVE_DEFAULT_PARTITION__"  # stands for null

_ESCAPED = {*map(chr, range(32)), "\x7f", *"\"#%'*/:=?\\{[]^"}
"""Characters that Spark escapes in names of directories too."""

_KINDS = (types.is_string, types.is_large_string, types.is_integer, types.is_boolean, types.is_date)


def check_partitions(columns: pa.Schema, by: Sequence[str]) -> None:
    """TableError if rows with these columns cannot be partitioned by some; null stands for an unknown type."""
    for name in by:
        if name not in columns.names:
            raise TableError(f"`partition_by` names {name!r}, and the result has {', '.join(columns.names)}")
        kind = columns.field(name).type
        if not types.is_null(kind) and not any(test(kind) for test in _KINDS):
            right = "`partition_by` takes texts, integers, booleans and dates"
            raise TableError(f"{right}, and column {name!r} is {kind}: convert it to one of these")
    if by and {*columns.names} <= {*by}:
        raise TableError("`partition_by` names all columns of the result, so files would have none: leave one out")


def partitions(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each directory, without the columns that its name says, in the order in which they were."""
    if not by:
        yield "", rows
        return
    if not rows.num_rows:
        yield "", rows.drop_columns([*by])
        return
    rows = rows.combine_chunks()
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in by:
        found = pc.dictionary_encode(rows[name].combine_chunks(), null_encoding="encode")
        codes = codes * len(found.dictionary) + found.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    rest = rows.drop_columns([*by])
    for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        values = (rows[name][int(places[0])].as_py() for name in by)
        yield "/".join(map(_directory, by, values)), rest.take(places)


def with_partitions(rows: pa.Table, name: str, columns: pa.Schema) -> pa.Table:
    """The rows of a file with the columns that its name says, in the order of all columns. Those that the file lacks
    are null."""
    known = _values(name)
    for field in columns:
        if field.name in known:
            one = pa.array([known[field.name]], pa.string()).cast(field.type)
            values = one.take(pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
        elif field.name in rows.column_names:
            continue
        else:
            values = pa.nulls(rows.num_rows, field.type)
        rows = rows.append_column(field, values)
    return rows.select(columns.names)


def columns_of_file(name: str, columns: pa.Schema) -> pa.Schema:
    """Of all columns of a result, those that are in a file."""
    known = _values(name)
    return pa.schema([field for field in columns if field.name not in known])


def _values(name: str) -> dict[str, str | None]:
    """What the directories in a file's name say, by column."""
    pairs = (folder.partition("=") for folder in name.split("/")[:-1])
    return {unquote(column): None if value == _NULL else unquote(value) for column, _, value in pairs}


def _directory(name: str, value: object) -> str:
    if value in ("", _NULL):  # which Spark and polars take for null
        remedy = "make it null, or another text, in the job"
        raise TableError(f"column {name!r} has the text {value!r}, for which there is no directory's name: {remedy}")
    text = _NULL if value is None else _escaped(str(value).lower() if isinstance(value, bool) else str(value))
    return f"{_escaped(name)}={text}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)
