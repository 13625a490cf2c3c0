"""Facts and tables (`dpa.result.content`) on a terminal, drawn with rich."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from dpa.result.content import WIDE, Bar, Cell, Fact, Table
from dpa.result.text import bar, span

FAINT, FILLED, BAD = "dim", "cyan", "bold red"
_BAR_COLUMNS = 10
_TIED = "\ue000"
"""A space that no line breaks at (rich breaks at U+00A0 too); a private character, which `dpa.result.text` escapes."""
_MAX_TIED = 36


def print_parts(parts: Callable[[Console], Iterable[RenderableType]], stream: TextIO, width: int | None) -> None:
    """Print what `parts` makes for a console on `stream`, in `width` columns (the terminal's if None), in colours that
    it can show. Characters that its encoding lacks are escaped."""
    console = Console(file=stream, width=width, force_jupyter=False, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:  # rich ends the process when the reader of the stream has gone
        for part in parts(console):
            console.print(part, soft_wrap=isinstance(part, str))
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().replace(_TIED, " ").splitlines())
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def tied(text: str) -> str:
    """`text`, in which lines break after commas and semicolons, and inside of long parts alone."""
    parts = re.split(r"(?<=[,;]) ", text)
    return " ".join(part if len(part) > _MAX_TIED else unbroken(part) for part in parts)


def unbroken(text: str) -> str:
    """`text` on one line."""
    return text.replace(" ", _TIED)


def facts(found: Iterable[Fact], ascii_only: bool) -> Grid:
    """Facts, one below the other."""
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=FAINT, no_wrap=True)
    grid.add_column()
    for fact in found:
        said = Text(tied(fact.value))
        if fact.share is not None:
            said.append(f"  {bar(fact.share, _BAR_COLUMNS, ascii_only=ascii_only):<{_BAR_COLUMNS}}", FILLED)
        if fact.value:
            said.append("  " * bool(fact.remark)).append(tied(fact.remark), FAINT)
        else:
            said.append(fact.remark)
        grid.add_row(fact.name, said)
    return grid


def table(found: Table, console: Console, title: str = "") -> Iterator[RenderableType]:
    """A table below a title; nothing if it has no rows, or no columns on a terminal."""
    shown = found.narrow if console.width < WIDE or found.wide is None else found.wide
    if not found.rows or shown == 0:
        return
    ascii_only = console.options.ascii_only
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    head = found.head[:shown]
    for name in head:
        if name.startswith("#"):
            grid.add_column(name[1:], justify="right", no_wrap=True)
        else:
            grid.add_column(Text(name, no_wrap=True, overflow="ellipsis"))
    for place, row in enumerate(found.rows[: found.most]):
        cells = enumerate(zip(row, head, strict=False), start=1)
        drawn = (_cell(*cell, found.wraps and column == len(head), ascii_only) for column, cell in cells)
        grid.add_row(*drawn, style=BAD if place == found.marked else "")
    if found.total:
        grid.add_row(*map(str, found.total[:shown]), style="bold")
    yield from [Text(title)] * bool(title)
    yield grid
    if found.most is not None and len(found.rows) > found.most:
        yield Text(f"and {len(found.rows) - found.most:,} more{found.more}", FAINT)


def _cell(cell: Cell, name: str, wraps: bool, ascii_only: bool) -> RenderableType:
    """Words break lines if they may, and are cut else; bars are cropped."""
    if isinstance(cell, Bar):
        width = max(len(name), _BAR_COLUMNS)
        if cell.first is None:
            drawn = bar(cell.last, width, ascii_only=ascii_only).ljust(width)
            return Text(drawn, FILLED, no_wrap=True, overflow="crop")
        return Text(span(cell.first, cell.last, width, ascii_only=ascii_only), no_wrap=True, overflow="crop")
    words = cell.replace("→", ">") if ascii_only else cell
    return Text(words) if wraps else Text(words, no_wrap=True, overflow="ellipsis")
