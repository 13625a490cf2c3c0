"""How far a stage has come: the coordinator's view of one stage, from its first record to its delivered result.

A stage ends by counting. When all stages that feed it are done, and its tasks have processed as many records as were
emitted to it, nothing of it can be in flight: forwarding moves records and never makes any. Empty queues alone would
not show that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from dpa.errors import ProtocolError
from dpa.execution.schemas import ShareSchema, agreed
from dpa.measure.latency import LatencySketch
from dpa.protocol.coordinator._decisions import Decisions
from dpa.protocol.coordinator._load_history import LoadHistory
from dpa.protocol.coordinator._roster import Roster
from dpa.protocol.coordinator._rounds import Rounds
from dpa.protocol.coordinator._split_queue import SplitQueue
from dpa.protocol.graph import Stage
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, when
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.envelopes import Message
from dpa.protocol.wire.messages.end import Deliver, Drain, Finished, Freeze, LastTable, Progress
from dpa.protocol.wire.messages.exchange import BeginExchange, RoundDone
from dpa.protocol.wire.messages.members import Left
from dpa.protocol.wire.messages.splits import SplitGrant, SplitRequest, SplitReturned
from dpa.protocol.wire.messages.tables import DecisionReport
from dpa.protocol.wire.metrics import StageSnapshot, TaskStats
from dpa.routing.members import MemberChange

_LOST_SECONDS = 60.0
"""A record unaccounted for this long (seconds), with all senders done and all queues empty, is considered lost."""


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
        members: the numbers of those that there are, without those that leave.
        roster: the tasks that there are and have been.
        leaving: the numbers of those that leave: they have been told, and are there still.
        is_source: whether its tasks read splits.
        why_fixed: why its tasks cannot be changed while it runs; None if they can.
        why_one: why there cannot be more than one; None if there can.
        began_at: when it was known to have processed its first record, a source to have read its first row; None
            before.
        drained_at: when all its records were processed, of a source when all rows were read and all records emitted;
            None before.
    """

    def __init__(
        self, coordinator: Machine, stage: Stage, *, is_source: bool, emitted_to: Callable[[], int | None]
    ) -> None:
        """`emitted_to`: how many records the stages have emitted to this one that feed it; None: not all are done."""
        super().__init__(StagePhase.STREAMING)
        self.name = stage.name
        self.members = list(range(stage.tasks))
        self.why_fixed = stage.why_fixed
        self.why_one = stage.why_one
        self.began_at: float | None = None
        self.drained_at: float | None = None
        self._coordinator = coordinator
        self.is_source = is_source
        self._moves_states = stage.moves_states
        self._migrates = stage.migrates
        self._flow = stage.flow
        self._splits = SplitQueue(stage.splits)
        self._all_emitted_to = emitted_to
        self._emitted_to: int | None = None
        self._done: set[int] = set()
        self._last_version: int | None = None
        self._schemas: dict[int, ShareSchema | None] = {}
        self._latency = LatencySketch()
        self._stage_latency = LatencySketch()
        self._initial_loads: list[Sequence[int]] = []
        self._rounds = Rounds(stage.name, stage.aggregate_seconds, stage.tasks)
        self._decisions = Decisions()
        self._history = LoadHistory()
        self.roster = Roster(stage.name, stage.tasks)
        self._recent = Roster(stage.name, stage.tasks)
        self._heard_at = dict.fromkeys(self.members, 0.0)
        self.leaving: frozenset[int] = frozenset()
        self._up = list(self.members)
        self._change: MemberChange | None = None
        self._started_at = self._changed_at = 0.0

    @property
    def tasks(self) -> Mapping[int, TaskStats]:
        """The newest statistics of each task that there is or has been, by number, but for those that are forgotten."""
        return self.roster.tasks

    def forget(self, tasks: Iterable[int], *, history: bool) -> None:
        """The change by which these tasks went is in no snapshot any more that is made with, or without, `history`."""
        (self.roster if history else self._recent).forget(tasks)

    @property
    def is_done(self) -> bool:
        """Whether all its tasks have emitted and written everything."""
        return self.state is StagePhase.DONE

    @property
    def is_streaming(self) -> bool:
        """Whether a stage that feeds it, or a source itself, is not done yet."""
        return self.state is StagePhase.STREAMING

    @property
    def is_draining(self) -> bool:
        """Whether all stages that feed it are done, but not all their records are processed."""
        return self.state is StagePhase.DRAINING

    @property
    def is_running(self) -> bool:
        """Whether it still has records to read or to process."""
        return self.is_streaming or self.is_draining

    @property
    def has_nothing_left(self) -> bool:
        """Whether all its records are read or processed: it ends now, or as soon as no change of its tasks is open."""
        if not self.is_running:
            return True
        return self._done.issuperset(self.members) if self.is_source else self.processed == self._emitted_to

    @property
    def why_over(self) -> str:
        """Why its tasks do not change any more, where it has nothing left."""
        return f"{self.name} has read all its input" if self.is_source else f"{self.name} has processed all its records"

    def has_ended(self, index: int) -> bool:
        """Whether a task has nothing to read or to process any more, though others of the stage may have."""
        return index in self._done

    @property
    def is_changing(self) -> bool:
        """Whether tasks come or go now."""
        return self._change is not None

    @property
    def is_in_round(self) -> bool:
        """Whether a round of aggregation is in progress."""
        return self._rounds.in_progress

    def begin_change(self, change: MemberChange) -> None:
        """Some tasks are to come, others to leave. Until that is over the stage does not end."""
        self._change = change
        for roster in (self.roster, self._recent):
            roster.expect(change.coming, *self._moment)
        self._heard_at |= dict.fromkeys(change.coming, self._coordinator.now)

    def all_up(self) -> None:
        """The tasks that come are up: they are told what the others know, and the others leave."""
        assert self._change is not None
        for roster in (self.roster, self._recent):
            roster.change(self._change.coming, self._change.going, *self._moment)
        if self.is_draining:
            for index in self._change.coming:
                self._coordinator.send(Address(self.name, index), Drain())
        self._up = sorted({*self.members, *self._change.coming})
        self.leaving = self._change.going
        self.members = [index for index in self._up if index not in self.leaving]

    def left(self, message: Left) -> None:
        """A task has left, and tells its last statistics."""
        self._note(message.stats)
        if self.is_source:
            self._splits.left(message.stats.index)
        else:
            self._latency.merge(message.latency)
            self._stage_latency.merge(message.stage_latency)

    def abandon_change(self) -> None:
        """The tasks that were to come could not be started: all is as it was."""
        assert self._change is not None
        for roster in (self.roster, self._recent):
            roster.abandon(self._change.coming)
        self.end_change()

    def end_change(self) -> None:
        """All tasks that were to leave are gone."""
        self._change, self.leaving, self._up = None, frozenset(), self.members
        self._heard_at = {index: self._heard_at[index] for index in self.members}
        self._done.intersection_update(self.members)
        self._splits.keep(self.members)

    def used_queue(self, index: int) -> float:
        """The used part of a task's queue, 0 to 1: the time that it takes to process what is queued, by that at which
        queues are held; where they are not, the records by those that one sender may have in flight."""
        stats = self.tasks[index]
        if self._flow.queue_seconds is None:
            return min(1.0, stats.queue / self._flow.in_flight_records)
        seconds = stats.busy_seconds / max(stats.processed, 1)
        return min(1.0, stats.queue * seconds / self._flow.queue_seconds)

    @property
    def _moment(self) -> tuple[float, int]:
        """The time since the stream began, in seconds, and the records processed by now."""
        return self._coordinator.now - self._started_at, self.processed

    @property
    def processed(self) -> int:
        """Records processed as far as reported."""
        return sum(stats.processed for stats in self.roster.every_task)

    def emitted_on(self, position: int) -> int:
        """Records emitted on the edge at this position among those that leave the stage; final once it is done."""
        return sum(stats.emitted[position] for stats in self.roster.every_task if stats.emitted)

    def start(self, now: float) -> None:
        """The stream begins."""
        self._started_at = self._changed_at = now
        self._rounds.start(now)

    def snapshot(self, *, history: bool) -> StageSnapshot:
        """What is known now; without `history` little enough to send several times a second."""
        roster = self.roster if history else self._recent
        return StageSnapshot(
            name=self.name,
            phase=str(self.state.value),
            tasks=tuple(roster.tasks.values()),
            version=self._decisions.version,
            decisions=self._decisions.kept(history=history),
            decision_counts=dict(self._decisions.counts),
            samples=self._history.samples(self.tasks) if history else (),
            latency=LatencySketch.union([self._latency]) if history else None,
            stage_latency=LatencySketch.union([self._stage_latency]) if history else None,
            initial_load=self._initial_load(),
            aggregation=self._rounds.stats,
            members=tuple(self.members),
            lives=roster.lives,
            forgotten=roster.forgotten,
            began=self._since_start(self.began_at),
            ended=self._since_start(self.drained_at),
        )

    def _since_start(self, moment: float | None) -> float | None:
        return None if moment is None else moment - self._started_at

    def _initial_load(self) -> tuple[int, ...]:
        if len(self._initial_loads) < len(self.members) or not all(self._initial_loads):
            return ()
        return tuple(sum(loads) for loads in zip(*self._initial_loads, strict=True))

    def tick(self, now: float) -> None:
        """Sample the queues, look for lost records, and begin a round of aggregation if one is due."""
        if self.is_source or self.state not in (StagePhase.STREAMING, StagePhase.DRAINING):
            return
        self._history.add(now - self._started_at, [self.tasks[index] for index in self._up])
        self._check_progress(now)
        if self._rounds.due(now):
            self._broadcast(self._rounds.begin(now))

    def _split_request(self, sender: Address, message: SplitRequest) -> None:
        self._splits.asks(sender.index)

    def _split_returned(self, sender: Address, message: SplitReturned) -> None:
        self._splits.gives_back(sender.index, message.read)

    def _noted(self, sender: Address, message: Progress) -> None:
        self._note(message.stats)
        if message.done:
            if self.state is not (StagePhase.STREAMING if self.is_source else StagePhase.DELIVERING):
                raise ProtocolError(f"{sender} cannot be done while {self.name} is {self.state.value}")
            self._done.add(sender.index)

    def _read_or_drain(self) -> State | None:
        if not self.is_source:
            return self._drain_if_fed()
        for task, split in self._splits.grants(self.members, self.leaving):
            self._coordinator.send(Address(self.name, task), SplitGrant(split))
        following = self._end_if_done()
        if following is not None:
            self.drained_at = self._coordinator.now
            if not self._splits.is_read:
                raise ProtocolError(f"{self.name} is done, but has not read all of its input")
        return following

    def _drain_if_fed(self) -> State | None:
        self._emitted_to = self._all_emitted_to()
        if self._emitted_to is None:
            return None
        self._changed_at = self._coordinator.now
        self._broadcast(Drain())
        return StagePhase.DRAINING

    def _end_if_done(self) -> State | None:
        is_done = len(self._done) >= len(self.members) and self._done.issuperset(self.members)
        return StagePhase.DONE if is_done and not self.is_changing else None

    def _freeze_if_drained(self) -> State | None:
        emitted, processed = self._emitted_to or 0, self.processed
        if processed > emitted:
            raise ProtocolError(f"{self.name}: {processed} records were processed, but only {emitted} were emitted")
        if processed < emitted or self.is_changing:
            return None
        self.drained_at = self._coordinator.now
        self._coordinator.send(BALANCER, Freeze(self.name))
        return StagePhase.FREEZING

    def _frozen(self, sender: Address, message: LastTable) -> None:
        self._last_version = message.version

    def _round_done(self, sender: Address, message: RoundDone) -> None:
        commit = self._rounds.note(sender, message, self._coordinator.now)
        if commit is not None:
            self._coordinator.instruct(commit)

    def _begin_last_exchange(self) -> State | None:
        if self._last_version is None or self._rounds.in_progress:
            return None
        transfer = not self._migrates and (self._last_version > 0 or self._moves_states)
        number = self._rounds.number + 1
        self._broadcast(BeginExchange(number, self._last_version, last=True, transfer=transfer))
        return StagePhase.EXCHANGING

    def _finished(self, sender: Address, message: Finished) -> None:
        self._note(message.stats)
        self._latency.merge(message.latency)
        self._stage_latency.merge(message.stage_latency)
        self._initial_loads.append(message.initial_load)
        self._schemas[sender.index] = message.schema

    def _deliver(self) -> State | None:
        if len(self._schemas) < len(self.members) or not self._schemas.keys() >= set(self.members):
            return None
        schema = agreed(self._schemas[index] for index in self.members)
        for address in self.addresses:
            self._coordinator.send(address, Deliver(schema, is_first=address.index == self.members[0]))
        return StagePhase.DELIVERING

    def _decided(self, sender: Address, message: DecisionReport) -> None:
        self._decisions.note(replace(decision, at=decision.at - self._started_at) for decision in message.decisions)

    def _note(self, stats: TaskStats) -> None:
        if stats.processed > self.tasks[stats.index].processed:
            self._changed_at = self._coordinator.now
        if self.began_at is None and (stats.read or stats.processed):
            self.began_at = self._coordinator.now
        self.roster.tasks[stats.index] = self._recent.tasks[stats.index] = stats
        self._heard_at[stats.index] = self._coordinator.now

    def _check_progress(self, now: float) -> None:
        """Fail rather than wait for ever for records that were lost: nobody has any, yet some are not processed. A task
        that reports nothing may have them: user code that holds the interpreter keeps reports from being sent. While
        tasks change, a stage waits for more than for records.

        Raises:
            ProtocolError: records are lost.
        """
        if not self.is_draining or self.is_changing or any(stats.queue for stats in self.tasks.values()):
            self._changed_at = now
        elif min(self._heard_at[index] for index in self._up) - self._changed_at > _LOST_SECONDS:
            emitted = self._emitted_to or 0
            lost = f"{emitted - self.processed} of {emitted} records to {self.name} were lost"
            raise ProtocolError(f"{lost}: no task has had any for {_LOST_SECONDS:g} s")

    def _broadcast(self, message: Message) -> None:
        for address in self.addresses:
            self._coordinator.send(address, message)

    @property
    def addresses(self) -> Iterable[Address]:
        """Its tasks, those that are leaving too, but not those that are not up yet."""
        return [Address(self.name, index) for index in self._up]

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(SplitRequest, StagePhase.STREAMING, _split_request, "grant the next split, or none"),
        on(SplitReturned, StagePhase.STREAMING, _split_returned, "grant the rest to others"),
        on(Progress, StagePhase, _noted, "note"),
        on(
            RoundDone,
            [StagePhase.STREAMING, StagePhase.DRAINING, StagePhase.FREEZING],
            _round_done,
            "note; commit the round with the last share",
        ),
        on(LastTable, StagePhase.FREEZING, _frozen, "note"),
        on(Finished, StagePhase.EXCHANGING, _finished, "note"),
        on(DecisionReport, StagePhase, _decided, "note"),
        when(
            StagePhase.STREAMING,
            _read_or_drain,
            "drain when all that feed it are done; a source grants splits, and is done with its last task",
            (None, StagePhase.DRAINING, StagePhase.DONE),
        ),
        when(StagePhase.DRAINING, _freeze_if_drained, "freeze when all is processed", (None, StagePhase.FREEZING)),
        when(StagePhase.FREEZING, _begin_last_exchange, "exchange, after the round", (None, StagePhase.EXCHANGING)),
        when(StagePhase.EXCHANGING, _deliver, "with the last share, deliver", (None, StagePhase.DELIVERING)),
        when(StagePhase.DELIVERING, _end_if_done, "be done with the last task", (None, StagePhase.DONE)),
    )
