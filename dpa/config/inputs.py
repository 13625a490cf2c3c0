"""The sections of a job file that say where the records come from."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Gt
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from dpa._util.declared import schema_named
from dpa._util.durations import Duration
from dpa._util.words import alternatives
from dpa.config._section import Faults, OneOf, Schema, Section, SparkText, text_for
from dpa.config.variants import Plain
from dpa.errors import TableError
from dpa.sources.columns import of_json
from dpa.sources.feed import Feed
from dpa.sources.formats import format_found, format_of
from dpa.sources.kafka import KafkaFeed, RecordFormat
from dpa.sources.paths import one_or_more, resolved
from dpa.sources.scans import ScanFormat
from dpa.sources.watched import WatchedFiles, line_format
from dpa.windows.options import TimeOptions

_WHERE = ("path", "glob", "recursive", "exclude")
_OF_FILES = (*_WHERE, "watch", "in_place")
_OF_COLUMNS = ("columns", "allow_missing_columns")
_OF_SPARK = ("options", "select", "where")
_NO_END = "without end: `until` ends it"


@dataclass(frozen=True)
class InputFormat:
    """A format of inputs.

    Attributes:
        keys: those of the section `input` that not every format has.
        needs: the one of them without which there is nothing to read; empty: there is none.
        has_records: whether a task parses its records, so that one of them may be unreadable.
        unsampled: why no sample of it is drawn, and what else to do; empty: Spark draws one.
        in_memory: whether the rows are there before the job is.
    """

    keys: tuple[str, ...] = ()
    needs: str = ""
    has_records: bool = False
    unsampled: str = ""
    in_memory: bool = False


FORMATS = {
    "parquet": InputFormat((*_OF_FILES, *_OF_SPARK, "allow_missing_columns"), "path"),
    "csv": InputFormat((*_OF_FILES, *_OF_SPARK, *_OF_COLUMNS), "path", has_records=True),
    "json": InputFormat((*_OF_FILES, *_OF_SPARK, *_OF_COLUMNS), "path", has_records=True),
    "text": InputFormat((*_OF_FILES, *_OF_SPARK), "path"),
    "arrow": InputFormat(
        (*_WHERE, "in_place", "allow_missing_columns"), "path", unsampled="of Arrow: write it as Parquet"
    ),
    "sql": InputFormat(("query", "views", "select", "where"), "query"),
    "jdbc": InputFormat(_OF_SPARK, "options"),
    "table": InputFormat(("table", "select", "where"), "table"),
    "records": InputFormat(("records",), "records", in_memory=True),
    "generated": InputFormat(
        ("use", "args", "rows", "seed", "rate", "padding"), "use", unsampled="generated: give it fewer `rows`"
    ),
    "feed": InputFormat(("use", "args"), "use", unsampled="a feed: have it give fewer rows"),
    "kafka": InputFormat(("kafka",), "kafka", has_records=True, unsampled=_NO_END),
    "stream": InputFormat(("stream", *_OF_SPARK), "stream", unsampled=_NO_END),
    "given": InputFormat(in_memory=True),
}
"""What `format` may be. Where a format has a section of its own, that has its name and makes what is read."""

_FILES = FORMATS["parquet"]  # of an input whose files will say what they are

_OF_CSV = {"header": "true", "inferSchema": "true"}
"""Options of CSV whose format was not named, or that is read in place."""

_WATCHED_OPTIONS = {"header", "sep"}  # options of CSV files that are watched


class ViewConfig(Section):
    """A table that an SQL query may name."""

    format: Literal["parquet", "csv", "json", "text"]
    """How the files are encoded."""
    path: str | list[str]
    """Files, directories or globs."""
    options: dict[str, SparkText] = {}
    """Options of Spark's reader."""

    def faults(self) -> Faults:
        yield from misspelt(self.format, self.options)


