"""Tasks that are started and stopped by the coordinator's actor, where the two overlap."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import ray
from programs_for_tests import PATIENCE

from dpa._util.outages import HERE
from dpa.errors import ProtocolError
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.machines import task_of
from dpa.protocol.plan import RunPlan
from dpa.protocol.task.delivery import Delivery
from dpa.protocol.wire.addresses import COORDINATOR, RELAY, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, FailureKind, TaskDied, TasksGone, TaskStarted
from dpa.protocol.wire.instructions import Answer, Commit, StopTasks
from dpa.protocol.wire.messages.splits import SplitGrant
from dpa.protocol.wire.nodes import TaskProcess
from dpa.runtime.actors._coordinating import Coordinating
from dpa.runtime.actors._pickled import opened
from dpa.runtime.actors._starting import Prepared
from dpa.runtime.actors._task import Handles, Task
from dpa.runtime.actors.actor import StageActor, TaskActor, create
from dpa.runtime.actors.answers import RESTARTED, PendingRequests
from dpa.runtime.actors.coordinator import CoordinatorActor
from dpa.runtime.packed_plan import PackedPlan
from dpa.sources.splits import MemorySplit
from experiments.simulated_jobs.map_reduce import map_reduce

pytestmark = pytest.mark.usefixtures("ray")

GRAPH = map_reduce((), 1, 3)
MAPPERS, REDUCERS = Address(MAPPER, 0), tuple(Address(REDUCER, index) for index in range(3))


class Sink:
    """One that the driver commits to."""

    in_driver = True


class Begun(Coordinating):
    """A coordinator that has a plan, and notes what its machine is to take in."""

    def __init__(
        self,
        deliveries: Mapping[str, Delivery],
        relays: Mapping[Address, Any],
        answers: PendingRequests,
        attempts_left: int,
    ) -> None:
        plan = RunPlan(GRAPH, tasks={}, deliveries=deliveries, generation=1, attempts_left=attempts_left)
        super().__init__(Prepared(answers, relays), None, plan, PackedPlan.pack(plan), None, answers)
        self.posted: list[Event] = []
        self.shell.post = lambda *events: self.posted.extend(events)  # type: ignore[method-assign]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Begun]]:
    monkeypatch.setattr("dpa.runtime.actors._task.name_process", lambda *given: None)
    made: list[Begun] = []

    def begin(
        deliveries: Mapping[str, Delivery] = {},
        relays: Mapping[Address, Any] = {},
        answers: PendingRequests | None = None,
        attempts_left: int = 0,
    ) -> Begun:
        made.append(Begun(deliveries, relays, answers or PendingRequests(), attempts_left))
        return made[-1]

    yield begin
    for coordinator in made:
        coordinator._ended.set()
    HERE.end()


def test_tasks_are_ended_though_others_start_between_the_wish_and_the_deed(begun: Callable[..., Begun]) -> None:
    plan = RunPlan(GRAPH, tasks={}, deliveries={}, generation=1)

    class Knowing(TaskActor):
        """Tells whom it knows; a class of a function, as workers cannot import this module."""

        def __init__(self) -> None:
            super().__init__()
            self.task = Task(task_of(plan.graph, plan.graph.addresses[0]), plan)

        @ray.method(concurrency_group="control")
        def connect(self, handles: Handles, generation: int) -> TaskProcess:
            assert self.task is not None
            self.task.handles = handles
            return TaskProcess("", os.getpid())

        @ray.method(concurrency_group="control")
        def known(self) -> set[Address]:
            assert self.task is not None
            return set(self.task.handles)

    staying, leaving, coming = REDUCERS
    handles = {address: create(Knowing) for address in REDUCERS}
    coordinator = begun()
    coordinator.handles = {address: handles[address] for address in (staying, leaving)}
    try:
        stop = StopTasks((leaving,), Present(REDUCER, (0,), 2))
        assert not coordinator.at_once(stop), "the worker does it later"
        coordinator._connect({coming: handles[coming]})
        assert coordinator.posted == [TaskStarted(coming)]
        assert ray.get([handles[task].known.remote() for task in REDUCERS]) == [{coming}, set(), {staying, coming}]
        coordinator.work(stop)
        with pytest.raises(ray.exceptions.ActorDiedError):
            for _ in range(600):  # Ray ends it soon
                ray.get(handles[leaving].known.remote(), timeout=PATIENCE)
                time.sleep(0.05)
        assert ray.get(handles[staying].known.remote()) == {coming}
        assert ray.get(handles[coming].known.remote()) == {staying, coming}
        assert coordinator.handles.keys() == {staying, coming}
        assert coordinator.posted[-1] == TasksGone(stop.present)
    finally:
        coordinator._ended.set()
        for handle in handles.values():
            ray.kill(handle)


def test_a_process_of_a_later_generation_refuses_what_is_left_of_an_earlier_one() -> None:
    process = StageActor()
    assert process.reset(2) == TaskProcess(ray.get_runtime_context().get_node_id(), os.getpid())
    for left in (
        lambda: process.connect({}, 1),
        lambda: process.meet({}, 1),
        lambda: process.part(Present(REDUCER, (0,), 2), 1),
    ):
        with pytest.raises(ProtocolError, match="generation 1 has ended: this process is of generation 2"):
            left()
    process.join(1)  # returns
    process.deliver(b"what a task of generation 1 has sent")


def test_a_task_of_an_earlier_generation_that_is_asked_for_too_late_takes_no_place_of_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, later = StageActor(), object()
    process.reset(2)
    process.task = later  # type: ignore[assignment]
    packed = SimpleNamespace(rows=0, tasks=1, changes=None, unpack=lambda: SimpleNamespace(generation=1))
    monkeypatch.setattr("dpa.runtime.actors.actor.ray.get", lambda given: given)
    with pytest.raises(ProtocolError, match="generation 1 has ended: this process is of generation 2"):
        process.become(REDUCERS[0], [packed, None])  # type: ignore[list-item]
    assert process.task is later  # type: ignore[comparison-overlap]


def test_a_coordinator_goes_on_in_a_later_generation_whatever_fails_of_an_earlier_one(
    begun: Callable[..., Begun],
) -> None:
    coordinator = CoordinatorActor()
    coordinator.task = earlier = begun(answers=coordinator._answers, attempts_left=1)
    before = coordinator._answers.expect(7)
    coordinator.warn("of the first generation")
    assert coordinator.reset(2) == TaskProcess(ray.get_runtime_context().get_node_id(), os.getpid())
    later = coordinator._answers.expect(8)
    died = TaskDied(REDUCERS[0], FailureKind.DIED, "it was killed")
    coordinator.fail(died, 1)
    earlier.fail(died)
    earlier.failed(died)
    coordinator.task = begun(answers=coordinator._answers)
    polled = coordinator.poll(0.0)
    assert (polled.error, polled.death, polled.warnings) == (None, None, [])
    assert before is not None and before.result(0) == Answer(7, RESTARTED, refused=True), "who asked learns it"
    assert later is not None and not later.done()


def test_a_death_that_is_noticed_while_a_coordinator_is_reset_ends_nothing(begun: Callable[..., Begun]) -> None:
    """As where a machine has two tasks: the next generation would end with the death of the second."""
    answers = PendingRequests()
    asked = answers.expect(7)
    coordinator = begun(answers=answers, attempts_left=1)

    class Lock:
        """Whoever waits for it a second time sees the process reset meanwhile."""

        entered = False

        def __enter__(self) -> None:
            if self.entered:
                coordinator._ended.set()
            self.entered = True

        def __exit__(self, *raised: object) -> None:
            pass

    coordinator.shell.lock = Lock()  # type: ignore[assignment]
    coordinator.fail(TaskDied(REDUCERS[1], FailureKind.DIED, "it was killed"))
    assert coordinator._error is None and coordinator._death is None and not coordinator.posted
    assert asked is not None and not asked.done()


def test_an_epoch_is_committed_when_the_driver_asks_again_and_not_when_it_is_given_to_it(
    begun: Callable[..., Begun],
) -> None:
    """A checkpoint names it until then: a driver that dies while it gives the rows to a function gives them again."""
    coordinator = begun({REDUCER: Delivery((Sink(),), publishes=("final",))})  # type: ignore[arg-type]
    commit, committed = Commit(REDUCER, 3, 1.0, ("rows",)), threading.Event()
    threading.Thread(target=lambda: (coordinator._commit(commit), committed.set()), daemon=True).start()
    assert coordinator.poll(30.0).commits == [commit]
    assert not committed.wait(0.2)
    assert coordinator.poll(0.0).commits == []
    assert committed.wait(30.0)


def test_a_coordinator_answers_while_relays_start_and_says_where_they_are_with_the_tasks(
    begun: Callable[..., Begun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody could cancel the job, and the driver would take it for started, and look after no other machine."""
    coordinator, lock = begun(), threading.Lock()
    relay, place = Address(RELAY, 0), TaskProcess("here", 1)

    def answered(calls: dict[Address, object], otherwise: str = "did not start") -> dict[Address, TaskProcess]:
        assert not lock.locked()
        assert not coordinator._processes
        return dict.fromkeys(calls, place)

    coordinator.shell.lock = lock  # type: ignore[assignment]
    for name, given in (("_serve", {relay: None}), ("_made", {}), ("_introduce", {relay: None})):
        monkeypatch.setattr(coordinator, name, lambda *_, given=given: given)
    monkeypatch.setattr("dpa.runtime.actors._coordinating.require_all", answered)
    assert coordinator._start_first(()) is None
    assert coordinator._processes == {relay: place}


