"""How records are encoded as lines - CSV, JSON, text - and what lines of these give."""

from __future__ import annotations

import csv
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from dpa.sources.records import LineBlock, Wrong, ends_of, parsed, plain_object, plain_values

TEXT = pa.schema([("value", pa.string())])
"""The columns of a text file."""


@dataclass(frozen=True)
class LineFormat:
    """How records are encoded as lines.

    Attributes:
        name: `csv`, `json` or `text`.
        header: whether the first line of each CSV file names its columns.
        separator: of the values of CSV, one byte.
        tolerates: whether lines that cannot be read are left out. Then all columns are read, so that what is left out
            does not depend on which a job reads.
    """

    name: str
    header: bool = False
    separator: str = ","
    tolerates: bool = False

    def parsed(
        self,
        block: LineBlock,
        records: int,
        names: tuple[str, ...],
        schema: pa.Schema,
        columns: tuple[str, ...] | None = None,
    ) -> tuple[pa.Table, Wrong]:
        """The records of some lines, and which of them are wrong.

        Args:
            records: how many of the lines are not empty.
            names: of all columns of CSV.
            schema: the columns there may be.
            columns: those that are read; all if None.
        """
        wanted = schema if columns is None else pa.schema([field for field in schema if field.name in columns])
        read = schema if self.tolerates else wanted
        parse = partial(self._parsed, names=names, schema=read)
        separator, plain = self.separator.encode(), plain_object
        is_plain = block.has_objects if self.name == "json" else block.is_quoted_well(separator[0])
        found: list[pa.Table] = []
        wrong: Wrong = {}
        if is_plain:
            with suppress(pa.ArrowInvalid):
                found = [parse(pa.py_buffer(block.array))]
        if sum(table.num_rows for table in found) != records:
            lines = block.lines()
            if self.name == "csv":
                plain = partial(plain_values, separator=separator, number=len(names))
                if pa.binary() not in read.types:
                    lines = [line.decode(errors="replace").encode() for line in lines]  # as Spark does
            found, wrong = parsed(lines, plain, parse)
        table = pa.concat_tables(found) if found else read.empty_table()
        return table.select(wanted.names), wrong

    def _parsed(self, data: pa.Buffer, names: tuple[str, ...], schema: pa.Schema) -> pa.Table:
        """The records of lines of CSV or JSON.

        Raises:
            pa.ArrowInvalid: one is not as it should be.
        """
        if self.name == "json":
            return parsed_objects(data, schema)
        from pyarrow import csv as arrow

        convert = arrow.ConvertOptions(
            column_types=schema, include_columns=schema.names, null_values=[""], strings_can_be_null=True
        )
        read = arrow.ReadOptions(column_names=names, use_threads=False, block_size=data.size + 1)
        return arrow.read_csv(pa.BufferReader(data), read, arrow.ParseOptions(delimiter=self.separator), convert)

    def columns_of(self, first: bytes) -> list[str]:
        """The names of the columns of CSV, by its first line: those that stand there, or Spark's `_c0`, `_c1`, ...; so
        is one called that has no name there, and of several of one name each has its number behind it.

        Raises:
            csv.Error: it is no line of CSV.
        """
        [found] = csv.reader([first.decode(errors="replace")], delimiter=self.separator, strict=True)
        times = Counter(name.lower() for name in found)
        shown = [f"{name}{place}" if times[name.lower()] > 1 else name for place, name in enumerate(found)]
        return [name if found[place] and self.header else f"_c{place}" for place, name in enumerate(shown)]

    def record(self, data: bytes, names: tuple[str, ...], declared: pa.Schema | None) -> dict[str, Any]:
        """What one line gives; `names` and `declared` as for a file.

        Raises:
            ValueError: it cannot be read.
        """
        schema = columns_shown(self, list(names), data) if declared is None else declared
        table, wrong = self.parsed(LineBlock(pa.py_buffer(data)), 1, names, schema)
        if wrong:
            raise ValueError(wrong[0])
        [row] = table.to_pylist()
        return dict(row)


def parsed_objects(data: pa.Buffer, schema: pa.Schema | None, *, spread: bool = False) -> pa.Table:
    """The objects of some JSON; `schema`: of the fields that are read, None: of all; `spread`: they may be on several
    lines each, which takes longer.

    Raises:
        pa.ArrowInvalid: a field is of another type, or there is no such object.
    """
    from pyarrow import json

    block = json.ReadOptions(use_threads=False, block_size=data.size + 1)
    options = json.ParseOptions(explicit_schema=schema, newlines_in_values=spread)
    if schema is not None:
        options.unexpected_field_behavior = "ignore"
    return json.read_json(pa.BufferReader(data), block, options)


def columns_shown(kind: LineFormat, names: list[str], first: bytes) -> pa.Schema:
    """The columns of a file whose columns are not declared."""
    if kind.name == "json":
        ends = ends_of(pa.py_buffer(first), is_whole=False)
        lines = LineBlock(pa.py_buffer(first[: int(ends[-1])] if len(ends) else first)).lines()
        _, wrong = parsed(lines, plain_object, partial(parsed_objects, schema=pa.schema([])))
        good = b"\n".join(line for place, line in enumerate(lines) if place not in wrong)
        return parsed_objects(pa.py_buffer(good), None).schema if good else pa.schema([])
    return TEXT if kind.name == "text" else pa.schema([(name, pa.string()) for name in names])
