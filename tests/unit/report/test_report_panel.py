"""The panel on a terminal shows all there is, fits, and cleans up."""

from __future__ import annotations

import contextlib
import io
import re
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


def panel(
    reducers: int, width: int, height: int, at: float = 3.2, steps: tuple[TaskChange, ...] = (), **changes: object
) -> str:
    """The panel as text, with these changes of tasks as the last news."""
    console = Console(file=io.StringIO(), width=width, height=height, record=True, markup=False, highlight=False)
    clock = Clock()
    progress = RichProgress(None, "wordcount", clock, console=console, refresh_thread=False)
    progress.phase("stream")
    seen = [samples.with_stage(found, REDUCER, **changes) for found in snapshots(reducers) if found.at <= at]
    show(progress, *seen, replace(seen[-1], steps=steps))
    console.print(Panel(progress.state, clock()))
    return console.export_text()


@pytest.mark.parametrize("width", [60, 80, 100, 132])
@pytest.mark.parametrize("height", [24, 50])
@pytest.mark.parametrize("reducers", [2, 4, 11, 16, 33, 64, 500])
def test_the_panel_fits_the_terminal(reducers: int, width: int, height: int) -> None:
    drawn = panel(reducers, width, height).splitlines()
    assert len(drawn) < height
    assert {len(line) for line in drawn} == {width}
    assert drawn[-1].startswith("╰")


def test_the_panel_shows_input_queues_and_redistributions() -> None:
    drawn = panel(4, 80, 24)
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


def test_the_panel_tells_of_tasks_that_come_and_move() -> None:
    text = panel(4, 80, 24, steps=(samples.moved(), samples.grown()))
    assert "1.5 s  reducer  0 is 4 now: asked for" in text
    assert "4.0 s  reducer  5, 6 came: busy 97% of the time for 2.0 s" in text


def test_the_panel_says_why_a_window_is_open() -> None:
    waits = EventTimeStats(1_500_000, None, 10_000_000, "clicks", "p1", 3)
    text = panel(4, 132, 24, event_time=waits)
    assert "windows  reducer waits for 1970-01-01 00:00:10, event time is 1970-01-01 00:00:01.5, held by clicks" in text
    assert len(text.splitlines()) < 24
    assert "event time is not known yet" in panel(4, 132, 24, event_time=replace(waits, watermark=None))
    assert "windows" not in panel(4, 132, 24, event_time=replace(waits, opens=None))


@pytest.mark.parametrize("height", [24, 50])
def test_a_narrow_panel_has_all_of_the_event_time_that_windows_wait_for(height: int) -> None:
    waits = EventTimeStats(1_500_000, None, 10_000_000, "clicks", "logs/2026-01-31.jsonl", 3)
    drawn = panel(4, 80, height, event_time=waits).splitlines()
    said = " ".join("".join(drawn).replace("│", " ").split())
    assert f"event time is 1970-01-01 00:00:01.5, {waits.holder}" in said
    assert len(drawn) < height
    assert {len(line) for line in drawn} == {80}


def test_a_reason_that_is_cut_ends_between_two_words_and_says_so() -> None:
    keys = [f"https://example.org/whose/name/is/long?number={number}" for number in range(9)]
    reason = f"delay 0.179 s of reducer 1 exceeds 0.0449 s x 1.2; split {', '.join(keys)}"
    drawn = panel(4, 80, 24, decisions=(samples.decision(reason=reason),))
    *_, last, ellipsis = " ".join(line.strip("│ ") for line in drawn.splitlines()[:-1]).split()
    assert last.rstrip(",") in keys
    assert ellipsis == "…"


def test_once_all_rows_are_read_the_bar_shows_what_the_reducers_have_yet_to_do() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, record=True)
    progress = RichProgress(None, "job", Clock(), console=console, refresh_thread=False)
    progress.phase("stream")
    show(progress, working_off(10.0, 12_000_000), working_off(14.0, 16_000_000))
    console.print(Panel(progress.state, 100.0))
    drawn = console.export_text()
    assert re.search(r"input +all 20,000,000 rows read", drawn)
    assert re.search(r"records  █+[▏▎▍▌▋▊▉ ]+16\.0M of 24\.0M processed \(1\.00M/s\), about 0:08 left", drawn)


def test_a_wide_panel_shows_peaks_forwards_and_rounds() -> None:
    drawn = panel(4, 120, 40)
    assert re.search(r"queue +peak +processed +share +forwards +rounds", drawn)
    assert re.search(r" 1 .* 122k .* 49\.4k +2 ", drawn)


def test_reducers_that_do_not_fit_are_counted_and_the_loaded_ones_stay() -> None:
    drawn = panel(500, 80, 24)
    assert re.search(r"and [0-9]+ more tasks with [0-9.]+M records queued, at most [0-9.]+k", drawn)
    assert re.search(r"  1 █", drawn)


def test_every_reducer_is_shown_if_there_is_room() -> None:
    drawn = panel(64, 120, 50)
    assert "more tasks" not in drawn
    for reducer in range(64):
        assert re.search(rf"(?<!\d) {reducer} [█▏▎▍▌▋▊▉ ]", drawn)


