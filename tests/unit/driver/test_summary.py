"""What the report makes of the statistics of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dpa.driver.summary import Stopwatch, with_figures
from dpa.execution.key_stats import KeyStats
from dpa.measure.latency import LatencySketch
from dpa.measure.load import Traffic
from dpa.measure.skew import Life
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.task.delivery import TaskOutput
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import (
    AggregationStats,
    EventTimeStats,
    LoadSample,
    Snapshot,
    StageSnapshot,
    TaskChange,
    TaskStats,
)
from dpa.protocol.wire.use import TaskUse
from dpa.result import (
    EdgeReport,
    GroupingReport,
    HotKey,
    KeyDistribution,
    OutputReport,
    RecordCounts,
    RecordTimes,
    ReferenceReport,
    Report,
    Seconds,
    StageReport,
    TrafficReport,
)
from dpa.result.stage_content import facts
from dpa.telemetry.tracker import load_of

STATS = KeyStats.of(pa.chunked_array([pa.array(["a", "b"])]), pa.array([1, 1]).to_numpy())
SECONDS = Seconds(0.0, 0.0, 2.0, 0.0, 0.0, 2.0)


def share(states: int) -> TaskOutput:
    return TaskOutput(2, states, (), STATS, None)


KEYED = StageReport(REDUCER, "operator", grouping=GroupingReport("key"))


def built(
    snapshot: Snapshot | None, *known: StageReport, shares: Sequence[TaskOutput] = (), status: str = "ok", **more: Any
) -> Report:
    started = Report(status, "job", seconds=SECONDS, stages=known)
    return with_figures(started, snapshot, {REDUCER: shares}, more.get("use", {}))


def report(
    aggregation: AggregationStats | None = None,
    initial_load: tuple[int, ...] = (2, 2),
    event_time: EventTimeStats | None = None,
) -> Report:
    """Of a run by key grouping: four keys on two reducers, one of which held another home's key after an epoch."""
    reducers = tuple(TaskStats(REDUCER, index, processed=2) for index in range(2))
    mapper = TaskStats(MAPPER, 0, read=4, mapped=4, emitted=(4,), regrouped=3)
    stages = (
        StageSnapshot(MAPPER, "done", (mapper,)),
        StageSnapshot(
            REDUCER, "done", reducers, initial_load=initial_load, aggregation=aggregation, event_time=event_time
        ),
    )
    snapshot = Snapshot(phase="done", at=1.0, rows=4, stages=stages, edges=((MAPPER, REDUCER),))
    shares = [share(2), share(2)] if aggregation is None or not aggregation.epochs else [share(4), share(3)]
    return built(snapshot, KEYED, shares=shares)


def test_replication_is_states_by_keys_and_unknown_once_states_have_moved_or_windows_were_closed() -> None:
    for aggregation, replication in ((None, 1), (AggregationStats(), 1), (AggregationStats(2, 0.1, 3), None)):
        assert report(aggregation).main.grouping.replication == replication
    assert report(event_time=EventTimeStats(9)).main.grouping.replication == 1
    stage = report(event_time=EventTimeStats(9_000_000, 5_000_000)).main
    assert stage.grouping.replication is None
    [fact] = [fact for fact in facts(stage, "ok") if fact.name == "windows"]
    assert (fact.value, fact.remark) == ("closed up to 1970-01-01 00:00:05", "event time 1970-01-01 00:00:09")


