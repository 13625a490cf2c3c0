"""The view of a run: the same form from snapshots and from a report, strict JSON, and small differences."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import report_samples as samples

from dpa.balance.decision import Decision, Outcome
from dpa.door._changes import applied, difference
from dpa.door.view import RunView, Series, view_of_report
from dpa.measure.latency import LatencyReport
from dpa.measure.load import MeasuredKey
from dpa.measure.skew import Life
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.epochs import OpenEpoch
from dpa.protocol.wire.metrics import (
    CheckpointStats,
    CheckpointTry,
    EventTimeStats,
    Lag,
    Snapshot,
    StageSnapshot,
    TaskStats,
)
from dpa.protocol.wire.use import TaskUse
from dpa.result import RecoveryReport
from dpa.result.text import one_line
from dpa.telemetry.tracker import RunTracker
from dpa.tolerance import ErrorCount


def seen(*snapshots: Snapshot) -> dict[str, Any]:
    view, tracker = RunView({"name": "wordcount", "backend": "ray"}, began=1_700_000_000.0), RunTracker()
    for snapshot in snapshots:
        view.update(tracker.update(snapshot))
    return view.document


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Of each value that is no object, where it is; names of stages, tasks, decisions and moments are stars."""
    if not isinstance(value, dict):
        yield path
        return
    for name, each in value.items():
        yield from paths(each, f"{path}.*" if path in STARS else f"{path}.{name}")


STARS = {".stages", ".stages.*.tasks", ".edges", ".decisions", ".changes", ".recoveries", ".errors", ".warnings"} | {
    *(".layout.stages", ".layout.edges", ".versions"),
    *(".series", ".series.*", ".series.*.*.queues", ".epochs.phases", ".placement"),
    *(".stages.*.decision_counts", ".stages.*.scaling_counts", ".checkpoints.tries", ".stages.*.lag"),
}


def test_a_running_job_and_a_finished_one_have_views_of_one_form() -> None:
    running = set(paths(seen(*samples.snapshots(steps=10))))
    finished = set(paths(view_of_report(samples.report())))
    of_a_report = (".facts", ".tables", ".differences", ".config", ".versions", ".job.error")
    of_a_stage = ("latency", "stage_latency", "load.", "facts", "key_dist", "tasks.*.")
    of_a_report += tuple(f".stages.*.{name}" for name in of_a_stage)
    assert {path for path in finished - running if not path.startswith(of_a_report)} == set()
    of_now = {".stages.*.tasks.*.queue", ".series.*.*.busy", ".series.*.*.blocked", ".epochs.open"}
    assert running - finished == of_now


@pytest.mark.parametrize(
    "view",
    [
        seen(),
        seen(*samples.snapshots(64)),
        seen(samples.graph_snapshot()),
        *map(view_of_report, (samples.report(), samples.empty_report(), samples.graph_report())),
        view_of_report(samples.report(hot_keys=samples.hot_keys(samples.NASTY_KEYS))),
    ],
)
def test_a_view_is_strict_json(view: dict[str, Any]) -> None:
    assert json.loads(json.dumps(view, allow_nan=False)) == view


def test_texts_of_users_have_no_control_characters() -> None:
    bad = "two\nlines\x1b[31m \u202e"
    report = samples.report(name=bad, error=bad, warnings=(bad,), decisions=(samples.decision(reason=bad),))
    report = replace(report, errors=(ErrorCount("map", "ValueError", True, 3, bad),))
    view = view_of_report(
        replace(report, stages=tuple(replace(s, hot_keys=samples.hot_keys((bad,))) for s in report.stages))
    )

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from texts(each)

    found = [text for text in texts(view) if "lines" in text]
    assert len(found) == 7
    assert all(text.replace("\n", "").isprintable() for text in found)


def test_a_running_job_shows_what_each_stage_and_task_does_now() -> None:
    view = seen(*samples.snapshots(steps=20)[:15])
    assert (view["job"]["name"], view["job"]["status"], view["phase"], view["at"]) == (
        "wordcount",
        "running",
        "stream",
        3.5,
    )
    mapper, reducer = view["stages"][MAPPER], view["stages"][REDUCER]
    assert mapper["is_source"] and not reducer["is_source"]
    assert mapper["load"]["busy"] == pytest.approx(0.55) and mapper["load"]["blocked"] == pytest.approx(0.31)
    assert mapper["queue_seconds"] is None
    assert reducer["queue_seconds"] == pytest.approx(reducer["queue"] / reducer["rate"], rel=0.01)
    assert reducer["tasks"]["1"]["busy"] == pytest.approx(0.64)
    assert 0 < reducer["skew"] < 1
    assert view["edges"]["0"]["source"] == MAPPER and view["edges"]["0"]["blocked"] is True


