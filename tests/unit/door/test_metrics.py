"""The metrics of a run: names by the conventions, counters that only grow, no key in a label, and the files for
Prometheus and Grafana that use them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import report_samples as samples
import yaml
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from redis_server import program

import dpa
from dpa._init import init
from dpa.aggregates import Count
from dpa.config import DoorConfig
from dpa.door.metrics import FAMILIES, exposition
from dpa.door.opening import Door
from dpa.door.view import RunView, view_of_report
from dpa.errors import ConfigError
from dpa.protocol.graph import REDUCER
from dpa.protocol.wire.metrics import CheckpointStats, EventTimeStats, Snapshot
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import RunTracker, TrackedSnapshot
from dpa.testing import LocalBackend
from dpa.tolerance import ErrorCount

OPEN = "application/openmetrics-text; version=1.0.0"
OPS = Path(dpa.__file__).parent / "door" / "ops"
HERE = Path(__file__).parent
LABELS = {"job", "stage", "task", "partition", "rank", "outcome", "phase", "quantile", "node"}


def metrics(view: Mapping[str, Any]) -> list[Metric]:
    """As a strict parser of OpenMetrics has them."""
    body, content_type = exposition(view, OPEN)
    assert content_type.startswith(OPEN)
    return list(text_string_to_metric_families(body.decode()))


def series(view: Mapping[str, Any]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = [sample for metric in metrics(view) for sample in metric.samples]
    made = {(each.name, frozenset(each.labels.items())): each.value for each in found}
    assert len(made) == len(found)
    return made


def value(view: Mapping[str, Any], name: str, **labels: str) -> float | None:
    return series(view).get((name, frozenset({"job": view["job"]["name"], **labels}.items())))


def promtool(*arguments: str, cwd: Path = HERE, given: bytes | None = None) -> tuple[int, str]:
    """Its status and what it says."""
    command = [program("promtool", "prometheus"), *arguments]
    done = subprocess.run(command, cwd=cwd, input=given, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def seen(*snapshots: Snapshot) -> dict[str, Any]:
    view, tracker = RunView({"name": "wordcount"}, began=1_700_000_000.0), RunTracker()
    for snapshot in snapshots:
        view.update(tracker.update(snapshot))
    return view.document


def streaming() -> dict[str, Any]:
    """A view with all that an unbounded input has."""
    reached = EventTimeStats(watermark=1_700_000_030_500_000)
    errors = (ErrorCount("reducer", "ValueError", True, 3, "of key TRUMP"), ErrorCount("m", "KeyError", False, 4, "x"))
    checkpoints = CheckpointStats(written=5, failed=1, waited=0.25, size=4_096)
    made = samples.with_stage(samples.snapshot(2.0), REDUCER, event_time=reached)
    return seen(replace(made, generation=2, errors=errors, checkpoints=checkpoints))


class Views(Observer):
    """The view after each snapshot of a run."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self._view = RunView({"name": "visits"}, began=1.0)

    def update(self, snapshot: TrackedSnapshot) -> None:
        self._view.update(snapshot)
        self.found.append(self._view.document)


# --- names and series


@pytest.mark.parametrize(
    "view",
    [
        seen(),
        streaming(),
        seen(samples.graph_snapshot()),
        *map(view_of_report, (samples.report(), samples.empty_report())),
    ],
)
def test_metrics_are_openmetrics_with_help_type_unit_and_few_labels(view: dict[str, Any]) -> None:
    named = {family.name: family for family in FAMILIES}
    for metric in metrics(view):
        assert metric.documentation.endswith(".")
        assert metric.unit == next(
            (unit for unit in ("seconds", "bytes", "ratio") if metric.name.endswith(unit)), ""
        ) or (metric.unit in ("records", "rows") and metric.name.endswith(metric.unit))
        for sample in metric.samples:
            assert named[sample.name].kind == metric.type
            assert set(sample.labels) == set(named[sample.name].labels) <= LABELS


