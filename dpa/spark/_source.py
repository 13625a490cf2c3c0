"""What to read, in plain values, and how Spark reads it.

The fields of `Source` and `RowSample` are those of the sections `input` and `sample` of a job file. Nothing is computed
here: Spark has only checked the DataFrame of `load` against the columns there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpa.errors import TableError
from dpa.sources.columns import listed, require_columns
from dpa.sources.lines import large_text
from dpa.sources.paths import (
    Location,
    for_hadoop,
    found,
    is_literal,
    is_partitioned,
    is_readable_by_arrow,
    is_surely_local,
    one_or_more,
    pruned,
    resolved,
    without_file_scheme,
)
from dpa.spark._errors import as_table_error, quoted
from dpa.spark._session import SharedSetting, temporary_view

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_LISTED_BY_DRIVER = SharedSetting(
    "spark.sql.sources.parallelPartitionDiscovery.threshold", value=str(2**31 - 1), default="32"
)

_CSV = {"escape": '"'}
"""CSV as dpa reads it without Spark: quotes in quotes are doubled, and a backslash is an ordinary character."""

FILE_FORMATS = ("parquet", "csv", "json", "text", "arrow")

_DRAW, _PART, _RANK = "_dpa_draw", "_dpa_part", "_dpa_rank"


@dataclass(frozen=True)
class Source:
    """An input table, or files for an SQL query. Relative paths, also those of `views`, start at the directory `base`;
    the other fields are a job file's."""

    format: str
    path: str | Sequence[str] | None = None
    glob: str | None = None
    recursive: bool = False
    exclude: Sequence[str] = ()
    allow_missing_columns: bool = False
    in_place: bool = False
    columns: Mapping[str, str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    query: str | None = None
    views: Mapping[str, Source] = field(default_factory=dict)
    table: str | None = None
    select: Sequence[str] = ()
    where: str | None = None
    base: str = "."

    @classmethod
    def of(cls, values: Mapping[str, Any], base: str = ".") -> Source:
        """Make a source of nested values, such as a job file's section `input`; other keys are ignored."""
        given = {option.name: values[option.name] for option in fields(cls) if option.name in values}
        views = {name: cls(**view) for name, view in values.get("views", {}).items()}
        return cls(**{**given, "views": views, "base": base})

    @property
    def paths(self) -> list[str]:
        """The paths, absolute or URIs."""
        return [resolved(each, self.base) for each in one_or_more(self.path)]

    @property
    def name(self) -> str:
        if self.format in FILE_FORMATS:
            return f"{self.format} files at {listed(self.paths)}"
        names = {"sql": "the query", "jdbc": f"JDBC {self.options.get('url', '(no option `url`)')}"}
        return names.get(self.format, f"the table {self.table!r}")


@dataclass(frozen=True)
class RowSample:
    """The share of rows to keep (`fraction`, above 0 and at most 1), within each value of `by` if given."""

    fraction: float
    by: str | None = None
    seed: int = 0


def require_paths(source: Source) -> None:
    """Check without Spark that each local path of an input and its views leads to something. Raises TableError."""
    for view in source.views.values():
        require_paths(replace(view, base=source.base))
    for path in source.paths if source.format in FILE_FORMATS else ():
        if is_surely_local(path):
            found(path)


def reads_in_place(source: Source, sample: RowSample | None = None) -> bool:
    """Whether the input is of Arrow, is to be read in place, or is Parquet that pyarrow can read as it is, so that no
    Spark is needed. Partitioned directories of Parquet (`year=2024/...`) are Spark's: it makes columns of their
    names."""
    return (
        source.in_place
        or source.format == "arrow"
        or (source.format == "parquet" and _is_wanted_as_it_is(source, sample))
    )


def text_in_place(source: Source, sample: RowSample | None = None) -> list[Location]:
    """The files of a text input that is wanted as it is and large enough to be read in place; else none."""
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

    Raises TableError if a path, table or column is missing, a query or expression is wrong, or a database does not
    answer."""
    frame = narrowed(_read(spark, source), source.where, source.select)
    return frame if sample is None else sampled(frame, sample)


def narrowed(frame: DataFrame, where: str | None, select: Sequence[str]) -> DataFrame:
    """Apply `where`, then `select`. Raises TableError if a column is missing, or an expression is wrong."""
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
    tree |= {"mergeSchema": "true"} if source.allow_missing_columns else {}
    glob = {"pathGlobFilter": source.glob} if source.glob is not None else {}
    # Local files are listed by the driver: a job of Spark's for every few directories takes longer than to look there.
    listing = _LISTED_BY_DRIVER.of(spark) if all(map(is_surely_local, paths)) else nullcontext()
    is_one = len(paths) == 1 and is_surely_local(paths[0]) and Path(without_file_scheme(paths[0])).is_file()
    dialect = csv_dialect(source.format, is_one=is_one)
    with as_table_error(source.name), listing:
        return spark.read.format(source.format).options(**{**dialect, **tree, **glob, **source.options}).load(paths)


def csv_dialect(format: str, *, is_one: bool = False) -> dict[str, str]:
    """Spark's options for a format; `is_one`: it reads one file. For several CSV files Spark compares the headers;
    otherwise it would take all columns for those of the first file, in its order."""
    return {**_CSV, "enforceSchema": str(is_one).lower()} if format == "csv" else {}


def _roots(source: Source) -> list[str]:
    """The paths as Spark takes them, without what is excluded. Names that exist are escaped: none is a glob."""
    if not (source.exclude and source.paths):
        return [for_hadoop(path) if is_surely_local(path) and is_literal(path) else path for path in source.paths]
    if not all(map(is_readable_by_arrow, source.paths)):
        raise TableError(f"`exclude` cannot be applied at {listed(source.paths)}: name the directories to read instead")
    kept = [for_hadoop(place.name) for path in source.paths for place in pruned(path, source.exclude, source.glob)]
    if not kept:
        raise TableError(f"{listed(source.paths)}: nothing is left without {listed(source.exclude)}")
    return kept


def sampled(frame: DataFrame, sample: RowSample) -> DataFrame:
    """Keep each row with the probability `sample.fraction`.

    Without `by`, rows are drawn one by one (Bernoulli). With `by`, that would leave a value's share uncertain, so rows
    are drawn in proportion: of the n rows of a value in a partition of the input, fraction * n are kept, rounded up or
    down at random such that every row still has the same chance. Null counts as a value. This costs a shuffle and a
    sort; a frequent value is ranked a partition at a time, never all in one task.

    The same seed draws the same sample of the same files if Spark cuts them into the same partitions, which depends on
    the number of its cores.

    Raises TableError if there is no column `by`, it has no equality, or the fraction is out of range."""
    if not 0 < sample.fraction <= 1:
        raise TableError(f"sample: the fraction must be above 0 and at most 1, not {sample.fraction}")
    if sample.by is None:
        return frame.sample(withReplacement=False, fraction=sample.fraction, seed=sample.seed)
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    require_columns(frame.columns, [sample.by], "sample: the input")
    by = f.col(quoted(sample.by))
    with as_table_error(f"sample: by {sample.by!r}"):
        drawn = frame.withColumns({_DRAW: f.rand(sample.seed), _PART: f.spark_partition_id()})
        cell = Window.partitionBy(by, _PART).orderBy(_DRAW)
        # Rank i is kept where floor(i * fraction + offset) steps up; the offset, from 0 to 1, is the cell's own.
        offset = f.pmod(f.xxhash64(by, f.col(_PART), f.lit(sample.seed)), f.lit(1 << 20)) / f.lit(1 << 20)
        ranked = drawn.withColumn(_RANK, f.row_number().over(cell))
        steps = f.floor(f.col(_RANK) * sample.fraction + offset)
        before = f.floor((f.col(_RANK) - 1) * sample.fraction + offset)
        return ranked.where(steps > before).drop(_DRAW, _PART, _RANK)


def sample_rows(frame: DataFrame, max_rows: int, seed: int = 0) -> tuple[int, pa.Table]:
    """The number of rows, and about `max_rows` of them drawn at random. Raises TableError."""
    with as_table_error("drawing a sample of the input"):
        rows = frame.count()
        return rows, (frame if rows <= max_rows else frame.sample(False, max_rows / rows, seed)).toArrow()
