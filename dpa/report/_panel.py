"""The live panel: input, a queue bar for each reducer, and redistributions with their reasons as they happen.

Drawn with rich from the newest snapshot, eight times a second. `PanelState` says what is shown and `Panel` how it is
laid out; `_queues.py` draws the reducers.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel as Frame
from rich.text import Text

from dpa.balance.decision import Decision
from dpa.protocol.metrics import Snapshot
from dpa.report._queues import FAINT, NEWS, Bar, Queues, grid, line
from dpa.report._text import clock, one_line, percent, plural, refusals, seconds, short
from dpa.report._watch import Totals, Watch

REFRESHES_PER_SECOND = 8
NEWS_LINES = 4
"""Lines of the panel kept for redistributions, the newest at the bottom."""

PROGRESS = "green"


@dataclass
class PanelState:
    """All that the panel shows. `phases`: those that ended, with their seconds; `phase_began` by the view's clock.

    A refresh thread reads while the driver writes, so values are replaced and never changed.
    """

    name: str
    began: float
    phases: tuple[tuple[str, float], ...] = ()
    phase: str = ""
    detail: str = ""
    phase_began: float = 0.0
    totals: Totals = field(default_factory=Totals)
    snapshot: Snapshot | None = None
    news: tuple[Decision, ...] = ()
    rounds: Mapping[int, int] = field(default_factory=dict)


class RichProgress:
    """A live panel that vanishes when there is a result to show, and stays as it last was when there is none."""

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
        self._failed = False
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
        self._live.transient = kind is None and not self._failed
        self._live.stop()

    def phase(self, name: str, detail: str = "") -> None:
        """Note how long the phase before took, and show this one."""
        state, now = self.state, self._clock()
        if state.phase:
            state.phases = (*state.phases, (state.phase, now - state.phase_began))
        state.phase, state.detail, state.phase_began = one_line(name, 40), one_line(detail, 200), now
        self._live.refresh()

    def update(self, snapshot: Snapshot) -> None:
        """Take in a newer snapshot; the refresh thread draws it."""
        state = self.state
        for decision in self._watch.update(snapshot):
            state.rounds = {**state.rounds, decision.reducer: state.rounds.get(decision.reducer, 0) + 1}
            state.news = (*state.news, decision)[-NEWS_LINES:]
        state.totals = self._watch.totals
        state.snapshot = snapshot

    def ended(self, status: str) -> None:
        """Note whether the panel is to stay."""
        self._failed = status == "failed"

    def warn(self, message: str) -> None:
        """Print a line above the panel, where it stays."""
        self._console.print(Text(f"warning: {one_line(message)}", NEWS))


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
            queues = Queues(state.snapshot.reducers, state.rounds, width, height=max(free - len(news), 3))
            parts += [Text(), queues.drawn(), Text(), self._counts(), *news]
        title = Text.assemble((state.name, "bold"), f" {clock(self._now - state.began)}")
        yield Frame(Group(*parts), title=title, title_align="left", border_style=FAINT, padding=(0, 1))

    def _phases(self) -> Text:
        state = self._state
        words = Text(no_wrap=True, overflow="ellipsis")
        for name, took in state.phases:
            words.append(f"{name} {seconds(took)}, ", FAINT)
        words.append(state.phase or "starting", "bold")
        words.append(f" {self._now - state.phase_began:.1f} s")
        if state.detail:
            words.append(f"  {state.detail}", FAINT)
        return words

    def _input(self) -> RenderableType:
        totals = self._state.totals
        share = totals.share_read
        if share is None or totals.all_read:
            return line("input    ", f"{'all ' if totals.all_read else ''}{plural(totals.read, 'row')} read")
        return self._bar("input", share, f"{percent(share)} of {short(totals.rows)} rows")

    def _records(self) -> RenderableType:
        totals = self._state.totals
        if totals.all_read:
            words = f"{short(totals.processed)} of {short(totals.emitted)} processed ({short(totals.processed_rate)}/s)"
            return self._bar("records", totals.share_processed, words)
        return line(
            "records  ",
            f"{short(totals.mapped)} mapped ({short(totals.mapped_rate)}/s), "
            f"{short(totals.processed)} processed ({short(totals.processed_rate)}/s), "
            f"{short(totals.in_flight)} in flight",
        )

    def _bar(self, name: str, share: float, words: str) -> RenderableType:
        """A line with a bar of how far the run is, and the time that is left."""
        row = grid()
        row.add_column(min_width=7)
        row.add_column(ratio=1)
        row.add_column(justify="right", no_wrap=True)
        if left := self._state.totals.seconds_left:
            words += f", about {clock(math.ceil(left))} left"
        row.add_row(Text(name), Bar(share, PROGRESS), Text(words))
        return row

    def _counts(self) -> Text:
        refused = refusals(self._state.snapshot.decision_counts) if self._state.snapshot else ""
        words = plural(self._state.totals.redistributions, "redistribution")
        return line(words, f"  (decided against: {refused})" if refused else "", FAINT)

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
