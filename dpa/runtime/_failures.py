"""The cause of a Ray error, in a line: Ray wraps it in several layers of traceback and colour."""

from __future__ import annotations

import re

from ray.exceptions import RayError

from dpa._util.disk import is_full

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OURS = re.compile(r"dpa\.errors\.\w+: ")


def cause_of(error: RayError) -> str:
    """The message of the dpa error inside, if there is one; else Ray's own message without tracebacks."""
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines()]
    for number, line in reversed(list(enumerate(lines))):
        if _OURS.match(line):
            return _OURS.sub("", "\n".join(lines[number:]))
    if is_full(error):
        return "the disk is full: " + " ".join(line for line in lines if line)
    kept = [line for line in lines if line and set(line) != {"^"} and not line.startswith(("File ", "Traceback"))]
    return " ".join([*kept[:1], *kept[-1:]] if len(kept) > 1 else kept) or type(error).__name__
