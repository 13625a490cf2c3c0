"""The live panel: input, stages, a queue bar for each task, and redistributions with their reasons as they happen.

Drawn with rich from the newest snapshot, eight times a second. `PanelState` holds what is shown, `Panel` lays it out,
and `_queues` draws the tasks of one stage: of several, those of the one that limits the run. Tasks that do not fit one
to a line share lines. If they still do not fit, those with the shortest peaks are only counted."""

from __future__ import annotations

import math
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from threading import Timer
from typing import TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.panel import Panel as Frame
from rich.segment import Segment
from rich.style import Style
from rich.table import Table as Grid
from rich.text import Text

from dpa.protocol.wire.metrics import TaskStats
from dpa.report._plain import ProgressDisplay, happened, is_terminal
from dpa.report._terminal import FAINT, table
from dpa.result.text import Table, bar, clock, instant, latency, one_line, percent, plural, refusals, seconds, short
from dpa.telemetry.tracker import News, Redistribution, TrackedSnapshot

REFRESHES_PER_SECOND = 8
CELL_REFRESHES_PER_SECOND, CELL_WIDTH, CELL_HEIGHT = 2, 92, 32  # of the panel in a notebook; the size is in characters
REASON_LINES = 4
"""Lines for redistributions and changes of tasks, the newest at the bottom, and as many for open windows."""

PROGRESS = "green"
WIDE = 92
"""From this many columns on, a task's row also shows its peak queue, its forwards and its redistributions."""
CELL_COLUMNS = 25  # columns that a task takes where several share a line

_STAGE_COLUMNS = 66
"""In fewer columns, stages are shown without the shares of time in which they were blocked and waiting."""

QUEUE, LONGEST, PEAK, NOTICE = "cyan", "yellow", "bright_black", "magenta"
_NARROW = ("#", "", "queue", "processed", "share")
_ALL = ("#", "", "queue", "peak", "processed", "share", "forwards", "rounds")
_FOLDED = ("#", "", "queue", "share", " ")


@dataclass
class PanelState:
    """What the panel shows; `began` and `phase_began` are by the view's clock.

    `phases` are those that ended, with their seconds, `latest` the newest redistributions and changes of tasks, and
    `rounds` the number of redistributions by stage and task.
    """

    # A refresh thread reads while the driver writes: values are replaced, never changed.

    name: str
    began: float
    phases: tuple[tuple[str, float], ...] = ()
    phase: str = ""
    phase_began: float = 0.0
    snapshot: TrackedSnapshot | None = None
    latest: tuple[News, ...] = ()
    rounds: Mapping[tuple[str, int], int] = field(default_factory=dict)


class RichProgress(ProgressDisplay):
    """A live panel that vanishes when the job ends with a result, and stays when it fails."""

    def __init__(
        self,
        stream: TextIO | None,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        console: Console | None = None,
        refresh_thread: bool = True,
        after: float = 0.0,
        is_cell: bool = False,
    ) -> None:
        """`after`: seconds before the panel is there."""
        self._console = console or Console(
            file=stream,
            stderr=stream is None,
            force_terminal=True,
            force_jupyter=False,
            markup=False,
            highlight=False,
            emoji=False,
        )
        self._clock = clock
        self._failed = False
        self.state = PanelState(name=one_line(name, 40), began=clock(), phase_began=clock())
        self._live = (Cell if is_cell else Live)(
            get_renderable=lambda: Panel(self.state, self._clock()),
            console=Console(file=StringIO(), force_jupyter=False) if is_cell else self._console,
            auto_refresh=refresh_thread,
            refresh_per_second=CELL_REFRESHES_PER_SECOND if is_cell else REFRESHES_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
            # Prints of the program go above the panel, unless stdout is a pipe and the panel is on stderr.
            redirect_stdout=is_terminal(sys.stdout),
            redirect_stderr=not is_cell,
        )
        self._timer = Timer(after, self._live.start, [True]) if after else None

    def __enter__(self) -> RichProgress:
        self.state.began = self.state.phase_began = self._clock()
        if self._timer is None:
            self._live.start(refresh=True)
        else:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self._live.transient = kind is None and not self._failed
        self._live.stop()

    def phase(self, name: str) -> None:
        state, now = self.state, self._clock()
        if state.phase:
            state.phases = (*state.phases, (state.phase, now - state.phase_began))
        state.phase, state.phase_began = one_line(name, 40), now
        if self._live.is_started:
            self._live.refresh()

    def update(self, snapshot: TrackedSnapshot) -> None:
        state = self.state
        for found in snapshot.news:
            if isinstance(found, Redistribution):
                whose = (found.stage, found.decision.reducer)
                state.rounds = {**state.rounds, whose: state.rounds.get(whose, 0) + 1}
            state.latest = (*state.latest, found)[-REASON_LINES:]
        state.snapshot = snapshot

    def ended(self, status: str) -> None:
        self._failed = status == "failed"
        self._live.transient = not self._failed
        self._live.stop()

    def warn(self, message: str) -> None:
        """Print a line above the panel, where it stays."""
        self._console.print(Text(f"warning: {one_line(message)}", NOTICE))


