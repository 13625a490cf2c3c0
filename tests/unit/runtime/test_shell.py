"""What a task says that has been at one step for long, and what it logs of its machine: changes alone."""

from __future__ import annotations

import logging
import threading
import time

import pyarrow as pa
import pytest

from dpa._util.outages import HERE
from dpa.execution.block import Block
from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.machines import task_of
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, Start, TaskDied, Tick
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.end import Freeze
from dpa.protocol.wire.messages.splits import Begin
from dpa.protocol.wire.messages.tables import TableUpdate
from dpa.protocol.wire.use import TaskUse
from dpa.routing.change import TableChange
from dpa.runtime.actors._shell import Shell, StateLog
from experiments.simulated_jobs.map_reduce import map_reduce


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


GRAPH = map_reduce((), 1, 2)
SOURCE, OPERATOR = GRAPH.addresses[:2]


def test_changes_of_states_and_tables_are_logged_and_records_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dpa")
    machine = task_of(GRAPH, OPERATOR)
    log = StateLog(machine)
    table = GRAPH[OPERATOR.stage].first_table()
    change = TableUpdate(OPERATOR.stage, TableChange.of(table, {5: 1}, ()))
    block = Block.of(pa.array(["a"]), None, 0)
    messages = [(SOURCE, Push(block, 0, SOURCE, 0, 0.0, 0.0)), (BALANCER, change)]
    for sender, message in messages:
        machine.handle(Envelope(sender, OPERATOR, 0, message), 0.0)
        log.look()
    assert caplog.messages == ["routing table of reducer: 0 -> 1"]


def test_a_source_and_the_balancer_log_their_states_if_somebody_wants_that(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dpa")
    for machine, message in ((task_of(GRAPH, SOURCE), Begin()), (load_balancer_of(GRAPH), Freeze(OPERATOR.stage))):
        log = StateLog(machine)
        machine.handle(Envelope(COORDINATOR, machine.address, 0, message), 0.0)
        log.look()
    assert caplog.messages == ["state: starting -> requesting", "stage reducer: balancing -> frozen"]
    caplog.clear()
    caplog.set_level(logging.WARNING, "dpa")
    machine = task_of(GRAPH, SOURCE)
    log = StateLog(machine)
    machine.handle(Envelope(COORDINATOR, SOURCE, 0, Begin()), 0.0)
    log.look()
    assert not caplog.messages
