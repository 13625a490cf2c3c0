"""The keyword arguments of flows and jobs for type checkers, dpa/config/keywords.pyi, made of the schema of job files:
`python -m experiments.report.option_types`.

Type checkers cannot read the option classes, whose keys pydantic checks when a job is made. So this prints them as
typed dicts: each section of a job file, and for each call the keys that it takes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from keyword import iskeyword
from pathlib import Path
from typing import Any

from dpa.config import json_schema, parse
from dpa.config.inputs import FORMATS
from dpa.config.stages import OF_KEYED, OPERATIONS, OTHER_HOWS
from dpa.config.variants import VARIANTS

COMMAND = "python -m experiments.report.option_types"
PATH = Path(__file__).parents[2] / "dpa" / "config" / "keywords.pyi"

_HEAD = f'''"""The keyword arguments of flows and jobs, for type checkers. Made by `{COMMAND}`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import polars as pl
import pyarrow as pa
from typing_extensions import Required, TypedDict

from dpa import executors as own
from dpa._streams import Stream

Schema: TypeAlias = pa.Schema | Mapping[str, str | pa.DataType]
Expression: TypeAlias = pl.Expr | str
Expressions: TypeAlias = Expression | Sequence[Expression]
Key: TypeAlias = str | pl.Expr | Sequence[str | pl.Expr] | Callable[[Any], Any] | None