class Cell(Live):
    """The panel in the output of a notebook's cell, without widgets."""

    _id = ""

    def refresh(self) -> None:
        console = Console(file=StringIO(), record=True, width=CELL_WIDTH, height=CELL_HEIGHT, force_jupyter=False)
        console.print(self.get_renderable())
        self._show(console.export_html(inline_styles=True, code_format='<pre style="line-height:1.2">{code}</pre>'))

    def stop(self) -> None:
        super().stop()
        if self._id and self.transient:
            self._show("")
            self._id = ""

    def _show(self, drawn: str) -> None:
        from IPython.display import HTML, display

        is_new, self._id = not self._id, self._id or uuid.uuid4().hex
        display(HTML(drawn), display_id=self._id, update=not is_new)


class Panel:
    """Lays `state` out for the console it is printed on; `now` by the clock that `state` was timed with."""

    def __init__(self, state: PanelState, now: float) -> None:
        self._state = state
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state, width = self._state, max(options.max_width - 4, 20)
        parts: list[RenderableType] = [self._phases()]
        if (now := state.snapshot) is not None:
            parts += [_input(now), *_records(now, console, width)]
            if now.latency_p99 is not None:
                parts.append(line("latency  ", f"p99 {latency(now.latency_p99)}"))
            parts += _windows(now, console, width)
            counts = _wrapped(Text(), _counts(now), console, width, 2)
            # One line is the cursor's, two are the frame's, two are blank, and one is the heading.
            free = console.size.height - 1 - 2 - len(parts) - 2 - 1 - len(counts)
            if now.is_graph:
                height = max(free // 2 - 2, 1)
                parts += [Text(), *table(_stages(now, height, width), console)]
                free -= min(len(now.stages), height) + 2
            tasks = [] if now.focus is None else now[now.focus].present_tasks
            crowded = len(tasks) > free - REASON_LINES
            reasons = self._reasons(console, width, REASON_LINES // 2 if crowded else REASON_LINES)
            rounds = {task.index: state.rounds.get((task.stage, task.index), 0) for task in tasks}
            name = now.focus if now.is_graph else None
            queues = _queues(tasks, rounds, width, max(free - len(reasons), 3), one_line(name or "task", 16))
            parts += [Text(), queues, Text(), *counts, *reasons]
        title = Text.assemble((state.name, "bold"), f" {clock(self._now - state.began)}")
        yield Frame(Group(*parts), title=title, title_align="left", border_style=FAINT, padding=(0, 1))

    def _phases(self) -> Text:
        state = self._state
        words = Text(no_wrap=True, overflow="ellipsis")
        for name, took in state.phases:
            words.append(f"{name} {seconds(took)}, ", FAINT)
        words.append(state.phase or "starting", "bold")
        words.append(f" {self._now - state.phase_began:.1f} s")
        return words

    def _reasons(self, console: Console, width: int, height: int) -> list[Text]:
        """The newest redistributions and changes of tasks in at most `height` lines, the oldest first."""
        shown: list[Text] = []
        for found in reversed(self._state.latest):
            at, whose, reason = happened(found, 20)
            head = Text.assemble((f"{at:6.1f} s  ", FAINT), (f"{whose}  ", NOTICE))
            wrapped = _wrapped(head, reason, console, width, height)
            if shown and len(shown) + len(wrapped) > height:
                break
            shown = wrapped + shown
        return shown


def _input(now: TrackedSnapshot) -> RenderableType:
    share, read = now.share_read, now.records.read
    if share is None or now.all_read:
        return line("input    ", f"{'all ' if now.all_read else ''}{plural(read, 'row')} read")
    return _bar("input", share, f"{percent(share)} of {short(now.rows)} rows", now.seconds_left)


def _records(now: TrackedSnapshot, console: Console, width: int) -> list[RenderableType]:
    records, rate = now.records, f"{short(now.processed_rate)}/s"
    if now.all_read:
        words = f"{short(records.handled)} of {short(records.emitted)} processed ({rate})"
        return [_bar("records", now.share_processed, words, now.seconds_left)]
    mapped = f"{short(records.mapped)} mapped ({short(now.mapped_rate)}/s)"
    in_flight = max(records.emitted - records.handled, 0)
    words = f"{mapped}, {short(records.handled)} processed ({rate}), {short(in_flight)} in flight"
    return [*_wrapped(Text("records  "), words, console, width, 2)]


def _bar(name: str, share: float, words: str, seconds_left: float | None) -> RenderableType:
    row = Grid.grid(padding=(0, 2, 0, 0), expand=True, pad_edge=False)
    row.add_column(min_width=7)
    row.add_column(ratio=1)
    row.add_column(justify="right", no_wrap=True)
    if seconds_left:
        words += f", about {clock(math.ceil(seconds_left))} left"
    row.add_row(Text(name), QueueBar(share, PROGRESS), Text(words))
    return row


def _counts(now: TrackedSnapshot) -> str:
    refused = refusals(now.decisions)
    words = plural(now.redistributions, "redistribution")
    if now.left_out:
        words += f", {plural(now.left_out, 'record')} left out"
    return f"{words}  (decided against: {refused})" if refused else words


def _wrapped(head: Text, words: str, console: Console, width: int, height: int) -> list[Text]:
    """Words beside a head in at most `height` lines; an ellipsis follows the last whole word of more."""
    text, room = one_line(words, 300), max(width - len(head), 20)
    lines = Text(text).wrap(console, room)
    while len(lines) > height and " " in text:
        text = text[: height * room].rsplit(" ", 1)[0]
        lines = Text(f"{text} …").wrap(console, room)
    return [(Text(" " * len(head)) if number else head) + line for number, line in enumerate(lines[:height])]


def _stages(now: TrackedSnapshot, height: int, width: int) -> Table:
    """The stages in at most `height` lines below a heading: of more, the one that limits the run and the busiest."""
    shown = None if width >= _STAGE_COLUMNS else -2
    stages, limit = list(now.stages), now.bottleneck.stage
    is_cut = len(stages) > height
    if is_cut:
        stages.sort(key=lambda stage: (stage.name != limit, -stage.load.busy - stage.load.blocked))
    rows = [
        (
            one_line(stage.name, 20),
            str(len(stage.present)),
            short(stage.counted),
            f"{short(stage.rate)}/s",
            "" if stage.is_source else short(stage.queue),
            f"{stage.load.busy:.0%}",
            f"{stage.load.blocked:.0%}",
            f"{stage.load.waiting:.0%}" if stage.is_source else "",
        )
        for stage in stages
    ]
    marked = next((place for place, stage in enumerate(stages) if stage.name == limit), None)
    head = ("stage", "#tasks", "#records", "#rate", "#queued", "#busy", "#blocked", "#waiting")
    return Table("", head[:shown], rows, most=height - 1 if is_cut else None, more=" stages", marked=marked)


def _windows(now: TrackedSnapshot, console: Console, width: int) -> list[Text]:
    """What holds the window that is the first to close; empty if no window is open."""
    stages = [(stage.name, stage.event_time) for stage in now.stages if stage.event_time is not None]
    opened = [(reached.opens, name, reached) for name, reached in stages if reached.opens is not None]
    if not opened:
        return []
    opens, name, reached = min(opened, key=lambda each: each[0])
    at = "not known yet" if reached.watermark is None else instant(reached.watermark)
    words = f"{name} waits for {instant(opens)}, event time is {at}, {reached.holder}"
    return _wrapped(Text("windows  "), words, console, width, REASON_LINES)


def _queues(
    tasks: Sequence[TaskStats], rounds: Mapping[int, int], width: int, height: int, name: str
) -> RenderableType:
    """Tasks in at most `height` lines, headed by `name`; `rounds` are redistributions by task. A row for each task; if
    there are too many, several tasks in a row and a line that counts the rest."""
    longest = max(tasks, key=lambda task: task.queue, default=None)
    scale = max((max(task.peak_queue, task.queue) for task in tasks), default=0) or 1
    processed = sum(task.processed for task in tasks) or 1

    def cells(task: TaskStats) -> dict[str, RenderableType]:
        style = LONGEST if task is longest else ""
        return {
            "#": str(task.index),
            "": QueueBar(task.queue / scale, style or QUEUE, task.peak_queue / scale),
            "queue": Text(short(task.queue), style if task.queue else ""),
            "peak": short(task.peak_queue),
            "processed": short(task.processed),
            "share": percent(task.processed / processed),
            "forwards": short(task.forwarded),
            "rounds": Text(str(rounds.get(task.index) or ""), NOTICE),
            " ": "",
        }

    if len(tasks) <= height:
        return _grid(list(map(cells, tasks)), _ALL if width >= WIDE else _NARROW, name)
    columns = max(min(math.ceil(len(tasks) / height), width // CELL_COLUMNS), 1)
    if len(tasks) <= columns * height:
        return _grid(list(map(cells, tasks)), _FOLDED, "#", columns)
    room = columns * (height - 1)
    # Peaks only grow, so the tasks shown hardly change from one drawing to the next.
    by_peak = sorted(tasks, key=lambda task: (-task.peak_queue, task.index))
    shown = sorted(by_peak[:room], key=lambda task: task.index)
    queues = [task.queue for task in by_peak[room:]]
    queued = f"{short(sum(queues))} records queued, at most {short(max(queues))}"
    rest = line("", f"and {len(queues):,} more tasks with {queued}", FAINT)
    return Group(_grid(list(map(cells, shown)), _FOLDED, "#", columns), rest)


def _grid(tasks: Sequence[Mapping[str, RenderableType]], titles: Sequence[str], name: str, columns: int = 1) -> Grid:
    """Tasks in columns, read downwards, each with the cells of these titles; `name` is the title of their numbers."""
    is_folded = titles is _FOLDED
    head = (list(titles) * columns)[: -1 if is_folded else None]
    grid = Grid.grid(padding=(0, 1 if is_folded else 2, 0, 0), expand=True, pad_edge=False)
    for title in head:
        grid.add_column(
            justify="right", ratio=None if title else 1, min_width=5 if is_folded and title.isalpha() else None
        )
    grid.add_row(*(Text(name if title == "#" else title, FAINT, no_wrap=True) for title in head))
    height = math.ceil(len(tasks) / columns)
    for number in range(height):
        grid.add_row(*[task[title] for task in tasks[number::height] for title in titles][: len(head)])
    return grid


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
