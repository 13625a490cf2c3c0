"""No machines at all as the place where tasks run: the instructions of a run are carried out in this process, one after
the other, on the same blocks and states as in a real run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import ClassVar, TypeVar

from dpa.execution.block import Block
from dpa.execution.schemas import agreed
from dpa.measure.traffic import TrafficMeter
from dpa.protocol.graph import Graph, Stage
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan, TaskOutput, Times
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import (
    Event,
    ExtractDone,
    FinishDone,
    ProcessDone,
    RangesExtracted,
    StatesInstalled,
    StepDone,
)
from dpa.protocol.wire.instructions import (
    Extract,
    ExtractRanges,
    Finish,
    InstallStates,
    Instruction,
    NextStep,
    OpenResult,
    OpenSplit,
    Process,
    Write,
)
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot, TaskStats
from dpa.protocol.wire.nodes import Place
from dpa.protocol.wire.use import TaskUse
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.table import RoutingTable
from dpa.runtime.packed_plan import require_picklable
from dpa.sinks.shares import deliver

E = TypeVar("E", bound=Event)


class LocalBackend:
    """Runs plans without machines, threads or a network, for tests of jobs, and to see what their user code costs.

    Where a stage's grouping is the ring, keys are redistributed half way, whatever the plan's strategy. If states can
    be merged, one of the keys is split over all tasks: so states are merged in the end as they are in a real run. If
    they migrate, they move with the keys.
    Sources have one task, nothing is slowed down, and no partial results are published.

    Args:
        redistributes: whether keys are redistributed at all.
    """

    samples: ClassVar[bool] = False
    is_ready: ClassVar[bool] = True

    def __init__(self, *, redistributes: bool = True) -> None:
        self._redistributes = redistributes

    def check_executor(self, executor: object) -> None:
        """Check that an executor could be sent to actors: it stays in this process, but a real run's does not.

        Raises:
            ConfigError: it cannot be pickled.
        """
        require_picklable(executor)

    def prepared(self, tasks: int, place: Place | None = None) -> AbstractContextManager[LocalBackend]:
        """Nothing has to be started: a block with this backend itself."""
        return nullcontext(self)

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        """Run a plan; the statistics are those at the end, and requests to change tasks are not looked at.

        Raises:
            ExecutorError: an executor failed; names it, the key and the traceback.
        """
        if plan.partial_results:
            hooks.warn("partial results are not published by LocalBackend")
        began = time.time()
        local = _LocalRun(plan, redistributes=self._redistributes)
        for stage in plan.graph.in_order:
            local.run(stage)
        ended = time.time()
        snapshot = local.snapshot(ended - began)
        hooks.observe(snapshot)
        first = began if any(task.processed for stage in snapshot.stages for task in stage.tasks) else None
        times = Times(began, began, first, ended, ended)
        return RunOutcome(local.outputs, snapshot, times, local.use())


_ALL = 2**62
"""Rows of a step, or keys of a piece of states: as many as the limits allow."""


class _LocalRun:
    """The stages run so far.

    Attributes:
        outputs: the shares of each operator stage.
    """

    def __init__(self, plan: RunPlan, *, redistributes: bool) -> None:
        self._plan = plan
        self._began = time.time()
        self._redistributes = redistributes
        self._graph: Graph = plan.graph
        self._on_edge: dict[int, list[tuple[_Task, Block]]] = defaultdict(list)
        self._tasks: dict[Address, _Task] = {}
        self._stages: list[StageSnapshot] = []
        self.outputs: dict[str, tuple[TaskOutput, ...]] = {}

    def snapshot(self, seconds: float) -> Snapshot:
        """The statistics of all stages."""
        edges = tuple((edge.source, edge.target) for edge in self._graph.edges)
        return Snapshot("done", seconds, self._plan.rows, tuple(self._stages), edges)

    def use(self) -> dict[Address, TaskUse]:
        """The processor time of every task's user code, and the size of the blocks that it sent."""
        return {address: task.use for address, task in self._tasks.items()}

    def run(self, stage: Stage) -> None:
        """Run a stage, once all that feed it were run."""
        began = time.time() - self._began
        tasks = [
            _Task(address, UserCode(self._plan.tasks[stage.name], address.index, _no_time))
            for address in stage.addresses
        ]
        if self._graph.is_source(stage.name):
            stats = self._read(tasks[0], [OpenSplit(split) for split in stage.splits], TaskStats(stage.name, 0))
            others = (TaskStats(stage.name, index) for index in range(1, stage.tasks))
            self._stages.append(StageSnapshot(stage.name, "done", (stats, *others)))
        else:
            self._operate(stage, tasks)
        self._stages[-1] = replace(self._stages[-1], began=began, ended=time.time() - self._began)
        self._tasks.update({task.address: task for task in tasks})

    def _operate(self, stage: Stage, tasks: Sequence[_Task]) -> None:
        blocks = [sent for number, _ in self._graph.into(stage.name) for sent in self._on_edge.pop(number, ())]
        ring, first = stage.balance.ring(stage.tasks), stage.first_table()
        table, grouping = first, stage.grouping.create(first, 0)
        processed, found = [0] * stage.tasks, []
        can_merge = tasks[0].code.is_mergeable
        moves = self._redistributes and stage.tasks > 1 and stage.grouping.is_ring and (can_merge or stage.migrates)
        for number, (sender, block) in enumerate(blocks):
            if moves and number == len(blocks) // 2:
                ring.set_tokens(0, 1)
                table = ring.snapshot(1)
                if stage.migrates:
                    self._migrate(tasks, table)
                else:
                    table = _with_a_split_key(table, int(block.hashes[0]))
                grouping.adopt(table)
            for owner, part in block.route(grouping):
                sender.traffic.sent(tasks[owner].address, part.rows, part.size)
                done = tasks[owner].event(Process(part, table.version), ProcessDone)
                self._emit(tasks[owner], done.blocks)
                processed[owner] += part.rows
        finished = self._finished(tasks, table, first, exchange=can_merge and not stage.migrates)
        schema = agreed(event.schema for event in finished)
        outputs = []
        for task, records in zip(tasks, processed, strict=True):
            is_first = task is tasks[0]
            task.carry_out(Write(schema, is_first))
            outputs.append(deliver(self._plan, task.address, task.code.operator, schema, is_first=is_first))
            stats = TaskStats(stage.name, task.address.index, processed=records, version=table.version)
            found.append(self._read(task, [OpenResult()] if self._graph.out_of(stage.name) else [], stats))
        self.outputs[stage.name] = tuple(outputs)
        initial = [sum(loads) for loads in zip(*(event.initial_load for event in finished), strict=True)]
        self._stages.append(StageSnapshot(stage.name, "done", tuple(found), table.version, initial_load=tuple(initial)))

    @staticmethod
    def _migrate(tasks: Sequence[_Task], table: RoutingTable) -> None:
        """Move states to the tasks that own them by a table."""
        extracted = [task.event(ExtractRanges(table, _ALL), RangesExtracted).piece.parts for task in tasks]
        for index, task in enumerate(tasks):
            task.event(InstallStates(tuple(parts[index] for parts in extracted if index in parts)), StatesInstalled)

    @staticmethod
    def _finished(
        tasks: Sequence[_Task], table: RoutingTable, first: RoutingTable, *, exchange: bool
    ) -> list[FinishDone]:
        """Let each task give its states to their owners, and finish."""
        extracted = [task.event(Extract(table), ExtractDone).parts if exchange else {} for task in tasks]
        return [
            task.event(Finish(tuple(parts[index] for parts in extracted if index in parts), first), FinishDone)
            for index, task in enumerate(tasks)
        ]

    def _read(self, task: _Task, openings: Sequence[Instruction], stats: TaskStats) -> TaskStats:
        """Read what the instructions open, and emit its records; returns the statistics with what was read."""
        read = mapped = 0
        emitted = [0] * len(self._graph.out_of(stats.stage))
        for opening in openings:
            task.carry_out(opening)
            while (step := task.event(NextStep(_ALL), StepDone).step) is not None:
                read, mapped = read + step.read, mapped + step.mapped
                self._emit(task, step.blocks)
                for position, block in step.blocks:
                    emitted[position] += block.rows
        return replace(stats, read=read, mapped=mapped, emitted=tuple(emitted))

    def _emit(self, task: _Task, blocks: Sequence[tuple[int, Block]]) -> None:
        numbers = [number for number, _ in self._graph.out_of(task.address.stage)]
        for position, block in blocks:
            self._on_edge[numbers[position]].append((task, block))


