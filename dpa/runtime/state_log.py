"""What a task logs of its machine: each change of a state or a routing table, never a record or a block."""

from __future__ import annotations

import logging

from dpa.protocol.coordinator import CoordinatorMachine
from dpa.protocol.load_balancer import LoadBalancerMachine
from dpa.protocol.machine import Machine
from dpa.protocol.operator import OperatorMachine
from dpa.protocol.task import TaskMachine

_log = logging.getLogger(__name__)


class StateLog:
    """Compares a machine with what it was when it was last looked at. Costs nothing while nobody wants the log."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known = states_of(machine)

    def look(self) -> None:
        """Log what has changed."""
        if not _log.isEnabledFor(logging.INFO):
            return
        known, self._known = self._known, states_of(self._machine)
        for what, state in self._known.items():
            if state != known[what]:
                _log.info("%s: %s -> %s", what, known[what], state)


def states_of(machine: Machine) -> dict[str, object]:
    """What a machine has a state for, in words, and the state: itself, the stages that it looks after, and the versions
    of the routing tables that it goes by."""
    found: dict[str, object] = {"state": machine.state.value}
    if isinstance(machine, CoordinatorMachine | LoadBalancerMachine):
        found |= {f"stage {name}": stage.state.value for name, stage in machine.stages.items()}
    if isinstance(machine, LoadBalancerMachine):
        found |= {f"routing table of {name}": stage.table.version for name, stage in machine.stages.items()}
    if isinstance(machine, TaskMachine):
        found |= {f"routing table of {emitter.stage}": emitter.table.version for emitter in machine.emitters}
    if isinstance(machine, OperatorMachine):
        found[f"routing table of {machine.address.stage}"] = machine.table.version
    return found