class WatchConfig(Section):
    """Reading of files that appear while the job runs."""

    columns: Schema | None = None
    """Columns of the files, with Arrow types; null: those of the first file, which must exist; all strings in CSV."""

    every: Annotated[Duration, Gt(0)] = 1.0
    """Seconds between two listings of the directory."""
    settle: Duration = 1.0
    """Seconds without a change after which a file of lines is complete; 0 is safe for files that are renamed into
    place."""


class FeedSection(Section, ABC):
    """The section of a format that tasks read by a feed that is open."""

    @abstractmethod
    def feed(self, tolerates: bool) -> Feed:
        """The feed, once its place has answered, else TableError; `tolerates`: records that cannot be read are left
        out."""

    @abstractmethod
    def record(self, data: bytes | None, about: Mapping[str, Any]) -> dict[str, Any]:
        """A record that could not be read, as a row; ValueError if it still cannot. `about`: what its split knew."""


class KafkaConfig(FeedSection):
    """Topics of Kafka, which source tasks read."""

    servers: str
    """Some brokers, as `host:port,host:port`."""
    topic: str | list[str]
    """Topics, which must exist."""
    key: Literal["bytes", "string"] = "bytes"
    """Type of the column `key`."""
    value: Literal["bytes", "string", "json"] = "bytes"
    """Type of the column `value`; `json`: the fields of JSON objects become columns."""
    columns: Schema | None = None
    """With `value: json`: the fields to read, with Arrow types."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin in each partition; in partitions added while the job runs always at the first record."""
    every: Annotated[Duration, Gt(0)] = 0.1
    """Seconds between two polls if nothing has come."""
    patience: Annotated[Duration, Gt(0)] | None = None
    """Seconds to wait for brokers that do not answer while the job runs; null: `limits.patience`."""
    options: dict[str, SparkText] = {}
    """Settings of librdkafka, such as `security.protocol`."""

    def faults(self) -> Faults:
        both = "`value: json` goes with `columns`, the fields that become columns"
        yield (self.value == "json") != bool(self.columns), both

    def feed(self, tolerates: bool) -> KafkaFeed:
        columns = None if self.columns is None else of_json(schema_named(self.columns))
        found = KafkaFeed(
            self.servers,
            (self.topic,) if isinstance(self.topic, str) else tuple(self.topic),
            RecordFormat(self.key, self.value, columns, tolerates=tolerates),
            start=self.start,
            options=tuple(sorted(self.options.items())),
            poll_seconds=self.every,
            patience=self.patience,
        )
        found.lag(None)  # raises if brokers do not answer, or a topic is not there
        return found

    def record(self, data: bytes | None, about: Mapping[str, Any]) -> dict[str, Any]:
        columns = None if self.columns is None else schema_named(self.columns)
        return RecordFormat(self.key, self.value, columns).record(data, about)


class StreamConfig(Section):
    """A stream that Spark reads, as a query of Structured Streaming."""

    source: str
    """A source of Spark: `rate`, `socket`, a format of files, or one from a package."""
    columns: str | None = None
    """Columns, for sources that need them such as files, in Spark's notation: `page STRING, seconds BIGINT`."""
    every: Duration = 1.0
    """Seconds between two micro-batches; 0: as soon as the last is done."""


