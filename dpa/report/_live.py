"""Progress of a running job on the terminal, fed with snapshots by the driver.

`make_progress` chooses the view: a live panel on a terminal (`_panel.py`), otherwise log lines (`_plain.py`). Views
write to stderr and leave stdout to the result. Nothing here polls the job, decides anything, or raises on a stream that
has been closed.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol, TextIO

from dpa.errors import ConfigError
from dpa.report._plain import PlainProgress
from dpa.telemetry.observers import Observer, Unobserved

MODES = ("auto", "rich", "plain", "none")


class ProgressDisplay(Observer, Protocol):
    """A view of one run: enter it, announce each phase as it begins, hand it snapshots in order, report the run's
    status, leave it. To show a snapshot is cheap enough for ten a second.

    The last snapshot of a phase comes before the next phase is announced. A view that is left by an exception needs
    no status.
    """

    def __enter__(self) -> ProgressDisplay: ...

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None: ...

    def ended(self, status: str) -> None:
        """The run has ended: `ok`, `failed` or `mismatch`, as in `Report.status`."""


def make_progress(mode: str = "auto", stream: TextIO | None = None, name: str = "job") -> ProgressDisplay:
    """The view for `mode`, one of `MODES`, on `stream` (stderr if None), of the job called `name`.

    `auto` is `rich` if the stream is a UTF-8 terminal that can move its cursor, else `plain`.

    Raises:
        ConfigError: there is no such mode.
    """
    if mode not in MODES:
        raise ConfigError(f"progress {mode!r} is unknown; use one of {', '.join(MODES)}")
    if mode == "none":
        return NoProgress()
    if mode == "rich" or (mode == "auto" and _can_draw(sys.stderr if stream is None else stream)):
        from dpa.report._panel import RichProgress

        return RichProgress(stream, name)
    return PlainProgress(sys.stderr if stream is None else stream, name)


def _can_draw(stream: TextIO) -> bool:
    try:
        terminal = stream.isatty()
    except ValueError:  # closed
        return False
    utf = (getattr(stream, "encoding", None) or "").lower().startswith("utf")
    return terminal and utf and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


class NoProgress(Unobserved):
    """Shows nothing."""

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        return None

    def ended(self, status: str) -> None:
        return None
