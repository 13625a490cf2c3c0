"""What a notebook shows of a flow: its steps as a picture, and the first rows of a step. Pages of 400 pixels have room.

A step is drawn below those whose rows it takes: the layout of graphs (`_layout`), turned by a right angle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

import pyarrow as pa

from dpa.report._html import MAX_ROWS, table_html
from dpa.report._layout import Point, Sizes, bends, layout
from dpa.report._rows import first_rows
from dpa.report.plots import COLOURS
from dpa.result.text import one_line

_CHARACTERS, _CHARACTER = 24, 6.65
"""The most of a line in a box, and the width of each in pixels, by a font of 11 pixels in which all are as wide."""
_BOX = Sizes(width=42.0, height=0.0, gap=30.0, port=24.0, label_width=0.0, label_height=0.0, space=12.0)
"""Turned: `width` is that from top to bottom, and `height` follows the words."""
_ARROW = 6.0
_MAX_COLUMNS = 20
_SCROLLS = "overflow-x:auto;max-width:100%"


def steps_html(steps: Mapping[str, str], edges: Sequence[tuple[str, str]], marked: str | None = None) -> str:
    """A picture of steps, by name with what each does; each comes after those that feed it. `marked` has a heavy
    frame."""
    longest = max((len(line) for each in steps.items() for line in each), default=0)
    box = replace(_BOX, height=(min(longest, _CHARACTERS) + 3) * _CHARACTER)
    placed = layout(list(steps), edges, box)
    drawn = [_arrow(path) for path in placed.paths]
    for name, does in steps.items():
        top, left = placed.stages[name]
        drawn.append(_box(box, (left, top), (one_line(name), one_line(does)), 2.5 if name == marked else 1.0))
    size = f'width="{placed.height:.0f}" height="{placed.width:.0f}"'
    font = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:11px"
    said = escape(", ".join(f"{name}: {does}" for name, does in steps.items()))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{font}" role="img" aria-label="{said}">'
    return f'<div style="{_SCROLLS}">{svg}{"".join(drawn)}</svg></div>'


def rows_html(rows: pa.Table, said: str, most: int) -> str:
    """The first `most` rows under their columns and types, below what they are."""
    found = first_rows(rows, said, rows=min(most, MAX_ROWS), columns=_MAX_COLUMNS, has_types=True)
    return f'<p>{escape(found.title)}</p><div style="{_SCROLLS}">{table_html(found)}</div>'


def error_html(message: str) -> str:
    return f'<p style="color:{COLOURS[5]}">{escape(message)}</p>'


def _arrow(path: Sequence[Point]) -> str:
    (down, across), curves = path[0], bends(path, _BOX.gap, _ARROW)
    line = f"M{across:.1f},{down:.1f}" + "".join(
        " C" + " ".join(f"{x:.1f},{y:.1f}" for y, x in bend) for bend in curves
    )
    tip, middle = path[-1]
    head = f"M{middle:.1f},{tip:.1f} l-{_ARROW / 2:.1f},-{_ARROW:.1f} h{_ARROW:.1f} z"
    stroke = f'fill="none" stroke="{COLOURS[0]}" stroke-width="1.5"'
    return f'<path d="{line}" {stroke}/><path d="{head}" fill="{COLOURS[0]}"/>'


def _box(box: Sizes, corner: Point, lines: tuple[str, str], frame: float) -> str:
    (left, top), (name, does) = corner, lines
    size = f'width="{box.height:.0f}" height="{box.width:.0f}"'
    look = f'fill="{COLOURS[0]}" fill-opacity="0.12" stroke="{COLOURS[0]}" stroke-width="{frame}"'
    at = f'x="{left + box.height / 2:.1f}" text-anchor="middle" fill="currentColor"'
    return (
        f'<g><title>{escape(f"{name}: {does}")}</title><rect x="{left:.1f}" y="{top:.1f}" rx="5" {size} {look}/>'
        f'<text {at} y="{top + 17:.1f}" font-weight="bold">{escape(_cut(name))}</text>'
        f'<text {at} y="{top + 32:.1f}">{escape(_cut(does))}</text></g>'
    )


def _cut(line: str) -> str:
    return line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 1]}…"