OfRows: TypeAlias = own.BatchMapper | type[own.BatchMapper] | Callable[[Any], Any]
AnyFunction: TypeAlias = str | ExecutorSection | OfRows
AnyMapper: TypeAlias = str | ExecutorSection | own.Mapper | type[own.Mapper] | OfRows
OfValues: TypeAlias = own.Reducer[Any, Any] | own.BatchReducer | type[own.Reducer[Any, Any]] | type[own.BatchReducer]
AnyReducer: TypeAlias = str | ExecutorSection | OfValues | Callable[[Any, Any], Any]
AnyProcess: TypeAlias = str | ExecutorSection | own.Process[Any, Any] | type[own.Process[Any, Any]]
'''

_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_NO_OPERATION = frozenset().union(*(operation.uses for operation in OPERATIONS.values()))
_OF_EVERY_STEP = OF_KEYED - _NO_OPERATION


def printed() -> str:
    """The text of the file."""
    document = json_schema()
    defs = document["$defs"]
    calls = {name: dict(keys) for name, keys in _calls(document, defs).items()}
    used = dict.fromkeys(_sections_in(calls, defs))
    output = defs["OutputConfig"]["properties"]["mode"], defs["PublishConfig"]["properties"]["mode"]
    hows = [*defs["JoinConfig"]["properties"]["how"]["enum"], *OTHER_HOWS]
    words = {"How": {"enum": hows}, "Mode": output[0], "Publishes": output[1]}
    parts = [_HEAD, *(f"{name}: TypeAlias = {_type('', found)}\n" for name, found in words.items())]
    parts += [_class(_name(name), defs[name]["properties"], defs[name].get("required", ())) for name in used]
    of_variants = {key: " | ".join(_choices(document["properties"][key])) for key in VARIANTS}
    parts.append("".join(f"{key.title()}: TypeAlias = {kinds}\n" for key, kinds in of_variants.items()))
    parts += [_class(name, keys) for name, keys in calls.items()]
    aggregates = ", ".join(f"{key}: {_type(key, found)} = ..." for key, found in calls["Reduce"].items())
    named = f"self, *aggregates: Expressions, name: str | None = ..., {aggregates}, **named: Expression"
    parts.append(f"class AggCall(Protocol):\n    def __call__({named}) -> Stream: ...\n")
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(PATH), "-"]
    return subprocess.run(command, input="\n".join(parts), check=True, capture_output=True, text=True).stdout


def _calls(document: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Iterable[tuple[str, Any]]]:
    """For each call, the keys that it takes beside its named arguments."""
    job, step, read = document["properties"], defs["StepConfig"]["properties"], defs["InputConfig"]["properties"]
    of_files = ("format", *FORMATS["csv"].keys)
    found = {
        "Job": [(key, each) for key, each in job.items() if key not in ("input", "mapper", "reducer")],
        "Flow": [(key, job[key]) for key in _of_any_job()],
        "Read": [
            *((key, step[key]) for key in ("parallelism", *sorted(OPERATIONS["read"].uses))),
            *((key, read[key]) for key in of_files if key != "path"),
        ],
        "Write": _without(defs["OutputConfig"], "path", "mode", "use"),
        "Reference": _without(defs["ReferenceConfig"], "sql"),
        "Union": [(key, step[key]) for key in step if key in _OF_EVERY_STEP],
    }
    for word in ("map", "filter", "reduce", "process", "join", "top_k"):
        keys = (_OF_EVERY_STEP | OPERATIONS[word].uses) - {"key_by", "value"}
        found[word.title().replace("_", "")] = [(key, step[key]) for key in step if key in keys]
    return found


def _of_any_job() -> list[str]:
    """The keys of a job that is a graph, beside those that a flow names itself."""
    graph = parse({"stages": {"read": {"read": {"format": "given"}}}}).config.resolved()
    return [key for key in graph if key not in ("name", "stages")]


def _without(section: Mapping[str, Any], *names: str) -> list[tuple[str, Any]]:
    return [(key, found) for key, found in section["properties"].items() if key not in names]


def _sections_in(found: Any, defs: Mapping[str, Any]) -> Iterator[str]:
    """The sections that a part of the schema names, each after those that it names itself."""
    if isinstance(found, Mapping):
        if "$ref" in found:
            name = found["$ref"].rsplit("/", 1)[1]
            if "properties" in defs[name]:
                yield from _sections_in(defs[name]["properties"], defs)
                yield name
        for key, part in found.items():
            if key not in ("default", "discriminator"):
                yield from _sections_in(part, defs)
    elif isinstance(found, list):
        for part in found:
            yield from _sections_in(part, defs)


def _class(name: str, keys: Mapping[str, Any], required: Iterable[str] = ()) -> str:
    types = {key: _type(key, found) for key, found in keys.items()}
    types |= {key: f"Required[{types[key]}]" for key in required}
    if any(map(iskeyword, keys)):
        items = ", ".join(f'"{key}": {kind}' for key, kind in types.items())
        return f'{name} = TypedDict("{name}", {{{items}}}, total=False)\n'
    return f"class {name}(TypedDict, total=False):\n" + "".join(f"    {key}: {kind}\n" for key, kind in types.items())


def _type(key: str, found: Mapping[str, Any]) -> str:
    if key in VARIANTS:
        return f"{key.title()} | None"
    if key == "schema":
        return "Schema | None"
    return " | ".join(sorted(dict.fromkeys(_choices(found)), key="None".__eq__))


def _choices(found: Mapping[str, Any]) -> Iterator[str]:
    """The types that a value may have."""
    if "$ref" in found:
        yield _name(found["$ref"].rsplit("/", 1)[1])
    elif "anyOf" in found or "oneOf" in found:
        for choice in found.get("anyOf", found.get("oneOf")):
            yield from _choices(choice)
    elif "enum" in found or "const" in found:
        values = found.get("enum", [found.get("const")])
        yield f"Literal[{', '.join(map(_literal, values))}]"
    elif found.get("type") == "array":
        yield f"list[{_type('', found.get('items', {}))}]"
    elif found.get("type") == "object":
        of = next(iter(found.get("patternProperties", {}).values()), found.get("additionalProperties"))
        yield f"Mapping[str, {_type('', of) if isinstance(of, Mapping) else 'Any'}]"
    else:
        yield _PLAIN.get(found.get("type", ""), "Any")


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _name(section: str) -> str:
    return re.sub("(Config|Options)$", "", section) + "Section"


if __name__ == "__main__":
    PATH.write_text(printed(), encoding="utf-8")
