"""The tasks of a stage in the live panel: each with a bar of its queue, in the lines and columns available.

Tasks that do not fit one to a line share lines; if they still do not fit, those with the shortest peaks are counted
instead of shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from dpa.protocol.wire.metrics import TaskStats
from dpa.report._text import bar, one_line, percent, short

WIDE = 92
"""From this many columns on, a task's row also shows its peak queue, its forwards and its redistributions."""
CELL_COLUMNS = 25
"""Columns that a task takes where several share a line."""

QUEUE, LONGEST, PEAK, NOTICE, FAINT = "cyan", "yellow", "bright_black", "magenta", "dim"


@dataclass(frozen=True)
class Queues:
    """Tasks to be drawn in at most `height` lines below a heading that begins with `name`; `rounds` counts
    redistributions by task."""

    tasks: Sequence[TaskStats]
    rounds: Mapping[int, int]
    width: int
    height: int
    name: str = "task"

    def render(self) -> RenderableType:
        """A row for each task; if there are too many, several tasks in a row and a line that counts the rest."""
        rows = self._rows()
        if len(rows) <= self.height:
            return _full_rows(rows, one_line(self.name, 16), wide=self.width >= WIDE)
        columns = max(min(math.ceil(len(rows) / self.height), self.width // CELL_COLUMNS), 1)
        if len(rows) <= columns * self.height:
            return _folded_rows(rows, columns)
        room = columns * (self.height - 1)
        # Peaks only grow, so the tasks shown hardly change from one drawing to the next.
        by_peak = sorted(rows, key=lambda row: (-row.stats.peak_queue, row.stats.index))
        shown = sorted(by_peak[:room], key=lambda row: row.stats.index)
        queues = [row.stats.queue for row in by_peak[room:]]
        queued = f"{short(sum(queues))} records queued, at most {short(max(queues))}"
        return Group(_folded_rows(shown, columns), line("", f"and {len(queues):,} more tasks with {queued}", FAINT))

    def _rows(self) -> list[_Row]:
        scale = max((max(stats.peak_queue, stats.queue) for stats in self.tasks), default=0) or 1
        processed = sum(stats.processed for stats in self.tasks) or 1
        longest = max(self.tasks, key=lambda stats: stats.queue, default=None)
        return [
            _Row(
                stats,
                share=stats.processed / processed,
                bar=Bar(stats.queue / scale, LONGEST if stats is longest else QUEUE, stats.peak_queue / scale),
                queue=Text(short(stats.queue), LONGEST if stats is longest and stats.queue else ""),
                rounds=self.rounds.get(stats.index, 0),
            )
            for stats in self.tasks
        ]


@dataclass(frozen=True)
class _Row:
    stats: TaskStats
    share: float
    bar: Bar
    queue: Text
    rounds: int


def _full_rows(rows: Sequence[_Row], name: str, wide: bool) -> Table:
    table = grid()
    head = [name, "", "queue", *["peak"] * wide, "processed", "share", *["forwards", "rounds"] * wide]
    for title in head:
        table.add_column(justify="right", ratio=None if title else 1)
    table.add_row(*(Text(title, FAINT, no_wrap=True) for title in head))
    for row in rows:
        stats = row.stats
        cells: list[RenderableType] = [Text(str(stats.index)), row.bar, row.queue]
        cells += [Text(short(stats.peak_queue), FAINT)] * wide
        cells += [Text(short(stats.processed)), Text(percent(row.share))]
        cells += [Text(short(stats.forwarded)), Text(str(row.rounds or ""), NOTICE)] * wide
        table.add_row(*cells)
    return table


def _folded_rows(rows: Sequence[_Row], columns: int) -> Table:
    """The tasks in columns, read downwards: number, bar, queue, share."""
    table = grid(gap=1)
    head = ["#", "", "queue", "share", " "] * columns
    for title in head[:-1]:
        table.add_column(justify="right", ratio=None if title else 1, min_width=5 if title.isalpha() else None)
    table.add_row(*(Text(title, FAINT) for title in head[:-1]))
    height = math.ceil(len(rows) / columns)
    for number in range(height):
        cells: list[RenderableType] = []
        for row in rows[number::height]:
            cells += [Text(str(row.stats.index)), row.bar, row.queue, Text(percent(row.share), FAINT), ""]
        table.add_row(*cells[: len(head) - 1])
    return table


class Bar:
    """A bar that fills its column: `share` of it in `style`, with a faint mark at `mark` (both 0 to 1)."""

    def __init__(self, share: float, style: str, mark: float | None = None) -> None:
        self._share = share
        self._style = style
        self._mark = mark

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, ascii_only = options.max_width, options.ascii_only
        filled = bar(self._share, width, ascii_only=ascii_only)
        yield Segment(filled, console.get_style(self._style))
        empty = [" "] * (width - len(filled))
        place = None if self._mark is None else min(int(self._mark * width), width - 1) - len(filled)
        if place is not None and place >= 0:
            empty[place] = "|" if ascii_only else "▏"
        yield Segment("".join(empty), console.get_style(PEAK) if place is not None else Style.null())

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, options.max_width)


def line(first: str, then: str, style: str = "") -> Text:
    """One line of text, cut with an ellipsis if it is too long; `then` is in `style`."""
    return Text(first, no_wrap=True, overflow="ellipsis").append(then, style)


def grid(gap: int = 2) -> Table:
    """A table without lines, as wide as the space it is given, with `gap` columns between cells."""
    return Table.grid(padding=(0, gap, 0, 0), expand=True, pad_edge=False)
