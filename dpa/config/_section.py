"""The base of every section of a job file, and what several of them are made of."""

import ast
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from dpa._secrets import without_secrets
from dpa._util.declared import type_names
from dpa._util.words import shortened

if TYPE_CHECKING:
    from typing_extensions import Self


Faults: TypeAlias = Iterator[tuple[object, str]]
"""Checks, one a row: whether there is a fault, and what it is. The first one is reported."""


class Section(BaseModel):
    """Base of every section of a job file: unknown keys are refused, values are never converted between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, revalidate_instances="always", defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        reference = handler(schema)
        describe(handler.resolve_ref_schema(reference), cls)
        return reference

    def faults(self) -> Faults:
        """What of its keys does not go together."""
        return iter(())

    @model_validator(mode="after")
    def _has_no_fault(self) -> "Self":
        for is_wrong, why in self.faults():
            if is_wrong:
                raise ValueError(why)
        return self


def describe(section: dict[str, Any], options: type) -> None:
    """Give the keys of a section's JSON schema the docstrings of the dataclass or section that it is made of."""
    # pydantic could, but reads the source of all sections for every job file, which is a quarter of `dpa check`'s time.
    for key, description in _docstrings(options).items():
        if key in section["properties"]:
            section["properties"][key]["description"] = description


@cache  # parsing takes a tenth of a second
def _docstrings(options: type) -> dict[str, str]:
    """Of each field, by its key in a job file."""
    found = {}
    for base in (each for each in reversed(options.__mro__) if is_dataclass(each) or issubclass(each, Section)):
        [declared] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(declared, ast.ClassDef)
        for statement, after in itertools.pairwise(declared.body):
            match statement, after:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = inspect.cleandoc(text)
    keys = {name: field.alias for name, field in getattr(options, "model_fields", {}).items() if field.alias}
    return {keys.get(name, name): text for name, text in found.items()}


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _as_columns(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def text_for(key: str, section: type[Section], *, or_list: bool = False) -> BeforeValidator:
    """Takes a text in place of a section, for the value of this key; `or_list`: or a list of texts."""

    def written_out(value: Any) -> Any:
        return {key: value} if isinstance(value, str) or (or_list and isinstance(value, list)) else value

    return BeforeValidator(written_out, json_schema_input_type=str | list[str] | section if or_list else str | section)


@dataclass(frozen=True)
class OneOf:
    """As an annotation of a text: one of some names."""

    names: Iterable[str]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.literal_schema([*self.names])


SparkText = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | bool | int | float)]
"""A value of one of Spark's options, which are all texts."""

Columns: TypeAlias = Annotated[list[str], BeforeValidator(_as_columns, json_schema_input_type=str | list[str])]
"""Names of columns; a text is one."""

Schema: TypeAlias = Annotated[dict[str, str], BeforeValidator(type_names, json_schema_input_type=dict[str, str])]
"""Columns, each with the name of its Arrow type."""


def in_json(value: Any, name: str = "") -> str:
    """The value of a key `name` for messages, as JSON, or as Python has it; without its secrets."""
    value = without_secrets(value, name)
    try:
        text = json.dumps(value, default=str)
    except TypeError:  # a mapping in it has keys that are no texts
        text = repr(value)
    return shortened(text)


_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def _as_number_or_share(value: Any) -> Any:
    if isinstance(value, str) and (found := _SHARE.fullmatch(value.strip())) and float(found.group(1)) <= 100:
        return value.strip()
    if type(value) is int and value >= 0:
        return value
    raise ValueError(f"a number of records, or a share of the input's rows as `0.1%`, not {value!r}")


MaxErrors: TypeAlias = Annotated[int | str, BeforeValidator(_as_number_or_share)]
"""A number of records, or a percentage as a text."""
