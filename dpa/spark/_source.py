"""What to read, in plain values, and how Spark reads it.

The fields of `Source` and `RowSample` mean what the sections `input` and `sample` of a job file say. Nothing is
computed here: `load` returns a DataFrame that Spark has checked against the columns there are, and not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpa.errors import TableError
from dpa.sources.columns import listed
from dpa.sources.paths import (
    Location,
    for_hadoop,
    found,
    is_literal,
    is_partitioned,
    is_readable_by_arrow,
    is_surely_local,
    pruned,
    resolved,
    without_file_scheme,
)
from dpa.sources.text import large_text
from dpa.spark._errors import as_table_error
from dpa.spark._sample import RowSample, sampled
from dpa.spark._session_state import SharedSetting, temporary_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LISTED_BY_DRIVER = SharedSetting(
    "spark.sql.sources.parallelPartitionDiscovery.threshold", value=str(2**31 - 1), default="32"
)

_CSV = {"escape": '"'}
"""CSV as it is read without Spark: a quote is doubled in quotes, and a backslash is a character as any other."""

FILE_FORMATS = ("parquet", "csv", "json", "text")


@dataclass(frozen=True)
class Source:
    """An input table, or files that an SQL query may name. Relative paths, those of `views` too, start at the directory
    `base`; the rest is as in a job file."""

    format: str
    path: str | Sequence[str] | None = None
    glob: str | None = None
    recursive: bool = False
    exclude: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    query: str | None = None
    views: Mapping[str, Source] = field(default_factory=dict)
    table: str | None = None
    select: Sequence[str] = ()
    where: str | None = None
    base: str = "."

    @classmethod
    def of(cls, values: Mapping[str, Any], base: str = ".") -> Source:
        """Make a source of plain nested values, such as a job file's section `input`, of which it takes what it has."""
        given = {option.name: values[option.name] for option in fields(cls) if option.name in values}
        views = {name: cls(**view) for name, view in values.get("views", {}).items()}
        return cls(**{**given, "views": views, "base": base})

    @property
    def paths(self) -> list[str]:
        """The paths, absolute or URIs."""
        paths = [self.path] if isinstance(self.path, str) else list(self.path or ())
        return [resolved(each, self.base) for each in paths]

    @property
    def name(self) -> str:
        """What the input is and where, for messages."""
        if self.format in FILE_FORMATS:
            return f"{self.format} files at {listed(self.paths)}"
        names = {"sql": "the query", "jdbc": f"JDBC {self.options.get('url', '(no option `url`)')}"}
        return names.get(self.format, f"the table {self.table!r}")


def require_paths(source: Source) -> None:
    """Check, without Spark, that there is something at each local path of an input's files and of its query's views.

    Raises:
        TableError: names the first path at which there is nothing.
    """
    for view in source.views.values():
        require_paths(replace(view, base=source.base))
    for path in source.paths if source.format in FILE_FORMATS else ():
        if is_surely_local(path):
            found(path)


def reads_in_place(source: Source, sample: RowSample | None = None) -> bool:
    """Whether the input is Parquet already, wanted as it is, where pyarrow can read it: then no Spark is needed.

    A directory that is partitioned (`year=2024/...`) is Spark's: it knows how to make columns of directory names.
    """
    return source.format == "parquet" and _is_wanted_as_it_is(source, sample)


def text_in_place(source: Source, sample: RowSample | None = None) -> list[Location]:
    """The files of an input that is text, if it is wanted as it is, and as `dpa.sources.text.large_text` finds it worth
    while; else none."""
    try:
        if source.format != "text" or not _is_wanted_as_it_is(source, sample):
            return []
    except (OSError, UnicodeDecodeError):
        return []  # Spark says what is wrong
    return large_text(source.paths, glob=source.glob, recursive=source.recursive, exclude=source.exclude)


