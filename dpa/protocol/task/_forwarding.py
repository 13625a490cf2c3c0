"""Records that go on from the task that has them to the one that owns them now."""

from __future__ import annotations

from collections import Counter

from dpa.protocol.machine import Machine
from dpa.protocol.task._load_reporter import LoadReporter
from dpa.protocol.task._record_queue import Forwards
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages.data import CreditTransfer


class Forwarding:
    """That of one task."""

    def __init__(self, task: Machine, reporter: LoadReporter) -> None:
        self._task = task
        self._reporter = reporter

    def __call__(self, forwards: Forwards) -> None:
        """Send records to their owners. Who emitted them learns where their credit is now."""
        moved: Counter[tuple[Address, int, int]] = Counter()
        for owner, push in forwards:
            self._task.send(Address(self._task.address.stage, owner), push)
            self._reporter.dequeued(push.block.rows)
            moved[push.origin, push.edge, owner] += push.block.rows
        for (origin, edge, owner), records in moved.items():
            self._task.send(origin, CreditTransfer(edge, records, owner))
