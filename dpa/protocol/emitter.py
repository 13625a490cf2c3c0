"""One edge as a sending task sees it: records that wait for credit, the grouping, and the routing table of the stage
that receives them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dpa.errors import ProtocolError
from dpa.execution.block import Block
from dpa.protocol.addresses import Address
from dpa.protocol.messages import Ack, Push
from dpa.routing.change import TableChange
from dpa.routing.groupings.base import Grouping
from dpa.routing.table import RoutingTable

_BLOCKS_AHEAD = 1
"""A task makes this many blocks beyond the one that waits for credit."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """A block that waits for credit, and its source time (seconds)."""

    block: Block
    read_at: float


class Emitter:
    """Sends blocks along one edge as far as credit goes.

    A block is routed when it is pushed, not when it is made, so it always goes by the newest table known here.

    Attributes:
        edge: its number in the graph.
        stage: the stage that receives.
        origin: the task that sends.
        emitted: records pushed so far.
        in_flight: records pushed and not acknowledged yet.
    """

    def __init__(
        self, edge: int, stage: str, origin: Address, table: RoutingTable, grouping: Grouping, credit: int
    ) -> None:
        """Start with the receiving stage's table 0 and credit for `credit` records."""
        self.edge = edge
        self.stage = stage
        self.table = table
        self.emitted = 0
        self.in_flight = 0
        self.origin = origin
        self._grouping = grouping
        self._credit = credit
        self._waiting: deque[Waiting] = deque()

    @property
    def is_open(self) -> bool:
        """Whether it takes further blocks: a task whose emitters do not takes up no new work."""
        return len(self._waiting) <= _BLOCKS_AHEAD

    @property
    def waiting(self) -> int:
        """The number of blocks that wait for credit."""
        return len(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether no block waits for credit."""
        return not self._waiting

    @property
    def regrouped(self) -> int:
        """How often the grouping has given a part of the keys to another task because of signals."""
        return self._grouping.moved

    def keep(self, block: Block, read_at: float) -> None:
        """Take a block to be pushed.

        Raises:
            ProtocolError: it exceeds the credit, so that it could never be pushed.
        """
        if block.rows > self._credit:
            raise ProtocolError(f"{self.origin} made {block.rows} records at once, with credit for {self._credit}")
        self._waiting.append(Waiting(block, read_at))

    def release(self, now: float) -> list[tuple[Address, Push]]:
        """The pushes that credit allows by now, with their receivers."""
        pushes = []
        while self._waiting and self.in_flight + self._waiting[0].block.rows <= self._credit:
            waiting = self._waiting.popleft()
            self.in_flight += waiting.block.rows
            self.emitted += waiting.block.rows
            for index, part in waiting.block.route(self._grouping):
                push = Push(part, self.table.version, self.origin, self.edge, waiting.read_at, now)
                pushes.append((Address(self.stage, index), push))
        return pushes

    def acknowledged(self, sender: Address, ack: Ack) -> None:
        """Return credit, and pass on the load signal that came with it.

        Raises:
            ProtocolError: more credit comes back than is in use.
        """
        if ack.records > self.in_flight:
            raise ProtocolError(f"{self.origin} got {ack.records} credits back, with {self.in_flight} in use")
        self.in_flight -= ack.records
        if ack.signal is not None:
            self._grouping.observe(sender.index, ack.signal)

    def update(self, change: TableChange) -> None:
        """Adopt the next routing table."""
        self.table = change.apply(self.table)
        self._grouping.adopt(self.table)
