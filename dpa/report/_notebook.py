"""What a notebook shows of a flow: its steps as a picture, and the first rows of a step."""

from collections.abc import Mapping, Sequence
from html import escape

import pyarrow as pa

from dpa.report._drawing import Arrow, Box, graph_svg
from dpa.report._rows import first_rows
from dpa.result.text import one_line

_CHARACTERS = 24  # the most of a line in a box
_MAX_ROWS = 500
_SCROLLS = "overflow-x:auto;max-width:100%"


def steps_html(steps: Mapping[str, str], edges: Sequence[tuple[str, str]], marked: str | None = None) -> str:
    """A picture of steps, by name with what each does; each comes after those that feed it. `marked` has a heavy
    frame."""
    boxes = {
        name: Box([_cut(one_line(name)), _cut(one_line(does))], frame=2.5 if name == marked else 1.0)
        for name, does in steps.items()
    }
    said = ", ".join(f"{name}: {does}" for name, does in steps.items())
    drawn = graph_svg(boxes, [Arrow(source, target) for source, target in edges], said)
    return f'<div style="{_SCROLLS}">{drawn}</div>'


def rows_html(rows: pa.Table, said: str, most: int) -> str:
    """The first `most` rows under their columns and types, below what they are."""
    found = first_rows(rows, said, rows=min(most, _MAX_ROWS), has_types=True)
    numeric = [' style="text-align:right"' * title.startswith("#") for title in found.head]
    lines = [[title.lstrip("#") for title in found.head], *found.rows]
    cells = (
        "".join(f"<{tag}{kind}>{escape(str(cell))}</{tag}>" for kind, cell in zip(numeric, line, strict=True))
        for tag, line in zip(["th", *["td"] * len(found.rows)], lines, strict=True)
    )
    body = "".join(f"<tr>{row}</tr>\n" for row in cells)
    return f'<p>{escape(found.title)}</p><div style="{_SCROLLS}"><table>{body}</table></div>'


def error_html(message: str) -> str:
    return f'<p style="color:#d55e00">{escape(message)}</p>'


def _cut(line: str) -> str:
    return line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 1]}…"
