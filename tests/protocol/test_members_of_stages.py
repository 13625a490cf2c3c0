"""Tasks that come and go, as the coordinator sees it, one message at a time."""

from __future__ import annotations

import pyarrow as pa
import pytest
from wires import CoordinatorWire, instructed, mapper, reducer, sent

from dpa.balance.options import BY_STRATEGY
from dpa.errors import ProtocolError
from dpa.measure.latency import LatencySketch
from dpa.measure.skew import Life
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import MAPPER, REDUCER, Edge, Graph, Stage, StageInput
from dpa.protocol.wire.addresses import BALANCER, Address, Present
from dpa.protocol.wire.events import (
    CancelChange,
    Event,
    MoveTasks,
    Rescale,
    Start,
    StartFailed,
    TaskRequest,
    TaskStarted,
    Tick,
)
from dpa.protocol.wire.instructions import Answer, CancelStart, Instruction, JobFailed, StartTasks, StopTasks
from dpa.protocol.wire.messages.end import Progress
from dpa.protocol.wire.messages.members import Leave, Left, MembersChanged, Unsubscribe, Unsubscribed
from dpa.protocol.wire.messages.splits import SplitRequest
from dpa.protocol.wire.metrics import Snapshot, TaskStats
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce

SPLITS = memory_splits(pa.table({"key": list("abc")}), 1)


def graph_of(**options: object) -> Graph:
    return map_reduce(SPLITS, 2, 3, **{"balance": BY_STRATEGY["doubling"](), **options})


class Coordinator(CoordinatorWire):
    """The coordinator of two mappers and three reducers, or of another graph, with all tasks up."""

    def __init__(self, graph: Graph | None = None, **options: object) -> None:
        super().__init__(graph=graph or graph_of(**options))

    def started(self, address: Address, now: float = 1.0) -> list[Instruction]:
        return self.handle(TaskStarted(address), now)

    def handle(self, event: Event, now: float = 1.0) -> list[Instruction]:
        return self.coordinator.handle(event, now)

    @property
    def snapshot(self) -> Snapshot:
        return self.coordinator.snapshot()

    @property
    def lives(self) -> list[Life]:
        return list(self.snapshot[REDUCER].lives)

    def changed(self) -> str:
        """The load balancer has changed the members of the reduce stage; what who asked for that hears."""
        [answer] = instructed(self(BALANCER, MembersChanged(REDUCER)), Answer)
        return answer.text


def left(index: int, stage: str = REDUCER) -> Left:
    return Left(TaskStats(stage, index, processed=5), LatencySketch(), LatencySketch())


def test_a_task_that_leaves_is_stopped_when_all_have_let_it_go() -> None:
    coordinator = Coordinator()
    asked = coordinator.handle(MoveTasks(1, REDUCER, (0,)))
    assert asked == [StartTasks((reducer(3),), (None,))]
    coordinator.started(reducer(3))
    assert coordinator(reducer(0), left(0)) == []
    assert sent(coordinator(BALANCER, MembersChanged(REDUCER)), Unsubscribe) == [(BALANCER, Unsubscribe(reducer(0)))]
    done = coordinator(BALANCER, Unsubscribed(reducer(0)))
    assert StopTasks((reducer(0),), Present(REDUCER, (1, 2, 3), 4)) in done
    [answer] = instructed(done, Answer)
    assert "(0 is 3 now)" in answer.text
    snapshot = coordinator.snapshot
    assert snapshot[REDUCER].members == (1, 2, 3) and snapshot[REDUCER].tasks[0].processed == 5
    assert [(step.started, step.stopped, step.moved) for step in snapshot.steps] == [((3,), (0,), ((0, 3),))]


