"""The final table of a run on the terminal: what each reducer did, how even it was, what was decided, where it lies.

Its last line is `reference: match`, `reference: MISMATCH` or `reference: not checked`, without colour, so that a script
may read it; below that, a failed job has its error, which is then the last on the screen. The table only words a
`Report`; it computes no metric. `_table.py` draws it.
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
    result: pa.Table | None = None,
    width: int | None = None,
) -> None:
    """Print the final table of `report` on `stream` (stdout if None), in `width` columns (the terminal's if None).

    `files` are where the report was written, as `dpa.report.write` returned them. Of a `result` that is kept nowhere
    the first rows are shown. What the stream's encoding lacks is escaped, not refused.
    """
    from dpa.report._table import drawn

    stream = sys.stdout if stream is None else stream
    text = "\n".join([*drawn(report, reference_line(report.reference), files, result, stream, width), ""])
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def reference_line(reference: ReferenceReport) -> str:
    """The verdict below the table: `reference: match`, `reference: MISMATCH` or `reference: not checked`."""
    words = {None: "not checked", True: "match", False: "MISMATCH"}
    return f"reference: {words[reference.matches if reference.checked else None]}"
