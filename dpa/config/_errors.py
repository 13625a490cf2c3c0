"""What pydantic finds wrong with a job file, in words: a line for each key, with its place and what would be right."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from dpa._util.words import alternatives, suggestion
from dpa.config._schema import json_schema
from dpa.config._section import in_json
from dpa.config._yaml import KeyPath, Places, error_at, written_at
from dpa.config.inputs import is_option
from dpa.config.stages import INSTEAD
from dpa.config.variants import VARIANTS, Variants, choice

_CHOICE = re.compile(r"(str|int|float|bool|list|dict|literal)(\[.*\])?|\w+Config")
"""How pydantic marks, at the end of a location, which of several allowed types it was trying."""

_QUOTED = re.compile("'([^']+)'")

_UNKNOWN_KEY = {"extra_forbidden", "unexpected_keyword_argument"}
_UNKNOWN_VARIANT = {"union_tag_invalid", "union_tag_not_found"}
_NO_MAPPING = {"model_type", "model_attributes_type", "dataclass_type", "dict_type"}
"""Problems that pydantic words with the names of our classes, or as Python would."""

_OF_STAGE = {name: variants.by for name, variants in VARIANTS.items()}
_OF_JOB = {"mapper": "use", "reducer": "use", **dict.fromkeys(("input", "output", "dead_letters"), "path"), **_OF_STAGE}
_OF_JOB |= {"reference": "sql"}
_OF_STEP = {**dict.fromkeys(("map", "flat_map", "filter", "reduce", "process"), "use"), **_OF_STAGE}
_OF_STEP |= {"read": "path", "write": "path", "window": "size", "reference": "sql"}
_OF_PART = {"time": "column", "publish": "mode"}


def short_for(path: Sequence[str | int]) -> str | None:
    """The key that a text at a key path stands for, in place of a section; None: no text may stand there."""
    match path:
        case (str(name),):
            return _OF_JOB.get(name)
        case ("stages", _, str(name)):
            return _OF_STEP.get(name)
        case (*_, "input" | "read" | "output" | "write", str(name)):
            return _OF_PART.get(name)
    return None


def explained(problems: Sequence[Any], document: Mapping[str, Any], origin: str, places: Places) -> list[str]:
    """A line for each key: what several allowed types complain of is one problem."""
    by_key: dict[KeyPath, Any] = {}
    for problem in problems:
        location = _as_in(document, _without_variants(problem["loc"]))
        # Of several allowed types pydantic reports each, with its name as the last part of the location.
        while len(location) > 1 and location not in places and _CHOICE.fullmatch(str(location[-1])):
            if problem["type"] in _UNKNOWN_KEY:
                break
            location = location[:-1]
        if location in by_key:
            more = problem["msg"].removeprefix("Input should be ")
            by_key[location] = {**by_key[location], "msg": f"{by_key[location]['msg']} or {more}"}
        else:
            by_key[location] = problem
    return [_explain(location, problem, document, origin, places) for location, problem in by_key.items()]


def _without_variants(location: Sequence[str | int]) -> KeyPath:
    """The key path of a location, in which pydantic names the variant of a section after the section."""
    path: list[str | int] = []
    location = location[:-1] if location[-1:] == ("[key]",) else location  # what is wrong is the key itself
    for part, before in zip(location, (None, *location), strict=False):
        if before not in VARIANTS or part not in VARIANTS[str(before)].classes:
            path.append(part)
    return tuple(path)


def _as_in(document: Any, location: KeyPath) -> KeyPath:
    """A location without the numbers in lists for which the document has a single thing."""
    path: list[str | int] = []
    for part in location:
        is_there = part in document if isinstance(document, Mapping) else isinstance(document, list | tuple)
        if isinstance(part, int) and not is_there:
            continue
        path.append(part)
        try:
            document = document[part]
        except (LookupError, TypeError):
            document = None
    return tuple(path)


def _explain(path: KeyPath, problem: Any, document: Mapping[str, Any], origin: str, places: Places) -> str:
    kind, value, variants = problem["type"], problem["input"], VARIANTS.get(str(path[-1])) if path else None
    message = problem["msg"].removeprefix("Value error, ")
    if kind in _UNKNOWN_VARIANT and variants is not None:
        path, value = (*path, variants.by), value[variants.by]
        message = f"Input should be {alternatives(map(repr, variants.classes))}"
    line = str(error_at(path, "", origin, places))
    if kind in _UNKNOWN_KEY:
        return f"{line}: {_unknown_key(path, problem['loc'], document, places)}"
    if kind == "missing":
        return f"{line}: is needed here"
    if kind in _NO_MAPPING:
        known = ", ".join(_keys_at(path))
        message = f"Input should be {'a text or ' if short_for(path) else ''}a mapping of keys"
        message += f" ({known})" if known else ""
    shown = "" if isinstance(value, dict) else f", not {in_json(value, str(path[-1]) if path else '')}"
    near = suggestion(str(value), _QUOTED.findall(message), before="; ")
    return f"{line}: {message}{'' if kind == 'value_error' else shown + near}"


def _unknown_key(path: KeyPath, location: Sequence[str | int], document: Mapping[str, Any], places: Places) -> str:
    key, section = str(path[-1]), path[:-1]
    variants = VARIANTS.get(str(section[-1])) if section else None
    if variants is None:
        known = near = _keys_at(section)
        empty = () if section else (name for name in known if name in document and document[name] is None)
        if (above := next((name for name in empty if key in _keys_at((name,))), None)) is not None:
            return f"unknown key; indent it if it belongs to `{above}`, which is empty"
        if "options" in known and is_option(_at(document, section), key):
            return f"unknown key; as an option of the format, it stands in `options: {{{key}: ...}}`"
    elif variants.that_have(key):
        return _of_another_variant(key, section, str(location[-2]), variants, document, places)
    else:
        known = variants.keys_of(str(location[-2]))
        near = [name for variant in variants.classes for name in variants.keys_of(variant)]
    meant = next((re.findall(r"(\w+)\(", right) for right, words in INSTEAD.items() if key in words.split()), [])
    if meant and {*meant} <= {*known}:
        return f"unknown key; write {' and '.join(f'`{name}`' for name in meant)}"
    return f"unknown key{suggestion(key, near, before='; ')} (known here: {', '.join(known)})"


def _of_another_variant(
    key: str, section: KeyPath, variant: str, variants: Variants, document: Mapping[str, Any], places: Places
) -> str:
    decided = choice(_at(document, section[:-1]), variants).path
    if decided is None:
        why = "by default"
    else:
        written = written_at(places, (*section[:-1], *decided))
        by = "" if decided[0] == section[-1] else f"with this {decided[0]}"
        why = ", ".join(filter(None, [by, written]))
    has = ", ".join(f"`{name}`" for name in variants.that_have(key))
    return f"is a key of {has}, but the {variants.by} is `{variant}`{f' ({why})' if why else ''}"


def _at(document: Any, path: KeyPath) -> Any:
    for part in path:
        document = document[part]
    return document


_schema = cache(json_schema)  # which takes a tenth of a second


def _keys_at(path: Sequence[str | int]) -> list[str]:
    schema = _schema()
    current: Any = schema
    for part in (each for each in path if isinstance(each, str)):
        current = _resolve(schema, current)
        of_any_name = [current.get("additionalProperties"), *current.get("patternProperties", {}).values()]
        current = current.get("properties", {}).get(part) or next(filter(None, of_any_name), {})
    return sorted(_resolve(schema, current).get("properties", {}))


def _resolve(schema: dict[str, Any], node: Any) -> dict[str, Any]:
    for option in [node, *node.get("anyOf", [])]:
        if "$ref" in option:
            return dict(schema["$defs"][option["$ref"].rsplit("/", 1)[1]])
    return dict(node)
