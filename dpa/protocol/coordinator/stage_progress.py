"""How far a stage has come: the coordinator's view of one stage, from its first record to its delivered result.

A stage ends by counting. When all stages that feed it are done, and its tasks have processed as many records as were
emitted to it, nothing of it can be in flight: forwarding moves records and never makes any. Empty queues alone would
not show that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dpa.errors import ProtocolError
from dpa.measure.latency import LatencySketch
from dpa.measure.load import MeasuredKey
from dpa.protocol.coordinator._event_times import StageTime, WatermarkHolder
from dpa.protocol.coordinator._lags import Lags
from dpa.protocol.coordinator._ledger import Decisions, Ledger, LoadHistory, RecentLatency
from dpa.protocol.coordinator._results import EpochOutput, EpochResults, StageEnd
from dpa.protocol.coordinator._roster import Roster
from dpa.protocol.coordinator._split_queue import SplitQueue
from dpa.protocol.graph import Stage
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, when
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.events import PollDone
from dpa.protocol.wire.instructions import Poll
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.end import Deliver, Drain, Finished, Freeze, LastTable, Progress
from dpa.protocol.wire.messages.exchange import BeginExchange
from dpa.protocol.wire.messages.members import Left
from dpa.protocol.wire.messages.splits import SplitGrant, SplitRequest, SplitReturned
from dpa.protocol.wire.messages.tables import DecisionReport
from dpa.protocol.wire.metrics import StageSnapshot
from dpa.protocol.wire.snapshots import TimeReached
from dpa.routing.members import MemberChange


class StagePhase(State):
    """The phases of a stage."""

    STREAMING = "streaming"
    DRAINING = "draining"
    FREEZING = "freezing"
    EXCHANGING = "exchanging"
    DELIVERING = "delivering"
    DONE = "done"


class StageProgress(RuledMachine):
    """One stage. A source goes from streaming to done.

    Attributes:
        spec: the stage as the graph has it.
        splits: of a source, its input.
        feeders: the names of the stages that feed it.
        epoch: the one that the newest cut of the stream has ended, or is to end.
    """

    def __init__(
        self, coordinator: Machine, stage: Stage, feeders: Sequence[tuple[StageProgress, int]], epoch: int = 0
    ) -> None:
        """`feeders`: for each edge that enters the stage, the stage that feeds it, and the edge's position among those
        that leave that stage."""
        super().__init__(StagePhase.STREAMING)
        self.name = stage.name
        self.spec = stage
        self.is_source = not feeders
        self.roster = Roster(stage.name, stage.tasks)
        self.ledger: Ledger = Ledger(
            stage.name, self.roster, ((feeder.ledger, position) for feeder, position in feeders)
        )
        self.end = StageEnd()
        self.results = EpochResults(stage, epoch)
        self.epoch = epoch
        self._coordinator = coordinator
        self._feeders = [feeder for feeder, _ in feeders]
        self.feeders = frozenset(feeder.name for feeder in self._feeders)
        self.time = StageTime(stage)
        self.splits = SplitQueue(stage.input, stage.reached.channels)
        self._lags = Lags()
        self._decisions = Decisions()
        self._hottest: tuple[MeasuredKey, ...] | None = None
        self._loads = LoadHistory()
        self._latency = RecentLatency()

    @property
    def addresses(self) -> Sequence[Address]:
        """Its tasks, those that are leaving too, but not those that are not up yet."""
        return [Address(self.name, index) for index in self.roster.up]

    @property
    def is_done(self) -> bool:
        return self.state is StagePhase.DONE

    @property
    def is_draining(self) -> bool:
        """Whether all stages that feed it are done, but not all their records are processed."""
        return self.state is StagePhase.DRAINING

    @property
    def is_running(self) -> bool:
        return self.state is StagePhase.STREAMING or self.is_draining

    @property
    def is_fed(self) -> bool:
        return all(feeder.is_done for feeder in self._feeders)

    @property
    def has_nothing_left(self) -> bool:
        """Whether all its records are read or processed: it ends now, or as soon as no change of its tasks is open."""
        if not self.is_running:
            return True
        return self.roster.all_ended if self.is_source else self.is_draining and self.ledger.is_settled

    @property
    def why_over(self) -> str:
        return f"{self.name} has read all its input" if self.is_source else f"{self.name} has processed all its records"

    @property
    def is_changing(self) -> bool:
        return self.roster.change is not None

    @property
    def may_be_cut(self) -> bool:
        """Whether it can be held where it is: while it takes records, emits its result, or is done."""
        return self.is_running or self.state in (StagePhase.DELIVERING, StagePhase.DONE)

    def due(self, *, with_checkpoint: bool) -> list[EpochOutput]:
        """The outputs for which an epoch should end now, so that its results are published, or would if a checkpoint
        were made."""
        if not self.is_running or self.has_nothing_left:
            return []
        now, processed = self._coordinator.now, self.ledger.processed
        return [each for each in self.results.outputs if each.is_due(now, processed, with_checkpoint=with_checkpoint)]

    @property
    def unpublished(self) -> list[EpochOutput]:
        """The outputs that lack results of processed records, and are to have them by the time of a checkpoint."""
        return [each for each in self.results.outputs if each.how.is_named and each.lacks(self.ledger.processed)]

    @property
    def is_emitting(self) -> bool:
        """Whether it makes records of what it reads, or of its result."""
        return self.state is (StagePhase.STREAMING if self.is_source else StagePhase.DELIVERING)

    @property
    def held(self) -> WatermarkHolder | None:
        return self.splits.held(self._coordinator.now)

    @property
    def opens(self) -> int | None:
        """The end of the first open window that its tasks have reported, in microseconds."""
        return self.time.opens(self.roster.tasks.values())

    def closes_by(self, until: int | None) -> bool:
        """Whether any open window ends by this event time, in microseconds."""
        opens = self.opens
        return until is not None and opens is not None and opens <= until

    @property
    def may_close(self) -> bool:
        return self.time.is_due(self._coordinator.now) and self.is_running and not self.has_nothing_left

    @property
    def cut_at(self) -> TimeReached:
        return replace(self.time.reached, opens=self.opens, channels=self.splits.channels)

    def begin_change(self, change: MemberChange) -> None:
        """Until the change is over the stage does not end."""
        self.roster.begin(change, self.ledger.moment(self._coordinator.now))

    def all_up(self) -> None:
        """The tasks that come are up: they learn what the others know, and the others leave."""
        change = self.roster.all_up(self.ledger.moment(self._coordinator.now))
        if self.is_draining:
            for index in change.coming:
                self._coordinator.send(Address(self.name, index), Drain())

    def left(self, message: Left) -> None:
        self.ledger.note(message.stats, self._coordinator.now)
        if self.is_source:
            self.splits.left(message.stats.index)
        else:
            self.end.add_latencies(message)

    def end_change(self, *, is_abandoned: bool = False) -> None:
        (self.roster.abandon if is_abandoned else self.roster.end)()
        self.splits.keep(self.roster.members)

    def start(self, now: float) -> None:
        self.ledger.start(now)
        self.results.start(now)
        self.time.wait(now)

    def snapshot(self, *, history: bool) -> StageSnapshot:
        """What is known now; without `history` little enough to send several times a second."""
        roster, end = self.roster, self.end
        began, ended = self.ledger.span
        return StageSnapshot(
            name=self.name,
            phase=str(self.state.value),
            tasks=tuple(roster.tasks.values()),
            version=self._decisions.version,
            decisions=self._decisions.recent(history=history),
            decision_counts=dict(self._decisions.counts),
            hottest=self._hottest,
            lag={} if self.splits.position is None else self._lags.found,
            samples=self._loads.samples(roster.tasks) if history else (),
            latency=LatencySketch.union([end.latency]) if history else None,
            stage_latency=LatencySketch.union([end.stage_latency]) if history else None,
            recent_latency=self._latency.report(self._coordinator.now),
            initial_load=end.initial_load(roster.members),
            aggregation=self.results.stats,
            members=tuple(roster.members),
            lives=roster.lives,
            forgotten=roster.forgotten,
            began=began,
            ended=ended,
        )

    def tick(self, now: float) -> None:
        if self.is_source and self.splits.position is not None and self._lags.asks(self.splits.came, now):
            self._coordinator.instruct(Poll(self.name, self.splits.position, for_lag=True))
        if self.is_source or not self.is_running:
            return
        self._loads.add(self.ledger.since_start(now), [self.roster.tasks[index] for index in self.roster.up])
        self.ledger.watch(now, is_draining=self.is_draining)

    def _split_request(self, sender: Address, message: SplitRequest) -> None:
        self.splits.reaches(sender.index, message.event_time)
        self.splits.asks(sender.index, message.read)

    def _split_returned(self, sender: Address, message: SplitReturned) -> None:
        self.splits.reaches(sender.index, message.event_time)
        given_back = self.splits.gives_back if sender.index in self.roster.leaving else self.splits.pauses
        given_back(sender.index, message.read)

    def _polled(self, sender: Address, event: PollDone) -> None:
        if not event.for_lag:
            self.splits.polled(event.splits, event.position, self._coordinator.now)
            return
        unread = self.splits.unread({index: stats.read for index, stats in self.roster.tasks.items()})
        self._lags.measured(event.behind, self.splits.came, unread, self._coordinator.now)

    def _noted(self, sender: Address, message: Progress) -> None:
        self.ledger.note(message.stats, self._coordinator.now)
        self.splits.reaches(sender.index, message.stats.event_time)
        if message.latency is not None:
            self._latency.add(message.latency, self._coordinator.now)
        if message.done:
            if not self.is_emitting:
                raise ProtocolError(f"{sender} cannot be done while {self.name} is {self.state.value}")
            self.roster.ended.add(sender.index)

    def _read_or_drain(self) -> State | None:
        if not self.is_source:
            return self._drain_if_fed()
        not_before = (self.time.reached.watermark or 0) if self.splits.goes_by_clock else 0
        for task, split in self.splits.grants(self.roster.members, self.roster.leaving):
            self._coordinator.send(Address(self.name, task), SplitGrant(split, not_before))
        position = self.splits.poll(len(self.roster.members))
        if position is not None:
            self._coordinator.instruct(Poll(self.name, position))
        following = self._end_if_done()
        if following is not None:
            self.ledger.drained_at = self._coordinator.now
            if not self.splits.is_read:
                raise ProtocolError(f"{self.name} is done, but has not read all of its input")
        return following

    def _drain_if_fed(self) -> State | None:
        if not self.is_fed:
            return None
        self.ledger.changed_at = self._coordinator.now
        self._broadcast(Drain())
        return StagePhase.DRAINING

    def _end_if_done(self) -> State | None:
        return StagePhase.DONE if self.roster.all_ended and not self.is_changing else None

    def _freeze_if_drained(self) -> State | None:
        if not self.ledger.is_settled or self.is_changing:
            return None
        self.ledger.drained_at = self._coordinator.now
        self._coordinator.send(BALANCER, Freeze(self.name))
        return StagePhase.FREEZING

    def _frozen(self, sender: Address, message: LastTable) -> None:
        self.end.last_version = message.table.version

    def exchange(self, epoch: int, at: float, version: int, publishes: Sequence[EpochOutput]) -> None:
        """Let its tasks exchange states by the newest table, then close the windows that event time has passed, and
        then publish in these outputs. `version`: of that table."""
        closes = self.time.reached.closed
        for output in self.results.outputs:
            output.has_closed |= self.closes_by(closes) if output.how.closed else closes != self.time.closed
        self.results.begin(epoch, at, self.roster.members, self.ledger.processed, publishes)
        transfer, numbers = self.spec.moves_states(version), tuple(output.number for output in publishes)
        self.time.closed = closes
        self._broadcast(BeginExchange(epoch, version, transfer=transfer, closes=closes, publishes=numbers))

    def _begin_last_exchange(self) -> State | None:
        version = self.end.last_version
        if version is None:
            return None
        moves = self.spec.moves_states(version)
        self._broadcast(BeginExchange(self.epoch + 1, version, last=True, transfer=moves))
        return StagePhase.EXCHANGING

    def _finished(self, sender: Address, message: Finished) -> None:
        self.ledger.note(message.stats, self._coordinator.now)
        self.end.finished(sender.index, message)

    def _deliver(self) -> State | None:
        if not self.end.all_finished(self.roster.members):
            return None
        schema = self.end.schema(self.roster.members)
        for address in self.addresses:
            is_first = address.index == self.roster.members[0]
            self._coordinator.send(address, Deliver(schema, is_first=is_first, epoch=self.epoch + 1))
        return StagePhase.DELIVERING

    def _decided(self, sender: Address, message: DecisionReport) -> None:
        since_start, self._hottest = self.ledger.since_start, message.hottest
        self._decisions.note(replace(decision, at=since_start(decision.at)) for decision in message.decisions)

    def _broadcast(self, message: Message) -> None:
        for address in self.addresses:
            self._coordinator.send(address, message)

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(SplitRequest, StagePhase.STREAMING, _split_request, "grant the next split, or none"),
        on(SplitReturned, StagePhase.STREAMING, _split_returned, "grant the rest to others"),
        on(
            PollDone,
            [StagePhase.STREAMING, StagePhase.DONE],
            _polled,
            "grant new splits; poll again later; note the lag",
        ),
        on(Progress, StagePhase, _noted, "note"),
        on(LastTable, StagePhase.FREEZING, _frozen, "note"),
        on(Finished, StagePhase.EXCHANGING, _finished, "note"),
        on(DecisionReport, StagePhase, _decided, "note"),
        when(
            StagePhase.STREAMING,
            _read_or_drain,
            "drain when all its inputs are done; a source grants splits, polls for more, ends with its last task",
            (None, StagePhase.DRAINING, StagePhase.DONE),
        ),
        when(StagePhase.DRAINING, _freeze_if_drained, "freeze when all is processed", (None, StagePhase.FREEZING)),
        when(StagePhase.FREEZING, _begin_last_exchange, "exchange", (None, StagePhase.EXCHANGING)),
        when(StagePhase.EXCHANGING, _deliver, "deliver after the last share", (None, StagePhase.DELIVERING)),
        when(StagePhase.DELIVERING, _end_if_done, "be done after the last task", (None, StagePhase.DONE)),
    )
