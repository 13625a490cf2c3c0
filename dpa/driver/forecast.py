"""`--plan`: a forecast of a run from a sample of its input, without running the job.

The sample is mapped by the job's own mapper in this process, so the forecast counts the records that each reducer would
receive. It foresees the skew of the first routing table, or of another grouping, but no queues and no redistributions.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.aggregates import Count
from dpa.driver.inputs import Inputs, lazy_session
from dpa.driver.spec import JobSpec
from dpa.driver.stage_summary import hot_keys
from dpa.execution.batch_states import BatchStates
from dpa.execution.block import Block
from dpa.execution.key_stats import KeyStats
from dpa.execution.states import Reduced
from dpa.measure.skew import skew
from dpa.result import HotKey, hot
from dpa.sources.splits import MemorySplit

SAMPLE_ROWS = 100_000
"""Rows of the input that a forecast samples, approximately."""


@dataclass(frozen=True)
class Forecast:
    """What a run would be like.

    Attributes:
        config: the resolved configuration.
        rows: input rows, or None if they were not counted.
        sampled: rows of the sample.
        mapped: records that the mapper emitted for the sample.
        distinct: distinct keys of the sample.
        tokens: tokens of each reducer.
        shares: the share of the hash circle that each reducer owns at first, adding up to 1.
        loads: the sample's records that each reducer would receive.
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


def forecast(spec: JobSpec) -> Forecast:
    """Forecast a run from a sample of its input.

    Raises:
        ConfigError: the job is not valid.
        ExecutorError: the mapper fails on the sample.
    """
    spec.check()
    inputs = Inputs(spec)
    inputs.check()
    with ExitStack() as stack:
        [opened] = inputs.open(stack, lazy_session(spec.config, stack), stage=False).values()
        rows, sample = opened.sample(SAMPLE_ROWS)
    [_, reducer] = spec.steps
    ring = reducer.balance.ring(reducer.tasks or 1)
    table = ring.snapshot(0)
    loads = np.zeros(ring.reducers, dtype=np.int64)
    grouping = reducer.grouping.create(table, 0)
    counter = BatchStates(Count())
    task = spec.compilation({spec.steps[0].name: opened.schema}).map_task(reducer, reducer.feeds[0])
    for step in task.blocks(MemorySplit(sample), time.perf_counter):
        if step.block is not None:
            for owner, part in step.block.route(grouping):
                loads[owner] += part.rows
            counter.reduce(_without_values(step.block))
    counted: Reduced = counter.finish("key")
    stats = KeyStats.of(counted.table["key"], counted.mapped)
    return Forecast(
        config=spec.config.resolved(),
        rows=rows,
        sampled=sample.num_rows,
        mapped=stats.mapped,
        distinct=stats.distinct,
        tokens=tuple(ring.tokens_of(reducer) for reducer in range(ring.reducers)),
        shares=tuple(ring.shares()),
        loads=tuple(int(load) for load in loads),
        skew=skew(loads.tolist()),
        hot_keys=hot_keys(stats),
    )


def _without_values(block: Block) -> Block:
    values = pa.record_batch({"count": block.weights}) if block.combined else None
    return Block(block.keys, block.hashes, block.codes, values, block.weights, block.combined)