def test_the_time_of_a_record_is_divided_over_all_edges_that_enter_a_stage() -> None:
    """Of two stages that feed it, one by two edges; the third edge of that leads elsewhere."""
    whole, own = LatencySketch(), LatencySketch()
    whole.add(10.0, 4)
    own.add(6.0, 4)
    senders = (
        StageSnapshot("left", "done", (TaskStats("left", 0, emitted=(1, 9, 1), credit_seconds=(2.0, 50.0, 3.0)),)),
        StageSnapshot("right", "done", (TaskStats("right", 0, emitted=(2,), credit_seconds=(7.0,)),)),
        StageSnapshot("other", "done", (TaskStats("other", 0),)),
    )
    tasks = tuple(TaskStats(REDUCER, index, processed=2, work_seconds=4.0) for index in range(2))
    stage = StageSnapshot(REDUCER, "done", tasks, latency=whole, stage_latency=own)
    edges = (("left", REDUCER), ("left", "other"), ("left", REDUCER), ("right", REDUCER))
    found = built(Snapshot(phase="done", at=1.0, rows=4, stages=(*senders, stage), edges=edges))[REDUCER]
    assert found.record_times == RecordTimes(made=10.0 - 6.0 - 3.0, credit=12.0 / 4, queued=6.0 - 2.0, work=2.0)
    assert report().main.record_times is None, "nobody has measured any"


@pytest.mark.parametrize(("initial_load", "static"), [((2, 2), 0.0), ((4, 0), 1.0), ((), None)])
def test_the_static_skew_is_that_of_the_load_by_the_first_table_where_it_is_known(
    initial_load: tuple[int, ...], static: float | None
) -> None:
    assert report(initial_load=initial_load).main.skew.static == static


def test_records_are_summed_over_the_tasks_of_a_stage_and_over_stages() -> None:
    found = report()
    assert found[MAPPER].records == RecordCounts(read=4, mapped=4, emitted=4)
    assert found[REDUCER].records == RecordCounts(processed=4)
    assert found.records == RecordCounts(4, 4, 4, 4, 0)
    assert found.records_per_second == 2
    source, grouping = found[MAPPER], found.main.grouping
    assert (source.kind, source.skew, source.grouping, source.output) == ("source", None, None, None)
    assert (grouping.kind, grouping.moved) == ("key", 3), "those that feed a stage move parts of the keys"


def test_a_stage_has_the_span_in_which_it_processed_and_the_tasks_that_it_had_at_the_end() -> None:
    step = TaskChange(1, 0.5, REDUCER, (2,), (0, 1), (), 0.5, "asked for")
    tasks = tuple(TaskStats(REDUCER, index) for index in range(3))
    stages = (StageSnapshot(MAPPER, "done", (TaskStats(MAPPER, 0),), began=0.1, ended=1.5),)
    stages += (StageSnapshot(REDUCER, "draining", tasks, began=0.4),)
    found = built(Snapshot("failed", 2.0, 0, stages, ((MAPPER, REDUCER),), steps=(step,)))
    assert [(stage.began, stage.ended, stage.present) for stage in found.stages] == [(0.1, 1.5, 1), (0.4, None, 1)]


def test_shares_of_the_time_are_means_over_the_tasks_and_at_most_all_of_it() -> None:
    tasks = (
        TaskStats("s", 0, busy_seconds=1.0, blocked_seconds=0.5, peak_queue=7),
        TaskStats("s", 1, busy_seconds=2.0, peak_queue=9),
    )
    samples = (LoadSample(0.5, (4, 0), (0, 0)), LoadSample(1.0, (6, 2), (0, 0)))
    stage = StageSnapshot("s", "done", tasks, samples=samples)
    load = built(Snapshot("done", 2.0, 0, (stage,))).stages[0].load
    assert (load.busy, load.blocked, load.busiest) == (0.75, 0.125, 1.0)
    assert (load.mean_queue, load.peak_queue) == (3.0, 9)
    assert load_of(stage, 1.0).busiest == 1.0
    assert load_of(stage, 0.0).busy == 0.0


