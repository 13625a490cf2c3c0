"""Takes samples through a graph in this process, stage by stage, by the instructions of a real run.

Each stage is one task, so a key has one state. What no stage takes records from is run only if its result is asked for.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dpa.execution.block import Block
from dpa.execution.schemas import agreed
from dpa.logical.compilation import Compiled
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.events import FinishDone, ProcessDone, StepDone
from dpa.protocol.wire.instructions import Finish, NextStep, OpenResult, OpenSplit, ProcessBlocks
from dpa.protocol.wire.messages.end import Deliver
from dpa.sources.splits import MemorySplit, Split
from dpa.windows.options import micros

_ALL = 2**62  # rows of a step: as many as the limits allow

MAX_JOINED = 1_000_000
"""Rows that a join gives at most, approximately: where one key is frequent on both sides, samples of any size have too
many pairs."""
_STRETCHES = 100  # of a thinned block rows are kept from this many parts of it, or from fewer if fewer rows are kept


class Walk:
    """Samples on their way through a graph: the blocks on its edges, emitted and not yet taken. The stages are run in
    the graph's order, each once. `records` counts what each edge has carried, before any combiner; `is_thinned`:
    whether rows of a join were left out."""

    def __init__(
        self, compiled: Compiled, check: Callable[[], None] = lambda: None, *, most_joined: int | None = MAX_JOINED
    ) -> None:
        """`check` is called after each step of user code, and may raise what is to end the walk. `most_joined`: about
        the most rows that a join gives; None: all."""
        self.graph = compiled.graph
        self.is_thinned = False
        self._most_joined = most_joined
        self.records = [0] * len(self.graph.edges)
        self._check = check
        self._on_edge: dict[int, list[Block]] = defaultdict(list)
        self._codes = {name: UserCode(task, 0, time.perf_counter) for name, task in compiled.tasks.items()}

    def sample(self, source: str, rows: pa.Table) -> None:
        self.read(source, MemorySplit(rows))

    def read(self, source: str, split: Split) -> None:
        self._read(source, OpenSplit(split))

    def reached(self, stage: str) -> list[tuple[int, Block]]:
        """Take the blocks that were emitted to a stage, each with the number of its edge."""
        return [(number, block) for number, _ in self.graph.into(stage) for block in self._on_edge.pop(number, ())]

    def operate(self, stage: str) -> list[Block]:
        """Emit what a stage makes of the blocks that have reached it, if stages follow; return these blocks."""
        blocks = [block for _, block in self.reached(stage)]
        self.pass_on(stage, blocks)
        if self.graph.out_of(stage) and self._share(stage).num_rows:
            self._read(stage, OpenResult())
        return blocks

    def result(self, stage: str) -> pa.Table:
        """The rows that a stage which none follow makes of the blocks that have reached it."""
        self._process(stage, [block for _, block in self.reached(stage)])
        return self._share(stage)

    def pass_on(self, stage: str, blocks: Sequence[Block]) -> None:
        """Emit what a stage makes of blocks while they come, if stages follow."""
        if self.graph.out_of(stage):
            self._process(stage, blocks)

    def _process(self, stage: str, blocks: Sequence[Block]) -> None:
        code = self._codes[stage]
        if self._most_joined is not None and code.reduce_task.receiver.has_sides:
            every, blocks = blocks, [*thinned(blocks, self._most_joined)]
            self.is_thinned |= sum(block.rows for block in blocks) < sum(block.rows for block in every)
        for block in blocks:
            done = code.carry_out(ProcessBlocks((block,), 0))
            assert isinstance(done, ProcessDone)
            self._emit(stage, done.blocks)

    def _share(self, stage: str) -> pa.Table:
        code = self._codes[stage]
        finished = code.carry_out(Finish((), None))
        assert isinstance(finished, FinishDone)
        code.carry_out(Deliver(agreed([finished.schema]), is_first=True))
        return code.reduce_task.share.table

    def _read(self, stage: str, opening: OpenSplit | OpenResult) -> None:
        code = self._codes[stage]
        code.carry_out(opening)
        while True:
            done = code.carry_out(NextStep(_ALL, micros(time.time())))
            assert isinstance(done, StepDone)
            if done.step is None:
                return
            self._emit(stage, done.step.blocks)

    def _emit(self, stage: str, blocks: Sequence[tuple[int, Block]]) -> None:
        """Put blocks on the edges that leave a stage, each on the one at its position."""
        numbers = [number for number, _ in self.graph.out_of(stage)]
        for position, block in blocks:
            self._on_edge[numbers[position]].append(block)
            self.records[numbers[position]] += block.rows if block.weights is None else int(block.weights.sum())
        self._check()


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
