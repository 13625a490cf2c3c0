"""Arrow types by the names that Arrow prints for them: `int64`, `timestamp[us, tz=UTC]`, `list<item: string>`."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

_NESTED: dict[str, Callable[..., pa.DataType]] = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "map": pa.map_,
}
_SIZED = re.compile(r"(decimal128|decimal256)\((\d+), ?(-?\d+)\)|fixed_size_binary\[(\d+)\]")
_MOMENT = re.compile(r"timestamp\[(s|ms|us|ns), ?tz=([^\]]+)\]")
_BRACKETS = {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}


def type_named(name: str) -> pa.DataType:
    """The Arrow type of a name; elements of lists and maps may be named or not: `list<int64>`, `list<item: int64>`.

    Raises:
        ValueError: there is no such type.
    """
    name = name.strip()
    outer, opened, inner = name.partition("<")
    if opened and inner.endswith(">"):
        parts = _parts(inner[:-1])
        if outer == "struct":
            fields = [part.partition(":") for part in parts]
            return pa.struct([(field.strip(), type_named(kind)) for field, _, kind in fields])
        if outer in _NESTED and len(parts) == (2 if outer == "map" else 1):
            return _NESTED[outer](*(type_named(_without_name(part)) for part in parts))
    if sized := _SIZED.fullmatch(name):
        decimal, digits, scale, width = sized.groups()
        return pa.binary(int(width)) if width else getattr(pa, decimal)(int(digits), int(scale))
    if moment := _MOMENT.fullmatch(name):
        return pa.timestamp(*moment.groups())
    try:
        return pa.type_for_alias(name)
    except ValueError:
        examples = "`int64`, `double`, `string`, `date32`, `timestamp[us]`, `decimal128(10, 2)`, `list<string>`"
        raise ValueError(f"{name!r} is no Arrow type: give one such as {examples}") from None


def _parts(inner: str) -> list[str]:
    """What stands between the outermost commas."""
    parts, depth = [""], 0
    for character in inner:
        depth += _BRACKETS.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def _without_name(part: str) -> str:
    """A type whose name may follow that of the element."""
    return re.sub(r"^\s*\w+:\s*", "", part)
