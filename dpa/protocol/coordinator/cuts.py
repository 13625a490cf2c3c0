"""Cuts of the stream, of which checkpoints are made: the coordinator's view.

A cut is plain: the sources stop at the end of a row, and what they have emitted is processed. That this is so is proved
by counting, stage after stage, as the end of a stage is; and as no table moves states meanwhile, the states are then
those that the rows read so far have made. Sources go on as soon as the states are written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import CheckpointTimes
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, when
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.cut import Cut, OperatorCut, SourceCut
from dpa.protocol.wire.events import CheckpointFailed, CheckpointWritten
from dpa.protocol.wire.instructions import WriteCheckpoint
from dpa.protocol.wire.messages.cuts import Pause, Paused, SnapshotTaken, TakeSnapshot, Thaw
from dpa.protocol.wire.messages.end import Drain, Freeze, LastTable
from dpa.protocol.wire.metrics import CheckpointStats
from dpa.routing.table import RoutingTable


class CutState(State):
    """The states of the cut that is made, or comes next."""

    WAITING = "waiting"
    DRAINING = "draining"
    TAKING_SNAPSHOTS = "taking snapshots"
    WRITING = "writing"


class Cuts(RuledMachine):
    """One at a time, a while after the last one is written.

    A cut is begun while every stage that takes records still has some to process, and no tasks come or go. Until its
    snapshots are taken, none comes or goes, no split is granted and no stage ends.

    Attributes:
        stats: of the checkpoints so far; None: there are none to be.
    """

    def __init__(
        self,
        coordinator: Machine,
        stages: Mapping[str, StageProgress],
        times: CheckpointTimes | None,
        membership: Membership,
    ) -> None:
        """`stages`: each after those that feed it; `membership`: knows whether tasks come or go."""
        super().__init__(CutState.WAITING)
        self.stats = None if times is None else CheckpointStats(read=times.read, read_before=times.read)
        self._coordinator = coordinator
        self._stages = stages
        self._sources = [stage for stage in stages.values() if stage.is_source]
        self._operators = [stage for stage in stages.values() if not stage.is_source]
        self._membership = membership
        self._every = math.inf if times is None else times.every
        self._slot = 0 if times is None else times.slot
        self._epoch = 0
        self._started_at = self._began_at = 0.0
        self._due_at = math.inf
        self._paused: set[Address] = set()
        self._quiet: set[str] = set()
        self._tables: dict[str, RoutingTable] = {}
        self._snapshots: dict[Address, object] = {}
        self._cut: Cut | None = None

    @property
    def is_holding(self) -> bool:
        """Whether sources wait for a cut."""
        return self.state in (CutState.DRAINING, CutState.TAKING_SNAPSHOTS)

    def start(self, now: float) -> None:
        """The stream begins."""
        self._started_at, self._due_at = now, now + self._every

    def _begin_if_due(self) -> State | None:
        if self._coordinator.now < self._due_at or not self._may_begin():
            return None
        self._epoch += 1
        self._began_at = self._coordinator.now
        self._paused, self._quiet, self._tables, self._snapshots = set(), set(), {}, {}
        for stages, message in ((self._sources, Pause()), (self._operators, Drain())):
            for address in (address for stage in stages for address in stage.addresses):
                self._coordinator.send(address, message)
        return CutState.DRAINING

    def _may_begin(self) -> bool:
        runs = all(stage.is_running and not stage.is_in_round for stage in self._operators)
        return runs and self._membership.is_idle and not all(stage.has_nothing_left for stage in self._sources)

    def _task_paused(self, sender: Address, message: Paused) -> None:
        self._stages[sender.stage].ledger.note(message.stats, self._coordinator.now)
        self._paused.add(sender)

    def _frozen(self, sender: Address, message: LastTable) -> None:
        self._tables[message.stage] = message.table

    def _drained(self) -> State | None:
        for source in self._sources:
            if self._paused.issuperset(source.addresses):
                self._quiet.add(source.name)
        for stage in self._operators:
            if stage.name not in self._quiet and self._quiet.issuperset(stage.feeders) and stage.ledger.is_settled:
                self._quiet.add(stage.name)
                self._coordinator.send(BALANCER, Freeze(stage.name))
        if len(self._tables) < len(self._operators):
            return None
        for address in self._tasks:
            self._coordinator.send(address, TakeSnapshot(self._slot))
        return CutState.TAKING_SNAPSHOTS

    @property
    def _tasks(self) -> list[Address]:
        return [address for stage in self._operators for address in stage.addresses]

    def _taken(self, sender: Address, message: SnapshotTaken) -> None:
        self._stages[sender.stage].ledger.note(message.stats, self._coordinator.now)
        self._snapshots[sender] = message.written

    def _write(self) -> State | None:
        if len(self._snapshots) < len(self._tasks):
            return None
        for stage in self._operators:
            self._coordinator.send(BALANCER, Thaw(stage.name))
        operators = {
            stage.name: OperatorCut(
                table := self._tables[stage.name],
                {index: self._snapshots[Address(stage.name, index)] for index in table.members},
                stage.ledger.processed,
            )
            for stage in self._operators
        }
        sources = {stage.name: SourceCut(stage.rest, stage.ledger.read, len(stage.members)) for stage in self._sources}
        seconds = self._coordinator.now - self._began_at
        at = self._began_at - self._started_at
        self._cut = Cut(self._epoch, self._slot, at, seconds, sources, operators)
        self._coordinator.instruct(WriteCheckpoint(self._cut))
        return CutState.WRITING

    def _is_written(self, sender: Address, event: CheckpointWritten) -> State:
        assert self.stats is not None and self._cut is not None
        self.stats = replace(
            self.stats,
            written=self.stats.written + 1,
            waited=self.stats.waited + self._cut.seconds,
            size=self.stats.size + event.size,
            read=self.stats.read_before + self._cut.read,
        )
        return self._wait(event.slot)

    def _is_not_written(self, sender: Address, event: CheckpointFailed) -> State:
        assert self.stats is not None
        self.stats = replace(self.stats, failed=self.stats.failed + 1)
        return self._wait(event.slot)

    def _wait(self, slot: int) -> State:
        self._slot, self._due_at = slot, self._coordinator.now + self._every
        return CutState.WAITING

    RULES: ClassVar[tuple[Rule, ...]] = (
        when(
            CutState.WAITING,
            _begin_if_due,
            "when it is time, pause sources and let operators drain",
            (None, CutState.DRAINING),
        ),
        on(Paused, CutState.DRAINING, _task_paused, "note"),
        on(LastTable, CutState.DRAINING, _frozen, "note"),
        when(
            CutState.DRAINING,
            _drained,
            "freeze the table of each stage that has processed all; with the last table, take snapshots",
            (None, CutState.TAKING_SNAPSHOTS),
        ),
        on(SnapshotTaken, CutState.TAKING_SNAPSHOTS, _taken, "note"),
        when(
            CutState.TAKING_SNAPSHOTS,
            _write,
            "with the last one, thaw the tables, write the checkpoint, let sources go on",
            (None, CutState.WRITING),
        ),
        on(CheckpointWritten, CutState.WRITING, _is_written, "wait for the next", CutState.WAITING),
        on(CheckpointFailed, CutState.WRITING, _is_not_written, "wait for the next", CutState.WAITING),
    )