def _is_wanted_as_it_is(source: Source, sample: RowSample | None) -> bool:
    if source.select or source.where or source.options or sample:
        return False
    if not all(is_readable_by_arrow(path) for path in [*source.paths, source.glob or ""]):
        return False
    return source.recursive or not any(is_partitioned(path) for path in source.paths)


def load(spark: SparkSession, source: Source, sample: RowSample | None = None) -> DataFrame:
    """The input as a DataFrame: read, then `where`, then `select`, then sampled.

    `where` comes first, so that it may use columns that `select` drops and, on files, Spark's `_metadata.file_path`.

    Raises:
        TableError: a path, table or column is missing, a query or expression is wrong, or a database cannot be reached.
    """
    frame = narrowed(_read(spark, source), source.where, source.select)
    return frame if sample is None else sampled(frame, sample)


def narrowed(frame: DataFrame, where: str | None, select: Sequence[str]) -> DataFrame:
    """The rows of a frame for which `where` holds, and of these what `select` names.

    Raises:
        TableError: a column is missing, or an expression is wrong.
    """
    columns = f"the columns are {listed(frame.columns)}"
    if where is not None:
        with as_table_error(f"`where`: {where}", columns):
            frame = frame.where(where)
    if select:
        with as_table_error(f"`select`: {', '.join(select)}", columns):
            frame = frame.selectExpr(*select)
    return frame


def _read(spark: SparkSession, source: Source) -> DataFrame:
    if source.format in FILE_FORMATS:
        return _read_files(spark, source)
    if source.format == "sql":
        with ExitStack() as views:
            for name, view in source.views.items():
                views.enter_context(temporary_view(_read_files(spark, replace(view, base=source.base)), name))
            with as_table_error(source.name, f"the views are {listed(source.views)}"):
                return spark.sql(str(source.query))
    with as_table_error(source.name):
        if source.format == "jdbc":
            return spark.read.format("jdbc").options(**source.options).load()
        return spark.table(str(source.table))


def _read_files(spark: SparkSession, source: Source) -> DataFrame:
    paths = _roots(source)
    if not paths:
        raise TableError(f"an input of the format {source.format!r} needs a path")
    tree = {"recursiveFileLookup": "true"} if source.recursive else {}
    glob = {"pathGlobFilter": source.glob} if source.glob is not None else {}
    # Local files are listed by the driver: a job of Spark's for every few directories takes longer than to look there.
    listing = _LISTED_BY_DRIVER.of(spark) if all(map(is_surely_local, paths)) else nullcontext()
    dialect = csv_dialect(source.format, is_one=all(map(_is_file, paths)) and len(paths) == 1)
    with as_table_error(source.name), listing:
        return spark.read.format(source.format).options(**{**dialect, **tree, **glob, **source.options}).load(paths)


def csv_dialect(format: str, *, is_one: bool = False) -> dict[str, str]:
    """What Spark is asked for where it reads a format; `is_one`: it reads one file. Of several files of CSV the headers
    are compared, as else the columns of all are taken for those of the first, in its order."""
    return {**_CSV, "enforceSchema": str(is_one).lower()} if format == "csv" else {}


def _is_file(path: str) -> bool:
    return is_surely_local(path) and Path(without_file_scheme(path)).is_file()


def _roots(source: Source) -> list[str]:
    """The paths of an input's files as Spark takes them: without what is excluded, and none a glob that is the name of
    something."""
    if not (source.exclude and source.paths):
        return [for_hadoop(path) if is_surely_local(path) and is_literal(path) else path for path in source.paths]
    if not all(map(is_readable_by_arrow, source.paths)):
        raise TableError(f"`exclude` cannot be applied at {listed(source.paths)}: name the directories to read instead")
    kept = [for_hadoop(place.name) for path in source.paths for place in pruned(path, source.exclude, source.glob)]
    if not kept:
        raise TableError(f"{listed(source.paths)}: nothing is left without {listed(source.exclude)}")
    return kept
