"""The results page says of each target whether it was met, and is refused where its sentences no longer fit."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.harness import Target
from experiments.report import page as pages
from experiments.report.ages import Age, Ages
from experiments.report.findings import Finding, Findings, Question, Row
from experiments.report.page import render_page, render_table, with_table
from experiments.report.results import Result, load_results

STAMP: dict[str, Any] = {
    "command": "python -m experiments.speed",
    "commit": "0123456789abcdef",
    "seed": 7,
    "configuration": {"repeats": 3, "seed": 7},
    "machine": {"cpus": 2, "memory_gib": 4.0, "cpu": "some processor", "system": "Linux"},
}
RATE, PEAK = Target("rate", ">= 1", 1.25, True), Target("peak", "<= 10", 1_234.5, False)
DATA = {
    "runs": [{"tool": "dpa", "n": "1", "rate": [4e6, 5e6, 9e6]}, {"tool": "dpa", "n": "2", "rate": 2_500_000}],
    "best": {"s": 0.125},
}
SPEED = Result("speed", STAMP, (RATE, PEAK), False, DATA)
ROW = Row("its rate", "speed", "rate", "Peer", "runs/tool=dpa;n=1/rate", "runs/tool=dpa;n=2/rate", "M/s")
FINDING = Finding("speed", "How fast", "It was timed.", "It is fast, and large.", missed=("peak",))
AGES = Ages("fedcba9876543210", {"speed": Age("2026-01-31", commits=12, changed=300, lines=1_000)})


def page(result: Result = SPEED, finding: Finding = FINDING) -> str:
    return render_page({result.name: result}, Findings((), (Question("Speed", (finding,), "About it."),)), AGES)


def table(*rows: Row) -> str:
    return render_table({"speed": SPEED}, Findings(rows, ()))


def test_a_section_counts_the_targets_that_were_missed_which_are_listed_first_with_a_link() -> None:
    assert "**1 of 2 targets missed.**" in page()
    met, both = replace(SPEED, targets=(RATE,)), replace(SPEED, targets=(RATE, RATE))
    assert "The target is met." in page(met, replace(FINDING, missed=()))
    assert "All 2 targets are met." in page(both, replace(FINDING, missed=()))
    listed = page().partition("## Speed")[0]
    assert "Of the 2 targets of all experiments 1 are met and 1 are missed." in listed
    assert "| [speed](#how-fast) | peak | <= 10 | 1,234 |" in listed


def test_a_section_names_its_commit_its_age_and_where_the_rest_is() -> None:
    text = page()
    assert "Commit 0123456789ab of 2026-01-31;" in text
    assert "[Table](../experiments/results/speed.md), [data](../experiments/results/speed.json)." in text
    assert "as of commit fedcba987654." in text
    assert "since then 12 commits have changed 30% of the measured code." in text
    assert "Not measured again yet" not in text and "![" not in text
    assert "**Not measured again yet:** it takes a day" in page(finding=replace(FINDING, stale="it takes a day"))
    assert "![How fast](../experiments/results/speed.png)" in page(replace(SPEED, has_picture=True))


@pytest.mark.parametrize("missed", [(), ("rate",), ("peak", "rate")])
def test_a_conclusion_for_other_misses_and_a_result_without_a_finding_are_refused(missed: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="the conclusion on speed was written for"):
        page(finding=replace(FINDING, missed=missed))
    with pytest.raises(ValueError, match=r"without a finding: \['speed'\]"):
        render_page({"speed": SPEED}, Findings((), ()), AGES)


def test_a_row_has_both_figures_their_ratio_and_the_verdict_and_none_that_do_not_exist() -> None:
    seconds = replace(ROW, measured="its peak", target="peak", ours="best/s", unit="s")
    assert table(ROW, seconds).splitlines()[2:] == [
        "| its rate | 5 M/s | Peer: 2.5 M/s | 1.25 | >= 1: met |",
        "| its peak | 0.125 s | Peer: 2.5e+06 s | 1,234 | <= 10: **missed** |",
    ]
    for ours in ("runs/tool=spark/rate", "best/rate", "size"):
        with pytest.raises(LookupError, match=f"speed.json has no '{ours}'"):
            table(replace(ROW, ours=ours))
    with pytest.raises(LookupError, match=r"speed.json has no target 'size', only \['rate', 'peak'\]"):
        table(replace(ROW, target="size"))


def test_the_table_of_a_readme_is_renewed_in_place() -> None:
    def renewed(text: str) -> str:
        return with_table(text, {"speed": SPEED}, Findings((ROW,), ()))

    new = renewed("before\n<!-- made by python -m experiments.report -->\nold\n<!-- end -->\nafter\n")
    assert new.startswith("before\n<!-- made by")
    assert new.endswith("<!-- end -->\nafter\n")
    assert "old" not in new
    assert renewed(new) == new
    with pytest.raises(ValueError, match="exactly once"):
        renewed("no comments")


def test_results_are_read_from_the_files_of_a_directory(tmp_path: Path) -> None:
    target = {"name": "rate", "wanted": ">= 1", "reached": 1.25, "met": True}
    document = json.dumps({"stamp": STAMP, "data": DATA, "targets": [target]})
    (tmp_path / "speed.json").write_text(document, encoding="utf-8")
    assert load_results(tmp_path) == {"speed": replace(SPEED, targets=(RATE,))}


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("results.md", 2)])
def test_nothing_is_written_for_one_who_asks_for_help(
    argument: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAGE", "README"):
        monkeypatch.setattr(pages, name, tmp_path / name)
    monkeypatch.setattr(sys, "argv", ["report", argument])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("experiments.report", run_name="__main__")
    assert ended.value.code == status
    assert not list(tmp_path.iterdir())
