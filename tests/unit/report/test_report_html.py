"""The page: complete, self-contained, and deaf to whatever the data contains."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
import report_samples as samples

from dpa.errors import ConfigError
from dpa.protocol.wire.metrics import AggregationStats
from dpa.report import check_pictures
from dpa.report._html import MAX_ROWS, render
from dpa.result import GroupingReport, OutputReport, RecordCounts, ReferenceReport, Report, SkewReport

VOID = {"meta", "use", "path", "rect", "line", "circle"}


class Page(HTMLParser):
    """The tags, attributes and text of a page; fails on tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data + " "


def nasty() -> Report:
    """A report with markup wherever text can be."""
    bad = "<script>alert('x')</script>\x1b[31m&amp;\"'"
    return samples.report(
        name=bad,
        status="mismatch",
        error=bad,
        hot_keys=samples.hot_keys(samples.NASTY_KEYS),
        first_table=bad,
        redistributions=(samples.decision(reason=bad),),
        decisions=(samples.decision(reason=bad),),
        decision_counts={bad: 3},
        reference=ReferenceReport(True, False, 1, (bad,)),
        output=OutputReport(bad, 1, (bad,)),
        config={bad: bad},
        versions={bad: bad},
    )


@cache
def rendered(made: Callable[[], Report]) -> str:
    """The page of a report that several tests look at: its pictures take half a second."""
    return render(made())


def test_the_page_has_every_part() -> None:
    text = " ".join(Page(rendered(samples.report)).text.split())
    for expected in (
        "wordcount ok reference: match",
        "skew S 0.034",
        "S, static 0.412",
        "S, Spark 0.398",
        "throughput 4,800,000/s records mapped",
        "redistributions 4 decisions: 150 below threshold, 5 rounds used up, 4 applied",
        "1 10,526,316 43.9%",
        "0.80 1 queue of 131,072 exceeds",
        "40,960, 131,072, 9,000, 12,500",
        "données",
        "1,876,550 to 1,878,550",
        "stream mapping and reducing 5.00 s",
        "strategy: halving",
        "pyspark 4.3.0",
    ):
        assert expected in text


def test_a_grouping_and_partial_results_are_on_the_page() -> None:
    usual = Page(rendered(samples.report)).text
    assert "grouping" not in usual and "aggregation" not in usual
    report = samples.report(grouping=GroupingReport("consistent", 1.5, 3), aggregation=AggregationStats(7, 0.5, 1_234))
    text = " ".join(Page(render(report)).text.split())
    assert "grouping consistent a key on 1.50 tasks on average, 3 parts of the keys moved" in text
    assert "aggregation published 7 times 1,234 states handed over, 0.50 s of user code" in text


def test_the_page_has_the_graph_and_three_pictures_each_described() -> None:
    page = Page(rendered(samples.report))
    assert page.tags.count("svg") == 4
    assert len([value for name, value in page.attributes if name == "aria-label" and value.endswith(".")]) == 4


def test_on_a_narrow_screen_each_value_has_its_name_and_pictures_shrink_to_the_page() -> None:
    page = rendered(samples.graph_report)
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        head = re.findall(r'<th(?: class="n")?>(.*?)</th>', table)
        for row in re.findall(r"<tr>(<td.*?)</tr>", table):
            assert re.findall(r'<td[^>]* data-name="(.*?)">', row) == head
    assert "content: attr(data-name)" in page
    widths = re.findall(r'<svg style="max-width:(\d+)px;min-width:(\d+)px"', page)
    assert len(widths) == 1 + 3 * 5
    assert {least for _, least in widths[1:]} == {"0"}


def test_identifiers_of_different_pictures_do_not_collide() -> None:
    found = [value for name, value in Page(rendered(samples.report)).attributes if name == "id" and len(value) > 8]
    pictures = re.findall(r"<svg.*?</svg>", rendered(samples.report), re.DOTALL)
    hashed = [set(re.findall(r'id="(\w*[0-9a-f]{10})"', picture)) for picture in pictures[1:]]
    assert found
    assert not hashed[0] & hashed[1]
    assert not hashed[1] & hashed[2]
    assert not hashed[0] & hashed[2]


@pytest.mark.parametrize("report", [samples.report, nasty, samples.empty_report], ids=["usual", "nasty", "empty"])
def test_the_page_fetches_and_runs_nothing(report: Callable[[], Report]) -> None:
    page = Page(rendered(report))
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name != "src"
        assert not name.endswith("href") or value.startswith("#")
    styles = re.findall(r"<style.*?</style>", rendered(report), re.DOTALL)
    assert not any(re.search(r"url\(|@import", style) for style in styles)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_markup_in_the_data_is_text_on_the_page() -> None:
    page = Page(rendered(nasty))
    assert page.text.count("<script>alert('x')</script>") >= 8
    assert "\x1b" not in page.text


