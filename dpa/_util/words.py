"""Words of sentences."""

from __future__ import annotations

from collections.abc import Iterable


def alternatives(names: Iterable[str]) -> str:
    """Names in a sentence, as `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def plural(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
