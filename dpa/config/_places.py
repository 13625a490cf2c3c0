"""Where each key of a job file was written, for error messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import yaml

from dpa.errors import ConfigError

KeyPath: TypeAlias = tuple[str | int, ...]
Places: TypeAlias = Mapping[KeyPath, str]
"""The place of each key path that was written: `file:line`, or the `--set` option that overrode it."""

OPTION = "--set "


def line_numbers(node: yaml.Node | None, origin: str) -> dict[KeyPath, int]:
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


def written_at(places: Places, path: Sequence[str | int]) -> str | None:
    """Where a key path, or else the nearest key above it, was written; None: nowhere."""
    parents = (tuple(path[:end]) for end in range(len(path), 0, -1))
    return next((places[parent] for parent in parents if parent in places), None)


def place_of(origin: str, places: Places, path: Sequence[str | int]) -> str:
    """Where a key path was written, or else the nearest key above it, and the options that changed what is below."""
    written = written_at(places, path) or origin
    below = [place for key, place in places.items() if key[: len(path)] == tuple(path) and place.startswith(OPTION)]
    return " and ".join(dict.fromkeys([written, *below]))
