"""States that move while records flow, as one task sees it: the two sides of a hand-over, the ranges that it gives to
others by the newest table, and those that it takes.

docs/design.md has hand-overs step by step, and why they are right."""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from dpa.errors import ProtocolError
from dpa.execution.publishing import EmittedRows
from dpa.execution.states import StatePart
from dpa.protocol.graph import Stage
from dpa.protocol.rules import Rule, RuledMachine, State, on, on_each, when
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.record_queue import Forwards, RecordQueue
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.events import RangesExtracted, StatesInstalled
from dpa.protocol.wire.instructions import ExtractRanges, InstallStates
from dpa.protocol.wire.messages.migration import Marker, PassedMarkers, RangeTransfer, Settled
from dpa.routing.hashing import ALL_HASHES
from dpa.routing.members import Moves, hand_overs, left_by
from dpa.routing.table import RoutingTable

_REST_SECONDS = 0.1  # seconds in which user code may process records between two pieces


@dataclass(frozen=True)
class GiveRanges:
    """By the table just adopted, `receivers` get ranges, and `senders` mark the table."""

    receivers: frozenset[int]
    senders: frozenset[Address]


@dataclass(frozen=True)
class TakeRanges:
    """By the table just adopted, `sources` give ranges, and `senders` mark the table."""

    sources: frozenset[int]
    senders: frozenset[Address]


class GivingState(State):
    """The steps of giving ranges."""

    IDLE = "idle"
    DUE = "due"
    EXTRACTING = "extracting"
    PASSING = "passing"


class Giving(RuledMachine):
    """The ranges that others get: their states in pieces, the records that came for them, and the markers of all
    senders. A marker may come before its table.

    In merge mode only a leaving task gives, and it gives everything. No task waits for that, so markers are not passed
    on.

    Attributes:
        rests_until: when the next piece is extracted, though there are records to process.
    """

    def __init__(
        self, task: TaskMachine, queue: RecordQueue, forward: Callable[[Forwards], None], stage: Stage
    ) -> None:
        super().__init__(GivingState.IDLE)
        self._task = task
        self._queue = queue
        self._forward = forward
        self._stage = stage
        self.rests_until = -math.inf
        self._receivers: list[int] = []
        self._senders: frozenset[Address] = frozenset()
        self._markers: list[Address] = []
        self._has_given = False

    @property
    def is_idle(self) -> bool:
        return self.state is GivingState.IDLE and not self._markers

    def begin(self, receivers: Iterable[int], senders: Iterable[Address]) -> None:
        own = self._task.address
        self.dispatch(own, own, GiveRanges(frozenset(receivers), frozenset(senders)))

    def _begin(self, sender: Address, event: GiveRanges) -> State | None:
        self._receivers, self._senders = sorted(event.receivers), event.senders
        return GivingState.DUE if self._receivers else None

    def _extract(self) -> State:
        self._task.instruct(ExtractRanges(self._queue.table, self._stage.piece_keys))
        return GivingState.EXTRACTING

    def _marked(self, sender: Address, message: Marker) -> State | None:
        # A marker may come before its table. In migrate mode a table is settled before the next is published: an idle
        # task expects a marker of the next one. In merge mode most tables need no settling, so it may be a later one.
        version = self._queue.table.version + (self.state is GivingState.IDLE)
        early = not self._stage.migrates and message.version > self._queue.table.version
        if (message.version != version and not early) or sender in self._markers:
            raise ProtocolError(f"{self._task.address} cannot take a marker of table {message.version} from {sender}")
        self._markers.append(sender)
        if self._has_given:
            self._pass_on((sender,))
        return self._end_if_over() if self.state is GivingState.PASSING else None

    def _extracted(self, sender: Address, event: RangesExtracted) -> State:
        piece, version = event.piece, self._queue.table.version
        self._task.has_given()
        self._has_given, self.rests_until = True, self._task.now + _REST_SECONDS
        for receiver in self._receivers:
            # Rows that this task has emitted belong to no range: one receiver adds them to its share.
            rows = piece.rows if receiver == self._receivers[0] else ()
            transfer = RangeTransfer(version, piece.parts.get(receiver), piece.interval, piece.is_last, rows)
            self._task.send(Address(self._task.address.stage, receiver), transfer)
        self._forward(self._queue.states_given(ALL_HASHES if piece.is_last else piece.interval))
        self._pass_on(tuple(self._markers))
        if not piece.is_last:
            return GivingState.DUE
        return self._end_if_over() or GivingState.PASSING

    def _pass_on(self, senders: tuple[Address, ...]) -> None:
        if senders and self._stage.migrates:
            for receiver in self._receivers:
                passed = PassedMarkers(self._queue.table.version, senders)
                self._task.send(Address(self._task.address.stage, receiver), passed)

    def _end_if_over(self) -> State | None:
        if not self._senders <= set(self._markers):
            return None
        self._markers, self._has_given = [], False
        return GivingState.IDLE

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(GiveRanges, GivingState.IDLE, _begin, "extract at the next turn, if there are any", (None, GivingState.DUE)),
        on(Marker, GivingState.IDLE, _marked, "keep"),
        on(Marker, [GivingState.DUE, GivingState.EXTRACTING], _marked, "pass on, also after each further piece"),
        on(Marker, GivingState.PASSING, _marked, "pass on; idle after the last one", (None, GivingState.IDLE)),
        when(GivingState.DUE, _extract, "extract the next piece", GivingState.EXTRACTING),
        on(
            RangesExtracted,
            GivingState.EXTRACTING,
            _extracted,
            "send the states, forward what is leaving with them, pass on all markers; due again before the last piece",
            (GivingState.DUE, GivingState.PASSING, GivingState.IDLE),
        ),
    )


