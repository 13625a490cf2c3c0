"""The sections of a job file that say where rows go, and what they are checked against."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Gt, Len
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from dpa._util.durations import Duration
from dpa._util.words import alternatives
from dpa.config._section import Columns, Faults, OneOf, Section, text_for
from dpa.execution.publishing import Publishes
from dpa.sinks.encodings import COMPRESSED
from dpa.sinks.formats import FORMATS
from dpa.sources.formats import format_of

_NOT_WRITTEN = frozenset({".arrow", ".avro", ".feather", ".ipc", ".orc", ".tsv", ".txt", ".xlsx", ".xml"})


class PublishConfig(Section):
    """Results at the end of every epoch, while the job runs, and the rest at its end. A text is the `mode`."""

    mode: Publishes
    """`final`: add rows that will not change: those of closed windows, and of a `process`, `map`, `flat_map` or
    `filter`. `changes`: add the rows of keys whose result has changed since the epoch before, with the columns `change`
    (`insert` or `update`) and `epoch`. `table`: replace the whole result so far."""
    every: Annotated[Duration, Gt(0)] = 1.0
    """Seconds from one epoch to the cut for the next; longer if the sink, or the wait of sources, takes longer. With
    `checkpoint`, `final` and `changes` are published with each checkpoint instead."""


class OutputConfig(Section):
    """Where results go. Written aside and put in place when complete; never half a result."""

    path: str | None = None
    """Directory or `s3://BUCKET/PREFIX` for files, at least one for each reducer; a Delta table's directory or URI; an
    Iceberg table `CATALOG.NAMESPACE.TABLE`; a Kafka topic. Null: the result stays in memory, for `Result.table()`, and
    the command prints its first rows."""
    format: Annotated[str, OneOf(FORMATS)] = "parquet"
    """What is written; by default what the path's ending says, such as `.csv` or `.jsonl.gz`, else Parquet."""
    partition_by: Columns = []
    """For files: columns that become directories, such as `country=DE`, and are left out of the files."""
    single_file: bool = False
    """For files: whether the process that commits the result writes one file with the rows of all tasks."""
    compression: Annotated[str, OneOf(("snappy", *COMPRESSED, "none"))] | None = None
    """For files; null: `snappy` for Parquet; for text what the path's ending says, such as `.csv.gz`, else none."""
    mode: Literal["error", "overwrite", "append"] = "error"
    """What to do if something exists there. `overwrite` replaces all rows of a table, or an earlier job's result, and
    no other files; `append` adds to a table or topic."""
    use: str | None = None
    """Instead of `path`: `package.module:Name` of a `dpa.Sink`, or the name under which an installed package registers
    one; with `publish` also a function of the rows and the epoch, called in the process that runs the job."""
    args: dict[str, Any] = {}
    """Keyword arguments of the sink in `use`; storage options of a Delta table; catalog properties of an Iceberg table;
    librdkafka settings for Kafka, such as `bootstrap.servers`."""
    publish: Annotated[PublishConfig, text_for("mode", PublishConfig)] | None = None
    """Publish while the job runs; null: once, at the end."""

    @property
    def is_memory(self) -> bool:
        """Whether rows stay in memory until the end."""
        return self.path is None and self.use is None and self.publish is None

    @model_validator(mode="before")
    @classmethod
    def _is_of_its_ending(cls, given: Any) -> Any:
        """Take the format and the compression from the ending of the path, where they are not given."""
        path = given.get("path") if isinstance(given, dict) else None
        form = (given.get("format") or format_of(path)) if isinstance(path, str) else None
        if not isinstance(form, str) or form not in FORMATS or FORMATS[form].encoding is None:
            return given
        zipped = next((name for name, ending in COMPRESSED.items() if str(path).lower().endswith(ending)), None)
        return {**given, "format": form, "compression": given.get("compression") or zipped}

    @property
    def files(self) -> dict[str, Any]:
        """How rows lie in files, in the words of `Target`."""
        by, one = tuple(self.partition_by), self.single_file
        return {"partition_by": by, "single_file": one, "compression": self.compression or ""}

    def faults(self) -> Faults:
        form, published = FORMATS[self.format], self.publish and self.publish.mode
        encoding = None if self.path is None else form.encoding
        given = [f"`{name}`" for name in ("partition_by", "single_file", "compression") if getattr(self, name)]
        known = alternatives(f"`{name}`" for name, each in FORMATS.items() if each.encoding is not None)
        no_files = f"{' and '.join(given)} is for files: give a `path`, and {known} as `format`"
        yield given and encoding is None, no_files
        if encoding is not None:
            known = alternatives(f"`{name}`" for name in encoding.compressions)
            other = f"files of {self.format} are not compressed with `{self.compression}`: it is {known}"
            yield self.compression not in (None, *encoding.compressions), other
        many = "`partition_by` makes many files, and `single_file` one: leave one of them out"
        yield self.single_file and self.partition_by, many
        adds = "`single_file` is for results published once, or as `table`: other modes add files"
        yield self.single_file and published not in (None, "table"), adds
        is_set = self.path is not None or self.format != "parquet" or self.mode != "error"
        its_own = "`path`, `format` and `mode` are not for `use`: give the sink its own in `args`"
        yield self.use is not None and is_set, its_own
        no_args = "`args` are those of a sink, or of a table: name it in `use`, or set `format`"
        yield self.args and self.use is None and form.encoding is not None, no_args
        tables = alternatives(f"`{name}`" for name, each in FORMATS.items() if "append" in each.modes)
        no_table = f"`append` is for tables: set `format` to {tables}, or `mode` to `overwrite`"
        yield self.mode == "append" and "append" not in form.modes, no_table
        yield self.mode not in form.modes, f"nothing in {form.noun} is replaced: set `mode` to `append`"
        ending = PurePosixPath(self.path or "").suffix
        not_written = f"no {ending} is written: give `format`, or a path that ends in .parquet, .csv or .jsonl"
        yield "format" not in self.model_fields_set and ending in _NOT_WRITTEN, not_written
        yield self.format != "parquet" and self.path is None, f"`format: {self.format}` needs a `path`"
        nowhere = "`publish` needs a place: give a `path`, or a sink or a function in `use`"
        yield published and self.path is None and self.use is None, nowhere
        keeps = "`publish: table` replaces all rows, and `mode: append` keeps those that are there"
        yield published == "table" and self.mode == "append", keeps


