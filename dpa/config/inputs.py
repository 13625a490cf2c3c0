"""The sections of a job file that say where the records come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Gt
from pydantic import Field, ValidationInfo, field_validator, model_validator

from dpa._util.durations import Duration
from dpa.config._section import Schema, Section, SparkText
from dpa.config._spark_options import check_options
from dpa.config.variants import Plain
from dpa.windows.options import TimeOptions

_FILES = ("parquet", "csv", "json", "text")
_OF_FORMATS = {
    **dict.fromkeys(("path", "glob", "recursive", "exclude", "watch"), _FILES),
    "options": (*_FILES, "jdbc", "stream"),
    **dict.fromkeys(("query", "views"), ("sql",)),
    "table": ("table",),
    "records": ("records",),
    **dict.fromkeys(("select", "where"), (*_FILES, "sql", "jdbc", "table", "stream")),
    **dict.fromkeys(("use", "args"), ("generated", "feed")),
    **dict.fromkeys(("rows", "seed", "rate", "padding"), ("generated",)),
    "kafka": ("kafka",),
    "stream": ("stream",),
}
"""The formats that have each key of the section `input`."""

_WATCHED_OPTIONS = {"header", "sep"}
"""Options of CSV files that are watched."""


class ViewConfig(Section):
    """A table that an SQL query may name."""

    format: Literal["parquet", "csv", "json", "text"]
    """How the files are encoded."""
    path: str | list[str]
    """Files, directories or globs."""
    options: dict[str, SparkText] = {}
    """Options of Spark's reader."""

    @model_validator(mode="after")
    def _knows_its_options(self) -> ViewConfig:
        check_options(self.format, self.options)
        return self


class WatchConfig(Section):
    """Reading of files that appear while the job runs."""

    columns: Schema | None = None
    """Those of the files, with Arrow types; null: those of the first file, which must be there, all texts in CSV."""

    every: Annotated[Duration, Gt(0)] = 1.0
    """Seconds from one look to the next, or a text as `500ms`."""
    settle: Duration = 1.0
    """Seconds without a change after which a file of lines is complete; those that are renamed into place need none."""


class KafkaConfig(Section):
    """Topics of Kafka, which source tasks read."""

    servers: str
    """Some of the brokers, as `host:port,host:port`."""
    topic: str | list[str]
    """Topics, which must be there."""
    key: Literal["bytes", "string"] = "bytes"
    """What the column `key` has."""
    value: Literal["bytes", "string", "json"] = "bytes"
    """What the column `value` has; `json`: the fields of JSON objects are columns."""
    columns: Schema | None = None
    """Those fields, with Arrow types."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where partitions begin; those that are added while the job runs begin at their beginning."""
    every: Annotated[Duration, Gt(0)] = 0.1
    """Seconds from one look to the next where nothing has come, or a text as `500ms`."""
    patience: Annotated[Duration, Gt(0)] | None = None
    """Seconds for which a running job waits for brokers that do not answer, or a text as `1h`; null: `limits.patience`.
    """
    options: dict[str, SparkText] = {}
    """Settings of librdkafka, such as `security.protocol`."""

    @model_validator(mode="after")
    def _has_columns_if_json(self) -> KafkaConfig:
        if (self.value == "json") != bool(self.columns):
            raise ValueError("`value: json` goes with `columns`, the fields that become columns")
        return self


class StreamConfig(Section):
    """A stream that Spark reads, as a query of Structured Streaming."""

    source: str
    """A source that Spark has: `rate`, `socket`, a format of files, or one of a package of its own."""
    columns: str | None = None
    """Columns of sources that need them, such as files, as Spark writes them: `page STRING, seconds BIGINT`."""
    every: Duration = 1.0
    """Seconds from one micro-batch to the next, or a text as `500ms`; 0: as soon as the last is done."""