class TakingState(State):
    """The steps of taking over ranges."""

    IDLE = "idle"
    TAKING = "taking"
    INSTALLING = "installing"


class Taking(RuledMachine):
    """The ranges that come from others: their states, which are installed before user code gets more records, and the
    markers of all senders from each giving task. Messages that come before their table are kept."""

    def __init__(self, task: TaskMachine, queue: RecordQueue, stage: Stage) -> None:
        super().__init__(TakingState.IDLE)
        self._task = task
        self._queue = queue
        self._stage = stage
        self._knows_table = task.address.index < stage.tasks  # else it was started after the job
        self._missing: set[int] = set()
        self._begun: set[int] = set()
        self._unmarked: set[tuple[int, Address]] = set()
        self._parts: list[StatePart] = []
        self._rows: list[EmittedRows] = []
        self._early: list[tuple[Address, RangeTransfer | PassedMarkers]] = []

    @property
    def is_idle(self) -> bool:
        return self.state is TakingState.IDLE and not self._early

    def begin(self, sources: Collection[int], senders: Iterable[Address]) -> None:
        if not sources:
            return
        own = self._task.address
        self.dispatch(own, own, TakeRanges(frozenset(sources), frozenset(senders)))
        early, self._early = self._early, []
        for giver, message in early:
            self.dispatch(own, giver, message)

    def _begin(self, sender: Address, event: TakeRanges) -> State:
        self._missing, self._begun = set(event.sources), set()
        awaited = event.senders if self._stage.migrates else ()
        self._unmarked = {(source, origin) for source in event.sources for origin in awaited}
        return TakingState.TAKING

    def restart(self) -> None:
        self._knows_table = True

    def _install(self) -> State | None:
        if not (self._parts or self._rows):
            return None
        parts, self._parts, rows, self._rows = self._parts, [], self._rows, []
        self._task.instruct(InstallStates(tuple(parts), tuple(rows), merges=not self._stage.migrates))
        return TakingState.INSTALLING

    def _keep(self, sender: Address, message: RangeTransfer | PassedMarkers) -> None:
        is_next = message.version == self._queue.table.version + 1
        if not is_next and self._stage.migrates and self._knows_table:
            held = f"{self._task.address}, which has settled table {self._queue.table.version},"
            raise ProtocolError(f"{held} cannot take ranges of table {message.version} from {sender}")
        self._early.append((sender, message))

    def _transferred(self, sender: Address, message: RangeTransfer) -> State | None:
        self._require(sender, message, due=sender.index in self._missing)
        self._queue.given(sender.index, ALL_HASHES if message.is_last else message.interval)
        self._begun.add(sender.index)
        if message.is_last:
            self._missing.remove(sender.index)
        if message.part is not None:
            self._parts.append(message.part)
        self._rows += message.rows
        return self._end_if_over() if self.state is TakingState.TAKING else None

    def _passed(self, sender: Address, message: PassedMarkers) -> State | None:
        passed = {(sender.index, origin) for origin in message.senders}
        self._require(sender, message, due=sender.index in self._begun and passed <= self._unmarked)
        # The giver passes its markers on again after each piece: only after the last one do they cover all ranges.
        if sender.index not in self._missing:
            self._unmarked -= passed
        self._queue.passed(sender.index, message.senders)
        return self._end_if_over() if self.state is TakingState.TAKING else None

    def _installed(self, sender: Address, event: StatesInstalled) -> State:
        self._task.has_open(event.opens)
        return self._end_if_over() or TakingState.TAKING

    def _require(self, sender: Address, message: RangeTransfer | PassedMarkers, *, due: bool) -> None:
        if message.version != self._queue.table.version or not due:
            what = f"a {type(message).__name__} of table {message.version} from {sender}"
            raise ProtocolError(f"{self._task.address} cannot take {what}")

    def _end_if_over(self) -> State | None:
        if self._missing or self._unmarked or self._parts or self._rows:
            return None
        self._queue.taken_over()
        return TakingState.IDLE

    RULES: ClassVar[tuple[Rule, ...]] = (
        *on_each((RangeTransfer, PassedMarkers), [TakingState.IDLE], _keep, "keep"),
        on(TakeRanges, TakingState.IDLE, _begin, "handle what was kept", TakingState.TAKING),
        on(RangeTransfer, TakingState.TAKING, _transferred, "install at the next turn", (None, TakingState.IDLE)),
        on(RangeTransfer, TakingState.INSTALLING, _transferred, "install at the next turn"),
        on(PassedMarkers, TakingState.TAKING, _passed, "queue what waited for them", (None, TakingState.IDLE)),
        on(PassedMarkers, TakingState.INSTALLING, _passed, "queue what waited for them"),
        when(TakingState.TAKING, _install, "install what has arrived", (None, TakingState.INSTALLING)),
        on(StatesInstalled, TakingState.INSTALLING, _installed, "continue", (TakingState.TAKING, TakingState.IDLE)),
    )


