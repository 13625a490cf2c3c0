"""What an operator task reports of itself, to the load balancer and to the coordinator, and when."""

from __future__ import annotations

import pytest
from builders import block_of, table_giving
from wires import INPUT, OperatorWire, emitter_for, reducer, sent

from dpa.protocol.graph import map_reduce
from dpa.protocol.machines import task_of
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.events import ProcessDone, Tick
from dpa.protocol.wire.messages.end import Drain, Progress
from dpa.protocol.wire.messages.tables import LoadReport
from dpa.protocol.wire.use import TaskUse
from dpa.tolerance import ErrorCount, Failed

both_ways = pytest.mark.parametrize("eager", [True, False], ids=["eager", "lazy"])


def test_the_load_is_reported_at_every_nth_record_dequeued() -> None:
    reducer_0 = OperatorWire(every=3, most=1)
    reducer_0.push("aaaaaaa")
    reports = [[report.load.queue for _, report in sent(reducer_0.done(), LoadReport)] for _ in range(7)]
    assert reports == [[], [], [4], [], [], [1], []]


@both_ways
def test_forwarded_records_count_as_dequeued(eager: bool) -> None:
    reducer_0 = OperatorWire(eager=eager, every=3, most=1)
    reducer_0.update(1)
    instructions = reducer_0.push("aabbc")
    [(to, report)] = sent(instructions, LoadReport)
    assert (to, report.load.queue, report.load.version) == (BALANCER, 2, 1)
    assert [bool(sent(reducer_0.done(), LoadReport)) for _ in range(2)] == [False, False]


def test_an_empty_queue_is_reported_if_asked_for() -> None:
    reducer_0 = OperatorWire(every=100, idle=True)
    reducer_0.push("ab")
    reducer_0.push("c")
    assert sent(reducer_0.done(), LoadReport) == []
    [(to, report)] = sent(reducer_0.done(), LoadReport)
    assert (to, report.load.queue, report.load.version) == (BALANCER, 0, 0)


def test_a_queue_that_empties_by_forwarding_alone_is_reported_too() -> None:
    reducer_0 = OperatorWire(every=4, idle=True)
    reducer_0.update(1)
    reports = [report.load.queue for _, report in sent(reducer_0.push("bbbbc"), LoadReport)]
    assert (reducer_0.task.queue.length, reports[-1]) == (0, 0)


def test_without_balancing_no_load_is_reported() -> None:
    reducer_0 = OperatorWire(every=None, idle=True, report_seconds=0.1)
    reducer_0.push("ab")
    assert sent(reducer_0.done() + reducer_0.task.handle(Tick(), 9.0), LoadReport) == []


@pytest.mark.parametrize(("seconds", "reports"), [(0.5, [[2], [], [2], []]), (None, [[]] * 4)])
def test_a_queue_that_makes_no_progress_is_reported_from_time_to_time(seconds, reports) -> None:
    reducer_0 = OperatorWire(every=100, report_seconds=seconds)
    reducer_0.push("ab")
    ticks = [sent(reducer_0.task.handle(Tick(), now), LoadReport) for now in (0.4, 0.6, 0.9, 1.2)]
    assert [[report.load.queue for _, report in tick] for tick in ticks] == reports


def test_the_first_records_processed_and_every_tick_are_reported_to_the_coordinator() -> None:
    reducer_0 = OperatorWire()
    reducer_0.push("ab")
    reducer_0.push("c")
    [(to, first)] = sent(reducer_0.done(seconds=0.25), Progress)
    assert (to, first.stats.processed, first.stats.busy_seconds) == (COORDINATOR, 2, 0.25)
    assert sent(reducer_0.done(), Progress) == []
    [(_, tick)] = sent(reducer_0.task.handle(Tick(), 1.0), Progress)
    assert (tick.stats.processed, tick.stats.queue) == (3, 0)


def test_tasks_of_a_large_job_report_at_few_ticks_in_turn() -> None:
    graph = map_reduce(INPUT, 64, 64)
    assert [map_reduce(INPUT, 16, 16).report_seconds, graph.report_seconds] == [0.0, 1.0]
    tasks = [task_of(graph, reducer(index)) for index in range(3)]
    reported = [[len(sent(task.handle(Tick(), tick / 4), Progress)) for task in tasks] for tick in range(9)]
    turns = [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert reported == [*turns, *turns, turns[0]]


def test_what_a_task_has_used_is_said_when_it_reports_next() -> None:
    task = task_of(map_reduce(INPUT, 64, 64), reducer())
    ticks = [Tick(), Tick(use=TaskUse("first")), Tick(use=TaskUse("second")), Tick(), Tick(), Tick()]
    reports = [sent(task.handle(tick, number / 4), Progress) for number, tick in enumerate(ticks)]
    used = [None if report.use is None else report.use.node for each in reports for _, report in each]
    assert used == [None, "second"]


def test_while_draining_the_count_is_reported_whenever_the_queue_runs_empty() -> None:
    reducer_0 = OperatorWire()
    reducer_0.push("ab")
    [(_, at_once)] = sent(reducer_0(COORDINATOR, Drain()), Progress)
    assert (at_once.stats.processed, at_once.stats.queue) == (0, 2)
    assert sent(reducer_0.done(), Progress)[-1][1].stats.processed == 2
    reducer_0.push("c")
    assert sent(reducer_0.done(), Progress)[-1][1].stats.processed == 3


def test_who_hears_of_records_that_have_failed_hears_of_those_emitted_for_the_others_of_their_block() -> None:
    reducer_0 = OperatorWire(emitter_for(table_giving({"a": 0}), credit=1, stage="next"))
    reducer_0.push("ab")
    failed = Failed((ErrorCount("step", "ValueError", True, 1, "it failed"),))
    made = ((0, block_of(["a", "a"])),)
    done = reducer_0.task.handle(ProcessDone(0.0, blocks=made, dead=1, failed=failed), 0.0)
    reports = [report.stats for _, report in sent(done, Progress)]
    assert {(stats.processed, stats.emitted) for stats in reports} == {(2, (2,))}