def test_light_and_dark_are_the_readers_choice() -> None:
    assert "@media (prefers-color-scheme: dark)" in rendered(samples.report)


def test_a_failed_job_shows_its_error() -> None:
    page = render(samples.empty_report(status="failed", error="Traceback:\n  ValueError: <oops>"))
    assert '<pre class="bad">Traceback:\n  ValueError: &lt;oops&gt;</pre>' in page


def test_a_failed_job_whose_mappers_had_reported_nothing_yet_has_neither_static_skew_nor_throughput() -> None:
    made = samples.report(status="failed", error="no", skew=SkewReport(dpa=0.5))
    text = Page(render(replace(made, records=RecordCounts(processed=3), records_per_second=0))).text
    assert "static" not in text
    assert "throughput" not in text


def test_long_tables_are_folded_and_cut() -> None:
    page = Page(render(samples.report(2, rounds=MAX_ROWS + 10)))
    assert f"{MAX_ROWS + 10} redistributions" in page.text
    assert f"The first {MAX_ROWS} of {MAX_ROWS + 10}; all are in report.json." in page.text


def test_loads_of_many_reducers_are_summed_up() -> None:
    many = samples.decision(loads=tuple(range(0, 1_000, 10)))
    assert "990 at most, 495 on average" in Page(render(samples.report(redistributions=(many,)))).text


def test_secrets_of_the_configuration_are_hidden() -> None:
    assert "hunter2" not in render(samples.report(config={"input": {"options": {"password": "hunter2"}}}))


def test_forwards_are_no_share_of_the_records() -> None:
    made = samples.report()
    text = Page(render(replace(made, records=replace(made.records, forwarded=120_504_000)))).text
    assert "forwards 120,504,000 5.02 per record" in text
    assert "502.1" not in text


def test_a_page_without_hot_keys_says_that_there_are_none() -> None:
    made = samples.report(hot_keys=(samples.HotKey("a", 10, 0.0001, 10, 10),))
    assert "No key is hot" in Page(render(made)).text


def test_the_result_of_a_failed_job_is_not_said_to_lie_anywhere() -> None:
    failed = samples.report(status="failed", output=OutputReport(rows=7, unpublished="/data/out"))
    assert "/data/out is as it was" in Page(render(failed)).text


# --- graphs


def test_of_a_graph_the_page_has_a_section_a_stage() -> None:
    page = Page(rendered(samples.graph_report))
    text = " ".join(page.text.split())
    for stage in ("trades", "quotes", "big", "small", "priced", "audited trades of the day", "bargains"):
        assert f"Stage {stage} " in text
    assert page.tags.count("svg") == 1 + 3 * 5
    assert "priced limits the run: its busiest task, 0, is busy 97% of the time" in text
    assert "result 20 rows out/last reference match 20 rows, computed by Spark" in text


def test_the_tasks_of_a_source_are_listed() -> None:
    text = " ".join(Page(rendered(samples.report)).text.split())
    assert "task rows read mapped emitted busy blocked waiting MiB 0 10,000,000 12,000,000 12,000,000 2.75 s" in text


def test_each_stage_has_a_bar_where_it_processed_and_the_memory_of_its_largest_task() -> None:
    page = Page(rendered(samples.graph_report))
    text = " ".join(page.text.split())
    assert "0 s 5.00 s waiting queue p99 began ended trades 3 5.00M 15.0M 20% 62% 182 0% 0.00 s 3.83 s quotes 3" in text
    assert ("style", "width:76.7%") in page.attributes
    assert ("style", "margin-left:5.0%;width:75.0%") in page.attributes
    assert "Stages stage tasks" not in " ".join(Page(rendered(samples.empty_report)).text.split())


def test_the_page_calls_a_task_a_task_and_says_what_the_skew_is() -> None:
    text = Page(render(samples.graph_report(config={}))).text
    assert "reducer" not in text
    assert "0 is even, 1 is all on one task" in text
    assert "hash partitioning of the same records" in text


def test_warnings_are_on_the_page() -> None:
    assert "reducer 1 has been at one step" in render(samples.report(warnings=("reducer 1 has been at one step",)))
    assert "Warnings" not in rendered(samples.report)


def test_where_matplotlib_is_not_installed_the_page_says_so_in_place_of_each_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_pictures = Page(rendered(samples.report))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = Page(render(samples.report()))
    assert page.text.count("Left out: pictures need matplotlib: pip install 'dpa[pictures]'") > 1
    assert "svg" not in page.tags
    assert page.tags.count("table") == with_pictures.tags.count("table")
    with pytest.raises(ConfigError, match="pictures need matplotlib"):
        check_pictures()
