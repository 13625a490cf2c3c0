"""The first records of files that Spark loads, as polars reads them, to look at them without Spark.

A job has Spark's rows. These have the same values; docs/flows.md says where a column may have another type ("Looking").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from dpa._util.inference import with_parts
from dpa.errors import TableError
from dpa.sources.feed import Feed, Page
from dpa.sources.paths import Location, data_files, is_surely_local, prefix_of
from dpa.sources.splits import memory_splits

if TYPE_CHECKING:
    import polars as pl

_INFERRED_ROWS = 10_000  # records that show the types of columns

_ROWS_AT_A_TIME = 65_536

_OPTIONS = {"header", "inferschema", "sep", "delimiter", "quote", "comment", "nullvalue", "escape"}
"""Options of Spark's reader of CSV, in lower case, that mean the same here."""


@dataclass(frozen=True)
class FirstRecords(Feed):
    """Files of CSV, JSON lines or text, or of Parquet in directories such as `day=2024-01-31`.

    Attributes:
        name: the format.
        files: at least one.
        options: named as Spark's, of CSV only.
        above: what directories above the table are called that have the form of a partition.
    """

    name: str
    files: tuple[Location, ...]
    options: Mapping[str, str]
    above: frozenset[str] = frozenset()

    @cached_property
    def schema(self) -> pa.Schema:
        with self._blaming():
            return _plain(self._frame.head(0).collect()).schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        whole = pa.Table.from_batches(self.rows_now(split_rows), self.schema)
        return Page(memory_splits(whole, split_rows))

    def rows_now(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        with self._blaming():
            for frame in self._frame.collect_batches(chunk_size=min(batch_rows, _ROWS_AT_A_TIME), lazy=True):
                yield from _plain(frame).to_batches(max_chunksize=batch_rows)

    @cached_property
    def _frame(self) -> pl.LazyFrame:
        import polars as pl

        sources = [file.name for file in self.files]
        if self.name == "text":
            return pl.scan_lines(sources, name="value", glob=False)
        if self.name == "parquet":
            values = _partitions([file.path.rpartition("/")[0] for file in self.files])
            frame = pl.scan_parquet(
                sources,
                hive_partitioning=True,
                hive_schema={name: _kind(of_name) for name, of_name in values.items()},
                missing_columns="insert",
                extra_columns="ignore",
                glob=False,
            )
            return frame.drop(self.above).rename({name: unquote(name) for name in values.keys() - self.above})
        if self.name == "json":
            frame = pl.scan_ndjson(sources, infer_schema_length=_INFERRED_ROWS)
            return frame.select(sorted(frame.collect_schema().names()))  # as Spark orders them
        given = {key.lower(): value for key, value in self.options.items()}
        has_header, has_types = (given.get(key, "false").lower() == "true" for key in ("header", "inferschema"))
        frame = pl.scan_csv(
            sources,
            has_header=has_header,
            separator=given.get("sep", given.get("delimiter", ",")),
            quote_char=given.get("quote", '"') or None,
            comment_prefix=given.get("comment"),
            null_values=given.get("nullvalue"),
            infer_schema=has_types,
            infer_schema_length=_INFERRED_ROWS,
            try_parse_dates=has_types,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
            glob=False,
        )
        names = {} if has_header else frame.collect_schema()
        return frame.rename({name: f"_c{place}" for place, name in enumerate(names)})

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        from polars.exceptions import PolarsError

        try:
            yield
        except (PolarsError, OSError) as error:
            what = f"{prefix_of(self.files[0].name)}: cannot be looked at as {self.name}"
            raise TableError(f"{what}: {str(error).partition(chr(10))[0]}") from None


def first_records(
    name: str,
    paths: Sequence[str],
    options: Mapping[str, str],
    *,
    glob: str | None = None,
    recursive: bool = False,
    exclude: Sequence[str] = (),
) -> FirstRecords | None:
    """Files of a format, found as by `data_files`; None if they are not on this machine, or polars would not read them
    as Spark does. Raises TableError if there are none."""
    knows = name in ("json", "text", "parquet") and not options
    if name == "csv":
        knows = {key.lower() for key in options} <= _OPTIONS
    if not knows or not all(map(is_surely_local, paths)):
        return None
    deep = recursive or name == "parquet"  # which is read in place unless it is partitioned
    files = (file for path in paths for file in data_files(path, glob, deep, exclude))
    above = frozenset(_partitions(paths) if name == "parquet" else ())
    return FirstRecords(name, tuple({file.name: file for file in files}.values()), options, above)


def _partitions(folders: Sequence[str]) -> dict[str, set[str]]:
    """The values of each column that the names of directories make, as they are written."""
    values: dict[str, set[str]] = {}
    for folder in folders:
        for name, has_value, value in (part.partition("=") for part in folder.split("/")):
            if has_value:
                values.setdefault(name, set()).add(value)
    return values


def _kind(values: set[str]) -> type[pl.DataType]:
    """The type of a column with these values: Spark's, or text."""
    import polars as pl

    texts = pl.Series([unquote(value) for value in values if value != "__HIVE_DEFAULT_PARTITION__"], dtype=pl.String)
    if texts.is_empty():
        return pl.String
    tried = {kind: texts.cast(kind, strict=False) for kind in (pl.Int64, pl.Float64)}
    dates = texts.str.to_date("%Y-%m-%d", strict=False)
    return next((kind for kind, made in (*tried.items(), (pl.Date, dates)) if not made.null_count()), pl.String)


def _plain(frame: pl.DataFrame) -> pa.Table:
    """A frame as a table of the types that Spark gives."""
    import polars as pl

    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    return table.cast(pa.schema([field.with_type(_small(field.type)) for field in table.schema]))


def _small(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_list(kind):
        return pa.list_(_small(kind.value_type))
    return with_parts(kind, _small) or (pa.string() if kind == pa.large_string() else kind)
