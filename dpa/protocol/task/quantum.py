"""How many records an operator task processes at a time, so that messages reach it soon however slow its user code."""

from __future__ import annotations

from dpa.protocol.task.flow_control import FlowControl

_FIRST = 16
"""The first quantum: small enough to learn the speed of slow user code soon."""
_GROWTH = 8.0
"""A quantum is at most this many times as long as the one before: one lucky measurement must not cost seconds."""


class QuantumSizer:
    """Adapts the quantum to the measured service time, so that one takes about `quantum_seconds`."""

    def __init__(self, flow: FlowControl) -> None:
        """Quanta have between 1 and `quantum_records` records."""
        self._flow = flow
        self.size = min(_FIRST, flow.quantum_records)

    def observe(self, records: int, seconds: float) -> None:
        fitting = records * self._flow.quantum_seconds / seconds if seconds > 0 else float("inf")
        self.size = int(max(1, min(fitting, self.size * _GROWTH, self._flow.quantum_records)))
