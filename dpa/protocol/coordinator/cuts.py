"""Cuts of the stream, as the coordinator sees them. Each cut ends an epoch.

Sources stop at the end of a row, and all that they have emitted is processed. Counting proves it, stage after stage,
like the end of a stage. No table moves states meanwhile, so the states are exactly those of the rows read so far. From
them results of the epoch are published and checkpoints made. Sources continue once tasks have marked their states; the
tasks write them while records flow.

Results that are published with checkpoints are committed once the checkpoint that names them is written. A job that
begins with a checkpoint first commits what it names. What no checkpoint names is never committed."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dpa.protocol.coordinator._cut_in_progress import CutInProgress, CutStep, StageInCut
from dpa.protocol.coordinator._epoch_times import EndedEpochs, EpochTimes
from dpa.protocol.coordinator._errors import Errors
from dpa.protocol.coordinator._watermarks import Watermarks
from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import CheckpointTimes, Publishing
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, when
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.epochs import EpochPhase
from dpa.protocol.wire.events import CheckpointFailed, CheckpointWritten, Committed
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.cuts import GoOn, Pause, Paused, SnapshotTaken, SnapshotWritten, TakeSnapshot, Thaw
from dpa.protocol.wire.messages.end import Drain, Freeze, LastTable
from dpa.protocol.wire.messages.exchange import Published
from dpa.protocol.wire.metrics import CheckpointStats, CheckpointTry
from dpa.protocol.wire.snapshots import JobSnapshot, WriteCheckpoint

_TRIES_KEPT = 10


def _key(commit: Commit) -> tuple[str, int, int]:
    return commit.stage, commit.output, commit.epoch


class CutState(State):
    """The states of the cut that is made, or comes next."""

    WAITING = "waiting"
    DRAINING = "draining"
    PUBLISHING = "publishing"
    TAKING_SNAPSHOTS = "taking snapshots"
    SAVING = "writing snapshots"
    WRITING = "writing"


class Cuts(RuledMachine):
    """One at a time: when windows or partial results of a stage are due, or a checkpoint is.

    No cut begins while tasks come or go, or while a stage exchanges its last states. During a cut no task comes or
    goes, no split is granted and no stage ends. Due cuts and waiting changes of tasks take turns. Checkpoints are made
    only while all operators take records. Tasks come or go, and the job ends, only when all tasks have written what
    they have marked.

    Attributes:
        checkpoints: those so far; None: there are none to be.
        tries: the last of them.
    """

    def __init__(
        self,
        coordinator: Machine,
        stages: Mapping[str, StageProgress],
        times: CheckpointTimes | None,
        membership: Membership,
        errors: Errors,
    ) -> None:
        """`stages`: each after those that feed it."""
        super().__init__(CutState.WAITING)
        self.checkpoints = None if times is None else CheckpointStats(read=times.read, read_before=times.read)
        self.tries: deque[CheckpointTry] = deque(maxlen=_TRIES_KEPT)
        self.times = EpochTimes()
        self._coordinator = coordinator
        self._stages = stages
        self._sources = [stage for stage in stages.values() if stage.is_source]
        self._operators = [stage for stage in stages.values() if not stage.is_source]
        self._membership = membership
        self._errors = errors
        self._every = math.inf if times is None else times.every
        self._slot = 0 if times is None else times.slot
        self._epoch = 0 if times is None else times.epoch
        self._staged = {} if times is None else {_key(each): each for each in times.staged}
        self._committing: set[tuple[str, int, int]] = set()
        self._changes = 0  # of tasks that had begun at the last cut
        self._started_at = 0.0
        self._due_at = math.inf
        self._at_hand: CutInProgress | None = None
        self.watermarks = Watermarks(stages)
        self._ended = EndedEpochs(coordinator, stages, errors, 0 if times is None else times.read)

    @property
    def is_holding(self) -> bool:
        return self.state in (CutState.DRAINING, CutState.PUBLISHING, CutState.TAKING_SNAPSHOTS)

    @property
    def is_committing(self) -> bool:
        """Whether readers do not see yet what they are to see, or tasks write their states."""
        return bool(self._committing) or self.state is CutState.SAVING

    @property
    def staged(self) -> dict[tuple[str, int], tuple[Any, ...]]:
        """By stage and output, what is staged of epochs that are not committed; at the end, of those that no checkpoint
        names."""
        found: dict[tuple[str, int], tuple[Any, ...]] = {}
        for (stage, output, _), commit in self._staged.items():
            found[stage, output] = (*found.get((stage, output), ()), *commit.staged)
        return found

    @property
    def epoch(self) -> int:
        """The epoch to which what tasks report belongs: the next to end, or once the job is done, its last one."""
        return self._epoch if self.is_holding else self._epoch + 1

    def start(self, now: float) -> None:
        self._started_at, self._due_at = now, now + self._every
        self.times.start(now)
        self._ended.start(now)
        self._commit([*self._staged.values()])

    def end(self, now: float) -> None:
        self._ended.log(self._epoch + 1, now, is_last=True)

    def trigger(self, now: float) -> None:
        self._due_at = min(self._due_at, now)

    def _begin_if_due(self) -> State | None:
        changes = self._membership
        if changes.is_under_way or not (self.precedes_changes or (self._is_due and not changes.can_begin)):
            return None
        now, is_checkpoint = self._coordinator.now, self._is_checkpoint_due
        publishing = {of: due for of in self._operators if (due := of.due(with_checkpoint=is_checkpoint))}
        self._epoch += 1
        for stage in self._operators:
            stage.epoch = self._epoch  # the stage may end with this epoch: no checkpoint follows it
        self._changes = self._membership.begun
        slot = self._slot if is_checkpoint else None
        self._at_hand = cut = CutInProgress(self._epoch, now, slot, self._stages.values(), publishing)
        self.times.begin(now, self._due_since(cut))
        self._broadcast((stage.progress for stage in cut.at(CutStep.EMITTING)), Pause())
        self._broadcast((stage.progress for stage in cut.draining), Drain())
        return CutState.DRAINING

    @property
    def _cut(self) -> CutInProgress:
        assert self._at_hand is not None
        return self._at_hand

    @property
    def precedes_changes(self) -> bool:
        """Whether changes of tasks wait for a cut."""
        # Cuts and changes take turns. A task that still writes its states at the last cut must not leave.
        return self.state is CutState.SAVING or (self._membership.begun > self._changes and self._is_due)

    @property
    def _is_due(self) -> bool:
        if self.state is not CutState.WAITING or not all(stage.may_be_cut for stage in self._operators):
            return False
        is_due = self._is_checkpoint_due or any(self._publishes_now(stage) for stage in self._operators)
        return is_due or self.watermarks.closing()

    def _publishes_now(self, stage: StageProgress) -> bool:
        due = stage.due(with_checkpoint=self._is_checkpoint_due)
        # Where closed windows alone are published, there is nothing to publish before some are closed.
        return any(not each.how.closed or each.has_closed or self.watermarks.closes(stage) for each in due)

    @property
    def _is_checkpoint_due(self) -> bool:
        giving = (self._stages[name].spec.publishing[output] for name, output, _ in self._committing)
        is_giving = any(output.once for output in giving)  # one epoch at a time
        return self._coordinator.now >= self._due_at and self.may_checkpoint and not is_giving

    def _due_since(self, cut: CutInProgress) -> float:
        """When a cut that begins was due by the clock; now, if event time has made it due."""
        published = (each.due_at for due in cut.publishing.values() for each in due if not each.how.closed)
        return min(math.inf if cut.slot is None else self._due_at, cut.began_at, *published)

    @property
    def may_checkpoint(self) -> bool:
        """Whether all stages take records, so that another checkpoint can be made, perhaps soon."""
        runs = all(stage.is_running for stage in self._operators)
        return runs and not all(stage.has_nothing_left for stage in self._sources)

    def _broadcast(self, stages: Iterable[StageProgress], message: Message) -> None:
        for address in (address for stage in stages for address in stage.addresses):
            self._coordinator.send(address, message)

    def _task_paused(self, sender: Address, message: Paused) -> None:
        stage = self._stages[sender.stage]
        stage.ledger.note(message.stats, self._coordinator.now)
        if stage.is_source:
            self.times.paused(message.waited, self._coordinator.now)
        found = self._cut.stages[sender.stage]
        found.awaited.remove(sender)
        if found.awaited:
            return
        found.step = CutStep.QUIET
        if not self._cut.at(CutStep.EMITTING):
            self.watermarks.advance()
        self._note_step(EpochPhase.SOURCES, sender)

    def _note_step(self, phase: EpochPhase, task: Address) -> None:
        self.times.step(phase, task, self._coordinator.now)

    def _frozen(self, sender: Address, message: LastTable) -> None:
        self._cut.stages[message.stage].table = message
        self._note_step(EpochPhase.TABLES, sender)

    def _drained(self) -> State | None:
        cut = self._cut
        for stage in cut.draining:
            of = stage.progress
            # Counting proves a stage empty only when no task can emit to it any more, so stages settle one after
            # another, from the sources on.
            if stage.step is CutStep.DRAINING and self._is_fed_by_quiet(stage) and of.ledger.is_settled:
                stage.step = CutStep.SETTLED
                # It may have processed records that no report had counted when the cut began. A job that resumes from
                # the checkpoint takes their results for published.
                due = cut.publishing.get(of, [])
                late = [each for each in of.unpublished if each not in due] if cut.slot is not None else []
                if late:
                    cut.publishing[of] = [*due, *late]
                self._note_step(EpochPhase.QUEUES, Address(of.name, of.ledger.last_task))
                self._coordinator.send(BALANCER, Freeze(of.name))
            if stage.step is CutStep.SETTLED and self._has_closed(stage):
                stage.step = CutStep.QUIET
        if not cut.is_quiet:
            return None
        for stage in (cut.stages[of.name] for of in cut.publishing):
            if not stage.exchanges:  # those with windows did while they drained
                self._exchange(stage)
        return CutState.PUBLISHING

    def _is_fed_by_quiet(self, stage: StageInCut) -> bool:
        return all(self._cut.stages[feeder].step is CutStep.QUIET for feeder in stage.progress.feeders)

    def _has_closed(self, stage: StageInCut) -> bool:
        """Whether a settled stage emits no more: it has closed the windows that event time has passed."""
        of = stage.progress
        if of.spec.windows is None:
            return True
        # Tasks exchange states by a table that stays, so closing waits until it is frozen. A stage that publishes does
        # that in the same exchange; one that neither publishes nor has windows to close needs none.
        if not stage.exchanges and stage.table is not None:
            if of.time.reached.closed == of.time.closed and of not in self._cut.publishing:
                return True
            stage.awaited = {*of.addresses}
            self._exchange(stage)
        return stage.exchanges and not stage.awaited

    def _exchange(self, stage: StageInCut) -> None:
        cut, of = self._cut, stage.progress
        assert stage.table is not None
        stage.exchanges = True
        at, version = cut.began_at - self._started_at, stage.table.table.version
        of.exchange(cut.epoch, at, version, cut.publishing.get(of, ()))

    def _published(self, sender: Address, message: Published) -> None:
        stage = self._stages[sender.stage]
        stage.results.note(sender, message)
        if message.stats is not None:
            stage.ledger.note(message.stats, self._coordinator.now)
        self._cut.stages[sender.stage].awaited.discard(sender)
        self._note_step(EpochPhase.RESULTS if stage in self._cut.publishing else EpochPhase.WINDOWS, sender)

    def _take_snapshots(self) -> State | None:
        cut, now = self._cut, self._coordinator.now
        if not all(stage.results.is_complete for stage in cut.publishing):
            return None
        if cut.publishing:
            waits = any(each.how.with_checkpoints for due in cut.publishing.values() for each in due)
            self.times.staged(cut.epoch, now, waits=waits)
        for stage in cut.publishing:
            for commit in stage.results.commits(now, now - cut.began_at):
                self._staged[_key(commit)] = commit
                if not self._how(commit).with_checkpoints:
                    self._commit([commit])
        if cut.slot is None:
            self._resume()
            return self._over()
        self._broadcast(self._operators, TakeSnapshot(cut.slot))
        return CutState.TAKING_SNAPSHOTS

    def _taken(self, sender: Address, message: SnapshotTaken) -> None:
        self._stages[sender.stage].ledger.note(message.stats, self._coordinator.now)
        self._cut.marked.add(sender)
        self._note_step(EpochPhase.SNAPSHOTS, sender)

    def _task_written(self, sender: Address, message: SnapshotWritten) -> None:
        self._cut.written[sender] = message.written

    def _marked_all(self) -> State | None:
        cut, now = self._cut, self._coordinator.now
        if len(cut.marked) < sum(len(stage.addresses) for stage in self._operators):
            return None
        self.times.wait(EpochPhase.SNAPSHOTS, cut.epoch, now)
        cut.checkpoint = JobSnapshot(
            cut.epoch,
            self._slot,
            cut.began_at - self._started_at,
            now - cut.began_at,
            cut.sources(),
            cut.operators(),
            self._errors.noted,
            tuple(each for each in self._staged.values() if self._how(each).is_named),
        )
        self._resume()
        return CutState.SAVING

    def _write(self) -> State | None:
        cut = self._cut
        if len(cut.written) < len(cut.marked):
            return None
        assert cut.checkpoint is not None
        cut.checkpoint = cut.checkpoint.with_snapshots(cut.written)
        self._coordinator.instruct(WriteCheckpoint(cut.checkpoint))
        return CutState.WRITING

    def _resume(self) -> None:
        cut, now = self._cut, self._coordinator.now
        for stage in cut.draining:
            self._coordinator.send(BALANCER, Thaw(stage.progress.name))
        for of in self._operators:
            self._broadcast([of], GoOn(of.is_draining))
            of.time.wait(now, now - cut.began_at)
        self._ended.log(cut.epoch, cut.began_at, self.times.go_on(now), cut.slot, cut.publishing)

    def _is_written(self, sender: Address, event: CheckpointWritten) -> State:
        checkpoint = self._cut.checkpoint
        assert self.checkpoints is not None and checkpoint is not None
        self.checkpoints = replace(
            self.checkpoints,
            written=self.checkpoints.written + 1,
            waited=self.checkpoints.waited + checkpoint.seconds,
            size=self.checkpoints.size + event.size,
            read=self.checkpoints.read_before + checkpoint.read,
        )
        self._errors.forget(event.letters)
        self._commit(checkpoint.staged)
        return self._wait(event.slot, event.size)

    def _is_not_written(self, sender: Address, event: CheckpointFailed) -> State:
        assert self.checkpoints is not None
        self.checkpoints = replace(self.checkpoints, failed=self.checkpoints.failed + 1)
        return self._wait(event.slot, error=event.reason)

    def _how(self, commit: Commit) -> Publishing:
        return self._stages[commit.stage].spec.publishing[commit.output]

    def _commit(self, commits: Iterable[Commit]) -> None:
        for commit in commits:
            key = _key(commit)
            if key in self._staged and key not in self._committing:
                self._committing.add(key)
                self.times.wait(EpochPhase.CHECKPOINT, commit.epoch, self._coordinator.now)
                self._coordinator.instruct(commit)

    def _committed(self, sender: Address, event: Committed) -> None:
        key = event.stage, event.output, event.epoch
        self._committing.discard(key)
        self._staged.pop(key, None)
        self._stages[event.stage].results.outputs[event.output].committed()
        if all(epoch != event.epoch for *_, epoch in self._staged):
            self.times.seen(event.epoch, self._coordinator.now)

    def _wait(self, slot: int, size: int = 0, error: str | None = None) -> State:
        now, began = self._coordinator.now, self._cut.began_at
        self.tries.append(CheckpointTry(self._slot, began - self._started_at, now - began, size, error))
        self.times.has_checkpoint(now)
        self._slot, self._due_at = slot, now + self._every
        return self._over()

    def _over(self) -> State:
        self._at_hand = None
        return CutState.WAITING

    RULES: ClassVar[tuple[Rule, ...]] = (
        when(
            CutState.WAITING,
            _begin_if_due,
            "when due, pause what emits and let operators drain",
            (None, CutState.DRAINING),
        ),
        on(Paused, CutState.DRAINING, _task_paused, "note"),
        on(LastTable, CutState.DRAINING, _frozen, "note"),
        on(Published, CutState.DRAINING, _published, "note"),
        when(
            CutState.DRAINING,
            _drained,
            "freeze the table of each stage that has drained, close windows; after the last, publish what is due",
            (None, CutState.PUBLISHING),
        ),
        on(Published, CutState.PUBLISHING, _published, "note"),
        when(
            CutState.PUBLISHING,
            _take_snapshots,
            "after the last share, commit; take snapshots if a checkpoint is due, else resume",
            (None, CutState.TAKING_SNAPSHOTS, CutState.WAITING),
        ),
        on(SnapshotTaken, CutState.TAKING_SNAPSHOTS, _taken, "note"),
        on(SnapshotWritten, [CutState.TAKING_SNAPSHOTS, CutState.SAVING], _task_written, "note"),
        when(CutState.TAKING_SNAPSHOTS, _marked_all, "after the last one, resume", (None, CutState.SAVING)),
        when(CutState.SAVING, _write, "after the last one, write the checkpoint", (None, CutState.WRITING)),
        on(Committed, CutState, _committed, "note"),
        on(CheckpointWritten, CutState.WRITING, _is_written, "wait for the next", CutState.WAITING),
        on(CheckpointFailed, CutState.WRITING, _is_not_written, "wait for the next", CutState.WAITING),
    )
