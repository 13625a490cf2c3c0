"""Takes samples of a job's inputs through its graph in this process, stage by stage, by the user code of the job.

Each stage is one task here, so a key has one state. What no stage takes records from is not run: no result is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dpa.driver._graph_walk import GraphWalk, LocalTask
from dpa.execution.block import Block
from dpa.execution.schemas import agreed
from dpa.logical.compilation import Compiled
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import FinishDone, ProcessDone
from dpa.protocol.wire.instructions import Finish, OpenResult, OpenSplit, ProcessBlock, Write
from dpa.sources.splits import MemorySplit

MAX_JOINED = 1_000_000
"""Rows that a join gives at most, approximately: where one key is frequent on both sides, samples of any size have too
many pairs."""
_STRETCHES = 100
"""Of a thinned block rows are kept from this many parts of it, or from fewer if fewer rows are kept."""


class Walk(GraphWalk):
    """Samples on their way through a graph. The stages are run in its order, each once."""

    def __init__(self, compiled: Compiled, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called after each step of user code, and may raise what is to end the walk."""
        super().__init__(compiled.graph, check)
        self._tasks = {
            name: LocalTask(Address(name, 0), UserCode(task, 0, time.perf_counter))
            for name, task in compiled.tasks.items()
        }

    def sample(self, source: str, rows: pa.Table) -> None:
        """Emit what a source makes of a sample of its input.

        Raises:
            ExecutorError: user code failed.
        """
        self.read(self._tasks[source], OpenSplit(MemorySplit(rows)))

    def operate(self, stage: str) -> list[Block]:
        """Emit what a stage makes of the blocks that were emitted to it, if other stages follow; return these blocks.

        Raises:
            ExecutorError: user code failed.
        """
        blocks = [block for _, _, block in self.reached(stage)]
        self.pass_on(stage, blocks)
        task = self._tasks[stage]
        if self.graph.out_of(stage):
            task.carry_out(Write(agreed([task.event(Finish((), None), FinishDone).schema]), is_first=True))
            if task.code.reduce_task.share.table.num_rows:
                self.read(task, OpenResult())
        return blocks

    def pass_on(self, stage: str, blocks: Sequence[Block]) -> None:
        """Emit what a stage makes of blocks while they come, if other stages follow.

        Raises:
            ExecutorError: user code failed.
        """
        if not self.graph.out_of(stage):
            return
        task = self._tasks[stage]
        for block in thinned(blocks, MAX_JOINED) if task.code.reduce_task.receiver.has_sides else blocks:
            self.emit(task, task.event(ProcessBlock(block, 0), ProcessDone).blocks)


def thinned(blocks: Sequence[Block], most: int) -> Iterator[Block]:
    """The blocks of both sides of a join, with fewer rows of the left one, so that about `most` pairs of rows have
    one key, if they have more."""
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
