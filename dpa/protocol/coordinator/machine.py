"""The coordinator's state machine: starts tasks, hands out splits, and sees every stage to its end."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import ClassVar

from dpa.placement.online import OnlinePlacement
from dpa.protocol.coordinator._demand import emitted_to
from dpa.protocol.coordinator._relocation import Relocation
from dpa.protocol.coordinator.elasticity import Elasticity
from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import Graph
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, State, on, on_each, when
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import (
    CancelChange,
    MoveTasks,
    Rescale,
    Start,
    StartFailed,
    TaskDied,
    TaskRequest,
    TaskStarted,
    Tick,
)
from dpa.protocol.wire.instructions import Answer, JobDone, JobFailed, StartTasks
from dpa.protocol.wire.messages.end import Finished, LastTable, Progress
from dpa.protocol.wire.messages.exchange import RoundDone
from dpa.protocol.wire.messages.members import Left, MembersChanged, Unsubscribed
from dpa.protocol.wire.messages.splits import Begin, SplitRequest, SplitReturned
from dpa.protocol.wire.messages.tables import DecisionReport
from dpa.protocol.wire.metrics import PlacementLook, Snapshot, TaskChange
from dpa.protocol.wire.use import TaskUse, with_sums
from dpa.sources.splits import total_rows


class CoordinatorState(State):
    """The states of the coordinator."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_ALIVE = (CoordinatorState.STARTING, CoordinatorState.RUNNING)

_REST_SECONDS = 60.0
"""Where a task could not be started, policies ask for no change for so long: most likely it would not start again."""

_WHY_NOT_NOW: dict[State, str] = {
    CoordinatorState.CREATED: "is starting",
    CoordinatorState.STARTING: "is starting",
    CoordinatorState.DONE: "is done",
    CoordinatorState.FAILED: "has failed",
}
"""What a job is at that takes no requests."""


