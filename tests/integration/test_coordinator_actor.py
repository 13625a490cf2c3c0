"""Tasks that are started and stopped by the coordinator's actor, where the two overlap."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pyarrow as pa
import pytest
import ray

from dpa.errors import ProtocolError
from dpa.protocol.wire.addresses import COORDINATOR, RELAY, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, FailureKind, TaskDied, TasksGone, TaskStarted
from dpa.protocol.wire.instructions import Answer, Commit, StopTasks
from dpa.protocol.wire.messages.splits import SplitGrant
from dpa.protocol.wire.nodes import TaskProcess
from dpa.runtime._actors import Handles, StageActor, TaskActor, create
from dpa.runtime._coordinator_actor import CoordinatorActor
from dpa.runtime._kept_answers import RESTARTED
from dpa.runtime.pickled import opened
from dpa.sources.splits import MemorySplit

pytestmark = pytest.mark.usefixtures("ray")


def test_tasks_are_ended_though_others_start_between_the_wish_and_the_deed() -> None:
    class Task(TaskActor):
        """Tells whom it knows; a class of a function, as workers cannot import this module."""

        def __init__(self) -> None:
            super().__init__()
            self._shell = SimpleNamespace(lock=threading.RLock(), post=lambda event: None)  # type: ignore[assignment]

        @ray.method(concurrency_group="control")
        def connect(self, handles: Handles, generation: int) -> TaskProcess:
            self._handles = handles
            return TaskProcess("", os.getpid())

        @ray.method(concurrency_group="control")
        def known(self) -> set[Address]:
            return set(self._handles)

    staying, leaving, coming = (Address("reducer", index) for index in range(3))
    handles = {address: create(Task) for address in (staying, leaving, coming)}
    posted: list[Event] = []
    coordinator = CoordinatorActor()
    coordinator._shell = SimpleNamespace(lock=threading.Lock(), post=posted.append)  # type: ignore[assignment]
    coordinator._handles = {address: handles[address] for address in (staying, leaving)}
    try:
        stop = StopTasks((leaving,), Present("reducer", (0,), 2))
        assert not coordinator.at_once(stop), "the worker does it later"
        coordinator._connect({coming: handles[coming]})
        assert posted == [TaskStarted(coming)]
        assert ray.get([handles[task].known.remote() for task in (staying, leaving, coming)]) == [
            {coming},
            set(),
            {staying, coming},
        ]
        coordinator.work(stop)
        with pytest.raises(ray.exceptions.ActorDiedError):
            for _ in range(600):  # Ray ends it soon
                ray.get(handles[leaving].known.remote(), timeout=30)
                time.sleep(0.05)
        assert ray.get(handles[staying].known.remote()) == {coming}
        assert ray.get(handles[coming].known.remote()) == {staying, coming}
        assert coordinator._handles.keys() == {staying, coming}
        assert posted[-1] == TasksGone(stop.present)
    finally:
        coordinator._ended.set()
        for handle in handles.values():
            ray.kill(handle)


def test_a_process_of_a_later_generation_refuses_what_is_left_of_an_earlier_one() -> None:
    process = StageActor()
    assert process.reset(2) == TaskProcess(ray.get_runtime_context().get_node_id(), os.getpid())
    process._shell = SimpleNamespace(lock=threading.RLock())  # type: ignore[assignment]
    for left in (
        lambda: process.connect({}, 1),
        lambda: process.meet({}, 1),
        lambda: process.part(Present("reducer", (0,), 2), 1),
    ):
        with pytest.raises(ProtocolError, match="generation 1 has ended: this process is of generation 2"):
            left()
    process.join(1)  # returns


def test_a_task_of_an_earlier_generation_that_is_asked_for_too_late_takes_no_place_of_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, later = StageActor(), object()
    process.reset(2)
    process._user_code = later  # type: ignore[assignment]
    plan = SimpleNamespace(generation=1, tries=(), user_code=lambda *given, **more: object())
    packed = SimpleNamespace(rows=0, unpack=lambda: plan)
    monkeypatch.setattr("dpa.runtime._actors.ray.get", lambda given: given)
    with pytest.raises(ProtocolError, match="generation 1 has ended: this process is of generation 2"):
        process.become(Address("reducer", 0), [packed, None])  # type: ignore[list-item]
    assert process._user_code is later


def test_a_coordinator_goes_on_in_a_later_generation_whatever_fails_of_an_earlier_one() -> None:
    coordinator = CoordinatorActor()
    coordinator._answers.expect(7)
    coordinator._warnings.append("of the first generation")
    assert coordinator.reset(2) == TaskProcess(ray.get_runtime_context().get_node_id(), os.getpid())
    died = TaskDied(Address("reducer", 0), FailureKind.DIED, "it was killed")
    coordinator.fail(died, 1)
    coordinator.failed(died, 1)
    polled = coordinator.poll(0.0)
    assert (polled.error, polled.death, polled.warnings) == (None, None, [])
    assert coordinator.answers([7]) == [Answer(7, RESTARTED, refused=True)], "who asked learns it"


def test_a_death_that_is_noticed_while_a_coordinator_is_reset_ends_nothing() -> None:
    """As where a machine has two tasks: the next generation would end with the death of the second."""
    coordinator = CoordinatorActor()

    class Lock:
        """Whoever waits for it sees the process reset meanwhile."""

        def __enter__(self) -> None:
            coordinator._generation = 2

        def __exit__(self, *raised: object) -> None:
            pass

    machine = SimpleNamespace(state=None)
    coordinator._shell = SimpleNamespace(lock=Lock(), post=lambda event: None)  # type: ignore[assignment]
    coordinator._machine, coordinator._plan = machine, SimpleNamespace(generation=1)  # type: ignore[assignment]
    coordinator._plan.is_begun_again = lambda has_progressed: True  # type: ignore[method-assign]
    coordinator.fail(TaskDied(Address("reducer", 1), FailureKind.DIED, "it was killed"), 1)
    assert coordinator._error is None and coordinator._death is None


class Sink:
    """One that the driver commits to."""

    in_driver = True


def test_an_epoch_is_committed_when_the_driver_asks_again_and_not_when_it_is_given_to_it() -> None:
    """A checkpoint names it until then: a driver that dies while it gives the rows to a function gives them again."""
    coordinator, shell = CoordinatorActor(), SimpleNamespace(lock=threading.RLock())
    coordinator._started, coordinator._shell = 1.0, shell  # type: ignore[assignment]
    machine = SimpleNamespace(state=None, snapshot=lambda history: None)
    coordinator._machine = machine  # type: ignore[assignment]
    delivery = SimpleNamespace(partial=Sink())
    coordinator._plan = SimpleNamespace(deliveries={"reducer": delivery})  # type: ignore[assignment]
    commit, committed = Commit("reducer", 3, 1.0, ("rows",)), threading.Event()
    threading.Thread(target=lambda: (coordinator._commit(commit), committed.set()), daemon=True).start()
    try:
        assert coordinator.poll(30.0).commits == [commit]
        assert not committed.wait(0.2)
        assert coordinator.poll(0.0).commits == []
        assert committed.wait(30.0)
    finally:
        coordinator._ended.set()


def test_a_coordinator_answers_while_relays_start_and_says_where_they_are_with_the_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nobody could cancel the job, and the driver would take it for started, and look after no other machine."""
    coordinator, lock = CoordinatorActor(), threading.Lock()
    relay, place = Address(RELAY, 0), TaskProcess("here", 1)

    def answered(calls: dict[Address, object], otherwise: str = "did not start") -> dict[Address, TaskProcess]:
        assert not lock.locked()
        assert not coordinator._processes
        return dict.fromkeys(calls, place)

    coordinator._shell = SimpleNamespace(lock=lock, post=lambda event: None)  # type: ignore[assignment]
    coordinator._plan = SimpleNamespace(name="job")  # type: ignore[assignment]
    for name, given in (("_serve", {relay: None}), ("_made", {}), ("_introduce", {relay: None})):
        monkeypatch.setattr(coordinator, name, lambda *_, given=given: given)
    monkeypatch.setattr("dpa.runtime._coordinator_actor.require_all", answered)
    assert coordinator._start_first(()) is None
    assert coordinator._processes == {relay: place}


