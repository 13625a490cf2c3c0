"""Reading a job file: overrides, placeholders, and errors that name file, line and key.

`load(path, overrides)` returns a `JobFile` or raises `ConfigError` with one line for each problem. Nothing is imported,
opened or started here: see `dpa.job` for that.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from dpa.config.schema import JobConfig, json_schema
from dpa.errors import ConfigError

KeyPath = tuple[str | int, ...]
Places = Mapping[KeyPath, str]


@dataclass(frozen=True)
class JobFile:
    """A job's configuration and where it was written, for error messages.

    Attributes:
        origin: the job file's path, or a name for a job built in Python.
        places: where each key path was written: `file:line`, or the `--set` option that overrode it.
    """

    config: JobConfig
    origin: str = "job"
    places: Places = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """Where relative paths start: the job file's directory, or the working directory."""
        return Path(self.origin).resolve().parent if self.places else Path.cwd()

    def error(self, key: str, message: str) -> ConfigError:
        """The error that something is wrong with what stands at a key such as `input.path`."""
        return ConfigError(f"{_place(self.origin, self.places, key.split('.'))}: {key}: {message}")


def load(path: str | Path, overrides: Sequence[str] = ()) -> JobFile:
    """Read a job file and apply `a.b=value` overrides (values are YAML).

    Raises:
        ConfigError: the file cannot be read, is not YAML, or does not fit the schema.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the job file: {error}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        where = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise ConfigError(f"{path}{where}: not valid YAML: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    document = {} if document is None else document
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: a job file is a mapping of keys, not {type(document).__name__}")
    places = {key: f"{path}:{line}" for key, line in _line_numbers(node, str(path)).items()}
    for override in overrides:
        _apply(document, places, override)
    return parse(document, origin=str(path), places=places)


def parse(document: Mapping[str, Any], *, origin: str = "job", places: Places | None = None) -> JobFile:
    """Check a job given as a mapping; `origin` and `places` name the place in error messages.

    Raises:
        ConfigError: with one line for each problem.
    """
    try:
        config = JobConfig.model_validate(_substitute(dict(document), origin))
    except ValidationError as error:
        raise ConfigError("\n".join(_explained(error.errors(), origin, places or {}))) from None
    return JobFile(config, origin, places or {})


_SHORT_FOR = {"mapper": "use", "reducer": "use", "grouping": "kind"}
"""Sections that a text may stand for, and the key whose value it then is."""


_OPTION = "--set "
_LONGEST_OPTION = 100
"""Characters of an override that errors repeat."""


def _apply(document: dict[str, Any], places: dict[KeyPath, str], override: str) -> None:
    """Override a key in the document, and note for what stands there now that the option said it."""
    option = _OPTION + (override if len(override) <= _LONGEST_OPTION else f"{override[:_LONGEST_OPTION]}...")
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"{option}: write it as section.key=value, such as balance.strategy=none")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{option}: the value is not YAML: {error}") from None
    target: Any = document
    for depth, part in enumerate(parts[:-1], start=1):
        if isinstance(target.get(part), str) and part in _SHORT_FOR:
            target[part] = {_SHORT_FOR[part]: target[part]}
        if target.get(part) is None:
            target[part] = {}
            places[tuple(parts[:depth])] = option
        target = target[part]
        if not isinstance(target, dict):
            raise ConfigError(f"{option}: {part!r} is not a section")
    target[parts[-1]] = value
    replaced = tuple(parts)
    for below in [path for path in places if path[: len(replaced)] == replaced]:
        del places[below]
    places[replaced] = option


_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def _substitute(value: Any, origin: str) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _placeholder(match.group(1), origin), value)
    if isinstance(value, dict):
        return {key: _substitute(item, origin) for key, item in value.items()}
    if isinstance(value, list):
        return [_substitute(item, origin) for item in value]
    return value


def _placeholder(name: str, origin: str) -> str:
    if name == "python.stdlib":
        return sysconfig.get_paths()["stdlib"]
    if name.startswith("env."):
        variable = name.removeprefix("env.")
        if variable not in os.environ:
            raise ConfigError(f"{origin}: ${{{name}}}: the environment variable {variable} is not set")
        return os.environ[variable]
    raise ConfigError(f"{origin}: ${{{name}}} is unknown; use ${{python.stdlib}} or ${{env.NAME}}")


def _line_numbers(node: yaml.Node | None, origin: str) -> dict[KeyPath, int]:
    """The line, from 1, on which each key path of the document starts.

    Raises:
        ConfigError: a key comes twice in one mapping.
    """
    lines: dict[KeyPath, int] = {}

    def visit(current: yaml.Node | None, path: KeyPath) -> None:
        if isinstance(current, yaml.MappingNode):
            for key, value in current.value:
                here = (*path, str(key.value))
                if here in lines:
                    name, line = ".".join(map(str, here)), key.start_mark.line + 1
                    raise ConfigError(f"{origin}:{line}: {name}: stands here again, first on line {lines[here]}")
                lines[here] = key.start_mark.line + 1
                visit(value, here)
        elif isinstance(current, yaml.SequenceNode):
            for index, item in enumerate(current.value):
                lines[(*path, index)] = item.start_mark.line + 1
                visit(item, (*path, index))

    visit(node, ())
    return lines


def _place(origin: str, places: Places, path: Sequence[str | int]) -> str:
    """Where a key path, or else the nearest key above it, was written; and the options that changed what is below."""
    parents = (tuple(path[:end]) for end in range(len(path), 0, -1))
    written = next((places[parent] for parent in parents if parent in places), origin)
    below = [place for key, place in places.items() if key[: len(path)] == tuple(path) and place.startswith(_OPTION)]
    return " and ".join(dict.fromkeys([written, *below]))


_CHOICE = re.compile(r"(str|int|float|bool|list|dict)(\[.*\])?|\w+Config")
"""How pydantic marks, at the end of a location, which of several allowed types it was trying."""


def _explained(problems: Sequence[Any], origin: str, places: Places) -> list[str]:
    """A line for each key: what several allowed types complain of is one problem."""
    by_key: dict[KeyPath, Any] = {}
    for problem in problems:
        location = tuple(problem["loc"])
        while len(location) > 1 and location not in places and _CHOICE.fullmatch(str(location[-1])):
            if problem["type"] == "extra_forbidden":
                break
            location = location[:-1]
        if location in by_key:
            more = problem["msg"].removeprefix("Input should be ")
            by_key[location] = {**by_key[location], "msg": f"{by_key[location]['msg']} or {more}"}
        else:
            by_key[location] = {**problem, "loc": location}
    return [_explain(problem, origin, places) for problem in by_key.values()]


_NO_MAPPING = {"model_type", "model_attributes_type", "dict_type"}
"""Problems that pydantic words with the names of our classes, or as Python would."""


def _explain(problem: Any, origin: str, places: Places) -> str:
    location = tuple(problem["loc"])
    place = _place(origin, places, location)
    path = ".".join(str(part) for part in location) or "job"
    kind = problem["type"]
    if kind == "extra_forbidden":
        known = _fields_at(location[:-1])
        close = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"{place}: {path}: unknown key{hint} (known here: {', '.join(known)})"
    message = problem["msg"].removeprefix("Value error, ")
    if kind in _NO_MAPPING:
        message = f"Input should be {'a text or ' if path in _SHORT_FOR else ''}a mapping of keys"
    shown = "" if isinstance(problem["input"], dict) else f", not {json.dumps(problem['input'], default=str)}"
    return f"{place}: {path}: {message}{'' if kind == 'value_error' else shown}"


def _fields_at(location: Sequence[str | int]) -> list[str]:
    """The keys that the section at `location` knows."""
    schema = json_schema()
    current: Any = schema
    for part in location:
        current = _resolve(schema, current)
        current = current.get("properties", {}).get(part) or current.get("additionalProperties") or {}
    return sorted(_resolve(schema, current).get("properties", {}))


def _resolve(schema: dict[str, Any], node: Any) -> dict[str, Any]:
    for choice in [node, *node.get("anyOf", [])]:
        if "$ref" in choice:
            return dict(schema["$defs"][choice["$ref"].rsplit("/", 1)[1]])
    return dict(node)
