"""Where the tasks of a run are: the one interface that `dpa.driver.run` has to Ray or the simulator; and no machines at
all, where instructions are carried out in this process, one after the other, on the same blocks and states."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import ClassVar, Protocol

from dpa.driver._graph_walk import ALL, GraphWalk, LocalTask
from dpa.errors import JobFailedError
from dpa.execution.schemas import agreed
from dpa.protocol.coordinator.errors import Errors
from dpa.protocol.graph import Stage
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan, Times
from dpa.protocol.task.delivery import TaskOutput
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import (
    ExtractDone,
    FinishDone,
    ProcessDone,
    RangesExtracted,
    StatesInstalled,
)
from dpa.protocol.wire.instructions import (
    Extract,
    ExtractRanges,
    Finish,
    InstallStates,
    OpenResult,
    OpenSplit,
    ProcessBlock,
    Write,
)
from dpa.protocol.wire.messages.end import RecordsFailed
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot
from dpa.protocol.wire.nodes import Place
from dpa.protocol.wire.use import TaskUse
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.table import RoutingTable
from dpa.tolerance import Failed


class Runner(Protocol):
    """Runs a plan."""

    @property
    def is_ready(self) -> bool:
        """Whether a plan would be begun with at once: what takes a moment until then costs no time."""
        ...

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        """Run a plan to its end: whether this returns or raises, no task is at work then. Shares of results are staged
        by the sinks of `plan.deliveries`; `hooks` are called meanwhile. DpaError if the job fails."""
        ...


class Backend(Protocol):
    """A place for tasks. `dpa.runtime.backend.RayBackend`, `experiments.simulation.backend.SimulatedBackend` and
    `dpa.testing.LocalBackend` are backends.

    Attributes:
        samples: whether first routing tables are to be planned from a sample, which runs user code in this process, and
            depends on how fast that is; and whether a job begins while its input is staged, which ends when it may.
    """

    samples: ClassVar[bool]

    def prepared(self, tasks: int, place: Place | None = None) -> AbstractContextManager[Runner]:
        """A block in which one plan can be run. What takes time to start is started with the block, and not waited for
        until the plan is there: `run` raises what went wrong meanwhile. At the block's end, whatever ends it, no task
        is left.

        Args:
            tasks: how many the plan's stages will have.
            place: says where they are to be, once the backend knows its nodes; what it raises is raised by `run`. A
                backend without nodes does not ask.
        """
        ...


class LocalBackend:
    """Runs plans without machines, threads or a network, for tests of jobs, and to see what their user code costs.

    Where a stage's grouping is the ring, keys are redistributed half way, whatever the plan's strategy. If states can
    be merged, one of the keys is split over all tasks: so states are merged in the end as they are in a real run. If
    they migrate, they move with the keys.
    Sources have one task, nothing is slowed down, and no partial results are published. An input that is open ends
    where nothing more has come.

    Args:
        redistributes: whether keys are redistributed at all.
    """

    samples: ClassVar[bool] = False
    is_ready: ClassVar[bool] = True

    def __init__(self, *, redistributes: bool = True) -> None:
        self._redistributes = redistributes

    def prepared(self, tasks: int, place: Place | None = None) -> AbstractContextManager[LocalBackend]:
        return nullcontext(self)

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        """Run a plan. Statistics are those at the end, and no request is looked at. ExecutorError if user code
        fails."""
        if any(to.partial not in (None, to.sink) for to in plan.deliveries.values()):
            hooks.warn("partial results are not published by LocalBackend")
        if plan.epoch_log is not None:
            hooks.warn("LocalBackend has no epochs, and writes no log of them")
        plan, began = plan.with_what_has_come(), time.time()
        local = _LocalRun(plan, redistributes=self._redistributes)
        for stage in plan.graph.in_order:
            local.run(stage)
        ended = time.time()
        snapshot = local.snapshot(ended - began)
        hooks.observe(snapshot)
        first = began if any(task.processed for stage in snapshot.stages for task in stage.tasks) else None
        times = Times(began, began, first, ended, ended)
        return RunOutcome(local.outputs, snapshot, times, local.use(), local.errors.noted.letters, plan.given)


class _LocalRun:
    """The stages run so far, the shares that their tasks have made, and errors that are tolerated."""

    def __init__(self, plan: RunPlan, *, redistributes: bool) -> None:
        self._plan = plan
        self._began = time.time()
        self._redistributes = redistributes
        self._walk = GraphWalk(plan.graph)
        self._tasks: dict[Address, LocalTask] = {}
        self._stages: list[StageSnapshot] = []
        self.outputs: dict[str, tuple[TaskOutput, ...]] = {}
        self.errors = Errors(plan.graph.tolerated)

    def snapshot(self, seconds: float) -> Snapshot:
        edges = tuple((edge.source, edge.target) for edge in self._plan.graph.edges)
        counts = self.errors.counts
        return Snapshot("done", seconds, self._plan.rows, tuple(self._stages), edges, errors=counts)

    def use(self) -> dict[Address, TaskUse]:
        return {address: task.use for address, task in self._tasks.items()}

    def run(self, stage: Stage) -> None:
        """Run a stage, once all that feed it have run."""
        began = time.time() - self._began
        # By a clock that stands still no step takes too long.
        codes = {address: self._plan.user_code(address, lambda: 0.0) for address in stage.addresses}
        tasks = [LocalTask(address, code, self._note) for address, code in codes.items()]
        if self._plan.graph.is_source(stage.name):
            for split in stage.input.splits:
                self._walk.read(tasks[0], OpenSplit(split))
            self._stages.append(StageSnapshot(stage.name, "done", tuple(task.stats() for task in tasks)))
        else:
            self._operate(stage, tasks)
        self._stages[-1] = replace(self._stages[-1], began=began, ended=time.time() - self._began)
        self._tasks.update({task.address: task for task in tasks})

    def _note(self, task: Address, failed: Failed) -> None:
        reason = self.errors.note(task, RecordsFailed(failed), epoch=1, generation=0)
        if reason is not None:
            raise JobFailedError(reason)

    def _operate(self, stage: Stage, tasks: Sequence[LocalTask]) -> None:
        blocks = self._walk.reached(stage.name)
        ring, first = stage.balance.ring(stage.tasks), stage.first_table()
        table, grouping = first, stage.grouping.create(first, 0)
        can_merge = tasks[0].code.is_mergeable
        moves = self._redistributes and stage.tasks > 1 and stage.grouping.is_ring and (can_merge or stage.migrates)
        for number, (_, sender, block) in enumerate(blocks):
            # Half way, so that there are states to move, and records that come after them.
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
                done = tasks[owner].event(ProcessBlock(part, table.version), ProcessDone)
                self._walk.emit(tasks[owner], done.blocks)
                tasks[owner].processed += part.rows
                tasks[owner].dead += done.dead
        finished = self._finished(tasks, table, first, exchange=can_merge and not stage.migrates)
        schema = agreed(event.schema for event in finished)
        outputs = []
        for task in tasks:
            task.carry_out(Write(schema, is_first=task is tasks[0]))
            assert task.code.output is not None
            outputs.append(task.code.output)
            if self._plan.graph.out_of(stage.name):
                self._walk.read(task, OpenResult())
        self.outputs[stage.name] = tuple(outputs)
        initial = [sum(loads) for loads in zip(*(event.initial_load for event in finished), strict=True)]
        found = tuple(task.stats(table.version) for task in tasks)
        self._stages.append(StageSnapshot(stage.name, "done", found, table.version, initial_load=tuple(initial)))

    @staticmethod
    def _migrate(tasks: Sequence[LocalTask], table: RoutingTable) -> None:
        extracted = [task.event(ExtractRanges(table, ALL), RangesExtracted).piece.parts for task in tasks]
        for index, task in enumerate(tasks):
            task.event(InstallStates(tuple(parts[index] for parts in extracted if index in parts)), StatesInstalled)

    @staticmethod
    def _finished(
        tasks: Sequence[LocalTask], table: RoutingTable, first: RoutingTable, *, exchange: bool
    ) -> list[FinishDone]:
        extracted = [task.event(Extract(table), ExtractDone).parts if exchange else {} for task in tasks]
        return [
            task.event(Finish(tuple(parts[index] for parts in extracted if index in parts), first), FinishDone)
            for index, task in enumerate(tasks)
        ]


def _with_a_split_key(table: RoutingTable, hashed: int) -> RoutingTable:
    """The next table, which splits the key of this hash over all reducers."""
    every, version = tuple(range(table.reducers)), table.version + 1
    evenly = tuple(1 / table.reducers for _ in every)
    split = KeySplit(every, evenly, tuple(float(reducer == 0) for reducer in every), version)
    before, after = (hashed - 1) % 2**32, (hashed + 1) % 2**32
    return TableChange.of(table, {hashed: table.assignment_of(before), after: split}).apply(table)
