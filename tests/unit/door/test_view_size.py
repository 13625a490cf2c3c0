"""How much a page is told of a large job: the views of a job of 3 x 256 tasks, as its coordinator would report them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest

from dpa.balance.decision import Decision, Outcome
from dpa.door._changes import applied, difference
from dpa.door.view import RunView
from dpa.measure.latency import LatencyReport
from dpa.measure.load import MeasuredKey
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import CheckpointStats, Lag, Snapshot, StageSnapshot, TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.telemetry.tracker import RunTracker

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
    reason = f"{number} s of work, which is more than the mean, but by less than 10%"
    return Decision(REPORT_SECONDS * number, number % TASKS, Outcome.BELOW_THRESHOLD, reason, (), None, 0)


def stage_at(name: str, at: float) -> StageSnapshot:
    look, is_source = int(at / REPORT_SECONDS), name == "read"
    draw = random.Random(f"{name} {look}")
    return StageSnapshot(
        name,
        "streaming",
        tuple(task(name, index, at) for index in range(TASKS)),
        decisions=tuple(
            Decision(
                REPORT_SECONDS * one, one % TASKS, Outcome.BELOW_THRESHOLD, f"{one} s of work, as the mean", (), None, 0
            )
            for one in range(max(0, look - 20), look)
        ),
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
