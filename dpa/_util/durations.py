"""Durations of options: seconds, or a text with a unit as `500ms`, `1s`, `2m`, `1h`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge

from dpa._util.bounds import FINITE

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")


MOST_SECONDS = 1_000 * 366 * 86_400
"""Of a duration: behind or ahead of a time from 1 to 9999 by it is within 64 bits of microseconds."""


def as_seconds(value: Any) -> Any:
    """The seconds of a text with a unit; any other value as it is.

    Raises:
        ValueError: the text is no duration, or it is longer than any.
    """
    if isinstance(value, int | float) and value > MOST_SECONDS:
        raise ValueError(f"a duration is at most {MOST_SECONDS:,} seconds")
    if not isinstance(value, str):
        return value
    found = _TEXT.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"a duration is a number of seconds, or a text as `500ms`, `1s`, `2m`, `1h`, not {value!r}")
    return as_seconds(float(found.group(1)) * _UNITS[found.group(2)])


class _WithUnit:
    """Takes a text with a unit, too. Without pydantic, which tasks do not import."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        function = {"type": "no-info", "function": as_seconds}
        return {"type": "function-before", "function": function, "schema": handler(source)}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return {"anyOf": [handler(schema["schema"]), {"type": "string", "pattern": f"^{_TEXT.pattern}$"}]}


Duration: TypeAlias = Annotated[float, Ge(0), FINITE, _WithUnit()]
"""Seconds, at least 0."""
