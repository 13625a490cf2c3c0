"""The panel on a terminal shows all there is, fits, and cleans up."""

import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import report_samples as samples
from progress_samples import Clock, Terminal, show, working_off
from rich.console import Console

from dpa.protocol.graph import REDUCER
from dpa.protocol.wire.metrics import EventTimeStats, TaskChange, TaskStats
from dpa.report._panel import Panel, PanelState, RichProgress
from dpa.report._plain import PlainProgress
from dpa.telemetry.tracker import RunTracker

CURSOR_OFF, CURSOR_ON = "\x1b[?25l", "\x1b[?25h"


snapshots = cache(samples.snapshots)


def progress_on(console: Console, name: str = "job") -> RichProgress:
    """The progress of a stream that is drawn by nobody but the test."""
    progress = RichProgress(None, name, Clock(), console=console, refresh_thread=False)
    progress.phase("stream")
    return progress


def text_of(panel: Callable[[Console], Panel], width: int = 80, height: int = 24) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, record=True, markup=False, highlight=False)
    console.print(panel(console))
    return console.export_text()


def panel(
    reducers: int, width: int = 80, height: int = 24, steps: tuple[TaskChange, ...] = (), **changes: object
) -> str:
    """The panel as text, with these changes of tasks as the last news."""

    def drawn(console: Console) -> Panel:
        progress = progress_on(console, "wordcount")
        seen = [samples.with_stage(found, REDUCER, **changes) for found in snapshots(reducers) if found.at <= 3.2]
        show(progress, *seen, replace(seen[-1], steps=steps))
        return Panel(progress.state, 100.0)

    return text_of(drawn, width, height)


def require_fit(text: str, width: int, height: int) -> None:
    drawn = text.splitlines()
    assert len(drawn) < height
    assert {len(line) for line in drawn} == {width}
    assert drawn[-1].startswith("╰")


@pytest.mark.parametrize("width", [60, 80, 100, 132])
@pytest.mark.parametrize("height", [24, 50])
@pytest.mark.parametrize("reducers", [2, 4, 11, 16, 33, 64, 500])
def test_the_panel_fits_the_terminal(reducers: int, width: int, height: int) -> None:
    require_fit(panel(reducers, width, height), width, height)


def test_the_panel_shows_input_queues_and_redistributions_and_where_it_is_wide_peaks_forwards_and_rounds() -> None:
    drawn = panel(4)
    for expected in (
        "wordcount 0:00",
        "stream 0.0 s",
        "64.0% of 20.0M rows, about 0:02 left",
        "15.4M mapped (4.80M/s)",
        "latency  p99 3.05 s",
        "4 redistributions  (decided against: 96 below threshold, 3 rounds used up)",
        "3.2 s  reducer 1  queue of 131,072 exceeds 1.2 times the second longest,",
    ):
        assert expected in drawn
    assert re.search(r"1  █+.*▏  67\.6k      6\.69M  43\.9%", drawn)
    drawn = panel(4, 120, 40)
    assert re.search(r"queue +peak +processed +share +forwards +rounds", drawn)
    assert re.search(r" 1 .* 122k .* 49\.4k +2 ", drawn)


def test_the_panel_has_the_news_of_tasks_and_reasons_without_control_characters_that_are_cut_between_words() -> None:
    text = panel(4, steps=(samples.moved(), samples.grown()))
    assert "1.5 s  reducer  0 is 4 now: asked for" in text
    assert "4.0 s  reducer  5, 6 came: busy 97% of the time for 2.0 s" in text
    drawn = panel(4, decisions=(samples.decision(reason="[red]key[/red] \x1b[2J\nnext"),))
    assert "[red]key[/red] \\x1b[2J\\nnext" in drawn
    keys = [f"https://example.org/whose/name/is/long?number={number}" for number in range(9)]
    reason = f"delay 0.179 s of reducer 1 exceeds 0.0449 s x 1.2; split {', '.join(keys)}"
    drawn = panel(4, decisions=(samples.decision(reason=reason),))
    *_, last, ellipsis = " ".join(line.strip("│ ") for line in drawn.splitlines()[:-1]).split()
    assert last.rstrip(",") in keys
    assert ellipsis == "…"


def test_the_panel_says_why_a_window_is_open_and_has_all_of_it_where_it_is_narrow() -> None:
    waits = EventTimeStats(1_500_000, None, 10_000_000, "clicks", "p1", 3)
    text = panel(4, 132, event_time=waits)
    assert "windows  reducer waits for 1970-01-01 00:00:10, event time is 1970-01-01 00:00:01.5, held by clicks" in text
    require_fit(text, 132, 24)
    assert "event time is not known yet" in panel(4, 132, event_time=replace(waits, watermark=None))
    assert "windows" not in panel(4, 132, event_time=replace(waits, opens=None))
    waits = EventTimeStats(1_500_000, None, 10_000_000, "clicks", "logs/2026-01-31.jsonl", 3)
    for height in (24, 50):
        drawn = panel(4, 80, height, event_time=waits)
        said = " ".join("".join(drawn.splitlines()).replace("│", " ").split())
        assert f"event time is 1970-01-01 00:00:01.5, {waits.holder}" in said
        require_fit(drawn, 80, height)


