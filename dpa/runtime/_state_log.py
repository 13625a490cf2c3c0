"""What a task logs of its machine: each change of a state or a routing table, never a record or a block."""

from __future__ import annotations

import logging

from dpa.protocol.machine import Machine

_log = logging.getLogger(__name__)


class StateLog:
    """Compares a machine with what it was when it was last looked at. Costs nothing while nobody wants the log."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known = machine.states()

    def look(self) -> None:
        """Log what has changed."""
        if not _log.isEnabledFor(logging.INFO):
            return
        known, self._known = self._known, self._machine.states()
        for what, state in self._known.items():
            if state != known[what]:
                _log.info("%s: %s -> %s", what, known[what], state)
