"""The final table of a run on the terminal: stages or tasks, skew, decisions, and where the result is.

Its last line is `reference: match`, `reference: MISMATCH` or `reference: not checked`, without colour, so that a script
can read it; only the error of a failed job comes below it. The table shows a `Report` and computes no metric;
`_table.py` draws it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import pyarrow as pa

from dpa.result import ReferenceReport, Report


def show(
    report: Report,
    stream: TextIO | None = None,
    *,
    files: Sequence[Path] = (),
    result: tuple[str, pa.Table] | None = None,
    width: int | None = None,
    verbose: bool = False,
) -> None:
    """Print the final table of `report` on `stream` (stdout if None), in `width` columns (the terminal's if None).

    Of a graph of several stages it has one line for each; with `verbose` also the tasks, redistributions and facts of
    each.

    `files` are the report's files, as `dpa.report.write` returned them. `result` is a table that is written nowhere,
    whose first rows are shown, with the key of the job that would have it written. Characters that the stream's
    encoding lacks are escaped.
    """
    from dpa.report._table import table_lines

    stream = sys.stdout if stream is None else stream
    verdict = reference_line(report.reference)
    text = "\n".join([*table_lines(report, verdict, files, result, stream, width, verbose=verbose), ""])
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def reference_line(reference: ReferenceReport) -> str:
    """The verdict below the table: `reference: match`, `reference: MISMATCH` or `reference: not checked`."""
    words = {None: "not checked", True: "match", False: "MISMATCH"}
    return f"reference: {words[reference.matches if reference.checked else None]}"
