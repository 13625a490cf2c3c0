"""Redistributions in migrate mode as one task sees them: one hand-over after the other, each settled before the next.

Not in merge mode, where tasks have none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpa.errors import ProtocolError
from dpa.protocol.addresses import BALANCER, Address
from dpa.protocol.hand_over import Giving, GivingState, Taking, TakingState
from dpa.protocol.machine import Machine
from dpa.protocol.messages import Settled
from dpa.protocol.migrating_queue import MigratingQueue
from dpa.protocol.record_queue import Forwards
from dpa.routing.moves import moves
from dpa.routing.table import RoutingTable


@dataclass(frozen=True)
class MigrationOptions:
    """How states migrate.

    Attributes:
        senders: who emits records to the task.
        piece_keys: about the most keys whose states move at a time.
    """

    senders: tuple[Address, ...]
    piece_keys: int


class Migration:
    """What a task gives and takes by the newest table.

    Attributes:
        giving, taking: the two sides.
    """

    def __init__(
        self,
        task: Machine,
        queue: MigratingQueue,
        options: MigrationOptions,
        forward: Callable[[Forwards], None],
    ) -> None:
        """Of a task with this queue; `forward` sends on what the queue gives back."""
        self.giving = Giving(task, queue, options.senders, forward, options.piece_keys)
        self.taking = Taking(task, queue, options.senders)
        self._task = task
        self._queue = queue
        self._forward = forward
        self._settled = queue.table.version
        task.include(self.giving)
        task.include(self.taking)

    @property
    def is_settled(self) -> bool:
        """Whether the newest table that has come is settled."""
        return self._settled == self._queue.table.version

    @property
    def is_idle(self) -> bool:
        """Whether no hand-over is under way, and none has begun elsewhere."""
        return self.is_settled and self.giving.is_idle and self.taking.is_idle

    @property
    def occupies_user_code(self) -> bool:
        """Whether user code extracts or installs states now."""
        return self.giving.state is GivingState.EXTRACTING or self.taking.state is TakingState.INSTALLING

    def adopt(self, table: RoutingTable) -> None:
        """The next table has come.

        Raises:
            ProtocolError: the last one is not settled, or this one splits keys.
        """
        before, own = self._queue.table, self._task.address.index
        if not self.is_settled:
            raise ProtocolError(f"{self._task.address} got table {table.version} before {before.version} was settled")
        between = moves(before, table)
        receivers = [to for source, to in between if source == own]
        sources = [source for source, to in between if to == own]
        self._forward(self._queue.migrate(table, gives=bool(receivers), takes=bool(sources)))
        self.giving.begin(receivers)
        self.taking.begin(sources)

    def advance(self, *, is_free: bool, has_work: bool) -> None:
        """Let user code extract or install states if it is free and that is due, and report that all is settled. Where
        it has records to process, it gets some between two pieces that it extracts."""
        if is_free and not self.occupies_user_code and not (has_work and self.giving.is_resting):
            self.giving.advance()
        if is_free and not self.occupies_user_code:
            self.taking.advance()
        if not self.is_settled and self.giving.state is GivingState.IDLE and self.taking.state is TakingState.IDLE:
            self._settled = self._queue.table.version
            self._task.send(BALANCER, Settled(self._settled))