class InputConfig(Section):
    """Where the records come from. Parquet without `select`, `where` or `sample` is read in place; the rest is
    staged."""

    format: Annotated[str, OneOf((*FORMATS,))] | None = None
    """Files; `sql`: a query over `views`; `jdbc`: a database; `table`: a catalog table; `records` in the job file; rows
    that a generator makes (`generated`) or your class reads (`feed`); Kafka topics; a Spark `stream`; `given`: a table
    from Python. Null: by the ending, such as `.csv` or `.json.gz`."""
    path: str | list[str] | None = None
    """Files, directories or globs; required for formats of files."""
    glob: str | None = None
    """Only files whose name matches, such as `*.py`."""
    recursive: bool = False
    """Whether to descend into sub-directories."""
    exclude: list[str] = []
    """With `recursive`: names of sub-directories to skip, such as `site-packages`; `*`, `?` and `[...]` match."""
    allow_missing_columns: bool = False
    """Whether files may lack columns that other files have; these are null. For CSV only with `in_place`."""
    in_place: bool = False
    """Whether tasks read CSV or JSON lines with polars, without Spark. They always read Parquet and Arrow so."""
    columns: Schema | None = None
    """With `in_place`: the columns of CSV or JSON lines to read, with Arrow types; null: all, with types that hold all
    values."""
    watch: WatchConfig | None = None
    """With one directory, or prefix of object storage, as `path`: also read files that appear there, without Spark, up
    to `until`; null: read the files that exist when the job begins."""
    options: dict[str, SparkText] = {}
    """Options of Spark's reader, such as `header: true` for CSV; for `jdbc`: `url`, `dbtable`, `driver` ..."""
    query: str | None = None
    """Query of `format: sql`."""
    views: dict[str, ViewConfig] = {}
    """The tables that `query` names."""
    table: str | None = None
    """Table of `format: table`."""
    records: list[Any] | None = None
    """Records of `format: records`: scalars become the column `value`, mappings become rows."""
    select: list[str] = []
    """Spark SQL expressions to keep, such as `lower(word) AS word`; empty: all columns."""
    where: str | None = None
    """Spark SQL condition for the rows to keep, applied before `select`."""
    use: str | None = None
    """`package.module:Name` of the generator of `format: generated`, or of the `dpa.Feed` or `dpa.Poller` of `format:
    feed`; for a feed also the name under which an installed package registers it."""
    args: dict[str, Any] = {}
    """Keyword arguments of the generator or feed."""
    time: Annotated[TimeOptions, Plain(TimeOptions, short="column")] | None = None
    """When each row happened, or was read, for windows and timers; a string is the column. Null: rows have no time."""
    rows: int | None = Field(default=1_000_000, ge=0)
    """Rows that the generator makes; null: unbounded, up to `until`."""
    seed: int | None = None
    """Seed of the generator; null: the job's."""
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Generated rows that all mappers together read in a second, more after a delay; null: as many as they can."""
    kafka: KafkaConfig | None = None
    """Topics of `format: kafka`."""
    stream: StreamConfig | None = None
    """Stream of `format: stream`; `options` go to its source."""
    padding: int = Field(default=0, ge=0)
    """Bytes of a column `padding` in each generated row; 0: no such column."""

    @model_validator(mode="before")
    @classmethod
    def _is_of_its_ending(cls, given: Any) -> Any:
        """Take the format from the ending of the files, where all show the same one."""
        if not isinstance(given, dict) or given.get("watch") is not None:
            return given
        if given.get("format") is not None:
            return {**given, **_of_format(given["format"], given.get("options"))} if given.get("in_place") else given
        named = given.get("glob") or given.get("path") or []
        found = {format_of(path) for path in ([named] if isinstance(named, str) else named) if isinstance(path, str)}
        form = found.pop() if len(found) == 1 else None
        return given if form is None else {**given, **_of_format(form, given.get("options"))}

    @field_validator(*{key for each in FORMATS.values() for key in each.keys})
    @classmethod
    def _is_of_its_format(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a key in formats that do not have it. Defaults pass: a resolved configuration has all keys."""
        chosen, key = info.data.get("format"), str(info.field_name)
        if chosen is not None and key not in FORMATS[chosen].keys and value != cls.model_fields[key].default:
            known = alternatives(f"`{name}`" for name, each in FORMATS.items() if key in each.keys)
            raise ValueError(f"is a key of the format {known}, but the format is `{chosen}`")
        return value

    def faults(self) -> Faults:
        need = self._form.needs
        lacks = need and not getattr(self, need) and not (need == "records" and self.records == [])
        yield lacks and self.format is None, "an input needs `format`, or a `path` whose ending shows it"
        yield lacks, f"format {self.format!r} needs the key {need!r}"
        yield from misspelt(str(self.format), self.options)
        no_use = "`exclude` names sub-directories, which are read with `recursive: true` only"
        yield self.exclude and not self.recursive, no_use
        if self.watch is not None:
            yield from self._faults_of_watching()
        no_place = self.columns is not None and self.watch is None and not self.in_place
        yield no_place, "`columns` are of files that are read with `in_place: true`"
        if self.in_place:
            yield from self._faults_of_scanning()

    @property
    def _form(self) -> InputFormat:
        return _FILES if self.format is None else FORMATS[self.format]

    def as_found(self, directory: str) -> InputConfig:
        """With the format of the files that are there, if none is named. Relative paths start at `directory`. Raises
        TableError if they do not show one, or a key is none of its."""
        if self.format is not None:
            return self
        paths = [resolved(path, directory) for path in one_or_more(self.path)]
        found = format_found(paths, self.glob, self.recursive, self.exclude)
        given = {**self.model_dump(exclude_unset=True), **_of_format(found, self.options)}
        try:
            return InputConfig(**given)
        except ValidationError as error:
            what = error.errors()[0]
            key = ".".join(map(str, what["loc"]))
            raise TableError(f"the files are {found}: {key} {what['msg'].removeprefix('Value error, ')}") from None

    @property
    def has_records(self) -> bool:
        """Whether tasks parse its records, so that one may be unreadable."""
        form = self._form
        return form.has_records and ("watch" not in form.keys or self.watch is not None)

    @property
    def unsampled(self) -> str:
        if self.in_place:
            return "read in place: leave `in_place` out"
        return self._form.unsampled if self.watch is None else "watched: have it have fewer files"

    @property
    def is_in_memory(self) -> bool:
        return self._form.in_memory

    def feed(self, directory: str, *, tolerates: bool) -> Feed | None:
        """What is polled without Spark or user code, None if one of these reads this input. Relative paths start at
        `directory`; `tolerates`: records that cannot be read are left out. TableError if it cannot be read."""
        if self.watch is not None:
            return self._watched(self.watch, directory, tolerates)
        own = getattr(self, str(self.format), None)
        return own.feed(tolerates) if isinstance(own, FeedSection) else None

    def record(self, data: bytes | None, about: Mapping[str, Any]) -> dict[str, Any]:
        if self.watch is None:
            row: dict[str, Any] = getattr(self, str(self.format)).record(data, about)
            return row
        declared = None if self.watch.columns is None else schema_named(self.watch.columns)
        lines = line_format(str(self.format), self.options)
        assert lines is not None
        return lines.record(data or b"", tuple(about["columns"]), declared)

    def _watched(self, watch: WatchConfig, directory: str, tolerates: bool) -> WatchedFiles:
        assert isinstance(self.path, str)
        return WatchedFiles(
            resolved(self.path, directory),
            line_format(str(self.format), self.options, tolerates=tolerates),
            declared=None if watch.columns is None else schema_named(watch.columns),
            glob=self.glob,
            recursive=self.recursive,
            exclude=self.exclude,
            poll_seconds=watch.every,
            settle_seconds=watch.settle,
        )

    def _faults_of_scanning(self) -> Faults:
        yield self.watch is not None, "what is watched is read in place anyway: leave `in_place` out"
        of_spark = "`select` and `where` are Spark's, which does not read what is read in place: use steps"
        yield self.select or self.where, of_spark
        if self.format in ("csv", "json"):
            ScanFormat.of(self.format, self.options)

    def _faults_of_watching(self) -> Faults:
        yield self.format is None, "`watch` needs `format`: the files may not be there yet"
        is_one = isinstance(self.path, str) and not any(mark in self.path for mark in "*?[")
        yield not is_one, "`watch` looks into one directory: `path` must name it; `glob` chooses files in it"
        of_spark = "`select` and `where` are Spark's, which does not read what is watched: use steps for it"
        yield self.select or self.where, of_spark
        for unknown in sorted(self.options.keys() - (_WATCHED_OPTIONS if self.format == "csv" else ())):
            yield True, f"what is watched is not read by Spark, and knows no option {unknown!r} of it"
        yield len(self.options.get("sep", ",").encode()) != 1, "`sep` of watched CSV is one character of ASCII"