class CoordinatorMachine(Machine):
    """What it does on messages about a stage is told by the stage's `StageProgress`.

    Attributes:
        started_at: when the stream began, or None.
        done_at: when the result was complete, or None.
    """

    def __init__(self, graph: Graph, online: OnlinePlacement | None = None) -> None:
        """`online`: how tasks are placed again while the job runs; None: not at all."""
        super().__init__(COORDINATOR, CoordinatorState.CREATED)
        self.started_at: float | None = None
        self.done_at: float | None = None
        self._graph = graph
        self._rows = sum(total_rows(stage.splits) for stage in graph.stages)
        self._starting: set[Address] = set()
        self._use: dict[Address, TaskUse] = {}
        self._policies_rest_until = -math.inf
        self.stages = {
            stage.name: StageProgress(
                self,
                stage,
                is_source=graph.is_source(stage.name),
                emitted_to=partial(self._all_emitted_to, stage.name),
            )
            for stage in graph.in_order
        }
        self._membership = Membership(self, self.stages, self._tasks_changed, self._change_abandoned)
        self.include(self._membership)
        self._relocation = None if online is None else Relocation(self.stages, online)
        self._elastic = Elasticity(graph, self.stages)

    @property
    def first_record_at(self) -> float | None:
        """When the first record was known to be processed, or None."""
        moments = (self.stages[stage.name].began_at for stage in self._graph.queue_fed())
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def stream_ended_at(self) -> float | None:
        """When the last stage had processed all its records, or None."""
        drained = [self.stages[stage.name].drained_at for stage in self._graph.queue_fed()]
        return None if None in drained else max((moment for moment in drained if moment is not None), default=None)

    def snapshot(self, *, history: bool = True) -> Snapshot:
        """What is known now; without `history`, only the last changes and applied decisions, no samples, no latency and
        no use, which is little to send however long the job runs."""
        return Snapshot(
            phase=self._phase(),
            at=0.0 if self.started_at is None else self.now - self.started_at,
            rows=self._rows,
            stages=tuple(
                replace(stage.snapshot(history=history), scaling_counts=self._elastic.counts_of(name))
                for name, stage in self.stages.items()
            ),
            edges=tuple((edge.source, edge.target) for edge in self._graph.edges),
            use=dict(self._use) if history else {},
            steps=tuple(
                replace(step, at=step.at - (self.started_at or 0.0)) for step in self._membership.kept(history=history)
            ),
            placement_looks=() if self._relocation is None or not history else self._looks(self._relocation.looks),
            placement_counts={} if self._relocation is None else dict(self._relocation.counts),
            generation=self.generation,
        )

    def _looks(self, looks: Iterable[PlacementLook]) -> tuple[PlacementLook, ...]:
        return tuple(replace(look, at=look.at - (self.started_at or 0.0)) for look in looks)

    @property
    def known(self) -> list[Address]:
        """All tasks of stages that there are and have been, but for those that are forgotten."""
        return [Address(name, index) for name, stage in self.stages.items() for index in stage.tasks]

    @property
    def present(self) -> list[Address]:
        """All tasks of stages that there are."""
        return [address for stage in self.stages.values() for address in stage.addresses]

    def _phase(self) -> str:
        match self.state:
            case CoordinatorState.RUNNING:
                return "stream" if self.stream_ended_at is None else "merge"
            case CoordinatorState.DONE | CoordinatorState.FAILED:
                return str(self.state.value)
        return "startup"

    def states(self) -> dict[str, object]:
        """Also those of the stages."""
        return {**super().states(), **{f"stage {name}": stage.state.value for name, stage in self.stages.items()}}

    def _go_on(self) -> State | None:
        self._membership.advance()
        for stage in self.stages.values():
            stage.advance()
        self._membership.settle()
        if not all(progress.is_done for progress in self.stages.values()):
            return None
        self.done_at = self.now
        self._membership.end(f"the job {_WHY_NOT_NOW[CoordinatorState.DONE]}")
        self.instruct(JobDone())
        return CoordinatorState.DONE

    def _all_emitted_to(self, name: str) -> int | None:
        """Records that a stage has to process; None: a stage that feeds it is not done."""
        return self._emitted_to(name) if self._has_all_input(name) else None

    def _has_all_input(self, name: str) -> bool:
        """Whether all stages that feed a stage are done."""
        return all(self.stages[feeder.name].is_done for feeder in self._graph.upstream(name))

    def _emitted_to(self, name: str) -> int:
        """Records that a stage has to process before its input is all processed."""
        return emitted_to(name, self._graph, self.stages)

    def _start(self, sender: Address, event: Start) -> State:
        self._starting = {*self._graph.addresses, BALANCER}
        self.instruct(StartTasks((*self._graph.addresses, BALANCER)))
        return CoordinatorState.STARTING

    def _task_started(self, sender: Address, event: TaskStarted) -> State | None:
        self._starting.discard(event.address)
        if self._starting:
            return None
        self.started_at = self.now
        for stage in self._graph.in_order:
            self.stages[stage.name].start(self.now)
            if self._graph.is_source(stage.name):
                for address in stage.addresses:
                    self.send(address, Begin())
        return CoordinatorState.RUNNING

    def _refuse(self, sender: Address, event: Rescale | MoveTasks | CancelChange) -> None:
        self.instruct(Answer(event.request, f"the job {_WHY_NOT_NOW[self.state]}", refused=True))

    def _task_died(self, sender: Address, event: TaskDied) -> State:
        return self._fail(event.in_words())

    def _not_started(self, sender: Address, event: StartFailed) -> State:
        return self._fail(event.reason)

    def _fail(self, reason: str) -> State:
        self._membership.end(f"the job {_WHY_NOT_NOW[CoordinatorState.FAILED]}")
        self.instruct(JobFailed(reason))
        return CoordinatorState.FAILED

    def _progress(self, sender: Address, message: Progress) -> None:
        if message.use is not None:
            self._use[sender] = message.use
            if self._relocation is not None:
                self._relocation.used(sender, message.use, self.now)
        self._of_task(sender, message)

    def _of_task(
        self, sender: Address, message: SplitRequest | SplitReturned | Progress | RoundDone | Finished
    ) -> None:
        self.stages[sender.stage].dispatch(sender.stage, sender, message)

    def _of_stage(self, sender: Address, message: LastTable | DecisionReport) -> None:
        self.stages[message.stage].dispatch(message.stage, sender, message)

    def _tick(self, sender: Address, event: Tick) -> None:
        for stage in self.stages.values():
            stage.tick(self.now)
        self.hand_on(sender, event)
        self._membership.advance()
        if self.now >= self._policies_rest_until:
            self._let_policies_look(event.cores_busy)

    def _let_policies_look(self, cores_busy: float) -> None:
        for request in self._elastic.tick(
            self.now, cores_busy, self._seconds_left, can_change=self._membership.is_idle
        ):
            self._membership.ask(request)
        if self._relocation is not None and self._membership.is_idle:
            for move in self._relocation.tick(self.now, self._seconds_left_of_job()):
                self._membership.ask(move, self._relocation.read_at(self.now))

    def _tasks_changed(self, step: TaskChange) -> None:
        self._elastic.changed(step)
        if step.stopped:
            self._use = with_sums(self._use, {*self.known})
        if self._relocation is not None:
            self._relocation.changed(step)

    def _change_abandoned(self, request: TaskRequest) -> None:
        if request.request is not None:
            return
        self._policies_rest_until = self.now + _REST_SECONDS
        if isinstance(request, Rescale):
            self._elastic.abandoned(request.stage)
        elif self._relocation is not None:
            self._relocation.abandoned()

    def _seconds_left(self, name: str) -> float | None:
        """Until a stage would end if the rest of the input took as long as what has been read; None: not known, as of
        one that is fed by others than sources."""
        if not all(self._graph.is_source(feeder.name) for feeder in self._graph.upstream(name)):
            return None
        read = sum(task.read for stage in self.stages.values() if stage.is_source for task in stage.roster.every_task)
        if not read or self.started_at is None:
            return None
        return (self.now - self.started_at) * max(self._rows - read, 0) / read

    def _seconds_left_of_job(self) -> float | None:
        """The same of all stages; None: not known."""
        left = [self._seconds_left(stage.name) for stage in self._graph.queue_fed()]
        return None if None in left else max((seconds for seconds in left if seconds is not None), default=None)

    def _ignore(self, sender: Address, event: object) -> None:
        """An event that no longer matters."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(Start, CoordinatorState.CREATED, _start, "start all tasks", CoordinatorState.STARTING),
        on(
            TaskStarted,
            CoordinatorState.STARTING,
            _task_started,
            "with the last one, let sources begin",
            (None, CoordinatorState.RUNNING),
        ),
        *on_each(
            (TaskStarted, StartFailed, MembersChanged, Left, Unsubscribed, Rescale, MoveTasks, CancelChange),
            [CoordinatorState.RUNNING],
            Machine.hand_on,
            "for the change of tasks",
        ),
        *on_each(
            (Rescale, MoveTasks, CancelChange),
            [state for state in CoordinatorState if state is not CoordinatorState.RUNNING],
            _refuse,
            "refuse",
        ),
        on(StartFailed, CoordinatorState.STARTING, _not_started, "fail", CoordinatorState.FAILED),
        on(TaskDied, _ALIVE, _task_died, "fail", CoordinatorState.FAILED),
        on(Progress, _ALIVE, _progress, "for the stage"),
        *on_each(
            (SplitRequest, SplitReturned, RoundDone, Finished), [CoordinatorState.RUNNING], _of_task, "for the stage"
        ),
        on(LastTable, CoordinatorState.RUNNING, _of_stage, "for the stage"),
        on(DecisionReport, _ALIVE, _of_stage, "for the stage"),
        on(Tick, CoordinatorState.RUNNING, _tick, "sample queues; begin a round if one is due"),
        when(CoordinatorState.RUNNING, _go_on, "let all go on, to the last stage", (None, CoordinatorState.DONE)),
        on(Tick, [CoordinatorState.CREATED, CoordinatorState.STARTING], _ignore, "ignore"),
        *on_each((Progress, DecisionReport, Tick, TaskDied), [CoordinatorState.DONE], _ignore, "ignore"),
        *on_each(
            (
                TaskStarted,
                StartFailed,
                SplitRequest,
                SplitReturned,
                Progress,
                RoundDone,
                Finished,
                LastTable,
                DecisionReport,
                MembersChanged,
                Left,
                Unsubscribed,
                Tick,
                TaskDied,
            ),
            [CoordinatorState.FAILED],
            _ignore,
            "ignore",
        ),
    )
