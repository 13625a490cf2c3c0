"""YAML as people write it, and where each key was written. What is no document, or too large a one, is an error that
says where."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import yaml
from yaml.constructor import ConstructorError

from dpa._util.words import shortened
from dpa.errors import ConfigError

_MOST_VALUES = 1_000_000  # of a document, each as often as aliases repeat it: a few lines may stand for any number
_DEEPEST = 100  # levels of a document. Python's stack bears many more of some code, and few more of other

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What PyYAML raises besides its own errors where a scalar is not what its tag or its form says."""

_PLAIN = {  # what PyYAML says of lines that are indented wrongly
    "mapping values are not allowed here": "indent this key like its neighbours, or quote a value that contains ': '",
    "expected <block end>": "this line is indented like none above it",
    "expected '<document start>'": "this line is indented less than the first one",
}
_BEGUN = {  # what it says, at its end, of something that begins before
    "could not find expected ':'": "this is no `key: value`; indent it if it continues the text above",
    "found unexpected end of stream": "this quote is not closed",
}

KeyPath: TypeAlias = tuple[str | int, ...]
Places: TypeAlias = Mapping[KeyPath, str]
"""The place of each key path that was written: `file:line`, or the `--set` option that overrode it."""

OPTION = "--set "


def parsed(text: str, origin: str) -> tuple[Any, dict[KeyPath, int]]:
    """What a text stands for, and the line, from 1, on which each key path starts. ConfigError, with the place, if it
    is no YAML, too large or too deep, or has a key twice in one mapping."""
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is not None:
            _measured(node, {})
        lines = _line_numbers(node, origin)
        return None if node is None else _Loader("").construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark, said = error.problem_mark, (error.problem or "").partition(",")[0]
        if error.context_mark and said in _BEGUN:
            mark = error.context_mark
        plain = _PLAIN.get(said) or _BEGUN.get(said)
        problem = plain or f"{error.problem} {error.context or ''}".rstrip()
        assert mark is not None
        if error.context_mark and not plain:
            problem += f", which begins on line {error.context_mark.line + 1}"
        where = "" if origin.startswith(OPTION) else f":{mark.line + 1}:{mark.column + 1}"
        is_placeholder = text[mark.index - 1 : mark.index + 1] == "${"
        mend = "\nwithin {} and [] a placeholder stands between quotes: '${env.NAME}'" if is_placeholder else ""
        raise ConfigError(f"{origin}{where}: not valid YAML: {problem}\n{mark.get_snippet()}{mend}") from None
    except yaml.reader.ReaderError as error:
        where = f"line {text.count(chr(10), 0, error.position) + 1}"
        raise ConfigError(f"{origin}: not valid YAML: the character #x{error.character:04x} on {where}") from None
    except (RecursionError, ValueError) as error:
        too_deep = f"it is nested too deeply: {_DEEPEST} levels are the most"
        why = too_deep if isinstance(error, RecursionError) else error
        raise ConfigError(f"{origin}: not valid YAML: {why}") from None


class _Size(NamedTuple):
    values: int
    depth: int


def _measured(node: yaml.Node, known: dict[int, _Size | None]) -> _Size:
    """The size of what a node stands for; `known` are those of other nodes, None of those that hold this one."""
    if id(node) in known:
        found = known[id(node)]
        if found is None:
            raise yaml.MarkedYAMLError(problem="an alias stands inside of what it names", problem_mark=node.start_mark)
        return found
    known[id(node)] = None
    parts = node.value if isinstance(node, yaml.CollectionNode) else []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in parts for part in pair]
    values, depth = 1, 0
    for part in parts:
        of_part = _measured(part, known)
        values, depth = values + of_part.values, max(depth, of_part.depth)
    if values > _MOST_VALUES:
        problem = f"this is more than {_MOST_VALUES:,} values, each as often as aliases repeat it"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    if depth >= _DEEPEST:
        problem = f"this is nested too deeply: {_DEEPEST} levels are the most"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    known[id(node)] = found = _Size(values, depth + 1)
    return found


class _Loader(yaml.SafeLoader):
    """Says of a scalar that it cannot read where that stands. Keys such as `on` are names, and not true or false."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        node = super().compose_node(parent, index)
        if index is None and isinstance(parent, yaml.MappingNode) and node is not None and node.tag.endswith(":bool"):
            return yaml.ScalarNode("tag:yaml.org,2002:str", node.value, node.start_mark, node.end_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _UNREADABLE:
            given = shortened(str(node.value))
            problem = f"{given!r} is no {node.tag.rpartition(':')[2]}; if it is text, write it between quotes"
            raise ConstructorError(None, None, problem, node.start_mark) from None


def _line_numbers(node: yaml.Node | None, origin: str) -> dict[KeyPath, int]:
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
    """Where a key path, or the nearest one above it, was written, or None."""
    parents = (tuple(path[:end]) for end in range(len(path), 0, -1))
    return next((places[parent] for parent in parents if parent in places), None)


def error_at(path: Sequence[str | int], message: str, origin: str, places: Places) -> ConfigError:
    """The error in a key: where it, or the nearest one above, was written, and what options changed below it."""
    written, key = written_at(places, path) or origin, ".".join(map(str, path)) or "job"
    below = [place for each, place in places.items() if each[: len(path)] == tuple(path) and place.startswith(OPTION)]
    place = " and ".join(dict.fromkeys([written, *below]))
    error = ConfigError(message, None if place.startswith(f"{OPTION}{key}=") else key, place)
    error.key = key
    return error
