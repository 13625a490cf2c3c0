"""Numbers in options: durations are seconds, or text with a unit such as `500ms`, `1s`, `2m`, `1h`, `1d`."""

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")

MOST_SECONDS = 1_000 * 366 * 86_400
"""The longest duration: added to any time from year 1 to 9999 it still fits 64 bits of microseconds."""


def as_seconds(value: Any) -> Any:
    """Parse text with a unit; return any other value unchanged. Raises ValueError for other text, and if it is too
    long."""
    if isinstance(value, int | float) and value > MOST_SECONDS:
        raise ValueError(f"a duration is at most {MOST_SECONDS:,} seconds")
    if not isinstance(value, str):
        return value
    found = _TEXT.fullmatch(value.strip())
    if found is None:
        raise ValueError(
            f"a duration is a number of seconds, or a text as `500ms`, `1s`, `2m`, `1h`, `1d`, not {value!r}"
        )
    return as_seconds(float(found.group(1)) * _UNITS[found.group(2)])


class _Finite:
    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return {**handler(source), "allow_inf_nan": False}


FINITE = _Finite()
"""Neither infinite nor no number."""


class _WithUnit:
    """Also accepts text with a unit. Does not need pydantic, which tasks do not import."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        function = {"type": "no-info", "function": as_seconds}
        return {"type": "function-before", "function": function, "schema": handler(source)}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return {"anyOf": [handler(schema["schema"]), {"type": "string", "pattern": f"^{_TEXT.pattern}$"}]}


Duration: TypeAlias = Annotated[float, Ge(0), FINITE, _WithUnit()]
"""Seconds, at least 0."""
