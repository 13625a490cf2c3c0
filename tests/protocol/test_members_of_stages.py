"""Tasks that come and go, as the load balancer and the coordinator see it, one message at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from wires import Wire, mapper, reducer, sent

from dpa.balance.options import BY_STRATEGY
from dpa.errors import ProtocolError
from dpa.measure.latency import LatencySketch
from dpa.measure.load import KeySample, Load, Offered
from dpa.measure.skew import Life
from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import MAPPER, REDUCER, Edge, Graph, Stage, StageInput, map_reduce
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address, Present
from dpa.protocol.wire.events import CancelChange, Event, MoveTasks, Rescale, Start, StartFailed, TaskStarted, Tick
from dpa.protocol.wire.instructions import Answer, CancelStart, Instruction, JobFailed, StartTasks, StopTasks
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.end import Freeze, Progress
from dpa.protocol.wire.messages.members import ChangeMembers, Leave, Left, MembersChanged, Unsubscribe, Unsubscribed
from dpa.protocol.wire.messages.migration import Settled
from dpa.protocol.wire.messages.splits import Begin, SplitGrant, SplitRequest, SplitReturned
from dpa.protocol.wire.messages.tables import CurrentTable, LoadReport, OfferedReport, TableUpdate
from dpa.protocol.wire.metrics import TaskChange, TaskStats
from dpa.routing.members import MemberChange
from dpa.sources.splits import memory_splits

SPLITS = memory_splits(pa.table({"key": list("abc")}), 1)


def graph_of(**options: object) -> Graph:
    return map_reduce(SPLITS, 2, 3, **{"balance": BY_STRATEGY["doubling"](), **options})


def to(instructions: list[Instruction], kind: type[Message]) -> list[Address]:
    return [receiver for receiver, _ in sent(instructions, kind)]


class Balancer(Wire):
    """The load balancer of two mappers and three reducers."""

    def __init__(self, **options: object) -> None:
        super().__init__(load_balancer_of(graph_of(**options)))

    def change(self, stage: str = REDUCER, **change: object) -> list[Instruction]:
        return self(COORDINATOR, ChangeMembers(stage, MemberChange(**change)))

    def settled(self, *tasks: int) -> list[Instruction]:
        return [one for task in tasks for one in self(reducer(task), Settled(1))]


# --- the load balancer


def test_in_merge_mode_a_table_without_a_task_is_to_be_settled_by_old_and_new_members() -> None:
    balancer = Balancer()
    assert to(balancer.change(replaces=((1, 3),)), MembersChanged) == []
    assert to(balancer.settled(0, 1, 2), MembersChanged) == []
    assert to(balancer.settled(3), MembersChanged) == [COORDINATOR]


def test_a_change_waits_until_the_last_table_is_settled() -> None:
    balancer = Balancer()
    balancer.change(leaves=(2,))
    assert to(balancer.change(joins=(3,)), TableUpdate) == []
    [(_, first), *_] = sent(balancer.settled(0, 1, 2), TableUpdate)
    assert first.change.version == 2 and first.change.members == (0, 1, 3)


def test_a_new_source_task_begins_when_it_knows_the_tables_and_marks_those_to_come() -> None:
    balancer = Balancer(consistency="migrate")
    done = balancer.change(MAPPER, joins=(2,))
    assert [type(message) for at, message in sent(done, object) if at == mapper(2)] == [CurrentTable, Begin]
    assert to(done, MembersChanged) == [COORDINATOR] and to(done, TableUpdate) == []
    published = balancer.change(joins=(3,))
    updates = dict(sent(published, TableUpdate))
    assert mapper(2) in updates and updates[reducer(0)].senders == (mapper(0), mapper(1), mapper(2))


def test_a_sender_is_let_go_when_nobody_waits_for_its_marker() -> None:
    balancer = Balancer(consistency="migrate")
    balancer.change(joins=(3,))
    assert to(balancer(COORDINATOR, Unsubscribe(mapper(1))), Unsubscribed) == []
    done = balancer.settled(0, 1, 2, 3)
    assert sent(done, Unsubscribed) == [(COORDINATOR, Unsubscribed(mapper(1)))]
    later = balancer.change(joins=(4,))
    assert mapper(1) not in to(later, TableUpdate)
    assert sent(later, TableUpdate)[0][1].senders == (mapper(0),)


def test_a_task_that_leaves_gets_tables_until_it_has_left() -> None:
    balancer = Balancer()
    balancer.change(leaves=(2,))
    balancer.settled(0, 1, 2)
    assert reducer(2) in to(balancer.change(joins=(3,)), TableUpdate)
    assert to(balancer(COORDINATOR, Unsubscribe(reducer(2))), Unsubscribed) == [COORDINATOR]
    assert reducer(2) not in to(balancer.change(joins=(4,)), TableUpdate)


def test_a_task_is_let_go_when_its_last_report_has_come() -> None:
    balancer = Balancer()
    balancer.change(leaves=(2,))
    balancer.settled(0, 1, 2)
    assert to(balancer(COORDINATOR, Unsubscribe(reducer(2), reports=2)), Unsubscribed) == []
    assert to(balancer(reducer(2), LoadReport(Load(0, 1))), Unsubscribed) == [COORDINATOR]


def test_a_task_that_left_offers_a_stage_nothing_any_more() -> None:
    balancer = Wire(load_balancer_of(graph_of(balance=BY_STRATEGY["adaptive"]())))
    sample = KeySample(np.array([1], dtype=np.uint32), np.array([50.0]), 50.0)
    for task in (mapper(0), mapper(1)):
        balancer(task, OfferedReport(REDUCER, 0, Offered(1.0, sample)))
    arrivals = balancer.machine.stages[REDUCER]._policy._arrivals
    assert arrivals.rate == 100
    balancer(COORDINATOR, Unsubscribe(mapper(1), reports=1))
    assert arrivals.rate == 50


# --- the coordinator


class Coordinator(Wire):
    """The coordinator of two mappers and three reducers, or of another graph, with all tasks up."""

    def __init__(self, graph: Graph | None = None, **options: object) -> None:
        graph = graph or graph_of(**options)
        self.machine: CoordinatorMachine = CoordinatorMachine(graph)
        super().__init__(self.machine)
        self.machine.handle(Start(), 0.0)
        for address in (*graph.addresses, BALANCER):
            self.started(address)

    def started(self, address: Address) -> list[Instruction]:
        return self.machine.handle(TaskStarted(address), 0.0)

    def ask(self, request: Rescale | MoveTasks | CancelChange) -> list[Instruction]:
        return self.handle_at(1.0, request)

    def handle_at(self, now: float, event: Event) -> list[Instruction]:
        return self.machine.handle(event, now)

    def reduced(self, index: int, processed: int) -> None:
        self(reducer(index), Progress(TaskStats(REDUCER, index, processed=processed)))

    def lives(self) -> list[Life]:
        return list(self.machine.snapshot()[REDUCER].lives)

    def answers(self, instructions: list[Instruction]) -> list[Answer]:
        return [one for one in instructions if isinstance(one, Answer)]


def left(index: int, stage: str = REDUCER) -> Left:
    return Left(TaskStats(stage, index, processed=5), LatencySketch(), LatencySketch())


def test_one_task_is_not_called_tasks() -> None:
    change = TaskChange(1, 0.0, REDUCER, (), (1, 2), (), 0.5, "asked for")
    assert change.in_words(1) == "reducer has 1 task (1, 2 went), after 0.50 s"


def test_a_task_that_leaves_is_stopped_when_all_have_let_it_go() -> None:
    coordinator = Coordinator()
    asked = coordinator.ask(MoveTasks(1, REDUCER, (0,)))
    assert asked == [StartTasks((reducer(3),), (None,))]
    coordinator.started(reducer(3))
    assert coordinator(reducer(0), left(0)) == []
    assert sent(coordinator(BALANCER, MembersChanged(REDUCER)), Unsubscribe) == [(BALANCER, Unsubscribe(reducer(0)))]
    done = coordinator(BALANCER, Unsubscribed(reducer(0)))
    assert StopTasks((reducer(0),), Present(REDUCER, (1, 2, 3), 4)) in done
    [answer] = coordinator.answers(done)
    assert "(0 is 3 now)" in answer.text
    snapshot = coordinator.machine.snapshot()
    assert snapshot[REDUCER].members == (1, 2, 3) and snapshot[REDUCER].tasks[0].processed == 5
    assert [(step.started, step.stopped, step.moved) for step in snapshot.steps] == [((3,), (0,), ((0, 3),))]


def test_requests_are_carried_out_one_after_the_other() -> None:
    coordinator = Coordinator()
    coordinator.ask(Rescale(1, REDUCER, 4))
    assert coordinator.ask(Rescale(2, REDUCER, 3)) == []
    coordinator.started(reducer(3))
    done = coordinator(BALANCER, MembersChanged(REDUCER))
    assert [answer.request for answer in coordinator.answers(done)] == [1]
    assert sent(done, ChangeMembers) == [(BALANCER, ChangeMembers(REDUCER, MemberChange(leaves=(3,))))]


def test_where_a_task_cannot_be_started_all_is_as_it_was() -> None:
    coordinator = Coordinator()
    coordinator.ask(Rescale(1, REDUCER, 5))
    assert coordinator.ask(Rescale(2, REDUCER, 4)) == []
    coordinator.machine.handle(Tick(), 1.0)
    refused, *others = coordinator.machine.handle(StartFailed("reducer 3 did not start: why"), 1.0)
    assert refused == Answer(1, "nothing was changed: reducer 3 did not start: why", refused=True)
    assert others == [StartTasks((reducer(3),), (None,))], "nobody has heard of the number"
    coordinator.started(reducer(3))
    assert "reducer has 4 tasks" in coordinator.answers(coordinator(BALANCER, MembersChanged(REDUCER)))[0].text
    snapshot = coordinator.machine.snapshot()
    assert snapshot[REDUCER].members == (0, 1, 2, 3) and len(snapshot[REDUCER].tasks) == 4
    assert [len(sample.queues) for sample in snapshot[REDUCER].samples] == [3]
    assert len(snapshot.steps) == 1


def test_a_task_takes_part_from_when_it_is_up_until_it_is_a_member_no_more() -> None:
    coordinator = Coordinator()
    coordinator.handle_at(2.0, Rescale(1, REDUCER, 4))
    assert coordinator.lives()[3].seconds(stream=8.0) == 0, "it is starting"
    coordinator.reduced(0, 70)
    coordinator.handle_at(4.0, TaskStarted(reducer(3)))
    coordinator(BALANCER, MembersChanged(REDUCER), 4.0)
    assert coordinator.lives() == [Life(), Life(), Life(), Life(4.0, processed_before=70)]
    coordinator.handle_at(5.0, MoveTasks(2, REDUCER, (1,)))
    coordinator.reduced(0, 90)
    coordinator.handle_at(6.0, TaskStarted(reducer(4)))
    coordinator(reducer(1), left(1), 7.0)
    assert coordinator.lives()[1] == Life(0.0, 6.0, 0, 90)
    assert coordinator.lives()[4] == Life(6.0, None, 90)


def test_a_task_that_could_not_be_started_never_took_part() -> None:
    coordinator = Coordinator()
    coordinator.handle_at(2.0, Rescale(1, REDUCER, 4))
    coordinator.handle_at(3.0, StartFailed("why"))
    assert coordinator.lives() == [Life()] * 3


def test_tasks_that_are_to_leave_read_on_until_others_are_up() -> None:
    coordinator = Coordinator()
    coordinator.ask(MoveTasks(1, MAPPER, (0, 1)))
    for task, split in zip((mapper(1), mapper(0), mapper(0)), SPLITS, strict=True):
        assert sent(coordinator(task, SplitRequest()), SplitGrant) == [(task, SplitGrant(split))]
    for task in (mapper(0), mapper(1)):
        assert sent(coordinator(task, SplitRequest()), SplitGrant) == [(task, SplitGrant(None))]
        coordinator(task, Progress(TaskStats(MAPPER, task.index), done=True))
    assert coordinator.machine.snapshot()[MAPPER].phase == "streaming"
    coordinator.machine.handle(StartFailed("why"), 1.0)
    assert coordinator.machine.snapshot()[MAPPER].phase == "done"


def drained(coordinator: Coordinator, *, processed: int = 6) -> list[Instruction]:
    """Both mappers have emitted 3 records each, and reducer 0 has processed these."""
    for index in (0, 1):
        while sent(coordinator(mapper(index), SplitRequest()), SplitGrant)[0][1].split is not None:
            pass
        coordinator(mapper(index), Progress(TaskStats(MAPPER, index, emitted=(3,)), done=True))
    return coordinator(reducer(0), Progress(TaskStats(REDUCER, 0, processed=processed)))


def test_a_stage_with_nothing_left_ends_as_soon_as_its_new_tasks_are_not_to_start_any_more() -> None:
    coordinator = Coordinator()
    coordinator.ask(Rescale(1, REDUCER, 5))
    cancel, *_ = [one for one in drained(coordinator) if isinstance(one, CancelStart)]
    assert cancel == CancelStart((reducer(3), reducer(4)))
    refused, freeze = coordinator.machine.handle(StartFailed("reducer 3 was not to start any more"), 1.0)
    assert sent([freeze], Freeze)
    assert refused == Answer(1, "nothing was changed: reducer has processed all its records", refused=True)


def test_tasks_that_are_up_before_their_start_is_cancelled_take_part() -> None:
    coordinator = Coordinator()
    coordinator.ask(Rescale(1, REDUCER, 4))
    drained(coordinator)
    assert to(coordinator.started(reducer(3)), ChangeMembers) == [BALANCER]
    done = coordinator(BALANCER, MembersChanged(REDUCER))
    assert "reducer has 4 tasks" in coordinator.answers(done)[0].text and to(done, Freeze) == [BALANCER]


def test_no_records_are_missed_while_tasks_change() -> None:
    coordinator = Coordinator()
    coordinator.ask(Rescale(1, REDUCER, 4))
    drained(coordinator, processed=5)
    for now in (50.0, 120.0, 180.0):
        for index in range(3):
            progress = Progress(TaskStats(REDUCER, index, processed=0 if index else 5))
            coordinator(reducer(index), progress, now=now)
        coordinator.machine.handle(Tick(), now)
    coordinator.machine.handle(StartFailed("why"), 181.0)
    for index in range(3):
        coordinator(reducer(index), Progress(TaskStats(REDUCER, index, processed=0 if index else 5)), now=242.0)
    with pytest.raises(ProtocolError, match="1 of 6 records to reducer were lost"):
        coordinator.machine.handle(Tick(), 242.0)


def test_a_change_is_cancelled_before_its_tasks_are_up_and_those_that_wait_with_it() -> None:
    coordinator = Coordinator()
    coordinator.ask(Rescale(1, REDUCER, 4))
    for request in (Rescale(2, REDUCER, 5), Rescale(3, MAPPER, 3)):
        assert coordinator.ask(request) == []
    waiting, cancel = coordinator.ask(CancelChange(4, REDUCER))
    assert waiting == Answer(2, "nothing was changed: it was cancelled", refused=True)
    assert cancel == CancelStart((reducer(3),))
    *answers, following = coordinator.machine.handle(StartFailed("reducer 3 was not to start any more"), 1.0)
    assert answers == [
        Answer(1, "nothing was changed: it was cancelled", refused=True),
        Answer(4, "the change of reducer is cancelled"),
    ]
    assert following == StartTasks((mapper(2),), (None,))
    assert coordinator.ask(Rescale(5, REDUCER, 4)) == []
    [waited, answer] = coordinator.ask(CancelChange(6, REDUCER))
    assert waited.request == 5 and waited.refused
    assert answer == Answer(6, "a change of reducer that waited will not begin")


def test_it_is_too_late_to_cancel_a_change_whose_tasks_are_up() -> None:
    coordinator = Coordinator()
    coordinator.ask(Rescale(1, REDUCER, 4))
    coordinator.ask(CancelChange(2, REDUCER))
    late = "too late: the new tasks of reducer take part, so the change ends soon by itself"
    assert coordinator.answers(coordinator.started(reducer(3))) == [Answer(2, late, refused=True)]
    assert coordinator.ask(CancelChange(3, REDUCER)) == [Answer(3, late, refused=True)]
    assert "reducer has 4 tasks" in coordinator.answers(coordinator(BALANCER, MembersChanged(REDUCER)))[0].text


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        (REDUCER, "no change of the tasks of reducer waits or is under way"),
        ("rows", "there is no stage 'rows'; the stages are mapper, reducer"),
    ],
)
def test_where_there_is_nothing_to_cancel_that_is_the_answer(stage: str, why: str) -> None:
    assert Coordinator().ask(CancelChange(1, stage)) == [Answer(1, why, refused=True)]


def test_a_stage_that_has_as_many_tasks_is_done_at_once_whatever_else_is_under_way() -> None:
    coordinator = Coordinator(can_merge=False)
    coordinator.ask(Rescale(1, MAPPER, 3))
    assert coordinator.ask(Rescale(2, REDUCER, 3)) == [Answer(2, "reducer has 3 tasks already")]
    assert coordinator.ask(Rescale(3, MAPPER, 2)) == [], "it has 2 until it has 3"


def test_a_job_whose_first_tasks_do_not_start_fails() -> None:
    machine = CoordinatorMachine(graph_of())
    machine.handle(Start(), 0.0)
    assert machine.handle(StartFailed("mapper 0 did not start"), 0.0) == [JobFailed("mapper 0 did not start")]


def test_the_rest_of_the_split_of_a_source_task_that_leaves_goes_to_another() -> None:
    coordinator = Coordinator()
    for task, split in zip((mapper(1), mapper(0), mapper(0)), SPLITS, strict=True):
        assert sent(coordinator(task, SplitRequest()), SplitGrant) == [(task, SplitGrant(split))]
    coordinator.ask(MoveTasks(1, MAPPER, (1,)))
    coordinator.started(mapper(2))
    assert coordinator(mapper(0), SplitRequest()) == []  # it waits
    coordinator(mapper(1), SplitReturned(0))
    assert sent(coordinator(mapper(1), SplitRequest()), SplitGrant) == [(mapper(1), SplitGrant(None))]
    [(reads, grant)] = sent(coordinator(mapper(1), left(1, MAPPER)), SplitGrant)
    assert (reads, grant.split) == (mapper(0), SPLITS[0])


def test_of_a_source_that_shrinks_tasks_with_nothing_to_read_go_first() -> None:
    coordinator = Coordinator()
    for task in (mapper(1), mapper(1), mapper(1), mapper(0)):
        coordinator(task, SplitRequest())
    coordinator(mapper(0), Progress(TaskStats(MAPPER, 0), done=True))
    assert sent(coordinator.ask(Rescale(1, MAPPER, 1)), Leave) == [(mapper(0), Leave())]


def test_a_source_that_ends_with_splits_left_is_an_error() -> None:
    coordinator = Coordinator()
    coordinator(mapper(0), Progress(TaskStats(MAPPER, 0), done=True))
    with pytest.raises(ProtocolError, match="mapper is done, but has not read all of its input"):
        coordinator(mapper(1), Progress(TaskStats(MAPPER, 1), done=True))


def test_a_source_task_that_leaves_gets_no_more_splits_and_is_waited_for() -> None:
    coordinator = Coordinator()
    assert sent(coordinator.ask(Rescale(1, MAPPER, 1)), Leave) == [(mapper(1), Leave())]
    assert to(coordinator(BALANCER, MembersChanged(MAPPER)), Unsubscribe) == []
    assert sent(coordinator(mapper(1), SplitRequest()), SplitGrant) == [(mapper(1), SplitGrant(None))]
    assert coordinator(mapper(1), Progress(TaskStats(MAPPER, 1, read=9), done=True)) == []
    done = coordinator(mapper(1), Left(TaskStats(MAPPER, 1, read=9), LatencySketch(), LatencySketch()))
    assert sent(done, Unsubscribe) == [(BALANCER, Unsubscribe(mapper(1)))]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (Rescale(1, "rows", 2), "there is no stage 'rows'; the stages are mapper, reducer"),
        (Rescale(1, REDUCER, 0), "reducer can have 1 to 256 tasks, not 0"),
        (Rescale(1, REDUCER, 257), "reducer can have 1 to 256 tasks, not 257"),
        (MoveTasks(1, REDUCER, (1, 0, 1)), "reducer 1 is named more than once"),
        (MoveTasks(1, REDUCER, (1, 5)), "reducer has no task 5; it has 0, 1, 2"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(request_: Rescale | MoveTasks, why: str) -> None:
    assert Coordinator().ask(request_) == [Answer(1, why, refused=True)]


def test_a_stage_whose_tasks_stay_says_why() -> None:
    why = "the tasks of reducer stay: two states of a key cannot be merged; set `consistency: migrate`"
    assert Coordinator(can_merge=False).ask(Rescale(1, REDUCER, 4)) == [Answer(1, why, refused=True)]


def test_the_one_reader_before_a_process_whose_order_matters_can_move_but_does_not_become_more() -> None:
    stages = (Stage(MAPPER, 1, StageInput(SPLITS), ordered_for=REDUCER), Stage(REDUCER, 3))
    coordinator = Coordinator(Graph(stages, (Edge(MAPPER, REDUCER),)))
    [refused] = coordinator.ask(Rescale(1, MAPPER, 2))
    assert isinstance(refused, Answer) and refused.refused
    assert "reducer takes the records of a key in the order in which one task emits them" in refused.text
    assert coordinator.ask(MoveTasks(2, MAPPER, (0,))) == [StartTasks((mapper(1),), (None,))]


def test_nothing_changes_before_the_stream_begins() -> None:
    machine = CoordinatorMachine(graph_of())
    machine.handle(Start(), 0.0)
    assert machine.handle(Rescale(1, REDUCER, 4), 0.0) == [Answer(1, "the job is starting", refused=True)]