class Migration:
    """What a task gives and takes by the newest table: hand-overs come one by one, each settled before the next.

    In migrate mode every table moves states. In merge mode states stay until the last exchange, unless a task leaves:
    it processes what is queued for a while (N-Storm's D_K, section 3.1), then hands over the rest, and the others merge
    it."""

    def __init__(
        self,
        task: TaskMachine,
        queue: RecordQueue,
        stage: Stage,
        senders: tuple[Address, ...],
        forward: Callable[[Forwards], None],
    ) -> None:
        """`senders` emit records to the task; `forward` sends on what its queue gives back."""
        self.giving = Giving(task, queue, forward, stage)
        self.taking = Taking(task, queue, stage)
        self._task = task
        self._queue = queue
        self._stage = stage
        self.senders = senders
        self._forward = forward
        self._settled = queue.table.version
        self._is_leaving = False
        self._put_off: tuple[RoutingTable, float] | None = None  # what to adopt, and when at the latest
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
        if not self._stage.migrates and own in left_by(before, table) and not self._queue.is_empty:
            self._put_off = table, self._task.now + self._stage.flow.drain_seconds
        else:
            self._adopt(table)

    def _adopt(self, table: RoutingTable) -> None:
        before, own = self._queue.table, self._task.address.index
        gone = left_by(before, table)
        between = hand_overs(before, table) if self._stage.migrates else _all_of(gone, table)
        receivers = [to for source, to in between if source == own]
        sources = [source for source, to in between if to == own]
        self._forward(self._queue.migrate(table, self.senders, gives=bool(receivers), takes=bool(sources)))
        self._mark(gone, before, table)
        self._is_leaving = self._is_leaving or own in gone
        takes_part = (self._stage.migrates or gone) and own in {*before.members, *table.members}
        if not takes_part:
            self._settled = table.version
        self.giving.begin(receivers, self._markers_for(own, before))
        self.taking.begin(sources, self.senders)

    def _mark(self, gone: frozenset[int], before: RoutingTable, table: RoutingTable) -> None:
        # Tasks that leave learn that nothing more is forwarded to them. In migrate mode nothing was: the table before
        # is settled.
        own = self._task.address.index
        if not self._stage.migrates and own in before.members:
            for index in sorted(gone - {own}):
                self._task.send(Address(self._task.address.stage, index), Marker(table.version))

    def _markers_for(self, own: int, before: RoutingTable) -> list[Address]:
        peers = () if self._stage.migrates else before.members
        stage = self._task.address.stage
        return [*self.senders, *(Address(stage, peer) for peer in peers if peer != own)]

    def advance(self, *, is_free: bool, has_work: bool) -> None:
        """Called between quanta: extract or install states if that is due and user code is free."""
        if self._put_off is not None:
            table, until = self._put_off
            if self._queue.is_empty or self._task.now >= until:
                self._put_off = None
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
