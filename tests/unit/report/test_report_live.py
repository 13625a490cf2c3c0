"""Progress: which view is chosen, and what the plain one writes and when."""

import io
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from threading import Event

import pytest
import report_samples as samples
from progress_samples import Clock, Terminal, at_share, show, working_off
from rich.console import Console
from rich.live import Live

from dpa.driver._progress import RunProgress
from dpa.errors import ConfigError
from dpa.protocol.graph import REDUCER
from dpa.protocol.wire.metrics import Snapshot
from dpa.report import MODES, make_progress, progress_in_python
from dpa.report._panel import RichProgress
from dpa.report._plain import REDISTRIBUTION_LINES, PlainProgress
from dpa.report._plain import ProgressDisplay as Silent
from dpa.telemetry.observers import Observers
from dpa.telemetry.tracker import RunTracker


def fed(snapshots: list[Snapshot], seconds_apart: float) -> list[str]:
    """The lines that the plain view writes after `stream`, from snapshots that many seconds apart."""
    clock, stream, tracker = Clock(), io.StringIO(), RunTracker()
    progress = PlainProgress(stream, "job", clock).__enter__()
    progress.phase("stream")
    for snapshot in snapshots:
        clock.now += seconds_apart
        progress.update(tracker.update(snapshot))
    return [line.split("job: ", 1)[1] for line in stream.getvalue().splitlines()][1:]


