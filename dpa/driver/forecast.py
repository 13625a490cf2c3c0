"""`--plan`: a forecast of a run from a sample of each input, without running the job.

The sample goes through the job's own user code, so the forecast counts the records that each task would receive. It
foresees the skew of the first routing tables, or of other groupings, but no queues and no redistributions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dpa.driver._graph_walk import Walk
from dpa.driver.forecast_stages import EdgeForecast, Forecast, StageForecast
from dpa.driver.inputs import Inputs, lazy_session
from dpa.driver.placing import Placing
from dpa.driver.spec import JobSpec
from dpa.driver.summary import hot_keys
from dpa.execution.block import Block
from dpa.execution.key_stats import KeyStats
from dpa.execution.keys import by_position, cast, encode
from dpa.logical.step import Step
from dpa.measure.skew import skew
from dpa.protocol.wire.nodes import BackendNode
from dpa.routing.keys import one_type

SAMPLE_ROWS = 100_000
"""Rows of each input that a forecast samples, approximately."""


def forecast(spec: JobSpec, nodes: Sequence[BackendNode] | None = None) -> Forecast:
    """Forecast a run from a sample of its inputs. `nodes`: where tasks could be; None: on the nodes that the job
    declares, or on this machine. ConfigError if the job is not valid; ExecutorError if user code fails on the
    sample."""
    spec.check()
    inputs = Inputs(spec)
    inputs.check()
    with ExitStack() as stack:
        opened = inputs.open(stack, lazy_session(spec.config, stack), stage=False)
        samples = {name: found.sample(SAMPLE_ROWS) for name, found in opened.items()}
        placing = None if spec.config.placement is None else Placing.of(spec, opened)
    compilation = spec.compilation({name: found.schema for name, found in opened.items()})
    compiled = compilation.compiled({})
    walk = Walk(compiled)
    stages = []
    for step in compilation.steps:
        if step.is_source:
            rows, sample = samples[step.name]
            walk.sample(step.name, sample)
            stages.append(_source(spec, step, rows, sample.num_rows))
        elif step.is_stage:
            stages.append(_operator(step, walk.operate(step.name)))
    operators = (done for stage in stages for done in compilation.operators_from(stage.name))
    edges = tuple(
        EdgeForecast(edge.source, edge.target, done, records)
        for edge, done, records in zip(compiled.graph.edges, operators, walk.records, strict=True)
    )
    placement = None if placing is None else placing.forecast(nodes)
    return Forecast(spec.config.resolved(), tuple(stages), edges, placement)


def _source(spec: JobSpec, step: Step, rows: int | None, sampled: int) -> StageForecast:
    key, given, _ = spec.input_of(step)
    if given.format == "given" or key in spec.objects:
        does, rate = "read a table", None
    elif given.format == "generated":
        does, rate = f"read {str(given.use).rpartition(':')[2]}", given.rate
    else:
        does, rate = f"read {given.format or 'files'}", None
    return StageForecast(step.name, "source", does, step.tasks or 1, rows, rate, sampled, None, None)


def _operator(step: Step, blocks: Sequence[Block]) -> StageForecast:
    sampled, tasks = sum(int(block.mapped().sum()) for block in blocks), step.tasks or 1
    found = StageForecast(step.name, "operator", step.does, tasks, None, None, sampled, None, None)
    if not step.receiver.keeps_states:
        return found
    ring = step.balance.ring(tasks)
    grouping = step.grouping.create(ring.snapshot(0), 0)
    loads = np.zeros(tasks, dtype=np.int64)
    for block in blocks:
        for owner, part in block.route(grouping):
            loads[owner] += part.rows
    stats = _key_stats(blocks) if blocks else None
    return replace(
        found,
        grouping=step.grouping.kind,
        strategy=step.balance.strategy,
        tokens=tuple(ring.tokens_of(task) for task in range(tasks)),
        shares=tuple(ring.shares()),
        loads=tuple(loads.tolist()),
        skew=skew(loads.tolist()),
        distinct=stats.distinct if stats else 0,
        hot_keys=hot_keys(stats) if stats else (),
        mergeable=step.can_merge,
        combinable=step.can_merge and not step.receiver.has_sides,
    )


def _key_stats(blocks: Sequence[Block]) -> KeyStats:
    """How often keys come, before any combiner."""
    columns = [by_position(block.keys) for block in blocks]
    kind = one_type(column.type for column in columns)
    keys, codes = encode(pa.chunked_array([cast(column, kind) for column in columns], kind))
    records = np.bincount(codes, np.concatenate([block.mapped() for block in blocks]), len(keys))
    return KeyStats.of(keys, records.astype(np.int64))