def grown(first: int = 600, second: int = 200, **changes: Any) -> Report:
    """Of a stage whose one reducer, always busy, is joined by another half-way, which is always busy then."""
    reducers = (
        TaskStats(REDUCER, 0, processed=first, busy_seconds=2.0, blocked_seconds=0.0),
        TaskStats(REDUCER, 1, processed=second, busy_seconds=1.0, blocked_seconds=0.0),
    )
    lives = (Life(), Life(1.0, processed_before=400))
    stage = replace(StageSnapshot(REDUCER, "done", reducers, lives=lives, initial_load=(800,)), **changes)
    mapper = StageSnapshot(MAPPER, "done", (TaskStats(MAPPER, 0, emitted=(800,), busy_seconds=0.1),))
    return built(Snapshot("done", 2.0, 800, (mapper, stage), ((MAPPER, REDUCER),)))


def test_a_task_is_judged_by_the_time_in_which_it_took_part() -> None:
    found = grown()
    assert [task.busy for task in found.main.tasks] == [1.0, 1.0]
    assert [(task.lived_seconds, task.share, task.even_share) for task in found.main.tasks] == [
        (2.0, 0.75, 0.75),
        (1.0, 0.25, 0.25),
    ]
    assert (found.main.load.busy, found.main.load.busiest) == (1.0, 1.0)
    assert (found.main.skew.dpa, found.main.skew.static) == (0.0, 0.0)
    assert "its busiest task, 0, is busy 100% of the time, the average 100%" in found.bottleneck.reason
    late = grown(first=400, second=400)  # one that came late got more than its part
    assert late.main.skew.dpa == pytest.approx((400 - 200) / (800 - 200))
    shrunk = grown(lives=(Life(), Life(0.0, 1.0, 0, 400)), members=(0,))
    assert shrunk.main.load.busy <= shrunk.main.load.busiest


def test_the_records_of_a_task_that_moved_are_held_to_the_even_share_of_both() -> None:
    step = TaskChange(1, 0.5, REDUCER, (2,), (1,), ((1, 2),), 0.5, "asked for")
    tasks = tuple(TaskStats(REDUCER, index, processed=records) for index, records in enumerate((400, 100, 300)))
    lives = (Life(), Life(0.0, 1.0, 0, 300), Life(1.0, None, 300, None))
    stage = StageSnapshot(REDUCER, "done", tasks, lives=lives, members=(0, 2))
    mapper = StageSnapshot(MAPPER, "done", (TaskStats(MAPPER, 0, emitted=(800,)),))
    found = built(Snapshot("done", 2.0, 800, (mapper, stage), ((MAPPER, REDUCER),), steps=(step,)))
    assert found.main.skew.dpa == 0.0


def test_a_key_is_hot_by_the_even_share_of_a_task_that_was_there_throughout() -> None:
    keys = tuple(HotKey(f"k{number}", 0, share, 0, 0) for number, share in enumerate((0.8, 0.7)))
    stage = replace(grown().main, hot_keys=keys, key_distribution=KeyDistribution(3))
    assert [key.key for key in stage.hot] == ["k0"]


def fan_out() -> Snapshot:
    """One source that feeds two stages, one of which feeds the other."""
    edges = (("read", "left"), ("left", "right"), ("read", "right"))
    counts = {"read": (5, 7), "left": (2,), "right": ()}
    stages = tuple(
        StageSnapshot(
            name,
            "done",
            tuple(
                TaskStats(name, task, emitted=emitted, blocked_seconds=1.0 if name == "read" else 0.0, busy_seconds=0.2)
                for task in range(2)
            ),
        )
        for name, emitted in counts.items()
    )
    return Snapshot("done", 2.0, 0, stages, edges)


def test_an_edge_that_holds_up_its_sender_is_marked_and_the_bottleneck_found_from_the_shares() -> None:
    found = built(fan_out())
    assert found.edges == (
        EdgeReport("read", "left", 10, blocked=True),
        EdgeReport("left", "right", 4),
        EdgeReport("read", "right", 14),
    )
    assert (found.bottleneck.kind, found.bottleneck.stage) == ("stage", "left")
    assert "read, which feeds it, is blocked 50% of the time" in found.bottleneck.reason