def test_decisions_are_sentences_with_their_reasons_those_not_to_act_too_and_keep_their_names() -> None:
    early, late = (seen(samples.snapshot(at))["decisions"] for at in (2.0, 4.0))
    words = {found["words"] for found in late.values()}
    assert "Keys of task 1 went to other tasks" in words
    assert "Task 1 kept its keys: its load is below the threshold" in words
    assert all(found["reason"].startswith("queue of") for found in late.values())
    assert early.items() <= late.items() and len(early) < len(late)


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_words(outcome: Outcome) -> None:
    made = samples.decision(outcome=outcome)
    (found,) = view_of_report(samples.report(redistributions=(), decisions=(made,)))["decisions"].values()
    assert (found["outcome"], found["task"]) == (outcome.value, 1)
    assert "task 1 " in found["words"].lower()


def test_a_restart_begins_all_series_again() -> None:
    view = seen(*samples.snapshots(steps=10), replace(samples.snapshot(0.0), generation=1))
    assert view["job"]["generation"] == 1
    assert list(view["series"][REDUCER]) == ["0.00"]


def test_who_died_and_how_long_the_recovery_took_is_told_while_the_job_runs() -> None:
    view, died = RunView({"name": "job"}, 0.0), RecoveryReport(0, 3.12345, "map 1", "n1", "killed\nhard", 7, 1.5)
    view.update(replace(RunTracker().update(samples.snapshot(1.0)), recoveries=(died,)))
    assert view.document["recoveries"] == {"0": {**asdict(died), "at": 3.1235, "cause": one_line("killed\nhard")}}
    finished = view_of_report(replace(samples.report(), recoveries=(died,)))
    assert finished["recoveries"] == view.document["recoveries"]


def test_a_running_job_shows_all_that_it_knows_with_ages_and_bounds() -> None:
    snapshot = samples.snapshot(5.0)
    latency = LatencyReport(0.1, 0.2, 0.3, 0.4, 0.15)
    of_reducer = {
        "hottest": (MeasuredKey("a", 0.123456, 0.1, 0.15, task=3, split=True),),
        "recent_latency": latency,
        "event_time": EventTimeStats(1_000_000, source="clicks", channel="3", task=2),
    }
    lag = {"": Lag(7, 0.5), "p0": Lag(3, 2.0)} | {f"q{number:03}": Lag(0, 0.0) for number in range(150)}
    made = samples.with_stage(samples.with_stage(snapshot, REDUCER, **of_reducer), MAPPER, lag=lag)
    tries = (CheckpointTry(4, 2.0, 0.5, size=700), CheckpointTry(5, 3.0, 0.1, error="disk\nfull"))
    epoch = OpenEpoch(7, 4.25, committed=6, commit_seconds=0.125)
    view = seen(replace(made, checkpoints=CheckpointStats(1, 1), checkpoint_tries=tries, epoch=epoch))

    mapper, reducer, found = view["stages"][MAPPER], view["stages"][REDUCER], view["checkpoints"]
    keys = [{"key": "a", "share": 0.1235, "low": 0.1, "high": 0.15, "task": 3, "split": True}]
    assert (reducer["hot_keys"], mapper["hot_keys"]) == (keys, None)
    assert reducer["latency"] == asdict(latency)
    assert reducer["event_time"]["holder"] == "held by clicks, channel 3, which task 2 reads"
    greatest = [("p0", {"records": 3, "seconds": 2.0}), ("all", {"records": 7, "seconds": 0.5})]
    assert list(mapper["lag"].items())[:2] == greatest and len(mapper["lag"]) == 100
    assert (found["written"], found["failed"], found["age"], found["duration"]) == (1, 1, 2.5, 0.5)
    reasons = [(each["number"], each["error"]) for each in found["tries"].values()]
    assert reasons == [(4, None), (5, one_line("disk\nfull"))]
    assert seen(replace(snapshot, checkpoints=CheckpointStats()))["checkpoints"]["age"] == 5.0
    open_epoch = {"number": 7, "began": 4.25, "age": 0.8, "committed": 6, "commit_seconds": 0.125}
    assert view["epochs"]["open"] == open_epoch


def test_a_task_that_moved_and_its_successor_are_held_to_the_even_share_of_both() -> None:
    tasks = tuple(TaskStats(REDUCER, index, processed=records) for index, records in ((0, 100), (1, 400), (4, 300)))
    lives = (Life(0.0, 1.0, 0, 300), Life(), Life(1.0, None, 300))
    found = samples.with_stage(samples.snapshot(3.0), REDUCER, tasks=tasks, lives=lives, members=(1, 4))
    assert seen(replace(found, steps=(samples.moved(),)))["stages"][REDUCER]["skew"] == 0.0
    assert seen(found)["stages"][REDUCER]["skew"] > 0.0


# --- series# --- series


def test_points_have_the_rate_and_the_skew_since_the_point_before() -> None:
    series = Series(every=1.0)
    for at, counted in ((0.0, (0, 0)), (0.5, (9, 9)), (1.0, (100, 0)), (3.0, (200, 100))):
        series.add(at, {0: 5, 1: 7}, dict(enumerate(counted)), {"busy": 0.5})
    assert list(series.points) == ["0.00", "1.00", "3.00"]
    point = {"queue": 12, "busy": 0.5, "queues": {"0": 5, "1": 7}}
    assert series.points["1.00"] == {"rate": 100.0, "skew": 1.0, **point}
    assert series.points["3.00"] == {"rate": 100.0, "skew": 0.0, **point}


