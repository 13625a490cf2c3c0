"""Takes samples of a job's inputs through its graph in this process, stage by stage, by the user code of the job.

Each stage is one task here, so a key has one state. What no stage takes records from is not run: no result is made.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dpa.execution.block import Block
from dpa.execution.emission import Emission
from dpa.execution.mapping import Emitted
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.schemas import agreed
from dpa.logical.compilation import Compiled
from dpa.sources.splits import MemorySplit

MAX_JOINED = 1_000_000
"""Rows that a join gives at most, approximately: where one key is frequent on both sides, samples of any size have too
many pairs."""
_STRETCHES = 100
"""Of a thinned block rows are kept from this many parts of it, or from fewer if fewer rows are kept."""


class Walk:
    """Samples on their way through a graph. The stages are run in its order, each once.

    Attributes:
        records: for each edge, the records that it has carried, before any combiner.
    """

    def __init__(self, compiled: Compiled, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called after each step of user code, and may raise what is to end the walk."""
        self._graph = compiled.graph
        self._check = check
        self._tasks = compiled.tasks
        self._on_edge: dict[int, list[Block]] = defaultdict(list)
        self.records = [0] * len(self._graph.edges)

    def read(self, source: str, sample: pa.Table) -> None:
        """Emit what a source makes of a sample of its input.

        Raises:
            ExecutorError: user code failed.
        """
        emission = self._tasks[source]
        assert isinstance(emission, Emission)
        self._emit(source, emission.steps(MemorySplit(sample), time.perf_counter))

    def operate(self, stage: str) -> list[Block]:
        """Emit what a stage makes of the blocks that were emitted to it, if other stages follow; return these blocks.

        Raises:
            ExecutorError: user code failed.
        """
        blocks = [block for _, block in self.reached(stage)]
        task = self.pass_on(stage, blocks)
        if task is None:
            return blocks
        task.conform(agreed([task.finish()]))
        work = self._tasks[stage]
        assert isinstance(work, ReduceStage) and work.emission is not None
        if task.share.table.num_rows:
            self._emit(stage, work.emission.steps(task.rows(), time.perf_counter))
        return blocks

    def reached(self, stage: str) -> list[tuple[int, Block]]:
        """Take the blocks that were emitted to a stage, each with the number of its edge."""
        return [(number, block) for number, _ in self._graph.into(stage) for block in self._on_edge.pop(number, ())]

    def pass_on(self, stage: str, blocks: Sequence[Block]) -> ReduceTask | None:
        """Emit what a stage makes of blocks while they come; return its one task, or None if no other stage follows.

        Raises:
            ExecutorError: user code failed.
        """
        work = self._tasks[stage]
        assert isinstance(work, ReduceStage)
        if work.emission is None:
            return None
        task = ReduceTask(work, 0)
        for block in thinned(blocks, MAX_JOINED) if work.receiver.has_sides else blocks:
            self._emit(stage, [Emitted(task.process(block), 0, 0)])
        return task

    def _emit(self, stage: str, steps: Iterable[Emitted]) -> None:
        numbers = [number for number, _ in self._graph.out_of(stage)]
        for step in steps:
            for position, block in step.blocks:
                self._on_edge[numbers[position]].append(block)
                self.records[numbers[position]] += int(block.mapped().sum())
            self._check()


def thinned(blocks: Sequence[Block], most: int) -> Iterator[Block]:
    """The blocks of both sides of a join, with fewer rows of the left one if they have more than `most` pairs of rows
    with one key: with so many that there are about `most` pairs."""
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
