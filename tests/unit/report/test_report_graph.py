"""The picture of a run's graph: what is on it, and that it is one look to the bottleneck."""

from __future__ import annotations

import pytest
import report_samples as samples
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch

from dpa.report._pictures import picture
from dpa.report.plots import COLOURS
from dpa.result import Report

REPORTS = {
    "one source": Report("failed", "job", stages=samples.graph_report().stages[:1]),
    "two stages": samples.report(),
    "three stages": samples.graph_report(samples.CHAIN, "ranked"),
    "seven stages": samples.graph_report(),
}
WARNING = COLOURS[5]


def texts(report: Report) -> list[str]:
    return [text.get_text() for text in picture(report).axes[0].texts]


def boxes(figure: Figure) -> list[FancyBboxPatch]:
    """Of each stage what lies behind it, what is filled, and the frame."""
    return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyBboxPatch)]


def lines(figure: Figure) -> list[PathPatch]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_every_graph_is_a_picture_with_a_box_a_stage_and_a_line_an_edge(report: Report) -> None:
    figure = picture(report)
    assert len(boxes(figure)) == 3 * len(report.stages)
    assert len(lines(figure)) == len(report.edges)


def test_a_stage_shows_tasks_skew_busy_and_blocked_share_and_queue_and_an_edge_its_records() -> None:
    assert texts(samples.report()) == [
        "mapper",
        "2 tasks, 20.0M rows",
        "busy 55%, busiest 55%",
        "blocked 31%",
        "reducer",
        "4 tasks, S 0.034",
        "busy 65%, busiest 68%",
        "blocked 0%",
        "queue 26.1k, peak 122k",
        "24.0M",
    ]


def test_a_stage_is_filled_by_its_busy_share_and_a_blocked_share_that_is_long_stands_out() -> None:
    figure = picture(samples.report())
    back, filled, _ = boxes(figure)[:3]
    assert filled.get_width() == pytest.approx(0.55 * back.get_width())
    warned = [text.get_text() for text in figure.axes[0].texts if to_hex(text.get_color()) == WARNING]
    assert warned == ["blocked 31%"]


def test_the_stage_that_limits_the_run_and_it_alone_is_framed() -> None:
    report = samples.graph_report()
    frames = boxes(picture(report))[2::3]
    heavy = [stage.name for stage, frame in zip(report.stages, frames, strict=True) if frame.get_linewidth() > 1]
    assert heavy == ["priced"]


def test_edges_that_hold_up_their_sender_warn_and_are_as_wide_as_their_records() -> None:
    report = samples.graph_report()
    drawn = lines(picture(report))
    assert [to_hex(line.get_edgecolor()) == WARNING for line in drawn] == [edge.blocked for edge in report.edges]
    assert {(edge.source, edge.target) for edge in report.edges if edge.blocked} == {
        ("trades", "big"),
        ("trades", "small"),
        ("quotes", "priced"),
        ("big", "priced"),
    }
    by_records = sorted(
        zip((edge.records for edge in report.edges), (line.get_linewidth() for line in drawn), strict=True)
    )
    assert [width for _, width in by_records] == sorted(width for _, width in by_records)


def test_a_long_name_is_broken_and_not_cut() -> None:
    name = "audited trades of the day and of the night before"
    shown = texts(samples.graph_report((("read", name), (name, "last")), name))
    assert shown[4:6] == ["audited trades of the day", "and of the night before"]
