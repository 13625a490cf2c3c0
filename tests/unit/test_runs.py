"""Earlier runs: what is kept, and what `dpa runs` says of it."""

import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from rich.cells import cell_len
from typer.testing import CliRunner

import dpa
from dpa.command import app
from dpa.report import EarlierRun, ReportError, earlier_runs, keep, write
from dpa.result import Report
from dpa.testing import LocalBackend


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("DPA_HISTORY", raising=False)


def kept(*reports: Report) -> None:
    """Keep reports, each written a minute after the one before."""
    for number, report in enumerate(reports):
        before = {run.path for run in earlier_runs()}
        keep(report)
        [new] = [run.path for run in earlier_runs() if run.path not in before]
        os.utime(new, (60 * number, 60 * number))
        new.rename(new.with_name(f"{number}.json"))


def said(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["runs", *words])
    assert done.exit_code == status, done.output
    if "--json" not in words and not status:
        lines = [line for line in done.output.splitlines() if not line.startswith(("A: ", "B: "))]
        assert max(map(cell_len, lines)) <= int(os.environ["COLUMNS"])
    return done.output


def test_a_report_is_kept_for_its_user_alone_and_read_as_it_was() -> None:
    report = samples.report()
    keep(report)
    [run] = earlier_runs()
    assert run.report == replace(report, config=run.report.config)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(run.path.parent.stat().st_mode) == 0o700


def test_no_secret_is_kept() -> None:
    config = {"input": {"path": "s3://me:hunter22@bucket/a.parquet"}, "ray": {"api_key": "hunter22"}}
    keep(samples.report(status="failed", error="cannot read s3://me:hunter22@bucket/a.parquet", config=config))
    [run] = earlier_runs()
    assert "hunter22" not in run.path.read_text(encoding="utf-8")


def test_the_newest_hundred_are_kept_and_none_if_it_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "state" / "dpa" / "runs"
    place.mkdir(parents=True)
    for number in range(105):
        (place / f"2000{number:03}.json").touch()
    keep(samples.empty_report())
    names = sorted(path.name for path in place.iterdir())
    assert len(names) == 100 and names[0] == "2000006.json" and len(earlier_runs()) == 1
    monkeypatch.setenv("DPA_HISTORY", "0")
    keep(samples.empty_report())
    assert len(earlier_runs()) == 1


