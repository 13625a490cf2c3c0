"""What a command shows: the progress of a running job, fed with snapshots by the driver, then a summary (`_terminal`).

`make_progress` chooses the view: a live panel on a terminal (`_panel.py`), otherwise log lines (`_plain.py`). Views
write to stderr and leave stdout to the result. No view polls the job, decides anything, or raises
on a stream that has been closed.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from dpa.errors import ConfigError
from dpa.report._plain import MIN_LINE_SECONDS, PlainProgress, ProgressDisplay, is_terminal
from dpa.report._rows import first_rows
from dpa.result import Report
from dpa.result.text import Table

if TYPE_CHECKING:
    from dpa.driver.forecast import Forecast

MODES = ("auto", "rich", "plain", "none")

PANEL_AFTER, LINES_AFTER, LINES_APART = 2.0, 10.0, 5.0
"""Seconds after which a run in Python shows a panel, or lines where it cannot; and seconds between two lines."""


def progress_in_python(progress: bool | str, name: str, *, is_observed: bool) -> ProgressDisplay:
    """What `Job.run` shows. A job in another thread than the main one shows nothing by itself: several may run."""
    if progress != "auto":
        return make_progress(progress if isinstance(progress, str) else "auto" if progress else "none", None, name)
    if is_observed or threading.current_thread() is not threading.main_thread():
        return ProgressDisplay()
    mode = os.environ.get("DPA_PROGRESS", "auto")
    return make_progress(mode, None, name, is_patient=mode == "auto")


def make_progress(
    mode: str = "auto", stream: TextIO | None = None, name: str = "job", *, is_patient: bool = False
) -> ProgressDisplay:
    """The view for `mode`, one of `MODES`, on `stream` (stderr if None), of the job called `name`. If it is patient, it
    says nothing of short runs.

    `auto` is `rich` in a notebook, or if the stream is a UTF-8 terminal that can move its cursor, else `plain`. Another
    mode is a ConfigError.
    """
    if mode not in MODES:
        raise ConfigError(f"progress {mode!r} is unknown; use one of {', '.join(MODES)}")
    if mode == "none":
        return ProgressDisplay()
    is_cell = stream is None and mode != "plain" and _in_notebook()
    if is_cell or mode == "rich" or (mode == "auto" and _can_draw(sys.stderr if stream is None else stream)):
        from dpa.report._panel import RichProgress  # it imports rich

        return RichProgress(stream, name, after=PANEL_AFTER if is_patient else 0.0, is_cell=is_cell)
    after, apart = (LINES_AFTER, LINES_APART) if is_patient else (0.0, MIN_LINE_SECONDS)
    return PlainProgress(sys.stderr if stream is None else stream, name, after=after, apart=apart)


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def _can_draw(stream: TextIO | None) -> bool:
    utf = (getattr(stream, "encoding", None) or "").lower().startswith("utf")
    return is_terminal(stream) and utf and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def show(
    report: Report,
    stream: TextIO | None = None,
    *,
    files: Sequence[Path] = (),
    result: tuple[str, pa.Table] | None = None,
    width: int | None = None,
    verbose: bool = False,
    before: Report | None = None,
) -> None:
    """Print the summary of `report` on `stream` (stdout if None), in `width` columns (the terminal's if None); with
    `verbose` below the details of all stages. Only what is new, if the summary of `before` has been shown.

    `files` are the report's files, as `dpa.report.write` returned them. `result` is a table that is written nowhere,
    with the key of the job that would have it written; its first rows are shown. Characters that the stream's encoding
    lacks are escaped.
    """
    from dpa.report import _terminal  # it imports rich

    parts = partial(_terminal.run_parts, report, files, result, verbose=verbose, before=before)
    _terminal.print_parts(parts, sys.stdout if stream is None else stream, width)


def show_plan(forecast: Forecast, stream: TextIO, *, width: int | None = None, verbose: bool = False) -> None:
    """Print a forecast on `stream`, in `width` columns (the terminal's if None); with `verbose` then the whole job."""
    from dpa.report import _terminal  # it imports rich

    _terminal.print_parts(partial(_terminal.plan_parts, forecast, verbose=verbose), stream, width)


def show_rows(found: pa.Table, said: str, rows: int, *, width: int | None = None) -> None:
    """Print the first `rows` rows on stdout, under their columns and types, below what they are."""
    width = width or shutil.get_terminal_size().columns
    show_table(first_rows(found, said, rows=rows, width=width, has_types=True), width=width)


def show_table(found: Table, *, width: int | None = None) -> None:
    """Print a table below its title on stdout, if it has rows."""
    from dpa.report import _terminal  # it imports rich

    _terminal.print_parts(lambda console: _terminal.table(found, console, found.title), sys.stdout, width)