def test_comparisons_of_several_stages_are_summed_up_and_results_known_though_no_task_started() -> None:
    left = StageReport("left", "operator", reference=ReferenceReport(True, True, 3))
    right = StageReport("right", "operator", reference=ReferenceReport(True, False, 4, ("a: 1, reference 2",)))
    assert built(fan_out(), left).reference == left.reference
    both = ReferenceReport(True, False, 7, ("right: a: 1, reference 2",))
    assert built(fan_out(), left, right).reference == both
    assert built(fan_out()).reference == ReferenceReport()
    output = OutputReport(unpublished="/data/out")
    found = built(None, replace(KEYED, output=output), status="failed")
    assert (found.main.output, found.records, found.edges) == (output, RecordCounts(), ())


def test_what_tasks_used_and_sent_is_reported_by_task_and_by_pair_of_stages() -> None:
    left, right, reader = Address("left", 0), Address("right", 1), Address("read", 0)
    use = {
        reader: TaskUse("n1", 300, 1.5, {left: Traffic(3, 10, 2_000), right: Traffic(1, 4, 900)}),
        Address("read", 1): TaskUse("n2", 100, 0.5, {left: Traffic(1, 1, 50)}),
        left: TaskUse("n1", 100, 0.25, {reader: Traffic(2, 0, 30), Address("left", 1): Traffic(1, 2, 70)}),
        Address("left", 1): TaskUse("n1"),
        Address("right", 0): TaskUse("n2"),
        right: TaskUse("n2"),
    }
    found = built(fan_out(), use=use)
    assert [(task.cpu_seconds, task.node) for task in found["read"].tasks] == [(1.5, "n1"), (0.5, "n2")]
    assert ([task.peak_memory for task in found["read"].tasks], found["read"].peak_memory) == ([300, 100], 300)
    assert found.traffic == (
        TrafficReport("read", "left", 4, 11, 2_050, ((2_000, 0), (50, 0))),
        TrafficReport("read", "right", 1, 4, 900, ((0, 900), (0, 0))),
        TrafficReport("left", "read", 2, 0, 30, ((30, 0), (0, 0))),
        TrafficReport("left", "left", 1, 2, 70, ((0, 70), (0, 0))),
    )
    use.pop(reader)  # of a job that failed before its first task could say anything
    found = built(fan_out(), status="failed", use=use)
    assert found.traffic[0] == TrafficReport("read", "left", 1, 1, 50, ((0, 0), (50, 0)))


def stopwatch(*entered: tuple[float, str | None, float], now: float) -> Stopwatch:
    """One that began at 100, entered phases at these times, each begun some seconds ago, and is at `now`."""
    times = iter([100.0, *(at for at, _, _ in entered)])
    watch = Stopwatch(lambda: next(times, now))
    for _, phase, ago in entered:
        watch.enter(phase, ago)
    return watch


def test_a_phase_ends_where_the_next_one_begins_also_if_it_began_a_while_ago_but_no_sooner_than_that_before_it() -> (
    None
):
    watch = stopwatch((101.0, "load", 0.0), (103.0, "startup", 0.0), (108.0, "stream", 1.0), now=110.0)
    expected = Seconds(load=2.0, startup=4.0, stream=3.0, total=10.0)
    assert watch.seconds() == expected
    assert watch.seconds() == expected, "asking changed the answer"
    watch = stopwatch((100.0, "startup", 0.0), (101.0, "stream", 60.0), now=102.0)
    assert watch.seconds() == Seconds(startup=0.0, stream=2.0, total=2.0)
    watch = stopwatch((100.0, "merge", 0.0), (101.0, None, 0.0), now=105.0)  # time between phases belongs to none
    watch.correct(merge=0.5)
    assert watch.seconds(first_record=100.25) == Seconds(merge=0.5, total=5.0, first_record=0.25)
