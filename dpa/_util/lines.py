"""A job's line: which coordinator made which epochs. If two copies of a job's checkpoints are resumed separately, their
epochs share numbers but not makers."""

import json
from typing import TypeAlias

Line: TypeAlias = tuple[tuple[int, str], ...]
"""The first epoch of each maker, and its unique name. Makers of earlier epochs are unknown."""

MOST = 48
"""Makers to keep, so that a line's text stays below the 4,096 bytes that Kafka stores with an offset."""


def maker_of(line: Line, epoch: int) -> str:
    """The maker of an epoch; empty if unknown."""
    return next((maker for first, maker in reversed(line) if first <= epoch), "")


def extended(line: Line, first: int, maker: str) -> Line:
    return line if line and line[-1][1] == maker else (*line, (first, maker))[-MOST:]


def until(line: Line, epoch: int) -> Line:
    return tuple(each for each in line if each[0] <= epoch)


def parted(one: Line, other: Line, epoch: int) -> int | None:
    """The first epoch, up to `epoch`, that two lines say different makers made; None if there is none."""
    for first in sorted({*(first for first, _ in (*one, *other) if first <= epoch), epoch}):
        makers = {maker_of(one, first), maker_of(other, first)} - {""}
        if len(makers) > 1:
            return first
    return None


def as_text(line: Line) -> str:
    return json.dumps(line, separators=(",", ":"))


def from_text(text: str | None) -> Line:
    """Parse a line; text that is none gives an empty line."""
    try:
        return tuple((int(first), str(maker)) for first, maker in json.loads(text or ""))
    except (ValueError, TypeError):
        return ()
