"""How many errors of user code a job bears: a number, or a share of the rows of its input."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def _as_number_or_share(value: Any) -> Any:
    if isinstance(value, str) and (found := _SHARE.fullmatch(value.strip())) and float(found.group(1)) <= 100:
        return value.strip()
    if type(value) is int and value >= 0:
        return value
    raise ValueError(f"a number of records, or a share of the input's rows as `0.1%`, not {value!r}")


MaxErrors: TypeAlias = Annotated[int | str, BeforeValidator(_as_number_or_share)]
"""A number of records, or a percentage as a text."""


def most_errors(allowed: int | str | None, rows: int) -> int | None:
    """The number of records that `max_errors` allows of an input with this many rows; None: any."""
    if not isinstance(allowed, str):
        return allowed
    return int(rows * float(allowed.rstrip("% ")) / 100)
