"""What a task says that has been at one step for long."""

from __future__ import annotations

import threading

from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import map_reduce
from dpa.protocol.wire.events import Event, Start
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.use import TaskUse
from dpa.runtime.shell import Shell


def test_a_coordinator_whose_tasks_take_long_to_start_says_that_it_starts_them() -> None:
    warnings: list[str] = []
    begun, over = threading.Event(), threading.Event()

    def work(instruction: Instruction) -> Event | None:
        begun.set()
        over.wait()
        return None

    shell = Shell(
        CoordinatorMachine(map_reduce((), 1, 1)),
        send=lambda envelope: None,
        work=work,
        at_once=lambda instruction: False,
        fail=lambda died: warnings.append(died.in_words()),
        warn=warnings.append,
        use=TaskUse,
        stuck_seconds=1e-9,
    )
    shell.start()
    shell.post(Start())
    begun.wait()
    shell._look_at_work()
    over.set()
    shell.stop()
    assert "coordinator has been at one step for 0 s; it is starting tasks, which import the modules" in warnings[0]
