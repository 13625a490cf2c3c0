"""The sections of a job file that say where rows go, and what they are checked against."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from dpa.config._section import Section


class OutputConfig(Section):
    """Where results go. Written aside and put in place when complete; never half a result."""

    path: str | None = None
    """Directory for Parquet, one file a reducer. Null: the result stays in memory, for `Result.table()`, and the
    command prints its first rows."""
    mode: Literal["error", "overwrite"] = "error"
    """What to do if the directory is not empty; `overwrite` replaces the result of an earlier job, and nothing else."""
    use: str | None = None
    """In place of `path`: `package.module:Name` of a `dpa.Sink` that takes the rows, or the name under which an
    installed package registers one."""
    args: dict[str, Any] = {}
    """Keyword arguments of the sink."""

    @model_validator(mode="after")
    def _has_one_sink(self) -> OutputConfig:
        if self.use is not None and (self.path is not None or self.mode != "error"):
            raise ValueError("`path` and `mode` are of Parquet: give the sink that `use` names its own in `args`")
        if self.args and self.use is None:
            raise ValueError("`args` are those of a sink: name it in `use`")
        return self


class ReferenceConfig(Section):
    """What Spark computes on the same input, to check the result against."""

    sql: str | None = None
    """Query over the view `input`, or with `stages` over a view for each step that reads; its columns must be named as
    the result's."""
    function: str | None = None
    """`module:name` of a function from DataFrame to DataFrame, instead of `sql`; several inputs are keyword
    arguments."""
    tolerance: float = Field(default=0.0, ge=0)
    """Greatest relative difference of numbers that count as equal; 0: exact."""
    baseline: bool = True
    """Whether to compute the skew S of Spark's hash partitioning on the same records."""

    @model_validator(mode="after")
    def _one_of_both(self) -> ReferenceConfig:
        if self.sql and self.function:
            raise ValueError("give `sql` or `function`, not both")
        return self


def _as_output(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


Output: TypeAlias = Annotated[OutputConfig, BeforeValidator(_as_output, json_schema_input_type=str | OutputConfig)]
"""A text is the path."""
