"""The user code of the tasks of a simulated run: it runs at once, and its answer comes after a while of virtual
time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from dpa.execution.reduce_task import ReduceStage
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import Event, ExtractDone, ProcessDone, PublishDone, StepDone
from dpa.protocol.wire.instructions import Answer, Commit, Instruction, ProcessBlocks, Publish
from experiments.simulation._hosts import Hosts
from experiments.simulation._saving import Saving
from experiments.simulation.checks.invariants import Invariants
from experiments.simulation.checks.published import LEFT, PublishedResults, PublishedWindows
from experiments.simulation.checks.require import require
from experiments.simulation.checks.windows import WindowBook
from experiments.simulation.job import SimulatedJob, SimulatedRun

_EXCHANGE_SECONDS = 0.001
"""Virtual time to extract, merge, finish or write states."""


class UserCodes:
    """That of all tasks.

    Attributes:
        of: each task, by its address.
        published: of the stages that publish partial results, by name.
    """

    def __init__(
        self,
        job: SimulatedJob,
        saving: Saving,
        tasks: Mapping[Address, TaskMachine],
        hosts: Hosts,
        invariants: Invariants,
        clock: Callable[[], float],
        draw: random.Random,
    ) -> None:
        """`draw` varies durations."""
        self._job = job
        self._saving = saving
        self._tasks = tasks
        self._hosts = hosts
        self._invariants = invariants
        self._clock = clock
        self._random = draw
        self.of: dict[Address, UserCode] = {}
        self.published = {
            stage.name: PublishedResults(stage_task.key)
            for stage in job.graph.queue_fed()
            if any(each.is_by_epoch for each in stage.publishing) and stage.windows is None
            if isinstance(stage_task := job.work[stage.name], ReduceStage)
        }
        self._windows = {
            stage.name: WindowBook(stage.name, stage.reached.closed, are_sessions=_has_sessions(job, stage.name))
            for stage in job.graph.queue_fed()
            if stage.windows is not None
        }
        self._finals = {
            name: PublishedWindows(name, stage_task.key, are_sessions=_has_sessions(job, name))
            for name in self._windows
            if (delivery := job.deliveries.get(name)) is not None and delivery.first is not None
            if isinstance(stage_task := job.work[name], ReduceStage)
        }

    def start(self, address: Address) -> None:
        """A task begins, with the states that checkpoints have for it."""
        work, delivery = self._job.work[address.stage], self._job.deliveries.get(address.stage)
        seed, room = self._job.graph[address.stage].balance.hash_seed, self._job.room
        room = None if room is None else replace(room, seed=seed)
        code = UserCode(work, address.index, self._clock, delivery, self._saving.archive(address), room=room)
        self._saving.restore(address, code)
        self.of[address] = code
        parts = [] if self._job.graph.is_source(address.stage) else [*code.reduce_task.snapshot().parts()]
        if parts:
            self._invariants.begins_with(address, parts)
        for part in parts if address.stage in self.published else ():
            self.published[address.stage].begins_with(part)
        if address.stage in self._finals:
            self._finals[address.stage].begins_with(code.reduce_task.snapshot())

    def carry_out(self, address: Address, instruction: Instruction) -> tuple[Event, float]:
        """Run a piece of a task's user code; returns the event that answers it, and its duration without pauses
        (seconds)."""
        published, code, now = self.published.get(address.stage), self.of[address], self._clock()
        windows, finals = self._windows.get(address.stage), self._finals.get(address.stage)
        for book in (published, windows, finals):
            if book is not None:
                book.works(instruction)
        event = code.carry_out(instruction)
        assert event is not None
        if windows is not None and isinstance(instruction, Publish):
            self._require_drained(address.stage)
            parts = [*code.reduce_task.snapshot().parts()]
            for part in parts:
                windows.closes(part)
            if code.reduce_task.receiver.has_timers:
                self._invariants.begins_with(address, parts)
        if finals is not None and isinstance(instruction, Publish) and isinstance(event, PublishDone):
            finals.published(instruction, event.staged.get(0))
        if published is not None and isinstance(instruction, Publish):
            self._require_cut()
            published.published(address.index, instruction.epoch, code.reduce_task.preview())
        variation = self._job.variation
        seconds = self._random.uniform(1 - variation, 1 + variation)
        seconds *= self._mean_seconds(address, instruction, event, now)
        if isinstance(event, StepDone) and event.step is not None:
            made = self._tasks[address].mapped + event.step.mapped
            seconds = max(seconds, self._job.due(address.stage, address.index, made) - now)
        waited = self._hosts.begin(address, seconds)
        seconds += waited  # as a clock on the wall sees it
        if isinstance(event, StepDone | ProcessDone | ExtractDone | PublishDone):
            event = replace(event, seconds=seconds)
        if isinstance(event, ProcessDone):
            event = replace(event, waited=waited)
        return event, seconds

    def commit(self, commit: Commit) -> None:
        """The results of an epoch are committed."""
        if commit.stage in self.published:
            self.published[commit.stage].commit(commit.epoch)
        if commit.stage in self._finals:
            self._finals[commit.stage].commit(commit)

    def cut_is_over(self, coordinator: CoordinatorMachine) -> None:
        """The coordinator lets tasks go on; the next cut may have begun by then."""
        for name, book in self._finals.items():
            outputs = coordinator.stages[name].results.outputs
            book.cut_is_over(knows=any(output.has_closed for output in outputs))

    def _require_cut(self) -> None:
        """All that was emitted is processed."""
        for stage in self._job.graph.queue_fed():
            self._require_drained(stage.name)

    def _require_drained(self, stage: str) -> None:
        processed = sum(
            task.processed
            for task in self._tasks.values()
            if isinstance(task, OperatorMachine) and task.address.stage == stage
        )
        emitters = (emitter for task in self._tasks.values() for emitter in task.emitters)
        emitted = sum(emitter.made for emitter in emitters if emitter.stage == stage)
        require(emitted == processed, f"{stage}: {emitted - processed} records are on their way at a cut")

    def result(
        self, coordinator: CoordinatorMachine, clock: float, steps: int, answers: Mapping[int, Answer]
    ) -> SimulatedRun:
        """What a run gives back that is done."""
        stages = [stage.name for stage in self._job.graph.queue_fed()]
        shares = {
            name: tuple(self.of[address].reduce_task.share for address in coordinator.stages[name].addresses)
            for name in stages
        }
        committed = {name: tuple(self.published[name].committed) if name in self.published else () for name in stages}
        late = {name: book.late for name, book in self._windows.items()}
        staged = coordinator.cuts.staged
        finals = {name: {**book.committed, LEFT: staged.get((name, 0), ())} for name, book in self._finals.items()}
        return SimulatedRun(shares, coordinator.snapshot(), clock, steps, committed, dict(answers), late, finals)

    def _mean_seconds(self, address: Address, instruction: Instruction, event: Event, now: float) -> float:
        """How long a piece of user code takes on average, on a core of its own."""
        job, stage, index = self._job, address.stage, address.index
        if isinstance(event, StepDone):
            records = 0 if event.step is None else event.step.mapped
            return records * job.step_seconds(stage) * job.slowness(stage, index, now)
        if isinstance(instruction, ProcessBlocks):
            work = sum(job.work_of(stage, block) for block in instruction.blocks)
            return work * job.service_seconds(stage, index) * job.slowness(stage, index, now)
        return _EXCHANGE_SECONDS


def _has_sessions(job: SimulatedJob, stage: str) -> bool:
    """Whether the windows of a stage are sessions."""
    task = job.work[stage]
    return isinstance(task, ReduceStage) and task.receiver.has_sessions
