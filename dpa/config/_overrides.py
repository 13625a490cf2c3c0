"""`--set section.key=value`: overrides of a job file's keys."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import yaml

from dpa.config._places import OPTION, KeyPath, Places, written_at
from dpa.config.variants import VARIANTS, choice
from dpa.errors import ConfigError

SHORT_FOR = {"mapper": "use", "reducer": "use", **{name: variants.by for name, variants in VARIANTS.items()}}
"""Sections that a text may stand for, and the key whose value it then is."""

_LONGEST_OPTION = 100
"""Characters of an override that errors repeat."""


def override(document: dict[str, Any], places: MutableMapping[KeyPath, str], given: str) -> None:
    """Override a key in the document, and note that what stands there now comes from the option.

    Raises:
        ConfigError: `given` is not `section.key=value`, or names no section.
    """
    option = OPTION + (given if len(given) <= _LONGEST_OPTION else f"{given[:_LONGEST_OPTION]}...")
    key, equals, text = given.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"{option}: write it as section.key=value, such as balance.strategy=none")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{option}: the value is not YAML: {error}") from None
    target: Any = document
    for depth, part in enumerate(parts[:-1], start=1):
        if isinstance(target.get(part), str) and part in SHORT_FOR:
            target[part] = {SHORT_FOR[part]: target[part]}
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


def set_aside(document: dict[str, Any], places: Places) -> list[str]:
    """Take out the file's keys that apply to another strategy or grouping than the one that an option has chosen.

    Keys that options have set stay, and are refused later, as are keys that no variant has.

    Returns:
        A line for each key taken out: where it was written, and why it does not count.
    """
    notes = []
    for name, variants in VARIANTS.items():
        section, chosen = document.get(name), choice(document, variants)
        option = None if chosen.path is None else written_at(places, chosen.path)
        known = isinstance(chosen.variant, str) and chosen.variant in variants.classes
        if not known or not isinstance(section, dict) or option is None or not option.startswith(OPTION):
            continue
        for key in [key for key in section if key not in variants.keys_of(chosen.variant)]:
            place = written_at(places, (name, key)) or ""
            if variants.that_have(key) and not place.startswith(OPTION):
                del section[key]
                notes.append(f"{place}: {name}.{key}: set aside, as {option}: `{chosen.variant}` has no such key")
    return notes