def test_where_a_task_cannot_be_started_all_is_as_it_was() -> None:
    coordinator = Coordinator()
    coordinator.handle(Rescale(1, REDUCER, 5))
    assert coordinator.handle(Rescale(2, REDUCER, 4)) == []
    coordinator.handle(Tick())
    refused, *others = coordinator.handle(StartFailed("reducer 3 did not start: why"))
    assert refused == Answer(1, "nothing was changed: reducer 3 did not start: why", refused=True)
    assert others == [StartTasks((reducer(3),), (None,))], "nobody has heard of the number"
    coordinator.started(reducer(3))
    assert "reducer has 4 tasks" in coordinator.changed()
    snapshot = coordinator.snapshot
    assert snapshot[REDUCER].members == (0, 1, 2, 3) and len(snapshot[REDUCER].tasks) == 4
    assert [len(sample.queues) for sample in snapshot[REDUCER].samples] == [3]
    assert len(snapshot.steps) == 1 and coordinator.lives[:3] == [Life()] * 3


def test_a_task_takes_part_from_when_it_is_up_until_it_is_a_member_no_more() -> None:
    coordinator = Coordinator()
    coordinator.handle(Rescale(1, REDUCER, 4), 2.0)
    assert coordinator.lives[3].seconds(stream=8.0) == 0, "it is starting"
    coordinator.reduced(0, 70)
    coordinator.handle(TaskStarted(reducer(3)), 4.0)
    coordinator(BALANCER, MembersChanged(REDUCER), 4.0)
    assert coordinator.lives == [Life(), Life(), Life(), Life(4.0, processed_before=70)]
    coordinator.handle(MoveTasks(2, REDUCER, (1,)), 5.0)
    coordinator.reduced(0, 90)
    coordinator.handle(TaskStarted(reducer(4)), 6.0)
    coordinator(reducer(1), left(1), 7.0)
    assert coordinator.lives[1] == Life(0.0, 6.0, 0, 90)
    assert coordinator.lives[4] == Life(6.0, None, 90)


def test_no_records_are_missed_while_tasks_change() -> None:
    coordinator = Coordinator()
    coordinator.handle(Rescale(1, REDUCER, 4))
    for index in (0, 1):
        coordinator.mapped(index, 3, done=True)

    def reported(now: float) -> None:
        for index in range(3):
            coordinator.progress(reducer(index), processed=0 if index else 5, now=now)

    for now in (50.0, 120.0, 180.0):
        reported(now)
        coordinator.handle(Tick(), now)
    coordinator.handle(StartFailed("why"), 181.0)
    reported(242.0)
    with pytest.raises(ProtocolError, match="1 of 6 records to reducer were lost"):
        coordinator.handle(Tick(), 242.0)


def test_a_change_is_cancelled_before_its_tasks_are_up_and_those_that_wait_with_it() -> None:
    coordinator = Coordinator()
    coordinator.handle(Rescale(1, REDUCER, 4))
    for request in (Rescale(2, REDUCER, 5), Rescale(3, MAPPER, 3)):
        assert coordinator.handle(request) == []
    waiting, cancel = coordinator.handle(CancelChange(4, REDUCER))
    assert waiting == Answer(2, "nothing was changed: it was cancelled", refused=True)
    assert cancel == CancelStart((reducer(3),))
    *answers, following = coordinator.handle(StartFailed("reducer 3 was not to start any more"))
    assert answers == [
        Answer(1, "nothing was changed: it was cancelled", refused=True),
        Answer(4, "the change of reducer is cancelled"),
    ]
    assert following == StartTasks((mapper(2),), (None,))
    assert coordinator.handle(Rescale(5, REDUCER, 4)) == []
    [waited, answer] = coordinator.handle(CancelChange(6, REDUCER))
    assert waited.request == 5 and waited.refused
    assert answer == Answer(6, "a change of reducer that waited will not begin")