class _Task:
    """The user code of one task, the processor time that it took, and what was sent.

    Attributes:
        address: which task.
        code: its user code.
        traffic: the blocks that it has sent, by receiver.
    """

    def __init__(self, address: Address, code: UserCode) -> None:
        self.address, self.code = address, code
        self.traffic: TrafficMeter[Address] = TrafficMeter()
        self._seconds = 0.0

    @property
    def use(self) -> TaskUse:
        """What it used."""
        return TaskUse(cpu_seconds=self._seconds, sent=self.traffic.found())

    def carry_out(self, instruction: Instruction) -> Event | None:
        """Run user code."""
        began = time.thread_time()
        try:
            return self.code.carry_out(instruction)
        finally:
            self._seconds += time.thread_time() - began

    def event(self, instruction: Instruction, kind: type[E]) -> E:
        """Run user code, and return the event that answers the instruction."""
        event = self.carry_out(instruction)
        assert isinstance(event, kind)
        return event


def _no_time() -> float:
    """Steps are not judged by the time that they take."""
    return 0.0


def _with_a_split_key(table: RoutingTable, hashed: int) -> RoutingTable:
    """The next table, in which the key with this hash is split over all reducers."""
    every, version = tuple(range(table.reducers)), table.version + 1
    evenly = tuple(1 / table.reducers for _ in every)
    split = KeySplit(every, evenly, tuple(float(reducer == 0) for reducer in every), version)
    before, after = (hashed - 1) % 2**32, (hashed + 1) % 2**32
    return TableChange.of(table, {hashed: table.assignment_of(before), after: split}).apply(table)
