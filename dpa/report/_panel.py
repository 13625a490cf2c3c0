"""The live panel: input, a queue bar for each reducer, and redistributions with their reasons as they happen.

Drawn with rich, eight times a second, from the newest snapshot; `PanelState` says what is shown, `Panel` how it is laid
out in the size of the terminal. Reducers fold into columns, and then into "and 40 more", before anything is cut off.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.panel import Panel as Frame
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from dpa.balance.decision import Decision, Outcome
from dpa.protocol.metrics import ReducerStats, Snapshot
from dpa.report._text import bar, clock, one_line, outcomes, percent, plural, seconds, short
from dpa.report._watch import Totals, Watch

REFRESHES_PER_SECOND = 8
NEWS_LINES = 4
"""Lines of the panel kept for redistributions, the newest at the bottom."""
WIDE = 96
"""From this many columns on, a reducer's row also shows its peak queue, its forwards and its redistributions."""
CELL_COLUMNS = 25
"""Columns that a reducer takes where several share a line."""

QUEUE, LONGEST, PEAK, INPUT, NEWS, FAINT = "cyan", "yellow", "bright_black", "green", "magenta", "dim"


@dataclass
class PanelState:
    """All that the panel shows. `phases`: those that ended, with their seconds; `phase_began` by the view's clock."""

    name: str
    began: float
    phases: list[tuple[str, float]] = field(default_factory=list)
    phase: str = ""
    detail: str = ""
    phase_began: float = 0.0
    totals: Totals = field(default_factory=Totals)
    snapshot: Snapshot | None = None
    news: deque[Decision] = field(default_factory=lambda: deque(maxlen=NEWS_LINES))
    rounds: dict[int, int] = field(default_factory=dict)


class RichProgress:
    """A live panel that vanishes when the job ends well, and stays as it last was when it does not."""

    def __init__(
        self,
        stream: TextIO | None,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        console: Console | None = None,
        refresh_thread: bool = True,
    ) -> None:
        self._console = console or Console(
            file=stream, stderr=stream is None, force_terminal=True, markup=False, highlight=False, emoji=False
        )
        self._clock = clock
        self._watch = Watch()
        self.state = PanelState(name=one_line(name, 40), began=clock(), phase_began=clock())
        self._live = Live(
            get_renderable=lambda: Panel(self.state, self._clock()),
            console=self._console,
            auto_refresh=refresh_thread,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
            # What the program prints goes above the panel, but not from a pipe on stdout to the terminal on stderr.
            redirect_stdout=_is_terminal(sys.stdout),
        )

    def __enter__(self) -> RichProgress:
        self.state.began = self.state.phase_began = self._clock()
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.transient = kind is None
        self._live.stop()

    def phase(self, name: str, detail: str = "") -> None:
        """Note how long the phase before took, and show this one."""
        state, now = self.state, self._clock()
        if state.phase:
            state.phases = [*state.phases, (state.phase, now - state.phase_began)]
        state.phase, state.detail, state.phase_began = one_line(name, 40), one_line(detail, 200), now
        self._live.refresh()

    def update(self, snapshot: Snapshot) -> None:
        """Take in a newer snapshot; the refresh thread draws it."""
        for decision in self._watch.update(snapshot):
            self.state.rounds[decision.reducer] = self.state.rounds.get(decision.reducer, 0) + 1
            self.state.news.append(decision)
        self.state.totals = self._watch.totals
        self.state.snapshot = snapshot


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


