"""The drawing of a run's graph: what is on it, and that it is one look to the bottleneck."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import report_samples as samples

from dpa.report._graph import NAME_CHARACTERS, draw
from dpa.result import Report

REPORTS = {
    "one source": Report("failed", "job", stages=samples.graph_report().stages[:1]),
    "two stages": samples.report(),
    "three stages": samples.graph_report(samples.CHAIN, "ranked"),
    "seven stages": samples.graph_report(),
}


def texts(report: Report) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(draw(report)).iter("text")]


def classes(report: Report, tag: str) -> list[str]:
    return [element.get("class", "") for element in ElementTree.fromstring(draw(report)).iter(tag)]


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_every_graph_is_a_drawing_with_a_box_a_stage_and_a_labelled_line_an_edge(report: Report) -> None:
    assert classes(report, "rect").count("frame") == len(report.stages)
    assert sum(name.startswith("edge") for name in classes(report, "path")) == len(report.edges)
    assert sum(name.startswith("label") for name in classes(report, "text")) == len(report.edges)


def test_nothing_is_drawn_of_a_job_that_had_no_stages() -> None:
    assert draw(samples.empty_report()) == ""


def test_a_stage_shows_tasks_skew_busy_and_blocked_share_and_queue() -> None:
    shown = texts(samples.report())
    assert shown[:4] == ["24.0M", "mapper", "2 tasks, 20.0M rows", "busy 55%, busiest 55%"]
    assert shown[5:] == ["reducer", "4 tasks, S 0.034", "busy 65%, busiest 68%", "blocked 0%", "queue 26.1k, peak 122k"]


def test_the_stage_that_limits_the_run_and_it_alone_is_framed() -> None:
    drawing = draw(samples.graph_report())
    assert re.findall(r'class="limit"><title>(.*?)</title>', drawing) == ["priced"]


def test_edges_that_hold_up_their_sender_warn_and_are_as_wide_as_their_records() -> None:
    report = samples.graph_report()
    lines = re.findall(r'class="edge( warns)?" .*? stroke-width="(.*?)"', draw(report))
    assert [bool(warns) for warns, _ in lines] == [edge.blocked for edge in report.edges]
    assert {(edge.source, edge.target) for edge in report.edges if edge.blocked} == {
        ("trades", "big"),
        ("trades", "small"),
        ("quotes", "priced"),
        ("big", "priced"),
    }
    by_records = sorted(zip((edge.records for edge in report.edges), (float(width) for _, width in lines), strict=True))
    assert [width for _, width in by_records] == sorted(width for _, width in by_records)


def test_a_long_name_is_cut_and_given_in_full_beside() -> None:
    drawing = draw(samples.graph_report())
    assert "<title>audited trades of the day</title>" in drawing
    assert f">{'audited trades of the day'[: NAME_CHARACTERS - 1]}…<" in drawing


def test_markup_in_a_name_is_text() -> None:
    edges = (("<b>read</b>", "a & b"), ("a & b", "c"))
    assert "<b>read</b>" in texts(samples.graph_report(edges, "a & b"))
