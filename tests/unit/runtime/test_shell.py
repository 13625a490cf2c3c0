"""What a task says that has been at one step for long."""

from __future__ import annotations

import threading

from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import map_reduce
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, Start
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.use import TaskUse
from dpa.runtime._shell import Shell


def test_a_coordinator_whose_tasks_take_long_to_start_says_that_it_starts_them() -> None:
    warnings: list[str] = []
    begun, over = threading.Event(), threading.Event()

    class Starting:
        """A host on which tasks start until the test is over."""

        warn = failed = staticmethod(warnings.append)
        use = TaskUse

        def send(self, envelope: Envelope) -> None:
            """Nowhere."""

        def at_once(self, instruction: Instruction) -> bool:
            return False

        def work(self, instruction: Instruction) -> Event | None:
            begun.set()
            over.wait()
            return None

    shell = Shell(CoordinatorMachine(map_reduce((), 1, 1)), Starting(), stuck_seconds=1e-9)
    shell.start()
    shell.post(Start())
    begun.wait()
    shell._look_at_work()
    over.set()
    shell.stop()
    assert "coordinator has been at one step for 0 s; it is starting tasks, which import the modules" in warnings[0]