@pytest.mark.parametrize("tasks", [(), (TaskStats(REDUCER, 0),)])
def test_a_run_that_has_hardly_begun_can_be_drawn(tasks: tuple[TaskStats, ...]) -> None:
    snapshot = RunTracker().update(samples.snapshot(0.0, tasks=tasks))
    state = PanelState("job", 0.0, phase="stream", snapshot=snapshot)
    console = Console(file=io.StringIO(), width=80, height=24, record=True)
    console.print(Panel(state, 0.1))
    assert "0 mapped (0/s), 0 processed (0/s), 0 in flight" in console.export_text()


def test_the_panel_shows_no_control_characters_of_a_reason() -> None:
    drawn = panel(4, 80, 24, decisions=(samples.decision(reason="[red]key[/red] \x1b[2J\nnext"),))
    assert "[red]key[/red] \\x1b[2J\\nnext" in drawn


def test_before_the_first_snapshot_the_panel_shows_the_phase() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, record=True)
    console.print(Panel(PanelState("job", 0.0, phase="load"), 3.0))
    assert "load 3.0 s" in console.export_text()


def test_a_warning_is_a_line_of_the_plain_view_and_stands_above_the_panel() -> None:
    stream, terminal = io.StringIO(), Terminal()
    PlainProgress(stream, "job", Clock()).warn("reducer 1 has\nbeen at one step")
    assert stream.getvalue() == "[    0.0 s] job: warning: reducer 1 has\\nbeen at one step\n"
    console = Console(file=terminal, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"})
    with RichProgress(None, "job", Clock(), console=console, refresh_thread=False) as progress:
        progress.warn("reducer 1 has been at one step")
    written = terminal.getvalue()
    assert "warning: reducer 1 has been at one step" in written.replace(CURSOR_OFF, "")


def drawn_on_terminal(error: BaseException | None, status: str = "ok") -> str:
    terminal = Terminal()
    console = Console(file=terminal, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"})
    progress = RichProgress(None, "job", Clock(), console=console, refresh_thread=False)
    with contextlib.suppress(KeyboardInterrupt, ValueError), progress:
        progress.phase("stream")
        show(progress, samples.snapshot(2.0))
        if error is not None:
            raise error
        progress.ended(status)
    return terminal.getvalue()


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), ValueError("oops")])
def test_the_cursor_is_back_however_the_job_ends(error: BaseException | None) -> None:
    written = drawn_on_terminal(error)
    assert CURSOR_OFF in written
    assert written.rindex(CURSOR_ON) > written.rindex(CURSOR_OFF)


def test_the_panel_stays_only_if_the_job_fails() -> None:
    erase_line = "\x1b[2K"
    assert drawn_on_terminal(None).rstrip().endswith(erase_line)
    assert drawn_on_terminal(None, "mismatch").rstrip().endswith(erase_line)
    for failed in (drawn_on_terminal(ValueError()), drawn_on_terminal(None, "failed")):
        assert failed.rstrip().removesuffix(CURSOR_ON).rstrip().endswith("╯\x1b[0m")


# --- graphs


def graph_panel(width: int = 80, height: int = 24, limit: str = "priced") -> str:
    """The panel of seven stages as text."""
    console = Console(file=io.StringIO(), width=width, height=height, record=True, markup=False, highlight=False)
    progress = RichProgress(None, "bargains", Clock(), console=console, refresh_thread=False)
    progress.phase("stream")
    show(progress, *(samples.graph_snapshot(at=at, limit=limit) for at in (0.0, 1.0, 2.0, 3.0)))
    console.print(Panel(progress.state, 100.0))
    return console.export_text()


@pytest.mark.parametrize("width", [60, 80])
def test_nothing_but_a_long_reason_is_cut(width: int) -> None:
    assert "…" not in panel(4, width, 24) + graph_panel(width)
    assert re.search(r"priced +3 +1.18M +393k/s +90.0k +67%", graph_panel(width))


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (80, 50), (132, 30)])
@pytest.mark.parametrize("limit", ["priced", "nothing"])
def test_the_panel_of_a_graph_fits_the_terminal(width: int, height: int, limit: str) -> None:
    drawn = graph_panel(width, height, limit).splitlines()
    assert len(drawn) < height
    assert {len(line) for line in drawn} == {width}


def test_the_panel_of_a_graph_has_a_line_a_stage_and_the_queues_of_the_one_that_limits_the_run() -> None:
    drawn = graph_panel(height=40)
    assert re.search(r"trades +3 +3.00M +1.00M/s +20% +62%", drawn)
    assert re.search(r"priced +3 +1.18M +393k/s +90.0k +67% +1%", drawn)
    assert re.search(r"│ priced +queue +processed +share", drawn)
    assert "priced 3  queue of 131,072" in drawn


def test_stages_that_do_not_fit_are_counted_and_the_one_that_limits_the_run_is_shown() -> None:
    drawn = graph_panel()
    assert re.search(r"priced +3 +1.18M", drawn)
    assert "and 3 more stages" in drawn


def test_where_no_stage_limits_the_run_the_one_with_the_most_records_queued_is_drawn() -> None:
    assert re.search(r"│ bargains +queue +processed +share", graph_panel(height=40, limit="nothing"))
