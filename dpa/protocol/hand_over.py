"""The two sides of a hand-over: the ranges that a task gives to others by the newest table, and those that it takes.

docs/migration.md has the hand-over step by step, and why it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import ClassVar

from dpa.errors import ProtocolError
from dpa.execution.states import StatePart
from dpa.protocol.addresses import Address
from dpa.protocol.machine import ExtractRanges, InstallStates, Machine, RangesExtracted, StatesInstalled
from dpa.protocol.messages import Marker, PassedMarkers, RangeTransfer
from dpa.protocol.migrating_queue import MigratingQueue
from dpa.protocol.record_queue import Forwards
from dpa.protocol.rules import Rule, RuledMachine, State, on
from dpa.routing.hashing import ALL_HASHES


class GivingState(State):
    """The steps of giving ranges."""

    IDLE = "idle"
    DUE = "due"
    EXTRACTING = "extracting"
    PASSING = "passing"


class Giving(RuledMachine):
    """The ranges that others get: their states, in one piece after the other, the records that came for them, and the
    markers of all senders. A marker may come before its table does.

    Attributes:
        is_resting: whether a piece has been extracted, and no records have been processed since.
    """

    def __init__(
        self,
        task: Machine,
        queue: MigratingQueue,
        senders: Collection[Address],
        forward: Callable[[Forwards], None],
        piece_keys: int,
    ) -> None:
        """`senders` emit records to the task; `forward` sends on what the queue gives back; `piece_keys`: about the
        most keys of a piece."""
        super().__init__(GivingState.IDLE)
        self._task = task
        self._queue = queue
        self._senders = len(senders)
        self._forward = forward
        self._piece_keys = piece_keys
        self.is_resting = False
        self._receivers: list[int] = []
        self._markers: list[Address] = []
        self._has_given = False

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to give, by a newer table either."""
        return self.state is GivingState.IDLE and not self._markers

    def begin(self, receivers: Iterable[int]) -> None:
        """These tasks get ranges by the table that the queue has just adopted."""
        self._receivers = sorted(receivers)
        if self._receivers:
            self.state = GivingState.DUE

    def advance(self) -> None:
        """Let user code extract if that is due. Called when user code is free."""
        if self.state is GivingState.DUE:
            self.state = GivingState.EXTRACTING
            self._task.instruct(ExtractRanges(self._queue.table, self._piece_keys))

    def _marked(self, sender: Address, message: Marker) -> None:
        version = self._queue.table.version + (self.state is GivingState.IDLE)
        if message.version != version or sender in self._markers:
            raise ProtocolError(f"{self._task.address} cannot take a marker of table {message.version} from {sender}")
        self._markers.append(sender)
        if self._has_given:
            self._pass_on((sender,))

    def _extracted(self, sender: Address, event: RangesExtracted) -> None:
        piece, version = event.piece, self._queue.table.version
        self.state = GivingState.PASSING if piece.is_last else GivingState.DUE
        self._has_given, self.is_resting = True, not piece.is_last
        for receiver in self._receivers:
            transfer = RangeTransfer(version, piece.parts.get(receiver), piece.interval, piece.is_last)
            self._task.send(Address(self._task.address.stage, receiver), transfer)
        self._forward(self._queue.states_given(ALL_HASHES if piece.is_last else piece.interval))
        self._pass_on(tuple(self._markers))

    def _pass_on(self, senders: tuple[Address, ...]) -> None:
        if senders:
            for receiver in self._receivers:
                passed = PassedMarkers(self._queue.table.version, senders)
                self._task.send(Address(self._task.address.stage, receiver), passed)
        if self.state is GivingState.PASSING and len(self._markers) == self._senders:
            self.state = GivingState.IDLE
            self._markers, self._has_given = [], False

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(Marker, GivingState.IDLE, _marked, "keep"),
        on(Marker, [GivingState.DUE, GivingState.EXTRACTING], _marked, "pass on, also after each further piece"),
        on(Marker, GivingState.PASSING, _marked, "pass on; idle after the last one"),
        on(
            RangesExtracted,
            GivingState.EXTRACTING,
            _extracted,
            "send the states, forward what is leaving with them, pass on all markers; due again before the last piece",
        ),
    )