Input: TypeAlias = Annotated[InputConfig, text_for("path", InputConfig, or_list=True)]
"""A text is the path, and a list several."""


def _of_format(form: Any, options: Any) -> dict[str, Any]:
    """The keys of an input whose format was not named, or that is read in place: CSV has a header, and typed
    columns."""
    if form != "csv" or not isinstance(options, dict | None):
        return {"format": form}
    given = {str(name).lower() for name in options or ()}
    added = {name: value for name, value in _OF_CSV.items() if name.lower() not in given}
    return {"format": form, "options": {**added, **(options or {})}}


class SampleConfig(Section):
    """Work on a sample instead of the whole input; the reference then sees the same sample."""

    fraction: float = Field(gt=0, le=1)
    """Share of the rows to keep. Without `by`, each row is drawn independently, so their number varies."""
    by: str | None = None
    """Stratify: keep this share of the rows of each value of the column, including null. Spark shuffles and sorts for
    it."""


_FILE_OPTIONS = """
    allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros
    allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames basePath charset charToEscapeQuoteEscaping
    columnNameOfCorruptRecord columnPruning comment compression dateFormat datetimeRebaseMode delimiter
    dropFieldIfAllNull emptyValue enableDateTimeParsingFallback encoding enforceSchema escape escapeQuotes header
    ignoreCorruptFiles ignoreLeadingWhiteSpace ignoreMissingFiles ignoreTrailingWhiteSpace inferSchema
    inputBufferSize int96RebaseMode lineSep locale maxCharsPerColumn maxColumns maxMalformedLogPerPartition
    mergeSchema mode modifiedAfter modifiedBefore multiLine nanValue negativeInf nullValue pathGlobFilter
    positiveInf preferDate prefersDecimal primitivesAsString quote quoteAll recursiveFileLookup samplingRatio sep
    singleVariantColumn timestampFormat timestampNTZFormat timeZone unescapedQuoteHandling wholetext
"""
_DATABASE_OPTIONS = """
    batchsize connectionProvider customSchema dbtable driver fetchsize hint isolationLevel keytab lowerBound
    numPartitions partitionColumn password preferTimestampNTZ prepareQuery principal pushDownAggregate
    pushDownLimit pushDownOffset pushDownPredicate pushDownTableSample query queryTimeout refreshKrb5Config
    sessionInitStatement upperBound url user
"""
_OF_READERS = {**dict.fromkeys(("parquet", "text", "json", "csv"), _FILE_OPTIONS), "jdbc": _DATABASE_OPTIONS}
"""The options of Spark's readers of files and of databases."""


def is_option(section: Any, key: str) -> bool:
    """Whether a key of an input section is an option of Spark's reader of its format; of CSV, if it names none."""
    form = section.get("format", "csv") if isinstance(section, Mapping) else ""
    return key.lower() in _OF_READERS.get(form, "").lower().split()


def misspelt(form: str, options: Iterable[str]) -> Faults:
    """Options that are Spark's, misspelt. Others pass: drivers of databases and codecs have their own."""
    known = {name.lower(): name for name in _OF_READERS.get(form, "").split()}
    for option in options:
        close = difflib.get_close_matches(option.lower(), known, n=1, cutoff=0.8)
        if close and option.lower() not in known:
            what = f"Spark's reader of the format `{form}` has no option {option!r}"
            yield True, f"{what}; did you mean {known[close[0]]!r}?"
