"""No machines at all as the place where tasks run: the instructions of a run are carried out in this process, one after
the other, on the same blocks and states as in a real run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TypeVar

from dpa.execution.block import Block
from dpa.execution.schemas import agreed
from dpa.protocol.graph import Graph, Stage
from dpa.protocol.machine import (
    Event,
    Extract,
    ExtractDone,
    Finish,
    FinishDone,
    Instruction,
    NextStep,
    OpenResult,
    OpenSplit,
    Process,
    ProcessDone,
    StepDone,
    Write,
)
from dpa.protocol.metrics import Snapshot, StageSnapshot, TaskStats
from dpa.protocol.plan import RunOutcome, RunPlan, TaskOutput, Times
from dpa.protocol.user_code import UserCode
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.table import RoutingTable
from dpa.sinks.shares import deliver

E = TypeVar("E", bound=Event)


class LocalBackend:
    """Runs plans without machines, threads or a network, for tests of jobs.

    Where a stage's states can be merged and its grouping is the ring, keys are redistributed half way, whatever the
    plan's strategy, and one of them is split over all tasks: so states are merged in the end as they are in a real run.
    Sources have one task, nothing is slowed down, and no partial results are published.
    """

    def check_executor(self, executor: object) -> None:
        """Nothing: executors stay in this process."""

    def prepared(self, tasks: int) -> AbstractContextManager[LocalBackend]:
        """Nothing has to be started: a block with this backend itself."""
        return nullcontext(self)

    def run(self, plan: RunPlan, observe: Callable[[Snapshot], None], warn: Callable[[str], None]) -> RunOutcome:
        """Run a plan; `observe` receives the statistics at the end.

        Raises:
            ExecutorError: an executor failed; names it, the key and the traceback.
        """
        if plan.partial_results:
            warn("partial results are not published by LocalBackend")
        began = time.time()
        local = _LocalRun(plan)
        for stage in plan.graph.in_order:
            local.run(stage)
        ended = time.time()
        snapshot = local.snapshot(ended - began)
        observe(snapshot)
        first = began if any(task.processed for stage in snapshot.stages for task in stage.tasks) else None
        times = Times(began, began, first, ended, ended)
        return RunOutcome(local.outputs, snapshot, times, dict.fromkeys(plan.graph.addresses, 0))


_ALL = 2**62
"""Rows of a step: as many as the limits allow."""


class _LocalRun:
    """The stages run so far.

    Attributes:
        outputs: the shares of each operator stage.
    """

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._graph: Graph = plan.graph
        self._on_edge: dict[int, list[Block]] = defaultdict(list)
        self._stages: list[StageSnapshot] = []
        self.outputs: dict[str, tuple[TaskOutput, ...]] = {}

    def snapshot(self, seconds: float) -> Snapshot:
        """The statistics of all stages."""
        edges = tuple((edge.source, edge.target) for edge in self._graph.edges)
        return Snapshot("done", seconds, self._plan.rows, tuple(self._stages), edges)

    def run(self, stage: Stage) -> None:
        """Run a stage, once all that feed it were run."""
        codes = [UserCode(self._plan.tasks[stage.name], index, lambda: 0.0) for index in range(stage.tasks)]
        if self._graph.is_source(stage.name):
            stats = self._read(codes[0], [OpenSplit(split) for split in stage.splits], TaskStats(stage.name, 0))
            others = (TaskStats(stage.name, index) for index in range(1, stage.tasks))
            self._stages.append(StageSnapshot(stage.name, "done", (stats, *others)))
        else:
            self._operate(stage, codes)

    def _operate(self, stage: Stage, codes: Sequence[UserCode]) -> None:
        blocks = [block for number, _ in self._graph.into(stage.name) for block in self._on_edge.pop(number, ())]
        ring, first = stage.balance.ring(stage.tasks), stage.first_table()
        table, grouping = first, stage.grouping.create(first, 0)
        processed, tasks = [0] * stage.tasks, []
        moves = stage.tasks > 1 and stage.grouping.is_ring and codes[0].is_mergeable
        for number, block in enumerate(blocks):
            if moves and number == len(blocks) // 2:
                ring.set_tokens(0, 1)
                table = _with_a_split_key(ring.snapshot(1), int(block.hashes[0]))
                grouping.adopt(table)
            for owner, part in block.route(grouping):
                done = _event(codes[owner], Process(part, table.version), ProcessDone)
                self._emit(stage.name, done.blocks)
                processed[owner] += part.rows
        finished = self._finished(codes, table, first, exchange=codes[0].is_mergeable)
        schema = agreed(event.schema for event in finished)
        outputs = []
        for address, code, records in zip(stage.addresses, codes, processed, strict=True):
            code.carry_out(Write(schema))
            outputs.append(deliver(self._plan, address, code.operator, schema))
            stats = TaskStats(stage.name, address.index, processed=records, version=table.version)
            tasks.append(self._read(code, [OpenResult()] if self._graph.out_of(stage.name) else [], stats))
        self.outputs[stage.name] = tuple(outputs)
        initial = [sum(loads) for loads in zip(*(event.initial_load for event in finished), strict=True)]
        self._stages.append(StageSnapshot(stage.name, "done", tuple(tasks), table.version, initial_load=tuple(initial)))

    @staticmethod
    def _finished(
        codes: Sequence[UserCode], table: RoutingTable, first: RoutingTable, *, exchange: bool
    ) -> list[FinishDone]:
        """Let each task give its states to their owners, and finish."""
        extracted = [_event(code, Extract(table), ExtractDone).parts if exchange else {} for code in codes]
        return [
            _event(code, Finish(tuple(parts[index] for parts in extracted if index in parts), first), FinishDone)
            for index, code in enumerate(codes)
        ]

    def _read(self, code: UserCode, openings: Sequence[Instruction], stats: TaskStats) -> TaskStats:
        """Read what the instructions open, and emit its records; returns the statistics with what was read."""
        read = mapped = 0
        emitted = [0] * len(self._graph.out_of(stats.stage))
        for opening in openings:
            code.carry_out(opening)
            while (step := _event(code, NextStep(_ALL), StepDone).step) is not None:
                read, mapped = read + step.read, mapped + step.mapped
                self._emit(stats.stage, step.blocks)
                for position, block in step.blocks:
                    emitted[position] += block.rows
        return replace(stats, read=read, mapped=mapped, emitted=tuple(emitted))

    def _emit(self, stage: str, blocks: Sequence[tuple[int, Block]]) -> None:
        numbers = [number for number, _ in self._graph.out_of(stage)]
        for position, block in blocks:
            self._on_edge[numbers[position]].append(block)


def _event(code: UserCode, instruction: Instruction, kind: type[E]) -> E:
    event = code.carry_out(instruction)
    assert isinstance(event, kind)
    return event


def _with_a_split_key(table: RoutingTable, hashed: int) -> RoutingTable:
    """The next table, in which the key with this hash is split over all reducers."""
    every, version = tuple(range(table.reducers)), table.version + 1
    evenly = tuple(1 / table.reducers for _ in every)
    split = KeySplit(every, evenly, tuple(float(reducer == 0) for reducer in every), version)
    before, after = (hashed - 1) % 2**32, (hashed + 1) % 2**32
    return TableChange.of(table, {hashed: table.assignment_of(before), after: split}).apply(table)
