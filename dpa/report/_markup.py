"""HTML of tables, headings and notes. Every value passes through `escape`; only `Raw`, which is made in this package
alone, counts as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

MAX_ROWS = 500
"""Rows of the longest table on the page; `report.json` has all."""


class Raw(str):
    """Text that is HTML already."""


def folded(head: Sequence[str], rows: Sequence[Sequence[object]], what: str, open_up_to: int = 64) -> str:
    """A table, folded away if it has more than `open_up_to` rows, cut at `MAX_ROWS`."""
    shown = table(head, rows[:MAX_ROWS])
    if len(rows) > MAX_ROWS:
        shown += note(f"The first {MAX_ROWS:,} of {len(rows):,}; all are in report.json.")
    if len(rows) <= open_up_to:
        return shown
    return f"<details><summary>{len(rows):,} {escape(what)}</summary>{shown}</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a heading that begins with `#` marks a column of numbers."""
    kinds = [' class="n"' if title.startswith("#") else "" for title in head]
    cells = (f"<th{kind}>{escape(title.lstrip('#'))}</th>" for kind, title in zip(kinds, head, strict=True))
    first = f"<thead><tr>{''.join(cells)}</tr></thead>" if any(head) else ""
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>\n"
        for row in rows
    )
    return f'<div class="scroll"><table>{first}<tbody>\n{body}</tbody></table></div>'


def bar(share: float, first: float = 0.0) -> Raw:
    """A bar, `share` (0 to 1) of it filled, from the part `first` (0 to 1) of it on."""
    width, left = (100 * min(max(part, 0.0), 1.0) for part in (share, first))
    begins = f"margin-left:{left:.1f}%;" if left else ""
    return Raw(f'<span class="bar"><i style="{begins}width:{width:.1f}%"></i></span>')


def heading(text: str, level: int = 2) -> str:
    """A heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def note(text: str) -> str:
    """A line in faint letters."""
    return f'<p class="note">{escape(text)}</p>'


def block(text: str, bad: bool = False) -> str:
    """Text as it stands, marked if it is `bad` news."""
    kind = ' class="bad"' if bad else ""
    return f"<pre{kind}>{escape(text)}</pre>"


def cards(found: Iterable[tuple[str, str, str]]) -> str:
    """Facts: a name, a value and a remark each."""
    items = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(remark)}</small></dd></div>"
        for name, value, remark in found
    )
    return f'<dl class="cards">{"".join(items)}</dl>'


def picture(drawing: str, caption: str) -> str:
    """A drawing with its description."""
    return f'<figure class="scroll" role="img" aria-label="{escape(caption)}">{drawing}</figure>'


def escape(value: object) -> str:
    """A value as HTML."""
    return value if isinstance(value, Raw) else html.escape(str(value))