@pytest.mark.parametrize(("rows", "ways"), [(1, ["relay", "relay"]), (100_000, ["direct", "direct"])])
def test_a_message_goes_through_a_relay_unless_it_is_large_whether_it_has_arrays_or_not(
    rows: int, ways: list[str]
) -> None:
    went: list[tuple[str, object]] = []

    def handle(way: str) -> SimpleNamespace:
        call = SimpleNamespace(remote=lambda given: went.append((way, given)))
        return SimpleNamespace(deliver=call, spread=call)

    coordinator, task, source = CoordinatorActor(), StageActor(), Address("read", 3)
    coordinator._relays = {Address(RELAY, 0): handle("relay")}
    coordinator._handles = {source: handle("direct")}
    task._handles, task._relay = {COORDINATOR: handle("direct")}, handle("relay")
    grant = SplitGrant(MemorySplit(pa.table({"number": [*range(rows)]})))
    coordinator.send(Envelope(COORDINATOR, source, 0, grant))
    coordinator.flush()
    task.send(Envelope(source, COORDINATOR, 0, grant))
    assert [way for way, _ in went] == ways
    for _, given in went:
        [pickled] = [pickled for _, pickled in given] if isinstance(given, list) else [given]
        message = opened(pickled).message
        assert isinstance(message, SplitGrant) and isinstance(message.split, MemorySplit)
        assert message.split.table.num_rows == rows