def test_once_all_rows_are_read_the_bar_shows_what_the_reducers_have_yet_to_do() -> None:
    def working(console: Console) -> Panel:
        progress = progress_on(console)
        show(progress, working_off(10.0, 12_000_000), working_off(14.0, 16_000_000))
        return Panel(progress.state, 100.0)

    drawn = text_of(working)
    assert re.search(r"input +all 20,000,000 rows read", drawn)
    assert re.search(r"records  █+[▏▎▍▌▋▊▉ ]+16\.0M of 24\.0M processed \(1\.00M/s\), about 0:08 left", drawn)


def test_reducers_that_do_not_fit_are_counted_and_the_loaded_ones_stay() -> None:
    drawn = panel(500)
    assert re.search(r"and [0-9]+ more tasks with [0-9.]+M records queued, at most [0-9.]+k", drawn)
    assert re.search(r"  1 █", drawn)
    drawn = panel(64, 120, 50)  # there is room
    assert "more tasks" not in drawn
    for reducer in range(64):
        assert re.search(rf"(?<!\d) {reducer} [█▏▎▍▌▋▊▉ ]", drawn)


def test_a_run_that_has_hardly_begun_can_be_drawn() -> None:
    assert "load 3.0 s" in text_of(lambda _: Panel(PanelState("job", 0.0, phase="load"), 3.0))
    for tasks in ((), (TaskStats(REDUCER, 0),)):
        snapshot = RunTracker().update(samples.snapshot(0.0, tasks=tasks))
        state = PanelState("job", 0.0, phase="stream", snapshot=snapshot)
        assert "0 mapped (0/s), 0 processed (0/s), 0 in flight" in text_of(lambda _, state=state: Panel(state, 0.1))


def test_a_warning_is_a_line_of_the_plain_view_and_stands_above_the_panel() -> None:
    stream = io.StringIO()
    PlainProgress(stream, "job", Clock()).warn("reducer 1 has\nbeen at one step")
    assert stream.getvalue() == "[    0.0 s] job: warning: reducer 1 has\\nbeen at one step\n"
    written = drawn_on_terminal(None, warning="reducer 1 has been at one step").replace(CURSOR_OFF, "")
    assert "warning: reducer 1 has been at one step" in written


def drawn_on_terminal(error: BaseException | None, status: str = "ok", warning: str = "") -> str:
    terminal = Terminal()
    progress = progress_on(Console(file=terminal, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"}))
    with contextlib.suppress(KeyboardInterrupt, ValueError), progress:
        show(progress, samples.snapshot(2.0))
        if warning:
            progress.warn(warning)
        if error is not None:
            raise error
        progress.ended(status)
    return terminal.getvalue()


def test_the_cursor_is_back_however_the_job_ends_and_the_panel_stays_only_if_it_fails() -> None:
    erase_line = "\x1b[2K"
    for error, status, stays in (
        (None, "ok", False),
        (None, "mismatch", False),
        (None, "failed", True),
        (ValueError("oops"), "ok", True),
        (KeyboardInterrupt(), "ok", True),
    ):
        written = drawn_on_terminal(error, status)
        assert CURSOR_OFF in written
        assert written.rindex(CURSOR_ON) > written.rindex(CURSOR_OFF)
        if stays:
            assert written.rstrip().removesuffix(CURSOR_ON).rstrip().endswith("╯\x1b[0m")
        else:
            assert written.rstrip().endswith(erase_line)


def graph_panel(width: int = 80, height: int = 24, limit: str = "priced") -> str:
    """The panel of seven stages as text."""

    def drawn(console: Console) -> Panel:
        progress = progress_on(console, "bargains")
        show(progress, *(samples.graph_snapshot(at=at, limit=limit) for at in (0.0, 1.0, 2.0, 3.0)))
        return Panel(progress.state, 100.0)

    return text_of(drawn, width, height)


@pytest.mark.parametrize("width", [60, 80])
def test_nothing_but_a_long_reason_is_cut(width: int) -> None:
    assert "…" not in panel(4, width) + graph_panel(width)
    assert re.search(r"priced +3 +1.18M +393k/s +90.0k +67%", graph_panel(width))


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (80, 50), (132, 30)])
@pytest.mark.parametrize("limit", ["priced", "nothing"])
def test_the_panel_of_a_graph_fits_the_terminal(width: int, height: int, limit: str) -> None:
    require_fit(graph_panel(width, height, limit), width, height)


def test_the_panel_of_a_graph_has_a_line_a_stage_and_the_queues_of_the_one_that_limits_the_run() -> None:
    drawn = graph_panel(height=40)
    assert re.search(r"trades +3 +3.00M +1.00M/s +20% +62%", drawn)
    assert re.search(r"priced +3 +1.18M +393k/s +90.0k +67% +1%", drawn)
    assert re.search(r"│ priced +queue +processed +share", drawn)
    assert "priced 3  queue of 131,072" in drawn
    drawn = graph_panel()  # not all fit
    assert re.search(r"priced +3 +1.18M", drawn)
    assert "and 3 more stages" in drawn
    # where none limits the run, the one with the most records queued is drawn
    assert re.search(r"│ bargains +queue +processed +share", graph_panel(height=40, limit="nothing"))
