"""Words of a comparison's sentences."""

from __future__ import annotations

from typing import Any

LONGEST = 80
"""Characters of a value that a sentence shows."""


def shown_value(value: Any) -> str:
    """A value in a sentence: text, bytes, lists and structs as in Python, cut to `LONGEST` characters."""
    text = "null" if value is None else repr(value) if isinstance(value, str | bytes | list | dict) else str(value)
    return cut(text, LONGEST)


def cut(text: str, longest: int) -> str:
    """The first `longest` characters of a text, and whether there are more."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def difference(subject: str, column: str, here: Any, there: Any) -> str:
    """The sentence that a row's value in a column is one in the result, and another one in the reference."""
    return f"{subject}: {column} is {shown_value(here)}, but {shown_value(there)} in the reference"
