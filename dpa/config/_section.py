"""The base of every section of a job file, and what several of them are made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """Base of every section of a job file: unknown keys are refused, values are never converted between types."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, strict=True, revalidate_instances="always"
    )


def _as_text(value: Any) -> Any:
    """A true, false or number of YAML as Spark's options are written: `true`, `4`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


SparkText = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | bool | int | float)]
"""A value of one of Spark's options, which are all texts."""