@pytest.mark.parametrize(
    ("mode", "stream", "terminal", "view"),
    [
        ("auto", Terminal(), "xterm", RichProgress),
        ("auto", io.StringIO(), "xterm", PlainProgress),
        ("rich", io.StringIO(), "xterm", RichProgress),
        ("plain", Terminal(), "xterm", PlainProgress),
        ("none", Terminal(), "xterm", Silent),
        ("auto", Terminal(), "dumb", PlainProgress),  # it cannot move its cursor
    ],
)
def test_the_mode_and_the_stream_choose_the_view(
    mode: str, stream: io.StringIO, terminal: str, view: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", terminal)
    assert type(make_progress(mode, stream)) is view
    monkeypatch.setattr(Terminal, "encoding", "latin-1")
    assert mode != "auto" or type(make_progress(mode, stream)) is PlainProgress, "it lacks block characters"


@pytest.mark.parametrize("mode", MODES)
def test_every_view_takes_a_whole_run_and_leaves_stdout_alone(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    for given in ((io.StringIO(), "job"), ()):
        with make_progress(mode, *given) as progress:
            progress.phase("startup")
            progress.phase("stream")
            show(progress, *samples.snapshots())
            progress.phase("merge")
        written = capsys.readouterr()
        assert written.out == "" and (written.err == "") == (mode == "none" or bool(given))
    with pytest.raises(ConfigError, match="'fancy' is unknown; use one of auto, rich, plain, none"):
        make_progress("fancy")


def test_in_python_a_short_run_shows_nothing_unless_it_warns_and_a_longer_one_few_lines() -> None:
    def patient(stream: io.StringIO, clock: Clock) -> PlainProgress:
        return PlainProgress(stream, "job", clock, after=10.0, apart=5.0)

    stream, clock, tracker = io.StringIO(), Clock(), RunTracker()
    with patient(stream, clock) as progress:
        progress.phase("stream")
        show(progress, *samples.snapshots())
        progress.ended("failed")
    assert stream.getvalue() == ""
    with patient(stream, clock) as progress:
        progress.phase("load")
        clock.now += 3
        progress.warn("a record was skipped")
        progress.phase("merge")
        progress.ended("ok")
    assert stream.getvalue().splitlines() == [
        "[    0.0 s] job: load",
        "[    3.0 s] job: warning: a record was skipped",
        "[    3.0 s] job: merge",
        "[    3.0 s] job: done",
    ]
    with patient(stream, clock) as progress:
        progress.phase("stream")
        for share in range(1, 101):
            clock.now += 0.2
            progress.update(tracker.update(at_share(share / 100)))
    lines = [line for line in stream.getvalue().splitlines() if " read, " in line and "ended" not in line]
    times = [float(line[1:9]) for line in lines]
    assert len(times) == 4 and all(later - earlier >= 5 for earlier, later in pairwise(times))


def drawn_after(seconds: float, leave: Callable[[], object]) -> str:
    terminal = Terminal()
    console = Console(file=terminal, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"})
    with RichProgress(None, "job", console=console, refresh_thread=False, after=seconds) as progress:
        progress.phase("stream")
        progress.warn("soon")
        leave()
        progress.ended("failed")
    return terminal.getvalue()


def test_a_panel_comes_when_a_run_has_lasted_and_a_warning_at_once() -> None:
    assert drawn_after(1_000.0, lambda: None).count("soon") == 1
    assert "╭─" not in drawn_after(1_000.0, lambda: None)
    opened = Event()
    with pytest.MonkeyPatch.context() as patched:
        real = Live.start
        patched.setattr(Live, "start", lambda *given: (real(*given), opened.set()))
        assert "╭─" in drawn_after(0.001, lambda: opened.wait(30))


@pytest.mark.parametrize(
    ("progress", "view"),
    [("auto", PlainProgress), (True, PlainProgress), (False, Silent), ("none", Silent), ("rich", RichProgress)],
)
def test_the_argument_of_run_makes_the_view(progress: bool | str, view: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPA_PROGRESS", raising=False)
    assert type(progress_in_python(progress, "job", is_observed=False)) is view
    if progress == "auto":
        assert type(progress_in_python(progress, "job", is_observed=True)) is Silent
        with ThreadPoolExecutor(1) as pool:  # of several jobs in threads none shows itself
            assert type(pool.submit(progress_in_python, "auto", "job", is_observed=False).result()) is Silent
        monkeypatch.setenv("DPA_PROGRESS", "none")
        assert type(progress_in_python(progress, "job", is_observed=False)) is Silent


def test_every_tenth_of_the_input_is_a_line_but_not_more_than_one_a_second_and_at_least_one_in_30_seconds() -> None:
    written = fed([at_share(share / 20) for share in range(1, 21)], seconds_apart=5)
    assert [line.split(" ")[1] for line in written] == [f"{tenth}0.0%" for tenth in range(1, 11)]
    assert len(fed([at_share(share / 100) for share in range(1, 101)], seconds_apart=0.03)) == 2
    assert len(fed([at_share(0.05)] * 13, seconds_apart=10)) == 4
    written = fed([working_off(10.0 + step, 1_200_000 * step) for step in range(1, 21)], seconds_apart=2)
    shares = [line.split(" read, ")[1].split(" of ")[0] for line in written]  # of the records, once all rows are read
    assert shares == ["1.20M", "2.40M", "4.80M", "7.20M", "9.60M", "12.0M", "14.4M", "16.8M", "19.2M", "21.6M", "24.0M"]
    (written,) = fed([at_share(0.5, rows=0)] * 4, seconds_apart=10)  # of unknown length
    assert written.startswith("stream: 10.0M rows read, 11.9M of 12.0M emitted records processed (")


def test_a_line_says_how_far_how_fast_and_how_loaded_also_while_reducers_work_off_their_queues() -> None:
    (written,) = fed([at_share(0.5)], seconds_apart=2)
    assert re.fullmatch(
        r"stream: 50.0% of 20,000,000 rows read, 11.9M of 12.0M emitted records processed \(4.77M/s\), "
        r"longest queue [0-9.]+k \(reducer [0-9]\), 0 redistributions",
        written,
    )
    written = fed([working_off(10.0, 12_000_000), working_off(40.0, 18_000_000)], seconds_apart=30)[-1]
    assert written.startswith(
        "stream: 100.0% of 20,000,000 rows read, 18.0M of 24.0M emitted records processed (200k/s), "
        "longest queue 6.00M (reducer 0)"
    )
    lines = fed([samples.graph_snapshot(at=at) for at in (0.0, 1.5, 3.0)], seconds_apart=30)
    assert lines[-1].endswith("longest queue 30.0k (priced 0), 2 redistributions, priced limits the run")
    assert lines[0].startswith("redistribution 1 for priced 1: ")


def test_each_redistribution_and_each_change_of_tasks_is_written_once_with_its_reason_and_many_are_counted() -> None:
    snapshot = samples.snapshot(4.9, rounds=2)
    written = fed([snapshot, snapshot], seconds_apart=0.1)
    assert len(written) == 2
    assert written[0].startswith("redistribution 1 for reducer 1: queue of 131,072 exceeds")
    written = fed([samples.snapshot(4.9, rounds=500)], seconds_apart=0.1)
    assert len(written) == REDISTRIBUTION_LINES + 1
    assert written[-1] == "more redistributions follow; from here on they are only counted"
    steps = (samples.moved(), samples.grown())
    lines = fed([replace(samples.snapshot(at), steps=steps[: round(at)]) for at in (0.4, 1.0, 2.0, 2.4)], 2.0)
    first, second = (line for line in lines if " is " in line or " came" in line)
    assert first.endswith("reducer: 0 is 4 now: asked for")
    assert second.endswith("reducer: 5, 6 came: busy 97% of the time for 2.0 s")


@contextmanager
def plain(stream: io.StringIO, clock: Clock | None = None, name: str = "job") -> Iterator[PlainProgress]:
    with PlainProgress(stream, name, clock or Clock()) as progress:
        progress.phase("stream")
        yield progress


def test_the_end_of_the_stream_is_summed_up() -> None:
    clock, stream = Clock(), io.StringIO()
    with plain(stream, clock) as progress:
        clock.now += 5
        show(progress, samples.snapshot(5.0, rounds=1))
        progress.phase("merge")
    written = stream.getvalue()
    assert "stream ended: 20,000,000 rows read, 24,000,000 records processed, 1 redistribution\n" in written
    assert "decisions: 150 below threshold, 5 rounds used up, 1 applied" in written
    assert written.endswith("[    5.0 s] job: merge\n[    5.0 s] job: done\n")


def test_the_last_line_says_how_the_run_ended() -> None:
    for status, line in (
        ("ok", "done"),
        ("failed", "failed in stream"),
        ("mismatch", "done, but the result differs from the reference"),
    ):
        stream = io.StringIO()
        with plain(stream) as progress:
            show(progress, at_share(0.5))
            progress.ended(status)
        assert stream.getvalue().splitlines()[-1].endswith(f"job: {line}")
        assert status == "ok" or "job: done\n" not in stream.getvalue()
        assert status != "failed" or "stream ended" not in stream.getvalue()
    with pytest.raises(KeyboardInterrupt), plain(stream):
        raise KeyboardInterrupt
    assert stream.getvalue().endswith("job: stopped in stream by KeyboardInterrupt\n")


@pytest.mark.parametrize("last", ["merge", "done"])
def test_the_end_of_the_stream_is_summed_up_from_its_last_numbers(last: str) -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, "job", Clock())
    run = RunProgress(Observers(progress))
    run.enter("startup")
    for share, phase in ((0.5, "stream"), (0.8, "stream"), (1.0, last), (1.0, "done")):
        run.update(at_share(share, phase=phase))
    assert [line.split("job: ")[1].split(",000 records")[0] for line in stream.getvalue().splitlines()] == [
        "startup",
        "stream",
        "stream ended: 20,000,000 rows read, 24,000",
        "decisions: 150 below threshold, 5 rounds used up",
        "merge",
    ]


def test_lines_hold_no_control_characters_escapes_where_a_stream_is_not_utf_8_and_nobody_need_read_them() -> None:
    stream = io.StringIO()
    nasty = samples.decision(reason="key \x1b[31m\nred\r \u202e")
    with plain(stream, name="jo\x1bb") as progress:
        progress.phase("st\nream\x07")
        show(progress, samples.with_stage(at_share(0.5), REDUCER, decisions=(nasty,)))
    assert all(line.isprintable() for line in stream.getvalue().split("\n"))
    raw = io.BytesIO()
    with plain(io.TextIOWrapper(raw, encoding="ascii")) as progress:
        progress.phase("東京")
        assert b"\\u6771\\u4eac" in raw.getvalue()

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with plain(Gone()) as progress:
        show(progress, at_share(0.5))
    stream.close()
    with make_progress("auto", stream) as progress:
        progress.phase("stream")
