"""The coordinator's state machine: starts tasks, hands out splits, and sees every stage to its end."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

from dpa.placement.online import OnlinePlacement
from dpa.protocol.coordinator._errors import Errors
from dpa.protocol.coordinator._planners import Planners
from dpa.protocol.coordinator.cuts import Cuts
from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import Graph
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, State, on, on_each, otherwise, when
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import (
    CancelChange,
    CheckpointFailed,
    CheckpointWritten,
    CloseFeeds,
    Committed,
    MoveTasks,
    PollDone,
    Rescale,
    Start,
    StartFailed,
    TaskDied,
    TaskStarted,
    Tick,
)
from dpa.protocol.wire.instructions import Answer, JobDone, JobFailed, StartTasks
from dpa.protocol.wire.messages.cuts import Paused, SnapshotTaken, SnapshotWritten
from dpa.protocol.wire.messages.end import Finished, LastTable, Progress
from dpa.protocol.wire.messages.exchange import Published
from dpa.protocol.wire.messages.members import Left, MembersChanged, Unsubscribed
from dpa.protocol.wire.messages.splits import Begin, SplitRequest, SplitReturned
from dpa.protocol.wire.messages.tables import DecisionReport
from dpa.protocol.wire.metrics import Snapshot, TaskChange
from dpa.protocol.wire.use import TaskUse, with_sums
from dpa.sources.feed import Until
from dpa.sources.splits import Split


class OpenInputs:
    """Those of all sources, closed together. `were_open`: whether any was when the job began."""

    def __init__(self, stages: Iterable[StageProgress], until: Until, read_before: int) -> None:
        """`read_before`: rows that were read before the checkpoint with which the job begins."""
        self._sources = [stage for stage in stages if stage.is_source]
        self._until = until
        self._read_before = self._read = read_before
        self._changed_at = 0.0
        self.were_open = any(stage.splits.position is not None for stage in self._sources)

    @property
    def are_open(self) -> bool:
        """Whether more may come from any."""
        return any(stage.splits.position is not None for stage in self._sources)

    @property
    def given(self) -> Mapping[str, tuple[Split, ...]]:
        return {stage.name: tuple(stage.splits.given) for stage in self._sources if stage.splits.given is not None}

    def close(self) -> None:
        for stage in self._sources:
            stage.splits.close()

    def tick(self, now: float, started_at: float) -> None:
        until = self._until
        if until == Until() or not self.are_open:
            return
        read = self._read_before + sum(stage.ledger.read for stage in self._sources)
        if read != self._read or not all(stage.splits.is_caught_up for stage in self._sources):
            self._read, self._changed_at = read, now
        is_over = until.seconds is not None and now - started_at >= until.seconds
        has_enough = until.records is not None and read >= until.records
        is_idle = until.idle is not None and now - max(started_at, self._changed_at) >= until.idle
        if is_over or has_enough or is_idle:
            self.close()


class CoordinatorState(State):
    """The states of the coordinator."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_ALIVE = (CoordinatorState.STARTING, CoordinatorState.RUNNING)

_WHY_NOT_NOW: dict[State, str] = {  # why requests are refused, by state
    CoordinatorState.CREATED: "is starting",
    CoordinatorState.STARTING: "is starting",
    CoordinatorState.DONE: "is done",
    CoordinatorState.FAILED: "has failed",
}


