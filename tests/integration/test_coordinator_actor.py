"""Tasks that are started and stopped by the coordinator's actor, where the two overlap."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest
import ray

from dpa.protocol.wire.addresses import Address, Present
from dpa.protocol.wire.events import Event, TasksGone, TaskStarted
from dpa.protocol.wire.instructions import StopTasks
from dpa.protocol.wire.nodes import TaskProcess
from dpa.runtime._actors import Handles, TaskActor, create
from dpa.runtime._coordinator_actor import CoordinatorActor

pytestmark = pytest.mark.usefixtures("ray")


def test_tasks_are_ended_though_others_start_between_the_wish_and_the_deed() -> None:
    class Task(TaskActor):
        """Tells whom it knows; a class of a function, as workers cannot import this module."""

        def __init__(self) -> None:
            super().__init__()
            self._shell = SimpleNamespace(lock=threading.RLock(), post=lambda event: None)  # type: ignore[assignment]

        @ray.method(concurrency_group="control")
        def connect(self, handles: Handles) -> TaskProcess:
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
            ray.get(handles[leaving].known.remote(), timeout=30)
        assert ray.get(handles[staying].known.remote()) == {coming}
        assert ray.get(handles[coming].known.remote()) == {staying, coming}
        assert coordinator._handles.keys() == {staying, coming}
        assert posted[-1] == TasksGone(stop.present)
    finally:
        coordinator._ended.set()
        for handle in handles.values():
            ray.kill(handle)
