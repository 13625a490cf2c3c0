"""The line of a job's epochs: which coordinator made which. Two copies of a job's checkpoints that are resumed apart
have epochs of the same numbers and of other makers."""

from __future__ import annotations

import json
from typing import TypeAlias

Line: TypeAlias = tuple[tuple[int, str], ...]
"""The first epoch of each maker, and its name, which nobody else has; of epochs before, the maker is not known."""

MOST = 48
"""Makers that are kept, so that a line as text is below the 4,096 bytes that Kafka keeps beside an offset."""


def maker_of(line: Line, epoch: int) -> str:
    """Who made an epoch; empty if that is not known."""
    return next((maker for first, maker in reversed(line) if first <= epoch), "")


def extended(line: Line, first: int, maker: str) -> Line:
    """The line with the epochs from `first` on made by `maker`."""
    return line if line and line[-1][1] == maker else (*line, (first, maker))[-MOST:]


def until(line: Line, epoch: int) -> Line:
    """The line as it was at an epoch."""
    return tuple(each for each in line if each[0] <= epoch)


def parted(one: Line, other: Line, epoch: int) -> int | None:
    """The first epoch up to this one of which two lines have different makers; None: there is none, as far as is
    known."""
    for first in sorted({*(first for first, _ in (*one, *other) if first <= epoch), epoch}):
        makers = {maker_of(one, first), maker_of(other, first)} - {""}
        if len(makers) > 1:
            return first
    return None


def as_text(line: Line) -> str:
    """A line as JSON."""
    return json.dumps(line, separators=(",", ":"))


def from_text(text: str | None) -> Line:
    """The line that a text is; an empty one if it is none."""
    try:
        return tuple((int(first), str(maker)) for first, maker in json.loads(text or ""))
    except (ValueError, TypeError):
        return ()