def test_it_is_too_late_to_cancel_a_change_whose_tasks_are_up() -> None:
    coordinator = Coordinator()
    coordinator.handle(Rescale(1, REDUCER, 4))
    coordinator.handle(CancelChange(2, REDUCER))
    late = "too late: the new tasks of reducer take part, so the change ends soon by itself"
    assert instructed(coordinator.started(reducer(3)), Answer) == [Answer(2, late, refused=True)]
    assert coordinator.handle(CancelChange(3, REDUCER)) == [Answer(3, late, refused=True)]
    assert "reducer has 4 tasks" in coordinator.changed()


def test_a_stage_that_has_as_many_tasks_is_done_at_once_whatever_else_is_under_way() -> None:
    coordinator = Coordinator(can_merge=False)
    coordinator.handle(Rescale(1, MAPPER, 3))
    assert coordinator.handle(Rescale(2, REDUCER, 3)) == [Answer(2, "reducer has 3 tasks already")]
    assert coordinator.handle(Rescale(3, MAPPER, 2)) == [], "it has 2 until it has 3"


def test_of_a_source_that_shrinks_tasks_with_nothing_to_read_go_first() -> None:
    coordinator = Coordinator()
    for task in (mapper(1), mapper(1), mapper(1), mapper(0)):
        coordinator(task, SplitRequest())
    coordinator(mapper(0), Progress(TaskStats(MAPPER, 0), done=True))
    assert sent(coordinator.handle(Rescale(1, MAPPER, 1)), Leave) == [(mapper(0), Leave())]


def test_a_source_that_ends_with_splits_left_is_an_error() -> None:
    coordinator = Coordinator()
    coordinator(mapper(0), Progress(TaskStats(MAPPER, 0), done=True))
    with pytest.raises(ProtocolError, match="mapper is done, but has not read all of its input"):
        coordinator(mapper(1), Progress(TaskStats(MAPPER, 1), done=True))


STAY = "the tasks of reducer stay: two states of a key cannot be merged; set `consistency: migrate`"
UNKNOWN = "there is no stage 'rows'; the stages are mapper, reducer"


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (Rescale(1, "rows", 2), UNKNOWN),
        (Rescale(1, REDUCER, 0), "reducer can have 1 to 256 tasks, not 0"),
        (Rescale(1, REDUCER, 257), "reducer can have 1 to 256 tasks, not 257"),
        (Rescale(1, REDUCER, 4), STAY),
        (MoveTasks(1, REDUCER, (1, 0, 1)), "reducer 1 is named more than once"),
        (MoveTasks(1, REDUCER, (1, 5)), "reducer has no task 5; it has 0, 1, 2"),
        (CancelChange(1, "rows"), UNKNOWN),
        (CancelChange(1, REDUCER), "no change of the tasks of reducer waits or is under way"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(request_: TaskRequest | CancelChange, why: str) -> None:
    coordinator = Coordinator(can_merge=why != STAY)
    assert coordinator.handle(request_) == [Answer(1, why, refused=True)]


def test_the_one_reader_before_a_process_whose_order_matters_can_move_but_does_not_become_more() -> None:
    stages = (Stage(MAPPER, 1, StageInput(SPLITS), ordered_for=REDUCER), Stage(REDUCER, 3))
    coordinator = Coordinator(Graph(stages, (Edge(MAPPER, REDUCER),)))
    [refused] = instructed(coordinator.handle(Rescale(1, MAPPER, 2)), Answer)
    assert refused.refused
    assert "reducer takes the records of a key in the order in which one task emits them" in refused.text
    assert coordinator.handle(MoveTasks(2, MAPPER, (0,))) == [StartTasks((mapper(1),), (None,))]


def test_nothing_changes_before_the_stream_begins_and_a_job_whose_first_tasks_do_not_start_fails() -> None:
    machine = CoordinatorMachine(graph_of())
    machine.handle(Start(), 0.0)
    assert machine.handle(Rescale(1, REDUCER, 4), 0.0) == [Answer(1, "the job is starting", refused=True)]
    assert machine.handle(StartFailed("mapper 0 did not start"), 0.0) == [JobFailed("mapper 0 did not start")]