class CoordinatorMachine(Machine):
    """Messages about a stage are handled by its `StageProgress`."""

    stages: dict[str, StageProgress]

    def __init__(self, graph: Graph, online: OnlinePlacement | None = None) -> None:
        """`online`: how tasks are placed again while the job runs; None: not at all."""
        super().__init__(COORDINATOR, CoordinatorState.CREATED)
        self.started_at: float | None = None
        self.done_at: float | None = None
        self._graph = graph
        self._starting: set[Address] = set()
        self._use: dict[Address, TaskUse] = {}
        self.stages = {}
        for stage in graph.in_order:
            feeders = [
                (self.stages[edge.source], graph.out_of(edge.source).index((number, edge)))
                for number, edge in graph.into(stage.name)
            ]
            epoch = 0 if graph.checkpoints is None else graph.checkpoints.epoch
            self.stages[stage.name] = StageProgress(self, stage, feeders, epoch)
        self._planners = Planners(graph, self.stages, online)
        self.membership = Membership(
            self, self.stages, self._tasks_changed, self._planners.abandoned, self._waits_for_cut
        )
        self.include(self.membership)
        self.errors = Errors(graph.tolerated)
        read_before = 0 if graph.checkpoints is None else graph.checkpoints.read
        self.inputs = OpenInputs(self.stages.values(), graph.until, read_before)
        self.cuts = Cuts(self, self.stages, graph.checkpoints, self.membership, self.errors)
        self.include(self.cuts)

    @property
    def first_record_at(self) -> float | None:
        moments = (self.stages[stage.name].ledger.began_at for stage in self._graph.queue_fed())
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def stream_ended_at(self) -> float | None:
        drained = [self.stages[stage.name].ledger.drained_at for stage in self._graph.queue_fed()]
        return None if None in drained else max((moment for moment in drained if moment is not None), default=None)

    def snapshot(self, *, history: bool = True) -> Snapshot:
        """What is known now. Without `history` its size does not grow with the job's age: it has the last changes and
        decisions, no samples, no latency and no traffic."""
        started_at = self.started_at or 0.0
        event_times = self.cuts.watermarks.stats()
        return Snapshot(
            phase=self._phase(),
            at=0.0 if self.started_at is None else self.now - self.started_at,
            rows=0 if self.inputs.were_open else self._graph.rows,
            is_open=self.inputs.are_open,
            checkpoints=self.cuts.checkpoints,
            checkpoint_tries=tuple(self.cuts.tries),
            epochs=self.cuts.times.stats,
            epoch=None if self.started_at is None else self.cuts.times.open(self.cuts.epoch, started_at),
            errors=self.errors.counts,
            stages=tuple(
                replace(
                    stage.snapshot(history=history),
                    scaling_counts=self._planners.scaling_counts(name),
                    event_time=event_times.get(name),
                )
                for name, stage in self.stages.items()
            ),
            edges=tuple((edge.source, edge.target) for edge in self._graph.edges),
            use=dict(self._use) if history else self._use_without_traffic,
            steps=tuple(replace(step, at=step.at - started_at) for step in self.membership.steps),
            placement_looks=self._planners.placement_looks(started_at) if history else (),
            placement_counts=self._planners.placement_counts,
            generation=self.generation,
        )

    @property
    def _use_without_traffic(self) -> dict[Address, TaskUse]:
        return {task: self._use[task].without_traffic for task in self.present if task in self._use}

    @property
    def may_be_cut(self) -> bool:
        return self.state is CoordinatorState.RUNNING and self.cuts.may_checkpoint

    @property
    def known(self) -> list[Address]:
        """All tasks of stages that there are and have been, but for those that are forgotten."""
        return [Address(name, index) for name, stage in self.stages.items() for index in stage.roster.tasks]

    @property
    def present(self) -> list[Address]:
        return [address for stage in self.stages.values() for address in stage.addresses]

    def _phase(self) -> str:
        match self.state:
            case CoordinatorState.RUNNING:
                return "stream" if self.stream_ended_at is None else "merge"
            case CoordinatorState.DONE | CoordinatorState.FAILED:
                return str(self.state.value)
        return "startup"

    def states(self) -> dict[str, object]:
        of_stages = {f"stage {name}": stage.state.value for name, stage in self.stages.items()}
        return {**super().states(), "cut": self.cuts.state.value, **of_stages}

    def _go_on(self) -> State | None:
        if not self.cuts.is_holding:
            self.membership.advance()
        self.cuts.advance()
        if self.cuts.is_holding:
            return None
        for stage in self.stages.values():
            stage.advance()
        self.membership.settle()
        if not all(progress.is_done for progress in self.stages.values()) or self.cuts.is_committing:
            return None
        self.done_at = self.now
        self.membership.end(f"the job {_WHY_NOT_NOW[CoordinatorState.DONE]}")
        self.cuts.end(self.now)
        self.instruct(JobDone())
        return CoordinatorState.DONE

    def _start(self, sender: Address, event: Start) -> State:
        self._starting = {*self._graph.addresses, BALANCER}
        self.instruct(StartTasks((*self._graph.addresses, BALANCER)))
        return CoordinatorState.STARTING

    def _task_started(self, sender: Address, event: TaskStarted) -> State | None:
        self._starting.discard(event.address)
        if self._starting:
            return None
        self.started_at = self.now
        self.cuts.start(self.now)
        for stage in self._graph.in_order:
            self.stages[stage.name].start(self.now)
            if self._graph.is_source(stage.name):
                for address in stage.addresses:
                    self.send(address, Begin())
        return CoordinatorState.RUNNING

    def _refuse(self, sender: Address, event: Rescale | MoveTasks | CancelChange | CloseFeeds) -> None:
        if event.request is None:
            return
        self.instruct(Answer(event.request, f"the job {_WHY_NOT_NOW[self.state]}", refused=True))

    def _task_died(self, sender: Address, event: TaskDied) -> State:
        return self._fail(event.in_words())

    def _not_started(self, sender: Address, event: StartFailed) -> State:
        return self._fail(event.reason)

    def _fail(self, reason: str) -> State:
        self.membership.end(f"the job {_WHY_NOT_NOW[CoordinatorState.FAILED]}")
        self.instruct(JobFailed(reason))
        return CoordinatorState.FAILED

    def _progress(self, sender: Address, message: Progress) -> State | None:
        if message.use is not None:
            self._use[sender] = message.use
            self._planners.used(sender, message.use, self.now)
        self.for_senders_stage(sender, message)
        if message.failed is None:
            return None
        reason = self.errors.note(sender, message.failed, self.cuts.epoch, self.generation)
        return None if reason is None else self._fail(reason)

    def _close_feeds(self, sender: Address, event: CloseFeeds) -> None:
        are_open = self.inputs.are_open
        self.inputs.close()
        if event.request is not None:
            text = "the inputs are closed; the job ends with what has come" if are_open else "no input of it is open"
            self.instruct(Answer(event.request, text, refused=not are_open))

    def _last_table(self, sender: Address, message: LastTable) -> None:
        (self.hand_on if self.cuts.is_holding else self.for_named_stage)(sender, message)

    def _tick(self, sender: Address, event: Tick) -> None:
        if event.cuts:
            self.cuts.trigger(self.now)
        if event.cuts or self.cuts.is_holding:
            return
        assert self.started_at is not None
        self.inputs.tick(self.now, self.started_at)
        for stage in self.stages.values():
            stage.tick(self.now)
        self.hand_on(sender, event)
        self.membership.advance()
        self._planners.tick(self.now, event.cores_busy, self.membership)

    def _tasks_changed(self, step: TaskChange) -> None:
        if step.stopped:
            self._use = with_sums(self._use, {*self.known})
        self._planners.changed(step)

    def _waits_for_cut(self) -> bool:
        return self.cuts.precedes_changes

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(Start, CoordinatorState.CREATED, _start, "start all tasks", CoordinatorState.STARTING),
        *otherwise(
            (
                on(
                    TaskStarted,
                    CoordinatorState.STARTING,
                    _task_started,
                    "after the last one, start the sources",
                    (None, CoordinatorState.RUNNING),
                ),
                *on_each(
                    (TaskStarted, StartFailed, MembersChanged, Left, Unsubscribed, Rescale, MoveTasks, CancelChange),
                    [CoordinatorState.RUNNING],
                    Machine.hand_on,
                    "to the change of tasks",
                ),
                *on_each(
                    (Rescale, MoveTasks, CancelChange, CloseFeeds),
                    [state for state in CoordinatorState if state is not CoordinatorState.RUNNING],
                    _refuse,
                    "refuse",
                ),
                on(StartFailed, CoordinatorState.STARTING, _not_started, "fail", CoordinatorState.FAILED),
                on(TaskDied, _ALIVE, _task_died, "fail", CoordinatorState.FAILED),
                on(
                    Progress,
                    _ALIVE,
                    _progress,
                    "to the stage; fail if user code has failed on too many records",
                    (None, CoordinatorState.FAILED),
                ),
                *on_each(
                    (SplitRequest, SplitReturned, Finished),
                    [CoordinatorState.RUNNING],
                    Machine.for_senders_stage,
                    "to the stage",
                ),
                on(PollDone, CoordinatorState.RUNNING, Machine.for_named_stage, "to the stage"),
                on(CloseFeeds, CoordinatorState.RUNNING, _close_feeds, "stop polling"),
                on(LastTable, CoordinatorState.RUNNING, _last_table, "to the cut or the stage"),
                *on_each(
                    (Paused, Published, SnapshotTaken, SnapshotWritten, CheckpointWritten, CheckpointFailed, Committed),
                    [CoordinatorState.RUNNING],
                    Machine.hand_on,
                    "to the cut",
                ),
                *on_each((CheckpointWritten, CheckpointFailed), [CoordinatorState.DONE], Machine._ignore, "ignore"),
                on(DecisionReport, _ALIVE, Machine.for_named_stage, "to the stage"),
                on(Tick, CoordinatorState.RUNNING, _tick, "sample queues"),
                when(
                    CoordinatorState.RUNNING, _go_on, "advance stages, to the last one", (None, CoordinatorState.DONE)
                ),
                on(Tick, [CoordinatorState.CREATED, CoordinatorState.STARTING], Machine._ignore, "ignore"),
                *on_each(
                    (Progress, DecisionReport, Tick, TaskDied, PollDone),
                    [CoordinatorState.DONE],
                    Machine._ignore,
                    "ignore",
                ),
            ),
            CoordinatorState.FAILED,
            Machine._ignore,
            "ignore",
        ),
    )
