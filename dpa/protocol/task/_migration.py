"""States that move while records flow, as one task sees it: hand-overs come one by one, each settled before the next.

In migrate mode every table moves states. In merge mode states stay until the last exchange, unless a task leaves: it
processes what is queued for a while, then hands over the rest, and the others merge it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from dpa.errors import ProtocolError
from dpa.protocol.machine import Machine
from dpa.protocol.task._load_reporter import LoadReporter
from dpa.protocol.task.hand_over import Giving, GivingState, MigrationOptions, Taking, TakingState
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.record_queue import Forwards, RecordQueue
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.messages.data import CreditTransfer
from dpa.protocol.wire.messages.migration import Marker, Settled
from dpa.routing.members import Moves, hand_overs, left_by
from dpa.routing.table import RoutingTable


@dataclass(frozen=True)
class _PutOff:
    """The table in which a leaving task has no part, and when the task adopts it."""

    table: RoutingTable
    until: float


class Migration:
    """What a task gives and takes by the newest table."""

    def __init__(
        self,
        task: TaskMachine,
        queue: RecordQueue,
        options: MigrationOptions,
        senders: tuple[Address, ...],
        forward: Callable[[Forwards], None],
    ) -> None:
        """`senders` emit records to the task; `forward` sends on what its queue gives back."""
        self.giving = Giving(task, queue, forward, options)
        self.taking = Taking(task, queue, options)
        self._task = task
        self._queue = queue
        self._options = options
        self.senders = senders
        self._forward = forward
        self._settled = queue.table.version
        self._is_leaving = False
        self._put_off: _PutOff | None = None
        task.include(self.giving)
        task.include(self.taking)

    @property
    def is_settled(self) -> bool:
        return self._settled == self._queue.table.version and self._put_off is None

    @property
    def is_idle(self) -> bool:
        return self.is_settled and self.giving.is_idle and self.taking.is_idle

    @property
    def has_left(self) -> bool:
        return self._is_leaving and self.is_settled

    @property
    def occupies_user_code(self) -> bool:
        return self.giving.state is GivingState.EXTRACTING or self.taking.state is TakingState.INSTALLING

    def restart(self, table: RoutingTable, senders: tuple[Address, ...]) -> None:
        self.senders = senders
        self._forward(self._queue.retable(table))
        self._settled = table.version
        self.taking.restart()

    def adopt(self, table: RoutingTable, senders: tuple[Address, ...] | None) -> None:
        """`senders`: who emits records from now on; None: as before."""
        before, own = self._queue.table, self._task.address.index
        if not self.is_settled:
            raise ProtocolError(f"{self._task.address} got table {table.version} before {before.version} was settled")
        self.senders = self.senders if senders is None else senders
        if not self._options.in_order and own in left_by(before, table) and not self._queue.is_empty:
            self._put_off = _PutOff(table, self._task.now + self._options.flow.drain_seconds)
        else:
            self._adopt(table)

    def _adopt(self, table: RoutingTable) -> None:
        before, own = self._queue.table, self._task.address.index
        gone = left_by(before, table)
        between = hand_overs(before, table) if self._options.in_order else _all_of(gone, table)
        receivers = [to for source, to in between if source == own]
        sources = [source for source, to in between if to == own]
        self._forward(self._queue.migrate(table, self.senders, gives=bool(receivers), takes=bool(sources)))
        self._mark(gone, before, table)
        self._is_leaving = self._is_leaving or own in gone
        takes_part = (self._options.in_order or gone) and own in {*before.members, *table.members}
        if not takes_part:
            self._settled = table.version
        self.giving.begin(receivers, self._markers_for(own, before))
        self.taking.begin(sources, self.senders)

    def _mark(self, gone: frozenset[int], before: RoutingTable, table: RoutingTable) -> None:
        # Tasks that leave learn that nothing more is forwarded to them. In migrate mode nothing was: the table before
        # is settled.
        own = self._task.address.index
        if not self._options.in_order and own in before.members:
            for index in sorted(gone - {own}):
                self._task.send(Address(self._task.address.stage, index), Marker(table.version))

    def _markers_for(self, own: int, before: RoutingTable) -> list[Address]:
        peers = () if self._options.in_order else before.members
        stage = self._task.address.stage
        return [*self.senders, *(Address(stage, peer) for peer in peers if peer != own)]

    def advance(self, *, is_free: bool, has_work: bool) -> None:
        """Called between quanta: extract or install states if that is due and user code is free."""
        if self._put_off is not None and (self._queue.is_empty or self._task.now >= self._put_off.until):
            table, self._put_off = self._put_off.table, None
            self._adopt(table)
        if self.is_settled:
            return
        if is_free and not self.occupies_user_code and not (has_work and self._task.now < self.giving.rests_until):
            self.giving.advance()
        if is_free and not self.occupies_user_code:
            self.taking.advance()

    def end(self) -> None:
        """Report once that the newest table is settled."""
        if self.is_settled or self._put_off is not None:
            return
        if self.giving.state is GivingState.IDLE and self.taking.state is TakingState.IDLE:
            self._settled = self._queue.table.version
            self._task.send(BALANCER, Settled(self._settled))


def _all_of(gone: frozenset[int], table: RoutingTable) -> Moves:
    """Each leaving task gives to each that stays, perhaps nothing."""
    return frozenset((source, to) for source in gone for to in table.members)


class Forwarding:
    """Forwards the records of one task."""

    def __init__(self, task: Machine, reporter: LoadReporter) -> None:
        self._task = task
        self._reporter = reporter

    def __call__(self, forwards: Forwards) -> None:
        """Also reports to those who emitted the records where their credit is now."""
        moved: Counter[tuple[Address, int, int]] = Counter()
        for owner, push in forwards:
            self._task.send(Address(self._task.address.stage, owner), push)
            self._reporter.dequeued(push.block.rows)
            moved[push.origin, push.edge, owner] += push.block.rows
        for (origin, edge, owner), records in moved.items():
            self._task.send(origin, CreditTransfer(edge, records, owner))
