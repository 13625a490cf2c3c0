"""The sections of a job file that say where the records come from."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from dpa.config._section import Section, SparkText

_FILES = ("parquet", "csv", "json", "text")
_OF_FORMATS = {
    **dict.fromkeys(("path", "glob", "recursive", "exclude"), _FILES),
    "options": (*_FILES, "jdbc"),
    **dict.fromkeys(("query", "views"), ("sql",)),
    "table": ("table",),
    "records": ("records",),
    **dict.fromkeys(("select", "where"), (*_FILES, "sql", "jdbc", "table")),
    **dict.fromkeys(("use", "args"), ("generated", "feed")),
    **dict.fromkeys(("rows", "seed", "rate", "padding"), ("generated",)),
}
"""The formats that have each key of the section `input`."""


class ViewConfig(Section):
    """A table that an SQL query may name."""

    format: Literal["parquet", "csv", "json", "text"]
    """How the files are encoded."""
    path: str | list[str]
    """Files, directories or globs."""
    options: dict[str, SparkText] = {}
    """Options of Spark's reader."""


class InputConfig(Section):
    """Where the records come from. Parquet without `select`, `where` or `sample` is read in place; the rest is
    staged."""

    format: Literal["parquet", "csv", "json", "text", "sql", "jdbc", "table", "records", "generated", "feed", "given"]
    """Files; a query over `views`; a database; a catalog table; records in the job file; rows made by a generator, or
    read by a class of yours (`feed`); `given`: the table that a flow in Python holds."""
    path: str | list[str] | None = None
    """Files, directories or globs; the four file formats need it."""
    glob: str | None = None
    """Only files whose name matches, such as `*.py`."""
    recursive: bool = False
    """Whether to descend into sub-directories."""
    exclude: list[str] = []
    """With `recursive`: names of sub-directories to leave out, such as `site-packages`; `*`, `?` and `[...]` match."""
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
    """`package.module:Name` of the generator of `format: generated`, or of the `dpa.Feed` of `format: feed`; of a feed
    also the name under which an installed package registers it."""
    args: dict[str, Any] = {}
    """Keyword arguments of the generator or feed."""
    rows: int = Field(default=1_000_000, ge=0)
    """Rows that the generator makes."""
    seed: int | None = None
    """Seed of the generator; null: the job's."""
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Generated rows a second that all mappers together read; null: as many as they can."""
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
        needs |= {"jdbc": "options", "generated": "use", "feed": "use"}
        need = needs.get(self.format)
        if need is not None and not getattr(self, need) and not (need == "records" and self.records == []):
            raise ValueError(f"format {self.format!r} needs the key {need!r}")
        if self.exclude and not self.recursive:
            raise ValueError("`exclude` names sub-directories, which are read with `recursive: true` only")
        return self


class SampleConfig(Section):
    """Work on a sample instead of the whole input; the reference then sees the same sample."""

    fraction: float = Field(gt=0, le=1)
    """Share of the rows to keep. Without `by` each row is drawn on its own, so their number varies."""
    by: str | None = None
    """Stratify: keep this share of the rows of each value of the column, null too. Spark shuffles and sorts for it."""
    seed: int | None = None
    """Seed of the draw; null: the job's."""