def test_promtool_finds_nothing_wrong_with_the_names() -> None:
    for view in (streaming(), view_of_report(samples.report())):
        body, content_type = exposition(view)
        assert content_type.startswith("text/plain; version=0.0.4")
        assert promtool("check", "metrics", given=body) == (0, "")


def test_what_a_view_says_is_what_its_metrics_say() -> None:
    view = streaming()
    assert value(view, "dpa_job_phase", phase="stream") == 1
    assert value(view, "dpa_job_restarts_total") == 2
    assert value(view, "dpa_records_left_out_total") == 7
    assert value(view, "dpa_checkpoint_written_bytes_total") == 4_096
    assert value(view, "dpa_stage_watermark_timestamp_seconds", stage="reducer") == 1_700_000_030.5
    reducer = view["stages"]["reducer"]
    assert value(view, "dpa_records_processed_total", stage="reducer") == reducer["records"]["processed"]
    assert value(view, "dpa_task_queue_records", stage="reducer", task="1") == reducer["tasks"]["1"]["queue"] > 0
    finished = view_of_report(samples.report())
    assert (
        value(finished, "dpa_stage_latency_seconds", stage="reducer", quantile="0.5")
        == (finished["stages"]["reducer"]["latency"]["p50"])
    )


def test_what_a_view_lacks_has_no_series_but_nothing_left_out_is_a_zero_and_each_partition_has_its_lag() -> None:
    view = seen(samples.snapshot(2.0))
    names = {name for name, _ in series(view)}
    assert "dpa_records_left_out_total" in names  # an alert needs the number before the first record
    assert not {name for name in names if name.startswith(("dpa_checkpoint", "dpa_lag", "dpa_stage_watermark"))}
    assert series({"schema": 1, "job": {"name": "bare"}}) == {}
    view["stages"]["mapper"]["lag"] = {"visits-0": {"records": 12, "seconds": 0.5}, "visits-1": {"records": 3}}
    assert value(view, "dpa_lag_records", stage="mapper", partition="visits-1") == 3
    assert value(view, "dpa_lag_seconds", stage="mapper", partition="visits-0") == 0.5
    assert value(view, "dpa_lag_seconds", stage="mapper", partition="visits-1") is None


# --- labels


def test_no_key_and_no_text_of_users_is_in_the_metrics() -> None:
    view = view_of_report(samples.report(hot_keys=samples.hot_keys(tuple(f"secret {number}" for number in range(20)))))
    hot = view["stages"]["reducer"]["hot_keys"]
    assert any("secret" in json.dumps(key) for key in hot)
    for made in (view, streaming()):
        body, _ = exposition(made, OPEN)
        assert b"secret" not in body and b"TRUMP" not in body
    ranks = {dict(labels)["rank"] for name, labels in series(view) if name == "dpa_hot_key_share_ratio"}
    assert ranks == set(map(str, range(10)))
    view["job"]["name"] = 'a "job"\nwith \\ in it'
    assert value(view, "dpa_hot_key_share_ratio", stage="reducer", rank="0") is not None, "names are escaped"


# --- counters


def growing(views: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, float, float]]:
    """Each counter of each series, with its value before, within a generation."""
    before: dict[Any, float] = {}
    for view in views:
        now = {
            (view["job"]["generation"], *each): number
            for each, number in series(view).items()
            if each[0].endswith("_total")
        }
        yield from ((each[1], before.get(each, 0.0), number) for each, number in now.items())
        before |= now


def test_counters_never_go_down_within_a_generation_of_a_made_run_and_of_a_real_one() -> None:
    assert all(was <= now for _, was, now in growing(seen(snapshot) for snapshot in samples.snapshots()))
    flow = dpa.Flow("visits")
    rows = flow.read(pl.DataFrame({"page": [f"p{number % 7}" for number in range(20_000)]}), name="rows")
    rows.key_by("page").reduce(Count(), name="counts")
    views = Views()
    flow.run(observer=views, backend=LocalBackend())
    found = list(growing(views.found))
    assert [each for each in found if each[1] > each[2]] == []
    assert ("dpa_rows_read_total", 20_000.0) in {(name, now) for name, _, now in found}


