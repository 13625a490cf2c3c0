"""Where the time goes until readers see what a row has changed: on the terminal, in a view, in words."""

from __future__ import annotations

import io
import re

import pytest
import report_samples as samples

from dpa.door.view import view_of_report
from dpa.protocol.wire.epochs import EpochPhase, EpochStats, EpochWait, PhaseStats
from dpa.report import show
from dpa.result import RecordTimes, Report

ROWS = 1_000_000
OF_ROWS = {
    EpochPhase.WAITING: 0.1,
    EpochPhase.SOURCES: 0.02,
    EpochPhase.QUEUES: 0.08,
    EpochPhase.TABLES: 0.001,
    EpochPhase.RESULTS: 0.05,
    EpochPhase.SNAPSHOTS: 0.0,
    EpochPhase.COMMIT: 0.06,
}
EPOCHS = EpochStats(
    10,
    2.5,
    0.9,
    EpochWait("reducer 1", "published its share", 0.4),
    ROWS,
    tuple(PhaseStats(phase, 10, 2.0, 0.5, seconds * ROWS) for phase, seconds in OF_ROWS.items()),
)


def shown(report: Report, width: int = 80, *, verbose: bool = True) -> str:
    stream = io.StringIO()
    show(report, stream, width=width, verbose=verbose)
    return stream.getvalue()


def table(text: str) -> list[str]:
    [found] = re.findall(r"^until readers see .*?\n\n", text, re.MULTILINE | re.DOTALL)
    return found.splitlines()


def test_one_line_says_when_a_row_is_visible_and_what_it_waited_for() -> None:
    text = " ".join(shown(samples.report(epochs=EPOCHS), 200).split())
    assert "epochs 10 ended sources waited 0.25 s each, 0.90 s at most" in text
    waited = "0.10 s waiting, 20 ms sources, 80 ms queues, 50 ms results, 60 ms commit"
    assert f"visible 0.31 s after a row was read {waited} time" in text
    assert "visible" not in shown(samples.report(epochs=EpochStats(3, 0.1, 0.1)))
    brief = shown(samples.report(epochs=EPOCHS), verbose=False)
    assert "\nlatency    p99 1.12 s  median 31.2 ms; readers see a row 0.31 s after it is read\n" in brief


def test_a_table_has_each_phase_of_a_row_and_of_an_epoch() -> None:
    found = table(shown(samples.report(epochs=EPOCHS)))
    assert [line.split()[0] for line in found[2:-2]] == [phase.value for phase in OF_ROWS]
    assert re.fullmatch(r"queues  +run empty  +80 ms +0\.20 s +0\.50 s", found[4])
    assert re.fullmatch(r"snapshots  +of states are taken  +0\.20 s +0\.50 s", found[7]), "rows did not wait for them"
    assert found[-2].split() == ["visible", "0.31", "s"]
    assert "until readers see" not in shown(samples.report(epochs=EPOCHS), verbose=False)


def test_where_no_reader_has_seen_a_row_the_phases_are_of_epochs_alone() -> None:
    checkpoints = EpochStats(2, 1.0, 0.6, phases=(PhaseStats(EpochPhase.SNAPSHOTS, 2, 1.0, 0.6),))
    text = shown(samples.report(epochs=checkpoints))
    assert re.search(r"^the ends of epochs\n.*\nsnapshots +of states are taken +0\.50 s +0\.60 s$", text, re.MULTILINE)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_table_fits_with_the_longest_words(width: int) -> None:
    phases = tuple(PhaseStats(phase, 1, 7_200.0, 7_200.0, 7_200.0) for phase in EpochPhase)
    found = table(shown(samples.report(epochs=EpochStats(1, 1.0, 1.0, None, 1, phases)), width))
    assert max(map(len, found)) <= width
    assert all(phase.words in " ".join(found) for phase in EpochPhase)


def test_the_view_has_the_phases_of_a_row_and_of_an_epoch() -> None:
    epochs = view_of_report(samples.report(epochs=EPOCHS))["epochs"]
    assert list(epochs["phases"]) == [phase.value for phase in OF_ROWS]
    assert epochs["phases"]["queues"].items() >= {"row": 0.08, "mean": 0.2, "longest": 0.5, "seconds": 2.0}.items()
    assert epochs["visible_after"] == pytest.approx(0.311)


def test_the_time_of_a_record_has_a_line() -> None:
    text = " ".join(shown(samples.report(record_times=RecordTimes(0.02, 0.0001, 0.05, 0.035)), 200).split())
    spent = "20 ms until it was made, 0.1 ms for credit, 50 ms on its way and in the queue, 35 ms in its quantum"
    assert f"record 0.10 s in the mean {spent}" in text