class TakingState(State):
    """The steps of taking over ranges."""

    IDLE = "idle"
    TAKING = "taking"
    INSTALLING = "installing"


class Taking(RuledMachine):
    """The ranges that come from others: their states, which user code installs before it gets further records, and the
    markers of all senders from each task that gives. What comes before its table is kept."""

    def __init__(self, task: Machine, queue: MigratingQueue, senders: Collection[Address]) -> None:
        """`senders` emit records to the task."""
        super().__init__(TakingState.IDLE)
        self._task = task
        self._queue = queue
        self._senders = frozenset(senders)
        self._missing: set[int] = set()
        self._begun: set[int] = set()
        self._unmarked: set[tuple[int, Address]] = set()
        self._parts: list[StatePart] = []
        self._early: list[tuple[Address, RangeTransfer | PassedMarkers]] = []

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to take over, by a newer table either."""
        return self.state is TakingState.IDLE and not self._early

    def begin(self, sources: Collection[int]) -> None:
        """These tasks give ranges by the table that the queue has just adopted."""
        if not sources:
            return
        self.state = TakingState.TAKING
        self._missing, self._begun = set(sources), set()
        self._unmarked = {(source, sender) for source in sources for sender in self._senders}
        early, self._early = self._early, []
        for giver, message in early:
            self.dispatch(self._task.address, giver, message)

    def advance(self) -> None:
        """Let user code install what has come. Called when user code is free."""
        if self.state is TakingState.TAKING and self._parts:
            self.state = TakingState.INSTALLING
            parts, self._parts = self._parts, []
            self._task.instruct(InstallStates(tuple(parts)))

    def _keep(self, sender: Address, message: RangeTransfer | PassedMarkers) -> None:
        if message.version != self._queue.table.version + 1:
            held = f"{self._task.address}, which has settled table {self._queue.table.version},"
            raise ProtocolError(f"{held} cannot take ranges of table {message.version} from {sender}")
        self._early.append((sender, message))

    def _transferred(self, sender: Address, message: RangeTransfer) -> None:
        self._require(sender, message, due=sender.index in self._missing)
        self._queue.given(sender.index, ALL_HASHES if message.is_last else message.interval)
        self._begun.add(sender.index)
        if message.is_last:
            self._missing.remove(sender.index)
        if message.part is not None:
            self._parts.append(message.part)
        self._end()

    def _passed(self, sender: Address, message: PassedMarkers) -> None:
        passed = {(sender.index, origin) for origin in message.senders}
        self._require(sender, message, due=sender.index in self._begun and passed <= self._unmarked)
        if sender.index not in self._missing:
            self._unmarked -= passed
        self._queue.passed(sender.index, message.senders)
        self._end()

    def _installed(self, sender: Address, event: StatesInstalled) -> None:
        self.state = TakingState.TAKING
        self._end()

    def _require(self, sender: Address, message: RangeTransfer | PassedMarkers, *, due: bool) -> None:
        if message.version != self._queue.table.version or not due:
            what = f"a {type(message).__name__} of table {message.version} from {sender}"
            raise ProtocolError(f"{self._task.address} cannot take {what}")

    def _end(self) -> None:
        """Idle again once all has come and is installed."""
        if self.state is TakingState.TAKING and not (self._missing or self._unmarked or self._parts):
            self.state = TakingState.IDLE
            self._queue.taken_over()

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(RangeTransfer, TakingState.IDLE, _keep, "keep"),
        on(RangeTransfer, [TakingState.TAKING, TakingState.INSTALLING], _transferred, "install at the next turn"),
        on(PassedMarkers, TakingState.IDLE, _keep, "keep"),
        on(PassedMarkers, [TakingState.TAKING, TakingState.INSTALLING], _passed, "queue what was waiting for them"),
        on(StatesInstalled, TakingState.INSTALLING, _installed, "idle if all has come"),
    )