def test_a_run_whose_report_cannot_be_kept_ends_well(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    keep(samples.empty_report())
    assert earlier_runs() == []


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    write(samples.report(), tmp_path / "whole")
    whole = (tmp_path / "whole" / "report.json").read_text()
    other = ('{"schema": "dpa-report-1"}', '{"schema": "dpa-report-2", "status": []}')
    no_json = [re.sub(r'"at": [0-9.]+', f'"at": {number}', whole) for number in ("NaN", "-Infinity", "1e999")]
    for text in ("", "[]", "{}", *other, "[" * 100_000, *no_json):
        (tmp_path / "report.json").write_text(text)
        with pytest.raises(ReportError, match="no report of a run, or one of another version"):
            EarlierRun.read(tmp_path / "report.json")
        assert [run.path for run in earlier_runs(tmp_path)] == [tmp_path / "whole" / "report.json"]


def test_runs_are_listed_with_the_newest_first() -> None:
    assert said("list") == "no run is kept\n"
    kept(samples.report(), samples.graph_report())
    lines = said("list").splitlines()
    assert lines[0].split() == ["ended", "job", "status", "rows", "records/s", "skew", "time"]
    assert re.fullmatch(r"1  [\d-]+ [\d:]+  bargains +ok +6\.25M +1\.25M +0\.0003 +15\.3 s", lines[1])
    assert re.fullmatch(r"2  [\d-]+ [\d:]+  wordcount +ok +20\.0M +4\.80M +0\.034 +15\.3 s", lines[2])
    first, second = json.loads(said("list", "--json"))
    assert (first["name"], second["rows"], second["skew"]) == ("bargains", 20_000_000, pytest.approx(0.034))


def test_reports_of_a_directory_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(samples.report(), tmp_path / "out" / "day" / "one")
    write(samples.report(), tmp_path / "out" / "two")
    monkeypatch.setenv("COLUMNS", "100")
    assert {line.split()[-1] for line in said("list", "out").splitlines()[1:]} == {"out/day/one", "out/two"}
    assert said("list", "state") == "state has no report of a run\n"


@pytest.mark.parametrize("run", ["out", "out/report.json", "1", "wordcount"])
def test_a_run_is_shown_again(run: str, tmp_path: Path) -> None:
    kept(samples.report())
    write(samples.report(), tmp_path / "out")
    assert said("show", run).startswith("wordcount: ok in 15.3 s")
    assert "reducer: 4 redistributions" in said("show", run, "--verbose")
    assert json.loads(said("show", run, "--json"))["name"] == "wordcount"
    assert "none is no run" in said("show", "none", status=1)


def pair(**changes: Any) -> tuple[Report, Report]:
    before = samples.report(config={"balance": {"strategy": "none"}}, versions={"dpa": "0.2.0"})
    return before, replace(before, **changes)


def compared(*words: str) -> dict[str, Sequence[Any]]:
    found: dict[str, Sequence[Any]] = json.loads(said("compare", *words, "--json"))["figures"]
    return found


def test_a_run_is_compared_with_the_one_of_its_job_before() -> None:
    before, after = pair(records_per_second=6e6, config={"balance": {"strategy": "adaptive"}})
    kept(before, samples.graph_report(), after)
    text = said("compare")
    assert re.search(r"^records per second +4,800,000 +6,000,000 +\+25\.0%$", text, re.MULTILINE)
    assert re.search(r"^skew reducer +0\.034 +0\.034$", text, re.MULTILINE)
    assert re.search(r"^decisions below threshold +150 +150$", text, re.MULTILINE)
    assert text.endswith('configured differently\nkey               A → B\nbalance.strategy  "none" → "adaptive"\n')
    assert said("compare", "3", "1") == text == said("compare", "wordcount")
    assert compared()["records_per_second"] == [4.8e6, 6e6]
    assert "no earlier run of bargains is kept" in said("compare", "bargains", status=1)


def test_jobs_of_other_stages_and_versions_are_compared_by_what_they_share(tmp_path: Path) -> None:
    before, after = pair(versions={"dpa": "0.3.0"})
    for name, report in (("a", before), ("b", after), ("c", samples.graph_report()), ("d", samples.empty_report())):
        write(report, tmp_path / name)
    assert said("compare", "a", "b").endswith('versions.dpa  "0.2.0" → "0.3.0"\n')
    assert compared("a", "c")["skew_priced"][0] is None
    assert compared("d", "a")["latency_p99_seconds"] == [None, 1.12]


def test_a_comparison_is_a_page_with_the_same_figures(tmp_path: Path) -> None:
    before, after = pair(records_per_second=6e6, config={"balance": {"strategy": "adaptive"}})
    kept(before, after)
    text = said("compare", "--html", "compared.html")
    [data] = re.findall(r'id="data">(.*)</script>', (tmp_path / "compared.html").read_text(encoding="utf-8"))
    for table in json.loads(data)["tables"]:
        for row in table["rows"]:
            assert re.search(r" +".join(map(re.escape, filter(None, row))), text), row
    assert "no/page.html: cannot write the page: " in said("compare", "--html", "no/page.html", status=1)


def test_no_report_can_write_to_the_terminal_itself(tmp_path: Path) -> None:
    escape, title = "\x1b[2J", "\x1b]0;title\x07"
    report = samples.report()
    write(report, tmp_path / "a")
    stages = tuple(replace(stage, name=f"{escape}{stage.name}") for stage in report.stages)
    bad = replace(report, name=escape, status=title, stages=stages, edges=())
    write(replace(bad, config={title: escape}, versions={escape: title}), tmp_path / "b")
    for words in (["compare", "a", "b"], ["list", "."], ["show", "b"], ["show", "b", "--verbose"]):
        found = CliRunner().invoke(app, ["runs", *words])
        assert found.exit_code == 0 and not {"\x1b", "\x07"} & {*found.output}, words


def test_the_newest_epochs_of_a_log_are_shown() -> None:
    shop = dpa.Flow("shop", epoch_log="epochs")
    orders = shop.read([{"item": "tea"}, {"item": "tea"}, {"item": "jam"}])
    orders.key_by("item").reduce("count").write("live", publish={"mode": "table", "every": "100ms"})
    shop.run(backend=LocalBackend())
    assert "last 1 of 1 epochs" in said("show", "epochs")
    [epoch] = json.loads(said("show", "epochs", "--json"))
    assert (epoch["read"], epoch["is_last"]) == (3, True)
