"""The hosts of a simulation: where each task is, the cores that tasks share there, and what each has used."""

from __future__ import annotations

from collections import Counter, defaultdict

from dpa.measure.load import TrafficMeter
from dpa.protocol.wire.addresses import RESERVED, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.nodes import Placed
from dpa.protocol.wire.use import TaskUse, forget_receivers

_MESSAGE_BYTES = 100
"""Of a message without records."""


class Hosts:
    """Where nothing is placed, all tasks are on one host.

    User code that begins while some of others runs on the host gets its share of the cores as it is then, until it
    ends. Where all tasks always have work, that is what an even scheduler gives them on average.
    """

    def __init__(self, placed: Placed | None, cores: int | None) -> None:
        """`cores`: of each host; None: one for each task."""
        self._placed = placed
        self._node: dict[Address, str] = {}
        self._cores = cores
        self._running: Counter[str] = Counter()
        self._busy: defaultdict[Address, float] = defaultdict(float)
        self._sent: defaultdict[Address, TrafficMeter[Address]] = defaultdict(TrafficMeter)

    def started(self, address: Address, node: str | None) -> None:
        """A task starts, on a node if it matters; else where the stage's tasks were placed, in turn."""
        homes = () if self._placed is None else self._placed.nodes.get(address.stage, ())
        self._node[address] = node or (homes[address.index % len(homes)] if homes else "")

    def begin(self, address: Address, seconds: float) -> float:
        """User code of a task begins that needs a core for `seconds`; returns the seconds that it waits for one."""
        self._busy[address] += seconds
        node = self._node.get(address, "")
        self._running[node] += 1
        return 0.0 if self._cores is None else seconds * max(0.0, self._running[node] / self._cores - 1)

    def end(self, address: Address) -> None:
        """User code of a task has ended."""
        self._running[self._node.get(address, "")] -= 1

    def sent(self, envelope: Envelope) -> None:
        """A message leaves its sender."""
        block = envelope.message.block if isinstance(envelope.message, Push) else None
        if envelope.receiver.stage not in RESERVED:
            size = _MESSAGE_BYTES if block is None else block.size
            self._sent[envelope.sender].sent(envelope.receiver, 0 if block is None else block.rows, size)

    def learns(self, address: Address, present: Present) -> None:
        """A task learns which tasks of a stage there are."""
        forget_receivers(self._sent[address], present)

    def use(self, address: Address) -> TaskUse | None:
        """What a task has used so far; None where nothing is placed."""
        if self._placed is None or address.stage in RESERVED:
            return None
        return TaskUse(self._node[address], cpu_seconds=self._busy[address], sent=self._sent[address].found())