# --- the token


def test_a_door_has_the_token_of_a_file_so_that_prometheus_knows_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n", encoding="utf-8")
    with Door("visits", DoorConfig(token_file=str(file))) as door:
        assert door.address is not None and door.address.endswith("/#token=0123456789abcdef")
    with Door("visits", DoorConfig()) as first, Door("visits", DoorConfig()) as second:
        assert first.address is not None and second.address is not None
        assert first.address.partition("#")[2] != second.address.partition("#")[2]


@pytest.mark.parametrize("content", ["", "short", "sixteen characters", "schlüsselschlüssel", "0123456789abcdef\nmore"])
def test_a_file_without_a_long_token_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"door\.token_file: .*/token (needs 16 letters or digits|cannot be read)"):
        Door("visits", DoorConfig(token_file=str(file)))
    with pytest.raises(ConfigError, match=r"door\.token_file: .*/absent cannot be read"):
        Door("visits", DoorConfig(token_file=str(tmp_path / "absent")))


@pytest.mark.parametrize("door", [{"token_file": "absent"}, {"certificate": "absent", "key": "absent"}])
def test_a_check_of_a_job_finds_that_a_file_of_its_door_is_absent(door: Any) -> None:
    flow = dpa.Flow("visits", door=door)
    flow.read([{"page": "a"}]).key_by("page").reduce("count")
    with pytest.raises(ConfigError, match=rf"door\.{next(iter(door))}: .*absent "):
        flow.job().validate()


# --- rules and dashboard


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((OPS / "dpa-alerts.yml").read_text(encoding="utf-8"))["groups"]
    return group["rules"]


def test_promtool_finds_nothing_wrong_with_the_alert_rules_and_they_pass_their_tests() -> None:
    for command in (["check", "rules", str(OPS / "dpa-alerts.yml")], ["test", "rules", "alert_tests.yml"]):
        status, said = promtool(*command)
        assert status == 0, said


def test_init_writes_a_configuration_that_promtool_finds_nothing_wrong_with(tmp_path: Path) -> None:
    init(tmp_path, monitoring=True)
    assert {path.name for path in tmp_path.iterdir()} == {"prometheus.yml", "dpa-alerts.yml", "dpa-dashboard.json"}
    (tmp_path / "token").write_text("a token", encoding="utf-8")
    status, said = promtool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert status == 0 and "9 rules found" in said
    with pytest.raises(ConfigError, match=r"has dpa-alerts\.yml and dpa-dashboard\.json and"):
        init(tmp_path, monitoring=True)


def test_each_alert_is_tested_when_it_fires_and_when_it_does_not() -> None:
    tests = yaml.safe_load((HERE / "alert_tests.yml").read_text(encoding="utf-8"))["tests"]
    assert tests[0]["name"] == "a healthy job alerts about nothing"
    silent = {each["alertname"] for each in tests[0]["alert_rule_test"]}
    fires = {each["alertname"] for test in tests[1:] for each in test["alert_rule_test"] if each.get("exp_alerts")}
    assert silent == fires == {rule["alert"] for rule in rules()}


def test_alerts_and_dashboard_use_series_that_exist_with_labels_that_these_have() -> None:
    named = {family.name: set(family.labels) for family in FAMILIES}
    dashboard = (OPS / "dpa-dashboard.json").read_text(encoding="utf-8")
    for text in (dashboard, *(rule["expr"] for rule in rules())):
        for name, selector in re.findall(r"\b(dpa_\w+)(?:{([^}]*)})?", text):
            assert name in named
            assert set(re.findall(r"(\w+)=", selector)) <= named[name]
