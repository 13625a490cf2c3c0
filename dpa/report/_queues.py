"""The tasks of a stage in the live panel: each with a bar of its queue, in the lines and columns available.

Tasks that do not fit one to a line share lines; if they still do not fit, those with the shortest peaks are counted
instead of shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from dpa.protocol.wire.metrics import TaskStats
from dpa.report._terminal import FAINT
from dpa.result.text import bar, one_line, percent, short

WIDE = 92
"""From this many columns on, a task's row also shows its peak queue, its forwards and its redistributions."""
CELL_COLUMNS = 25
"""Columns that a task takes where several share a line."""

QUEUE, LONGEST, PEAK, NOTICE = "cyan", "yellow", "bright_black", "magenta"
_NARROW = ("#", "", "queue", "processed", "share")
_ALL = ("#", "", "queue", "peak", "processed", "share", "forwards", "rounds")
_FOLDED = ("#", "", "queue", "share", " ")


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
        if len(self.tasks) <= self.height:
            return self._grid(self.tasks, _ALL if self.width >= WIDE else _NARROW)
        columns = max(min(math.ceil(len(self.tasks) / self.height), self.width // CELL_COLUMNS), 1)
        if len(self.tasks) <= columns * self.height:
            return self._grid(self.tasks, _FOLDED, columns)
        room = columns * (self.height - 1)
        # Peaks only grow, so the tasks shown hardly change from one drawing to the next.
        by_peak = sorted(self.tasks, key=lambda task: (-task.peak_queue, task.index))
        shown = sorted(by_peak[:room], key=lambda task: task.index)
        queues = [task.queue for task in by_peak[room:]]
        queued = f"{short(sum(queues))} records queued, at most {short(max(queues))}"
        rest = line("", f"and {len(queues):,} more tasks with {queued}", FAINT)
        return Group(self._grid(shown, _FOLDED, columns), rest)

    def _grid(self, tasks: Sequence[TaskStats], titles: Sequence[str], columns: int = 1) -> Table:
        """Tasks in columns, read downwards, with the cells of these titles each."""
        is_folded = titles is _FOLDED
        head = (list(titles) * columns)[: -1 if is_folded else None]
        grid = Table.grid(padding=(0, 1 if is_folded else 2, 0, 0), expand=True, pad_edge=False)
        for title in head:
            grid.add_column(
                justify="right", ratio=None if title else 1, min_width=5 if is_folded and title.isalpha() else None
            )
        named = {} if is_folded else {"#": one_line(self.name, 16)}
        grid.add_row(*(Text(named.get(title, title), FAINT, no_wrap=True) for title in head))
        height = math.ceil(len(tasks) / columns)
        for number in range(height):
            cells = [self._cell(task, title) for task in tasks[number::height] for title in titles]
            grid.add_row(*cells[: len(head)])
        return grid

    def _cell(self, task: TaskStats, title: str) -> RenderableType:
        is_longest = task is self._longest
        match title:
            case "":
                style = LONGEST if is_longest else QUEUE
                return QueueBar(task.queue / self._scale, style, task.peak_queue / self._scale)
            case "queue":
                return Text(short(task.queue), LONGEST if is_longest and task.queue else "")
            case "share":
                return percent(task.processed / self._processed)
            case "rounds":
                return Text(str(self.rounds.get(task.index) or ""), NOTICE)
        numbers = {"peak": task.peak_queue, "processed": task.processed, "forwards": task.forwarded}
        return short(numbers[title]) if title in numbers else str(task.index) if title == "#" else ""

    @cached_property
    def _longest(self) -> TaskStats:
        return max(self.tasks, key=lambda task: task.queue)

    @cached_property
    def _scale(self) -> int:
        return max(max(task.peak_queue, task.queue) for task in self.tasks) or 1

    @cached_property
    def _processed(self) -> int:
        return sum(task.processed for task in self.tasks) or 1


@dataclass(frozen=True)
class QueueBar:
    """A bar that fills its column: `share` of it in `style`, with a faint mark at `mark` (both 0 to 1)."""

    share: float
    style: str
    mark: float | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, ascii_only = options.max_width, options.ascii_only
        filled = bar(self.share, width, ascii_only=ascii_only)
        yield Segment(filled, console.get_style(self.style))
        empty = [" "] * (width - len(filled))
        place = None if self.mark is None else min(int(self.mark * width), width - 1) - len(filled)
        if place is not None and place >= 0:
            empty[place] = "|" if ascii_only else "▏"
        yield Segment("".join(empty), console.get_style(PEAK) if place is not None else Style.null())

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, options.max_width)


def line(first: str, then: str, style: str = "") -> Text:
    """One line of text, cut with an ellipsis if it is too long; `then` is in `style`."""
    return Text(first, no_wrap=True, overflow="ellipsis").append(then, style)