def test_a_long_series_is_thinned_evenly() -> None:
    series = Series(every=1.0)
    for second in range(10_000):
        series.add(float(second), {0: 1}, {0: second})
    moments = [float(at) for at in series.points]
    assert 100 < len(moments) <= 240
    assert {later - earlier for earlier, later in pairwise(moments)} == {64.0}
    assert {point["rate"] for point in list(series.points.values())[1:]} == {1.0}


def test_of_many_queues_a_point_has_quantiles() -> None:
    series = Series()
    series.add(0.0, dict.fromkeys(range(15), 1) | {15: 90, 16: 7}, {})
    assert series.points["0.00"]["spread"] == [1, 1, 1, 1, 90]


def test_the_series_and_the_skew_of_a_report_are_its_own() -> None:
    view = view_of_report(samples.report())
    points = view["series"][REDUCER]
    assert len(points) == 121
    assert points["0.00"]["queue"] == sum(samples.queue(task, 0.0) for task in range(4))
    assert view["stages"][REDUCER]["skew"] == 0.034


TASKS, STAGES = 256, ("read", "map", "count")
REPORT_SECONDS = 6.0
"""Each of so many tasks reports so seldom, and so does the load balancer judge them."""
MOST = 20_000
"""Bytes a second."""


def task(stage: str, index: int, at: float) -> TaskStats:
    """What a task has reported last."""
    turn = index * 0.618 % 1 * REPORT_SECONDS
    return reported(stage, index, max(0.0, (at - turn) // REPORT_SECONDS * REPORT_SECONDS + turn))


@cache
def reported(stage: str, index: int, at: float) -> TaskStats:
    """Its rates vary a little."""
    draw = random.Random(f"{stage} {index} {at}")
    records, is_source = int((500 + 4 * index) * at * draw.uniform(0.999, 1.001)), stage == "read"
    return TaskStats(
        stage,
        index,
        at=1e9 + at,
        read=records if is_source else 0,
        mapped=records if is_source else 0,
        emitted=() if stage == "count" else (records,),
        queue=0 if is_source else draw.randrange(3_000),
        processed=0 if is_source else records,
        busy_seconds=(0.2 + index / 400) * at * draw.uniform(0.99, 1.01),
        blocked_seconds=0.05 * at * draw.uniform(0.9, 1.1),
        waiting_seconds=0.01 * at,
        latency_p99=None if is_source else draw.uniform(0.2, 0.21),
    )


def decision(number: int) -> Decision:
    reason = f"{number} s of work, as the mean"
    return Decision(REPORT_SECONDS * number, number % TASKS, Outcome.BELOW_THRESHOLD, reason, (), None, 0)


def stage_at(name: str, at: float) -> StageSnapshot:
    look, is_source = int(at / REPORT_SECONDS), name == "read"
    draw = random.Random(f"{name} {look}")
    return StageSnapshot(
        name,
        "streaming",
        tuple(task(name, index, at) for index in range(TASKS)),
        decisions=tuple(decision(one) for one in range(max(0, look - 20), look)),
        decision_counts={"below_threshold": look},
        hottest=tuple(
            MeasuredKey(f"key {rank}", draw.uniform(0.1, 0.11), 0.09, draw.uniform(0.12, 0.13), rank)
            for rank in range(10)
        ),
        recent_latency=None if is_source else LatencyReport(0.1, *(draw.uniform(0.2, 0.3) for _ in range(4))),
        lag={f"topic-{part}": Lag(int(at / 3) * 100 + part, int(at / 3) * 0.1) for part in range(64 * is_source)},
    )


def snapshots() -> Iterator[Snapshot]:
    for half in range(56):
        at = 30 + half / 2
        stages = tuple(stage_at(name, at) for name in STAGES)
        use = {
            Address(each.stage, each.index): TaskUse("n" * 56, 200 << 20, round(each.busy_seconds, 2))
            for stage in stages
            for each in stage.tasks
        }
        edges = (("read", "map"), ("map", "count"))
        yield Snapshot("stream", at, 0, stages, edges, use, checkpoints=CheckpointStats(int(at / 10)), is_open=True)


@pytest.mark.slow
def test_the_differences_of_two_views_a_second_of_768_tasks_are_at_most_20_kb() -> None:
    view, tracker, sizes, shown = RunView({"name": "large"}, 0.0), RunTracker(), [], {}
    counts: dict[int, float] = {}
    for snapshot in snapshots():
        view.update(tracker.update(snapshot))
        following = view.document
        patch = difference(shown, following)
        assert difference(applied(shown, patch), following) == {}
        sizes.append(len(json.dumps(patch, separators=(",", ":"))))
        counts.setdefault(following["stages"]["map"]["tasks"]["7"]["processed"], snapshot.at)
        shown = following
    steady = sizes[len(sizes) // 2 :]
    assert sum(steady) / (len(steady) / 2) <= MOST
    assert max(steady) <= MOST, "no difference stands out"
    assert max(after - before for before, after in pairwise(counts.values())) < 19, (
        "each task is shown anew in its turn"
    )
