"""`--set section.key=value`: overrides of a job file's keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import yaml

from dpa._util.words import plural
from dpa.config._yaml import OPTION, KeyPath, Places, composed, constructed, written_at
from dpa.config.variants import VARIANTS, choice
from dpa.errors import ConfigError

_OF_STAGE = {name: variants.by for name, variants in VARIANTS.items()}
_OF_JOB = {"mapper": "use", "reducer": "use", **_OF_STAGE}
_OF_STEP = {**dict.fromkeys(("map", "flat_map", "filter", "reduce", "process"), "use"), "write": "path", **_OF_STAGE}

_PART = r'(?:"[^"]+"|[^".=]+)'
_OPTION = re.compile(rf"({_PART}(?:\.{_PART})*)=(.*)", re.DOTALL)
"""A key path, in which a part with dots or `=` of its own stands between quotes, and a value."""

_LONGEST_OPTION = 100
"""Characters of an override that errors repeat."""


def short_for(path: Sequence[str | int]) -> str | None:
    """The key that a text at a key path stands for, in place of a section; None: no text may stand there."""
    match path:
        case (str(name),):
            return _OF_JOB.get(name)
        case ("stages", _, str(name)):
            return _OF_STEP.get(name)
    return None


def override(document: dict[str, Any], places: MutableMapping[KeyPath, str], given: str) -> None:
    """Set a key of the document, and note the option as its place. ConfigError if `given` is not `section.key=value`,
    or names no section, or an unknown step."""
    option = OPTION + (given if len(given) <= _LONGEST_OPTION else f"{given[:_LONGEST_OPTION]}...")
    match = _OPTION.fullmatch(given)
    if match is None:
        dotted = """a part with a dot of its own is quoted: 'spark.conf."spark.driver.memory"=4g'"""
        raise ConfigError(f"{option}: write it as section.key=value, such as balance.strategy=none; {dotted}")
    parts = [part.strip().strip('"') for part in re.findall(_PART, match[1])]
    try:
        value = constructed(composed(match[2]))
    except yaml.YAMLError as error:
        raise ConfigError(f"{option}: the value is not YAML: {error}") from None
    stages = document.get("stages")
    if parts[0] == "output" and isinstance(stages, dict) and stages:
        parts = ["stages", _only_result(stages, option), "write", *parts[1:]]
    _require_step(stages, parts, option)
    target: Any = document
    for depth, part in enumerate(parts[:-1], start=1):
        stands_for = short_for(parts[:depth])
        if isinstance(target.get(part), str) and stands_for is not None:
            target[part] = {stands_for: target[part]}
        if target.get(part) is None:
            target[part] = {}
            places[tuple(parts[:depth])] = option
        target = target[part]
        if not isinstance(target, dict):
            raise ConfigError(f"{option}: {part!r} is not a section")
    target[parts[-1]] = value
    replaced = tuple(parts)  # with all below it: places of what the file had there would mislead
    for below in [path for path in places if path[: len(replaced)] == replaced]:
        del places[below]
    places[replaced] = option


def _only_result(stages: Mapping[str, Any], option: str) -> str:
    """The only step that is a result, which an option that says where output goes refers to; ConfigError if there are
    several."""
    steps = {name: step for name, step in stages.items() if isinstance(step, dict)}
    named = [step.get("from") for step in steps.values()]
    named += [step["join"].get("with") for step in steps.values() if isinstance(step.get("join"), dict)]
    taken = [name for given in named for name in (given if isinstance(given, list) else [given])]
    found = [name for name, step in steps.items() if {"write", "reference"} & set(step) or name not in taken]
    if len(found) == 1:
        return found[0]
    ways = " or ".join(f"stages.{name}.write.path" for name in found or ["STEP"])
    raise ConfigError(f"{option}: the job has {plural(len(found), 'result')}: set {ways}")


def _require_step(stages: Any, parts: Sequence[str], option: str) -> None:
    """ConfigError if an option names a key of a step that there is not."""
    if parts[0] == "stages" and len(parts) > 2 and isinstance(stages, dict) and parts[1] not in stages:
        close = difflib.get_close_matches(parts[1], map(str, stages), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(map(str, stages))}"
        raise ConfigError(f"{option}: stages.{parts[1]}: there is no step {parts[1]!r}; {hint}")


def set_aside(document: dict[str, Any], places: Places) -> list[str]:
    """Take out keys of the file that belong to another strategy or grouping than an option has chosen, and return a
    line for each: where it was written, and why it does not count. Keys of options stay and are refused later, as are
    keys that no variant has."""
    stages = document.get("stages")
    notes = _set_aside(document, (), places)
    for name, step in stages.items() if isinstance(stages, dict) else ():
        notes += _set_aside(step, ("stages", name), places) if isinstance(step, dict) else []
    return notes


def _set_aside(stage: dict[str, Any], path: KeyPath, places: Places) -> list[str]:
    """As `set_aside`, of what stands at a key path."""
    notes = []
    for name, variants in VARIANTS.items():
        section, chosen = stage.get(name), choice(stage, variants)
        option = None if chosen.path is None else written_at(places, (*path, *chosen.path))
        known = isinstance(chosen.variant, str) and chosen.variant in variants.classes
        if not known or not isinstance(section, dict) or option is None or not option.startswith(OPTION):
            continue
        for key in [key for key in section if key not in variants.keys_of(chosen.variant)]:
            here = (*path, name, key)
            place = written_at(places, here) or ""
            if variants.that_have(key) and not place.startswith(OPTION):
                del section[key]
                why = f"set aside, as {option}: `{chosen.variant}` has no such key"
                notes.append(f"{place}: {'.'.join(map(str, here))}: {why}")
    return notes