class Panel:
    """Lays `state` out for the console it is printed on; `now` by the clock that `state` was timed with."""

    def __init__(self, state: PanelState, now: float) -> None:
        self._state = state
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state, width = self._state, max(options.max_width - 4, 20)
        parts: list[RenderableType] = [self._phases()]
        if state.snapshot is not None:
            parts += [self._input(), self._records()]
            # One line stays free for the cursor, two are the frame's, two are blank, one is the heading, one counts.
            free = console.size.height - 1 - 2 - len(parts) - 2 - 1 - 1
            crowded = len(state.snapshot.reducers) > free - NEWS_LINES
            news = self._news(console, width, NEWS_LINES // 2 if crowded else NEWS_LINES)
            parts += [Text(), _reducers(state, width, max(free - len(news), 3)), Text(), self._counts(), *news]
        title = Text.assemble((state.name, "bold"), f" {clock(self._now - state.began)}")
        yield Frame(Group(*parts), title=title, title_align="left", border_style=FAINT, padding=(0, 1))

    def _phases(self) -> Text:
        state = self._state
        line = Text(no_wrap=True, overflow="ellipsis")
        for name, took in state.phases:
            line.append(f"{name} {seconds(took)}, ", FAINT)
        line.append(state.phase or "starting", "bold")
        line.append(f" {self._now - state.phase_began:.1f} s")
        if state.detail:
            line.append(f"  {state.detail}", FAINT)
        return line

    def _input(self) -> RenderableType:
        totals = self._state.totals
        share = totals.share_read
        if share is None:
            return _line("input    ", f"{plural(totals.read, 'row')} read")
        grid = _grid()
        grid.add_column()
        grid.add_column(ratio=1)
        grid.add_column(justify="right")
        words = f"{percent(share)} of {short(totals.rows)} rows"
        if totals.seconds_left is not None:
            words += f", about {clock(math.ceil(totals.seconds_left))} left"
        grid.add_row(Text("input  "), Bar(share, INPUT), Text(words))
        return grid

    def _records(self) -> Text:
        totals = self._state.totals
        return _line(
            "records  ",
            f"{short(totals.mapped)} mapped ({short(totals.mapped_rate)}/s), "
            f"{short(totals.processed)} processed ({short(totals.processed_rate)}/s), "
            f"{short(totals.in_flight)} in flight",
        )

    def _counts(self) -> Text:
        state = self._state
        counts = state.snapshot.decision_counts if state.snapshot else {}
        refused = outcomes({name: number for name, number in counts.items() if name != Outcome.APPLIED.value})
        words = plural(state.totals.redistributions, "redistribution")
        return _line(words, f"  (decided against: {refused})" if refused else "", FAINT)

    def _news(self, console: Console, width: int, height: int) -> list[Text]:
        """The newest redistributions in at most `height` lines, wrapped, the oldest first."""
        shown: list[Text] = []
        for decision in reversed(self._state.news):
            head = Text.assemble((f"{decision.at:6.1f} s  ", FAINT), (f"reducer {decision.reducer}  ", NEWS))
            wrapped = Text(one_line(decision.reason, 300)).wrap(console, max(width - len(head), 20))
            if shown and len(shown) + len(wrapped) > height:
                break
            indent = Text(" " * len(head))
            shown = [(indent if number else head) + line for number, line in enumerate(wrapped[:height])] + shown
        return shown


def _line(first: str, then: str, style: str = "") -> Text:
    return Text(first, no_wrap=True, overflow="ellipsis").append(then, style)


def _grid(gap: int = 2) -> Table:
    return Table.grid(padding=(0, gap, 0, 0), expand=True, pad_edge=False)


@dataclass(frozen=True)
class _Row:
    """One reducer's row; shares are of 1, `queue_share` and `peak_share` of the longest peak of all."""

    stats: ReducerStats
    share: float
    queue_share: float
    peak_share: float
    longest: bool
    rounds: int

    @property
    def bar(self) -> Bar:
        return Bar(self.queue_share, LONGEST if self.longest else QUEUE, self.peak_share)

    @property
    def queue(self) -> Text:
        return Text(short(self.stats.queue), LONGEST if self.longest else "")


def _rows(state: PanelState) -> list[_Row]:
    if state.snapshot is None:
        return []
    scale = max((max(stats.peak_queue, stats.queue) for stats in state.snapshot.reducers), default=0) or 1
    processed = state.totals.processed or 1
    longest = state.totals.longest
    return [
        _Row(
            stats,
            stats.processed / processed,
            stats.queue / scale,
            stats.peak_queue / scale,
            longest is not None and stats.reducer == longest.reducer,
            state.rounds.get(stats.reducer, 0),
        )
        for stats in state.snapshot.reducers
    ]


def _reducers(state: PanelState, width: int, height: int) -> RenderableType:
    """The reducers under a heading, in at most `height` lines besides it."""
    rows = _rows(state)
    if len(rows) <= height:
        return _full_rows(rows, wide=width >= WIDE - 4)
    columns = max(min(math.ceil(len(rows) / height), width // CELL_COLUMNS), 1)
    room = columns * height
    if len(rows) <= room:
        return _folded_rows(rows, columns, hidden=[])
    room = columns * (height - 1)  # a line for those that do not fit
    # Peaks only grow, so the choice of what is shown hardly changes from one drawing to the next.
    by_peak = sorted(rows, key=lambda row: (-row.stats.peak_queue, row.stats.reducer))
    shown = sorted(by_peak[:room], key=lambda row: row.stats.reducer)
    return _folded_rows(shown, columns, hidden=by_peak[room:])


def _full_rows(rows: Iterable[_Row], wide: bool) -> Table:
    grid = _grid()
    head = ["reducer", "", "queue", *["peak"] * wide, "processed", "share", *["forwarded", "rounds"] * wide]
    for title in head:
        grid.add_column(justify="right", ratio=None if title else 1)
    grid.add_row(*(Text(title, FAINT, no_wrap=True) for title in head))
    for row in rows:
        stats = row.stats
        cells: list[RenderableType] = [Text(str(stats.reducer)), row.bar, row.queue]
        cells += [Text(short(stats.peak_queue), FAINT)] * wide
        cells += [Text(short(stats.processed)), Text(percent(row.share))]
        cells += [Text(short(stats.forwarded)), Text(str(row.rounds or ""), NEWS)] * wide
        grid.add_row(*cells)
    return grid


def _folded_rows(rows: Sequence[_Row], columns: int, hidden: Sequence[_Row]) -> RenderableType:
    """The reducers in columns, read downwards: number, bar, queue, share."""
    grid = _grid(gap=1)
    head = ["#", "", "queue", "share", " "] * columns
    for title in head[:-1]:
        grid.add_column(justify="right", ratio=None if title else 1, min_width=5 if title.isalpha() else None)
    grid.add_row(*(Text(title, FAINT) for title in head[:-1]))
    height = math.ceil(len(rows) / columns)
    for line in range(height):
        cells: list[RenderableType] = []
        for row in rows[line::height]:
            cells += [Text(str(row.stats.reducer)), row.bar, row.queue, Text(percent(row.share), FAINT), ""]
        grid.add_row(*cells[: len(head) - 1])
    if not hidden:
        return grid
    queues = [row.stats.queue for row in hidden]
    queued = f"{short(sum(queues))} records queued, at most {short(max(queues))}"
    return Group(grid, _line("", f"and {plural(len(hidden), 'reducer')} more with {queued}", FAINT))


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
