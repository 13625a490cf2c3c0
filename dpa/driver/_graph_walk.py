"""Takes rows through a graph in this process, stage by stage, by the instructions of a real run.

In the walk of a sample each stage is one task, so a key has one state. What no stage takes records from is not run: no
result is made.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dpa.execution.block import Block
from dpa.execution.schemas import agreed
from dpa.logical.compilation import Compiled
from dpa.measure.load import TrafficMeter
from dpa.protocol.graph import Graph
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import Event, FinishDone, ProcessDone, StepDone
from dpa.protocol.wire.instructions import Finish, Instruction, NextStep, OpenResult, OpenSplit, ProcessBlock, Write
from dpa.protocol.wire.metrics import TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.sources.splits import MemorySplit
from dpa.tolerance import Failed
from dpa.windows.options import micros

ALL = 2**62
"""Rows of a step, or keys of a piece of states: as many as the limits allow."""

E = TypeVar("E", bound=Event)


class LocalTask:
    """The user code of one task, its processor time, what it has sent, and counts as in `TaskStats`; `emitted` by
    position."""

    def __init__(
        self, address: Address, code: UserCode, note: Callable[[Address, Failed], None] = lambda task, failed: None
    ) -> None:
        """`note` is called with what user code has failed on, where that is tolerated."""
        self.address, self.code, self._note = address, code, note
        self.read = self.mapped = self.processed = self.dead = 0
        self.traffic: TrafficMeter[Address] = TrafficMeter()
        self.emitted: Counter[int] = Counter()
        self._seconds = 0.0

    @property
    def use(self) -> TaskUse:
        return TaskUse(cpu_seconds=self._seconds, sent=self.traffic.found())

    def stats(self, version: int = 0) -> TaskStats:
        edges = () if self.code.emission is None else self.code.emission.edges
        emitted = tuple(self.emitted[position] for position in range(len(edges)))
        name, index = self.address
        processed, dead = self.processed, self.dead
        return TaskStats(name, index, self.read, self.mapped, emitted, processed=processed, dead=dead, version=version)

    def carry_out(self, instruction: Instruction) -> Event | None:
        began = time.thread_time()
        try:
            return self.code.carry_out(instruction)
        finally:
            self._seconds += time.thread_time() - began

    def event(self, instruction: Instruction, kind: type[E]) -> E:
        """Carry out an instruction and return the event that answers it."""
        event = self.carry_out(instruction)
        assert isinstance(event, kind)
        if isinstance(event, StepDone | ProcessDone) and event.failed is not None:
            self._note(self.address, event.failed)
        return event


class GraphWalk:
    """The blocks on the edges of a graph, emitted and not yet taken; `records` counts what each edge has carried,
    before any combiner."""

    def __init__(self, graph: Graph, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called after each step of user code, and may raise what is to end the walk."""
        self.graph = graph
        self.records = [0] * len(graph.edges)
        self._check = check
        self._on_edge: dict[int, list[tuple[LocalTask, Block]]] = defaultdict(list)

    def read(self, task: LocalTask, opening: Instruction) -> None:
        """Read what an instruction opens, and emit its records."""
        task.carry_out(opening)
        while (step := task.event(NextStep(ALL, micros(time.time())), StepDone).step) is not None:
            task.read += step.read
            task.mapped += step.mapped
            self.emit(task, step.blocks)

    def emit(self, task: LocalTask, blocks: Sequence[tuple[int, Block]]) -> None:
        """Put blocks on the edges that leave a task's stage, each on the one at its position."""
        numbers = [number for number, _ in self.graph.out_of(task.address.stage)]
        for position, block in blocks:
            task.emitted[position] += block.rows
            self._on_edge[numbers[position]].append((task, block))
            self.records[numbers[position]] += block.rows if block.weights is None else int(block.weights.sum())
        self._check()

    def reached(self, stage: str) -> list[tuple[int, LocalTask, Block]]:
        """Take the blocks that were emitted to a stage, each with the number of its edge and its sender."""
        return [(number, *sent) for number, _ in self.graph.into(stage) for sent in self._on_edge.pop(number, ())]


MAX_JOINED = 1_000_000
"""Rows that a join gives at most, approximately: where one key is frequent on both sides, samples of any size have too
many pairs."""
_STRETCHES = 100
"""Of a thinned block rows are kept from this many parts of it, or from fewer if fewer rows are kept."""


class Walk(GraphWalk):
    """Samples on their way through a graph. The stages are run in its order, each once."""

    def __init__(self, compiled: Compiled, check: Callable[[], None] = lambda: None) -> None:
        super().__init__(compiled.graph, check)
        self._tasks = {
            name: LocalTask(Address(name, 0), UserCode(task, 0, time.perf_counter))
            for name, task in compiled.tasks.items()
        }

    def sample(self, source: str, rows: pa.Table) -> None:
        """Emit what a source makes of a sample of its input."""
        self.read(self._tasks[source], OpenSplit(MemorySplit(rows)))

    def operate(self, stage: str) -> list[Block]:
        """Emit what a stage makes of the blocks that have reached it, if stages follow; return these blocks."""
        blocks = [block for _, _, block in self.reached(stage)]
        self.pass_on(stage, blocks)
        task = self._tasks[stage]
        if self.graph.out_of(stage):
            task.carry_out(Write(agreed([task.event(Finish((), None), FinishDone).schema]), is_first=True))
            if task.code.reduce_task.share.table.num_rows:
                self.read(task, OpenResult())
        return blocks

    def pass_on(self, stage: str, blocks: Sequence[Block]) -> None:
        """Emit what a stage makes of blocks while they come, if stages follow."""
        if not self.graph.out_of(stage):
            return
        task = self._tasks[stage]
        for block in thinned(blocks, MAX_JOINED) if task.code.reduce_task.receiver.has_sides else blocks:
            self.emit(task, task.event(ProcessBlock(block, 0), ProcessDone).blocks)


def thinned(blocks: Sequence[Block], most: int) -> Iterator[Block]:
    """The blocks of a join, with rows of the left side left out where more than about `most` pairs of rows have one
    key."""
    pairs = _pairs(blocks)
    share = most / pairs if pairs > most else 1.0
    for block in blocks:
        if block.side == 1 or share == 1.0:
            yield block
            continue
        parts = min(_STRETCHES, max(1, round(block.rows * share)))
        for start, stop in pairwise(np.linspace(0, block.rows, parts + 1).astype(int).tolist()):
            yield block.slice(start, start + max(1, round((stop - start) * share)))


def _pairs(blocks: Sequence[Block]) -> int:
    """How many pairs of a left and a right row have keys of one hash."""
    every = np.concatenate([np.zeros(0, dtype=np.uint32), *(block.hashes for block in blocks)])
    hashes, places = np.unique(every, return_inverse=True)
    rows = np.zeros((2, len(hashes)), dtype=np.int64)
    start = 0
    for block in blocks:
        np.add.at(rows[block.side], places[start : start + len(block.keys)], block.counts())
        start += len(block.keys)
    return int((rows[0] * rows[1]).sum())