class InputConfig(Section):
    """Where the records come from. Parquet without `select`, `where` or `sample` is read in place; the rest is
    staged."""

    format: Literal[
        "parquet",
        "csv",
        "json",
        "text",
        "sql",
        "jdbc",
        "table",
        "records",
        "generated",
        "feed",
        "kafka",
        "stream",
        "given",
    ]
    """Files; a query over `views`; a database; a catalog table; records in the job file; rows made by a generator, or
    read by a class of yours (`feed`); topics of Kafka; a stream of Spark's; `given`: the table that a flow in Python
    holds."""
    path: str | list[str] | None = None
    """Files, directories or globs; the four file formats need it."""
    glob: str | None = None
    """Only files whose name matches, such as `*.py`."""
    recursive: bool = False
    """Whether to descend into sub-directories."""
    exclude: list[str] = []
    """With `recursive`: names of sub-directories to leave out, such as `site-packages`; `*`, `?` and `[...]` match."""
    watch: WatchConfig | None = None
    """With one directory, or prefix of object storage, as `path`: files that appear there are read too, without Spark,
    until `until` says so; null: those that are there when the job begins."""
    options: dict[str, SparkText] = {}
    """Options of Spark's reader, such as `header: true` for CSV; for `jdbc`: `url`, `dbtable`, `driver` ..."""
    query: str | None = None
    """The query of `format: sql`."""
    views: dict[str, ViewConfig] = {}
    """The tables that `query` names."""
    table: str | None = None
    """The table of `format: table`."""
    records: list[Any] | None = None
    """The records of `format: records`: scalars become the column `value`, mappings become rows."""
    select: list[str] = []
    """Spark SQL expressions to keep, such as `lower(word) AS word`; empty: all columns."""
    where: str | None = None
    """Spark SQL predicate of the rows to keep; it is applied before `select`."""
    use: str | None = None
    """`package.module:Name` of the generator of `format: generated`, or of the `dpa.Feed` or `dpa.Poller` of
    `format: feed`; of these also the name under which an installed package registers it."""
    args: dict[str, Any] = {}
    """Keyword arguments of the generator or feed."""
    time: Annotated[TimeOptions, Plain(TimeOptions, short="column")] | None = None
    """When each row happened, or was read, for windows and timers; a text is the column. Null: rows have no time."""
    rows: int | None = Field(default=1_000_000, ge=0)
    """Rows that the generator makes; null: without end, until `until` says so."""
    seed: int | None = None
    """Seed of the generator; null: the job's."""
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Generated rows a second that all mappers together read; null: as many as they can."""
    kafka: KafkaConfig | None = None
    """The topics of `format: kafka`."""
    stream: StreamConfig | None = None
    """The stream of `format: stream`; `options` are those of its source."""
    padding: int = Field(default=0, ge=0)
    """Bytes of the column `padding` that each generated row gets; 0: there is no such column."""

    @field_validator(*_OF_FORMATS)
    @classmethod
    def _is_of_its_format(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a key in formats that do not have it. Defaults pass: a resolved configuration has all keys."""
        chosen, formats = info.data.get("format"), _OF_FORMATS[str(info.field_name)]
        if chosen not in (None, *formats) and value != cls.model_fields[str(info.field_name)].default:
            *others, last = (f"`{name}`" for name in formats)
            known = f"{', '.join(others)} or {last}" if others else last
            raise ValueError(f"is a key of the format {known}, but the format is `{chosen}`")
        return value

    @model_validator(mode="after")
    def _has_what_its_format_needs(self) -> InputConfig:
        needs = {**dict.fromkeys(_FILES, "path"), "sql": "query", "table": "table", "records": "records"}
        needs |= {"jdbc": "options", "generated": "use", "feed": "use", "kafka": "kafka", "stream": "stream"}
        need = needs.get(self.format)
        if need is not None and not getattr(self, need) and not (need == "records" and self.records == []):
            raise ValueError(f"format {self.format!r} needs the key {need!r}")
        check_options(self.format, self.options)
        if self.exclude and not self.recursive:
            raise ValueError("`exclude` names sub-directories, which are read with `recursive: true` only")
        if self.watch is not None:
            self._require_watchable()
        return self

    @property
    def has_records(self) -> bool:
        """Whether tasks parse its records, of which one may be no such record."""
        return self.format == "kafka" or (self.watch is not None and self.format in ("csv", "json"))

    def _require_watchable(self) -> None:
        if not isinstance(self.path, str) or any(mark in self.path for mark in "*?["):
            raise ValueError("`watch` looks into one directory: `path` must name it; `glob` chooses files in it")
        if self.select or self.where:
            raise ValueError("`select` and `where` are Spark's, which does not read what is watched: use steps for it")
        unknown = self.options.keys() - (_WATCHED_OPTIONS if self.format == "csv" else ())
        if unknown:
            raise ValueError(f"what is watched is not read by Spark, and knows no option {min(unknown)!r} of it")
        if len(self.options.get("sep", ",").encode()) != 1:
            raise ValueError("`sep` of watched CSV is one character of ASCII")


class SampleConfig(Section):
    """Work on a sample instead of the whole input; the reference then sees the same sample."""

    fraction: float = Field(gt=0, le=1)
    """Share of the rows to keep. Without `by` each row is drawn on its own, so their number varies."""
    by: str | None = None
    """Stratify: keep this share of the rows of each value of the column, null too. Spark shuffles and sorts for it."""
    seed: int | None = None
    """Seed of the draw; null: the job's."""
