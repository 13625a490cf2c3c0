"""What a task says that has been at one step for long."""

from __future__ import annotations

import threading
import time

import pytest

from dpa._util.outages import HERE
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import map_reduce
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, Start, TaskDied, Tick
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.use import TaskUse
from dpa.runtime.actors._shell import Shell


class Host:
    """Begins user code that returns when the test says so, and notes what is done."""

    use = TaskUse

    def __init__(self) -> None:
        self.said: list[object] = []
        self.begun, self.over = threading.Event(), threading.Event()
        self.warn = self.said.append

    def send(self, envelope: Envelope) -> None:
        self.said.append(envelope)

    def flush(self) -> None:
        pass

    def failed(self, died: TaskDied) -> None:
        self.said.append(died)

    def at_once(self, instruction: Instruction) -> bool:
        return False

    def work(self, instruction: Instruction) -> Event | None:
        self.begun.set()
        self.over.wait()
        return None


def test_a_task_is_at_its_end_when_its_user_code_has_returned_and_then_takes_in_nothing() -> None:
    host = Host()
    shell = Shell(CoordinatorMachine(map_reduce((), 1, 1)), host, stuck_seconds=60)
    shell.start()
    shell.post(Start())
    host.begun.wait()
    assert not shell.end(seconds=0)
    host.over.set()
    wrote = threading.Event()
    shell.aside(wrote.wait)
    assert not shell.end(seconds=0.1), "what is carried out aside counts too"
    wrote.set()
    assert shell.end(seconds=60)
    shell.post(Start())  # which no coordinator takes in twice
    assert not host.said


def test_a_coordinator_whose_tasks_take_long_to_start_says_that_it_starts_them() -> None:
    host = Host()
    shell = Shell(CoordinatorMachine(map_reduce((), 1, 1)), host, stuck_seconds=1e-9)
    shell.start()
    shell.post(Start())
    host.begun.wait()
    shell._look_at_work()
    host.over.set()
    shell.stop()
    said = "coordinator has been at one step for 0 s; it is starting tasks, which import the modules"
    assert said in str(host.said[0])


def test_a_task_that_waits_for_a_place_is_not_said_to_be_at_one_step_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HERE, "awaited", 7.0)
    host = Host()
    shell = Shell(CoordinatorMachine(map_reduce((), 1, 1)), host, stuck_seconds=60)
    shell.start()
    shell.post(Start())
    host.begun.wait()
    HERE.awaited += 3600.0
    shell._work_began = time.monotonic() - 3600.0
    shell._look_at_work()
    assert not host.said
    HERE.awaited -= 3600.0
    shell._look_at_work()
    assert "at one step" in str(host.said[0])
    host.over.set()
    shell.stop()


def test_what_comes_together_is_answered_together_and_an_error_of_sending_that_ends_the_job() -> None:
    class Full(Host):
        """Cannot send what it has gathered."""

        def flush(self) -> None:
            self.said.append("flushed")
            raise OSError("no room for a bundle")

    host = Full()
    shell = Shell(CoordinatorMachine(map_reduce((), 1, 1)), host, stuck_seconds=60)
    shell.post(Tick(), Tick())
    flushed, died = host.said
    assert flushed == "flushed"
    assert isinstance(died, TaskDied) and "no room for a bundle" in died.cause
