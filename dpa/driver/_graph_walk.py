"""Takes rows through a graph in this process: stage by stage in its order, by the instructions of a real run."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

from dpa.execution.block import Block
from dpa.measure.traffic import TrafficMeter
from dpa.protocol.graph import Graph
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import Event, ProcessDone, StepDone
from dpa.protocol.wire.instructions import Instruction, NextStep
from dpa.protocol.wire.metrics import TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.tolerance import Failed
from dpa.windows.options import micros

ALL = 2**62
"""Rows of a step, or keys of a piece of states: as many as the limits allow."""

E = TypeVar("E", bound=Event)


class LocalTask:
    """The user code of one task, the processor time that it took, and what was sent.

    Attributes:
        address: which task.
        code: its user code.
        read, mapped, emitted, processed, dead: as in `TaskStats`; `emitted` by position.
        traffic: the blocks that it has sent, by receiver.
    """

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
        """What it used."""
        return TaskUse(cpu_seconds=self._seconds, sent=self.traffic.found())

    def stats(self, version: int = 0) -> TaskStats:
        """What it has done so far, holding this version of its table."""
        edges = () if self.code.emission is None else self.code.emission.edges
        emitted = tuple(self.emitted[position] for position in range(len(edges)))
        name, index = self.address
        processed, dead = self.processed, self.dead
        return TaskStats(name, index, self.read, self.mapped, emitted, processed=processed, dead=dead, version=version)

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
        if isinstance(event, StepDone | ProcessDone) and event.failed is not None:
            self._note(self.address, event.failed)
        return event


class GraphWalk:
    """The records on the edges of a graph, each emitted by one stage and not yet taken by the next.

    Attributes:
        graph: the stages and edges.
        records: for each edge, the records that it has carried, before any combiner.
    """

    def __init__(self, graph: Graph, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called after each step of user code, and may raise what is to end the walk."""
        self.graph = graph
        self.records = [0] * len(graph.edges)
        self._check = check
        self._on_edge: dict[int, list[tuple[LocalTask, Block]]] = defaultdict(list)

    def read(self, task: LocalTask, opening: Instruction) -> None:
        """Read what an instruction opens, and emit its records.

        Raises:
            ExecutorError: user code failed.
        """
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
