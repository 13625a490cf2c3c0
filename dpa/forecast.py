"""`--plan`: what a job would do, told from a sample of its input without running it.

The sample is mapped by the job's own mapper in this process, so the forecast counts what reducers would get. Queues and
redistributions cannot be foreseen from it; the skew of the first routing table, or of another grouping, can.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.aggregates import Count
from dpa.balance.skew import skew
from dpa.execution.batch_states import BatchStates
from dpa.execution.block import Block
from dpa.execution.key_stats import KeyStats
from dpa.execution.states import Reduced
from dpa.job import Job
from dpa.result import HotKey, hot
from dpa.splits import MemorySplit
from dpa.summary import hot_keys

SAMPLE_ROWS = 100_000
"""About how many input rows a forecast looks at."""


@dataclass(frozen=True)
class Forecast:
    """What to expect.

    Attributes:
        config: the resolved configuration.
        rows: input rows, or None if they were not counted.
        sampled: rows of the sample.
        mapped: records that the mapper made of the sample.
        distinct: distinct keys of the sample.
        tokens: tokens of each reducer.
        shares: the share of the hash circle that each reducer owns at first, adding up to 1.
        loads: the sample's records that each reducer would get.
        skew: S of `loads`.
        hot_keys: the sample's most frequent keys; their true counts are uncertain by the sampling error.
    """

    config: dict[str, Any]
    rows: int | None
    sampled: int
    mapped: int
    distinct: int
    tokens: tuple[int, ...]
    shares: tuple[float, ...]
    loads: tuple[int, ...]
    skew: float
    hot_keys: tuple[HotKey, ...]

    @property
    def hot(self) -> tuple[HotKey, ...]:
        """Those of `hot_keys` that make a reducer uneven, by the rule of `dpa.result.hot`."""
        return hot(self.hot_keys, self.distinct, len(self.loads))


def forecast(job: Job) -> Forecast:
    """Look at a sample of the job's input.

    Raises:
        ConfigError: the job is not valid.
        ExecutorError: the mapper fails on the sample.
    """
    job.check()
    with ExitStack() as stack:
        rows, sample = job.sample(stack, SAMPLE_ROWS)
    ring = job.balance.ring(job.config.parallelism.reducers)
    table = ring.snapshot(0)
    loads = np.zeros(ring.nodes, dtype=np.int64)
    grouping = job.grouping.create(table, 0)
    counter = BatchStates(Count())
    for step in job.task.blocks(MemorySplit(sample), time.perf_counter):
        if step.block is not None:
            for owner, part in step.block.route(grouping):
                loads[owner] += part.rows
            counter.reduce(_without_values(step.block))
    counted: Reduced = counter.finish("key")
    stats = KeyStats.of(counted.table["key"], counted.mapped)
    return Forecast(
        config=job.config.model_dump(),
        rows=rows,
        sampled=sample.num_rows,
        mapped=stats.mapped,
        distinct=stats.distinct,
        tokens=tuple(ring.tokens_of(node) for node in range(ring.nodes)),
        shares=tuple(ring.shares()),
        loads=tuple(int(load) for load in loads),
        skew=skew(loads.tolist()),
        hot_keys=hot_keys(stats),
    )


def _without_values(block: Block) -> Block:
    values = pa.record_batch({"count": block.weights}) if block.combined else None
    return Block(block.keys, block.hashes, block.codes, values, block.weights, block.combined)