@pytest.mark.parametrize(("rows", "ways"), [(1, ["relay", "relay"]), (100_000, ["direct", "direct"])])
def test_a_message_goes_through_a_relay_unless_it_is_large_whether_it_has_arrays_or_not(
    rows: int, ways: list[str], begun: Callable[..., Begun]
) -> None:
    went: list[tuple[str, object]] = []

    def handle(way: str) -> SimpleNamespace:
        call = SimpleNamespace(remote=lambda given: went.append((way, given)))
        return SimpleNamespace(deliver=call, spread=call)

    coordinator = begun(relays={Address(RELAY, 0): handle("relay")})
    coordinator.handles = {MAPPERS: handle("direct")}
    task = Task(task_of(GRAPH, MAPPERS), RunPlan(GRAPH, tasks={}, deliveries={}))
    task.handles, task._relay = {COORDINATOR: handle("direct")}, handle("relay")
    grant = SplitGrant(MemorySplit(pa.table({"number": [*range(rows)]})))
    coordinator.send(Envelope(COORDINATOR, MAPPERS, 0, grant))
    coordinator.flush()
    task.send(Envelope(MAPPERS, COORDINATOR, 0, grant))
    assert [way for way, _ in went] == ways
    for _, given in went:
        [pickled] = [pickled for _, pickled in given] if isinstance(given, list) else [given]
        message = opened(pickled).message
        assert isinstance(message, SplitGrant) and isinstance(message.split, MemorySplit)
        assert message.split.table.num_rows == rows
