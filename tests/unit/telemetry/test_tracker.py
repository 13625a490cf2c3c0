"""What progress derives from snapshots: rates, counts and the time left."""

from dataclasses import replace

import pytest
import report_samples as samples
from progress_samples import at_share, working_off

from dpa.measure.skew import Life
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.metrics import Snapshot, TaskStats
from dpa.telemetry.observers import Followed, Observer
from dpa.telemetry.tracker import RunTracker, TrackedSnapshot


def after(*snapshots: Snapshot) -> TrackedSnapshot:
    """What is derived from these snapshots in the end."""
    tracker = RunTracker()
    for snapshot in snapshots:
        tracker.update(snapshot)
    return tracker.newest


def test_rates_are_of_the_last_seconds() -> None:
    seen = []
    for second in range(20):
        mapped = 1_000 * min(second, 10) + 10 * max(second - 10, 0)
        mapper = replace(samples.snapshot(0)[MAPPER].tasks[0], mapped=mapped)
        seen.append(replace(samples.with_stage(samples.snapshot(1.0), MAPPER, tasks=(mapper,)), at=float(second)))
    assert after(*seen).mapped_rate == pytest.approx(10)


def test_a_recovery_that_rolls_counts_back_gives_no_rate_below_zero_and_dropped_redistributions_count() -> None:
    found = after(samples.snapshot(4.0), replace(samples.snapshot(2.0), at=4.5))
    assert (found.mapped_rate, found.processed_rate) == (0, 0)
    fewer = samples.snapshot(4.9, rounds=3, decisions=(samples.decision(version=9),))
    found = after(samples.snapshot(4.9, rounds=3), fewer)
    assert (found.redistributions, len(found.news)) == (3, 1)


def test_the_time_left_counts_what_is_queued_and_the_records_of_rows_that_are_not_read_yet() -> None:
    assert after(samples.snapshot(0.5)).seconds_left is None, "it is the first second"
    assert after(samples.snapshot(0.5), samples.snapshot(2.5)).seconds_left == pytest.approx(2.5, rel=0.05)
    assert after(working_off(10.0, 12_000_000), working_off(14.0, 16_000_000)).seconds_left == pytest.approx(8.0)
    half = [at_share(0.5, at=at) for at in (10.0, 14.0)]
    slow = (
        samples.with_stage(found, REDUCER, tasks=(replace(found[REDUCER].tasks[0], processed=done),))
        for found, done in zip(half, (2_000_000, 4_000_000), strict=True)
    )
    assert after(*slow).seconds_left == pytest.approx((24_000_000 - 4_000_000) / 500_000)


def test_a_task_that_came_in_the_last_seconds_is_judged_by_the_time_since_then() -> None:
    seen = []
    for at, busy in ((10.0, 0.0), (12.0, 1.0)):
        tasks = (TaskStats(REDUCER, 0, busy_seconds=at), TaskStats(REDUCER, 1, busy_seconds=busy))
        lives = (Life(), Life(11.0))
        seen.append(samples.with_stage(samples.snapshot(at), REDUCER, tasks=tasks, lives=lives))
    load = after(*seen).stages[-1].load
    assert (load.busy, load.busiest) == (1.0, 1.0)


def test_the_load_of_a_stage_is_of_the_last_seconds() -> None:
    busy, idle = samples.graph_snapshot(at=0.0), samples.graph_snapshot(at=10.0)
    found = after(busy, *(replace(idle, at=float(second)) for second in range(10, 20)))
    assert all(stage.load.busy == stage.load.blocked == stage.rate == 0 for stage in found.stages)
    assert found.bottleneck.kind == "none"


def test_a_task_that_reports_seldom_is_as_busy_as_between_its_last_two_reports() -> None:
    """As each task of a large job does: in a window of three seconds it has reported the work of six, or none."""
    tracker, found = RunTracker(), []
    for half in range(80):
        at = half / 2
        reported = 6.0 * (at // 6)
        task = TaskStats(REDUCER, 0, at=1e9 + reported, busy_seconds=0.25 * reported, blocked_seconds=0.5 * reported)
        tracker.update(samples.with_stage(samples.snapshot(at), REDUCER, tasks=(task,)))
        stage = tracker.newest.stages[-1]
        found.append((at, *stage.parts.get(0, ())[:2], stage.load.busy, stage.load.busiest))
    assert {tuple(round(part, 6) for part in parts) for at, *parts in found if at > 7} == {(0.25, 0.5, 0.25, 0.25)}


def test_a_run_that_is_followed_is_seen_as_its_driver_sees_it() -> None:
    said: list[str] = []

    class Seen(Observer):
        def phase(self, name: str, detail: str = "") -> None:
            said.append(name)

        def update(self, snapshot: TrackedSnapshot) -> None:
            said.append(f"{snapshot.records.processed > 0}")

        def warn(self, message: str) -> None:
            said.append(message.partition(" of ")[0])

    followed = Followed(Seen())
    for snapshot in (samples.snapshot(0.0), samples.snapshot(4.0), replace(samples.snapshot(0.0), generation=3)):
        followed.see(snapshot)
    followed.see(replace(samples.snapshot(4.0), phase="merge", generation=3))
    assert said == ["stream", "False", "True", "generation 3", "False", "merge", "True"]
