"""Progress: which view is chosen, what the plain one writes and when, and that the panel shows all and cleans up."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import replace

import pytest
import report_samples as samples
from rich.console import Console

from dpa.driver.run import Run
from dpa.errors import ConfigError
from dpa.job import Job
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.metrics import Snapshot, TaskStats
from dpa.report import MODES, make_progress
from dpa.report._live import REDISTRIBUTION_LINES, NoProgress, PlainProgress
from dpa.report._panel import Panel, PanelState, RichProgress
from dpa.report._tracker import RunTracker
from dpa.testing import LocalBackend


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def at_share(share: float, **changes: object) -> Snapshot:
    return replace(samples.snapshot(samples.SECONDS * share, rounds=0), **changes)


def fed(snapshots: list[Snapshot], seconds_apart: float) -> list[str]:
    """The lines that the plain view writes after `stream`, from snapshots that many seconds apart."""
    clock, stream = Clock(), io.StringIO()
    progress = PlainProgress(stream, "job", clock).__enter__()
    progress.phase("stream")
    for snapshot in snapshots:
        clock.now += seconds_apart
        progress.update(snapshot)
    return [line.split("job: ", 1)[1] for line in stream.getvalue().splitlines()][1:]


# --- which view


@pytest.mark.parametrize(
    ("mode", "stream", "view"),
    [
        ("auto", Terminal(), RichProgress),
        ("auto", io.StringIO(), PlainProgress),
        ("rich", io.StringIO(), RichProgress),
        ("plain", Terminal(), PlainProgress),
        ("none", Terminal(), NoProgress),
    ],
)
def test_the_mode_and_the_stream_choose_the_view(
    mode: str, stream: io.StringIO, view: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert type(make_progress(mode, stream)) is view


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_progress("auto", Terminal())) is PlainProgress


def test_a_terminal_that_lacks_block_characters_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(Terminal, "encoding", "latin-1")
    assert type(make_progress("auto", Terminal())) is PlainProgress


def test_a_closed_stream_gets_lines_that_nobody_reads() -> None:
    stream = io.StringIO()
    stream.close()
    with make_progress("auto", stream) as progress:
        progress.phase("stream")


def test_an_unknown_mode_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'fancy' is unknown; use one of auto, rich, plain, none"):
        make_progress("fancy")


@pytest.mark.parametrize("mode", MODES)
def test_every_view_takes_a_whole_run(mode: str) -> None:
    with make_progress(mode, io.StringIO(), "job") as progress:
        progress.phase("startup", "Ray")
        progress.phase("stream")
        for snapshot in samples.snapshots():
            progress.update(snapshot)
        progress.phase("merge")


def test_progress_leaves_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for mode in MODES:
        with make_progress(mode) as progress:
            progress.phase("stream")
            progress.update(samples.snapshot(2.0))
    assert capsys.readouterr().out == ""


def test_none_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with make_progress("none") as progress:
        progress.phase("stream")
        progress.update(samples.snapshot(2.0))
    assert capsys.readouterr() == ("", "")


# --- plain


def test_every_tenth_of_the_input_is_a_line() -> None:
    written = fed([at_share(share / 20) for share in range(1, 21)], seconds_apart=5)
    assert [line.split(" ")[1] for line in written] == [f"{tenth}0.0%" for tenth in range(1, 11)]


def test_a_fast_job_writes_at_most_a_line_a_second() -> None:
    assert len(fed([at_share(share / 100) for share in range(1, 101)], seconds_apart=0.03)) == 2


def test_a_slow_job_writes_a_line_every_30_seconds() -> None:
    assert len(fed([at_share(0.05)] * 13, seconds_apart=10)) == 4


def test_an_input_of_unknown_length_is_reported_by_time() -> None:
    written = fed([at_share(0.5, rows=0)] * 4, seconds_apart=10)
    assert len(written) == 1
    assert written[0].startswith("stream: 10.0M rows read, 11.9M of 12.0M emitted records processed (")


def test_a_line_says_how_far_how_fast_and_how_loaded() -> None:
    (written,) = fed([at_share(0.5)], seconds_apart=2)
    assert re.fullmatch(
        r"stream: 50.0% of 20,000,000 rows read, 11.9M of 12.0M emitted records processed \(4.77M/s\), "
        r"longest queue [0-9.]+k \(reducer [0-9]\), 0 redistributions",
        written,
    )


def working_off(at: float, processed: int) -> Snapshot:
    """A snapshot with all rows read and 24 million records emitted, of which `processed` are processed."""
    last = samples.snapshot(samples.SECONDS)
    reducer = replace(last[REDUCER].tasks[0], processed=processed, queue=24_000_000 - processed)
    return replace(samples.with_stage(last, REDUCER, tasks=(reducer,), decisions=()), at=at)


def test_while_reducers_work_off_their_queues_a_line_says_how_far_and_how_fast_they_are() -> None:
    written = fed([working_off(10.0, 12_000_000), working_off(40.0, 18_000_000)], seconds_apart=30)
    assert written[-1].startswith(
        "stream: 100.0% of 20,000,000 rows read, 18.0M of 24.0M emitted records processed (200k/s), "
        "longest queue 6.00M (reducer 0)"
    )


def test_once_all_rows_are_read_every_tenth_of_the_records_is_a_line() -> None:
    done = [working_off(10.0 + step, 1_200_000 * step) for step in range(1, 21)]
    written = fed(done, seconds_apart=2)
    shares = [line.split(" read, ")[1].split(" of ")[0] for line in written]
    assert shares == ["1.20M", "2.40M", "4.80M", "7.20M", "9.60M", "12.0M", "14.4M", "16.8M", "19.2M", "21.6M", "24.0M"]


def test_each_redistribution_is_written_once_with_its_reason() -> None:
    snapshot = samples.snapshot(4.9, rounds=2)
    written = fed([snapshot, snapshot], seconds_apart=0.1)
    assert len(written) == 2
    assert written[0].startswith("redistribution 1 for reducer 1: queue of 131,072 exceeds")


def test_many_redistributions_are_counted_rather_than_written() -> None:
    written = fed([samples.snapshot(4.9, rounds=500)], seconds_apart=0.1)
    assert len(written) == REDISTRIBUTION_LINES + 1
    assert written[-1] == "more redistributions follow; from here on they are only counted"


def test_the_end_of_the_stream_is_summed_up() -> None:
    clock, stream = Clock(), io.StringIO()
    with PlainProgress(stream, "job", clock) as progress:
        progress.phase("stream")
        clock.now += 5
        progress.update(samples.snapshot(5.0, rounds=1))
        progress.phase("merge", "4 reducers")
    written = stream.getvalue()
    assert "stream ended: 20,000,000 rows read, 24,000,000 records processed, 1 redistribution\n" in written
    assert "decisions: 150 below threshold, 5 rounds used up, 1 applied" in written
    assert written.endswith("[    5.0 s] job: merge: 4 reducers\n[    5.0 s] job: done\n")


@pytest.mark.parametrize(
    ("status", "line"),
    [("ok", "done"), ("failed", "failed in merge"), ("mismatch", "done, but the result differs from the reference")],
)
def test_the_last_line_says_how_the_run_ended(status: str, line: str) -> None:
    stream = io.StringIO()
    with PlainProgress(stream, "job", Clock()) as progress:
        progress.phase("merge")
        progress.ended(status)
    assert stream.getvalue().splitlines()[-1].endswith(f"job: {line}")
    assert status == "ok" or "job: done\n" not in stream.getvalue()


def test_a_stream_that_failed_is_not_said_to_have_ended() -> None:
    stream = io.StringIO()
    with PlainProgress(stream, "job", Clock()) as progress:
        progress.phase("stream")
        progress.update(at_share(0.5))
        progress.ended("failed")
    assert "stream ended" not in stream.getvalue()


@pytest.mark.parametrize("last", ["merge", "done"])
def test_the_end_of_the_stream_is_summed_up_from_its_last_numbers(last: str) -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, "job", Clock())
    job = Job(input=[{"key": 1}], reducer="count")
    run = Run(job.spec, LocalBackend(), progress)
    run._enter("startup")
    for share, phase in ((0.5, "stream"), (0.8, "stream"), (1.0, last), (1.0, "done")):
        run._update(at_share(share, phase=phase))
    assert [line.split("job: ")[1].split(",000 records")[0] for line in stream.getvalue().splitlines()] == [
        "startup",
        "stream",
        "stream ended: 20,000,000 rows read, 24,000",
        "decisions: 150 below threshold, 5 rounds used up",
        "merge",
    ]


def test_an_exception_is_named_and_passed_on() -> None:
    stream = io.StringIO()

    def interrupted() -> None:
        with PlainProgress(stream, "job", Clock()) as progress:
            progress.phase("load")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().endswith("job: stopped in load by KeyboardInterrupt\n")


def test_lines_hold_no_control_characters() -> None:
    stream = io.StringIO()
    nasty = samples.decision(reason="key \x1b[31m\nred\r \u202e")
    with PlainProgress(stream, "jo\x1bb", Clock()) as progress:
        progress.phase("st\nream", "detail\x07")
        progress.update(samples.with_stage(at_share(0.5), REDUCER, decisions=(nasty,)))
    assert all(line.isprintable() for line in stream.getvalue().split("\n"))


def test_a_stream_that_is_not_utf_8_gets_escapes() -> None:
    raw = io.BytesIO()
    with PlainProgress(io.TextIOWrapper(raw, encoding="ascii"), "job", Clock()) as progress:
        progress.phase("load", "東京")
        assert b"load: \\u6771\\u4eac" in raw.getvalue()


def test_a_reader_that_went_away_does_not_stop_the_job() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with PlainProgress(Gone(), "job", Clock()) as progress:
        progress.phase("stream")
        progress.update(at_share(0.5))


# --- what is derived


def test_rates_are_of_the_last_seconds() -> None:
    tracker = RunTracker()
    for second in range(20):
        mapped = 1_000 * min(second, 10) + 10 * max(second - 10, 0)
        mapper = replace(samples.snapshot(0)[MAPPER].tasks[0], mapped=mapped)
        tracker.update(replace(samples.with_stage(samples.snapshot(1.0), MAPPER, tasks=(mapper,)), at=float(second)))
    assert tracker.totals.mapped_rate == pytest.approx(10)


def test_a_recovery_that_rolls_counts_back_gives_no_rate_below_zero() -> None:
    tracker = RunTracker()
    tracker.update(samples.snapshot(4.0))
    tracker.update(replace(samples.snapshot(2.0), at=4.5))
    assert tracker.totals.mapped_rate == 0
    assert tracker.totals.processed_rate == 0


def test_redistributions_that_were_dropped_from_the_snapshot_still_count() -> None:
    tracker = RunTracker()
    tracker.update(samples.snapshot(4.9, rounds=3))
    assert tracker.update(samples.snapshot(4.9, rounds=3, decisions=(samples.decision(version=9),), decision_counts={}))
    assert tracker.totals.redistributions == 4


def test_no_time_left_is_estimated_before_the_first_second() -> None:
    tracker = RunTracker()
    tracker.update(samples.snapshot(0.5))
    assert tracker.totals.seconds_left is None
    tracker.update(samples.snapshot(2.5))
    assert tracker.totals.seconds_left == pytest.approx(2.5, rel=0.05)


def test_the_time_left_counts_what_is_queued() -> None:
    tracker = RunTracker()
    tracker.update(working_off(10.0, 12_000_000))
    tracker.update(working_off(14.0, 16_000_000))
    assert tracker.totals.seconds_left == pytest.approx(8.0)


def test_the_time_left_counts_the_records_of_rows_that_are_not_read_yet() -> None:
    half = [at_share(0.5, at=at) for at in (10.0, 14.0)]
    slow = [
        samples.with_stage(found, REDUCER, tasks=(replace(found[REDUCER].tasks[0], processed=done),))
        for found, done in zip(half, (2_000_000, 4_000_000), strict=True)
    ]
    tracker = RunTracker()
    for snapshot in slow:
        tracker.update(snapshot)
    assert tracker.totals.seconds_left == pytest.approx((24_000_000 - 4_000_000) / 500_000)


# --- rich


def panel(reducers: int, width: int, height: int, at: float = 3.2, **changes: object) -> str:
    """The panel as text."""
    console = Console(file=io.StringIO(), width=width, height=height, record=True, markup=False, highlight=False)
    clock = Clock()
    progress = RichProgress(None, "wordcount", clock, console=console, refresh_thread=False)
    progress.phase("stream", "from data/words.parquet")
    for snapshot in samples.snapshots(reducers):
        if snapshot.at <= at:
            progress.update(samples.with_stage(snapshot, REDUCER, **changes))
    console.print(Panel(progress.state, clock()))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 100, 132])
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
        "stream 0.0 s  from data/words.parquet",
        "64.0% of 20.0M rows, about 0:02 left",
        "15.4M mapped (4.80M/s)",
        "latency  p99 3.05 s",
        "4 redistributions  (decided against: 96 below threshold, 3 rounds used up)",
        "3.2 s  reducer 1  queue of 131,072 exceeds 1.2 times the second longest,",
    ):
        assert expected in drawn
    assert re.search(r"1  █+.*▏  67\.6k      6\.69M  43\.9%", drawn)


def test_once_all_rows_are_read_the_bar_shows_what_the_reducers_have_yet_to_do() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, record=True)
    progress = RichProgress(None, "job", Clock(), console=console, refresh_thread=False)
    progress.phase("stream")
    for snapshot in (working_off(10.0, 12_000_000), working_off(14.0, 16_000_000)):
        progress.update(snapshot)
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
    assert re.search(r"and [0-9]+ more reducers with [0-9.]+M records queued, at most [0-9.]+k", drawn)
    assert re.search(r"  1 █", drawn)


def test_every_reducer_is_shown_if_there_is_room() -> None:
    drawn = panel(64, 120, 50)
    assert "more reducers" not in drawn
    for reducer in range(64):
        assert re.search(rf"(?<!\d) {reducer} [█▏▎▍▌▋▊▉ ]", drawn)


@pytest.mark.parametrize("tasks", [(), (TaskStats(REDUCER, 0),)])
def test_a_run_that_has_hardly_begun_can_be_drawn(tasks: tuple[TaskStats, ...]) -> None:
    state = PanelState("job", 0.0, phase="stream", snapshot=samples.snapshot(0.0, tasks=tasks))
    console = Console(file=io.StringIO(), width=80, height=24, record=True)
    console.print(Panel(state, 0.1))
    assert "0 mapped (0/s), 0 processed (0/s), 0 in flight" in console.export_text()


def test_the_panel_shows_no_control_characters_of_a_reason() -> None:
    drawn = panel(4, 80, 24, decisions=(samples.decision(reason="[red]key[/red] \x1b[2J\nnext"),))
    assert "[red]key[/red] \\x1b[2J\\nnext" in drawn


def test_before_the_first_snapshot_the_panel_shows_the_phase() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, record=True)
    console.print(Panel(PanelState("job", 0.0, phase="load", detail="words.parquet"), 3.0))
    assert "load 3.0 s  words.parquet" in console.export_text()


def test_a_warning_is_a_line_of_the_plain_view_and_stands_above_the_panel() -> None:
    stream, terminal = io.StringIO(), Terminal()
    PlainProgress(stream, "job", Clock()).warn("reducer 1 has\nbeen at one step")
    assert stream.getvalue() == "[    0.0 s] job: warning: reducer 1 has\\nbeen at one step\n"
    console = Console(file=terminal, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"})
    with RichProgress(None, "job", Clock(), console=console, refresh_thread=False) as progress:
        progress.warn("reducer 1 has been at one step")
    written = terminal.getvalue()
    assert "warning: reducer 1 has been at one step" in written.replace(CURSOR_OFF, "")


CURSOR_OFF, CURSOR_ON = "\x1b[?25l", "\x1b[?25h"


def drawn_on_terminal(error: BaseException | None, status: str = "ok") -> str:
    terminal = Terminal()
    console = Console(file=terminal, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"})
    progress = RichProgress(None, "job", Clock(), console=console, refresh_thread=False)
    with contextlib.suppress(KeyboardInterrupt, ValueError), progress:
        progress.phase("stream")
        progress.update(samples.snapshot(2.0))
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
    for at in (0.0, 1.0, 2.0, 3.0):
        progress.update(samples.graph_snapshot(at=at, limit=limit))
    console.print(Panel(progress.state, 100.0))
    return console.export_text()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 50), (132, 30)])
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


def test_a_line_names_the_stage_that_limits_the_run() -> None:
    lines = fed([samples.graph_snapshot(at=at) for at in (0.0, 1.5, 3.0)], seconds_apart=30)
    assert lines[-1].endswith("longest queue 30.0k (priced 0), 2 redistributions, priced limits the run")
    assert lines[0].startswith("redistribution 1 for priced 1: ")


def test_the_load_of_a_stage_is_of_the_last_seconds() -> None:
    tracker = RunTracker()
    for at in (0.0, 10.0):
        tracker.update(samples.graph_snapshot(at=at))
    idle = samples.graph_snapshot(at=10.0)
    for second in range(11, 20):
        tracker.update(replace(idle, at=float(second)))
    assert all(stage.load.busy == stage.load.blocked == stage.rate == 0 for stage in tracker.totals.stages)
    assert tracker.totals.bottleneck.kind == "none"