class ReferenceConfig(Section):
    """What Spark computes on the same input, to check the result against."""

    sql: str | None = None
    """Query over the view `input`, or with `stages` over a view for each step that reads, with the result's column
    names. `auto`: dpa writes the query from the steps, if none of them calls Python."""
    function: str | None = None
    """Instead of `sql`: `module:name` of a function from DataFrame to DataFrame; several inputs are keyword arguments.
    """
    tolerance: float = Field(default=0.0, ge=0)
    """Relative difference up to which numbers are equal; 0: exact, but with `sql: auto` 1e-9 for floating-point
    numbers."""
    baseline: bool = True
    """Whether to compute the skew S of Spark's hash partitioning on the same records."""
    at_end: bool = True
    """Whether to compute it when the job ends. With `epoch_log`, `dpa verify` computes it for some epochs at
    any time."""

    @property
    def has_query(self) -> bool:
        return bool(self.sql or self.function)

    @property
    def is_auto(self) -> bool:
        return self.sql == "auto"

    def faults(self) -> Faults:
        yield self.sql and self.function, "give `sql` or `function`, not both"
        is_word = self.sql and not self.is_auto and len(self.sql.split()) == 1
        yield is_word, f"{self.sql!r} is no query: write `auto`, or SQL such as `SELECT word, count(*) FROM input ...`"


Output: TypeAlias = Annotated[OutputConfig, text_for("path", OutputConfig)]
"""A text is the path."""


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _one_in_memory(outputs: list[OutputConfig]) -> list[OutputConfig]:
    if sum(output.is_memory for output in outputs) > 1:
        raise ValueError("one output stays in memory: give the others a `path`, or `use`")
    return outputs


def _as_written(outputs: list[OutputConfig], dump: SerializerFunctionWrapHandler) -> Any:
    """A single one as itself, as most jobs have it."""
    found = dump(outputs)
    return found[0] if len(found) == 1 else found


Outputs: TypeAlias = Annotated[
    list[Output],
    Len(min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=str | OutputConfig | list[str | OutputConfig]),
    AfterValidator(_one_in_memory),
    WrapSerializer(_as_written),
]
"""One, or several that each get all rows; at most one of them is in memory."""
