"""`--plan`: a forecast of a run from a sample of each input, without running the job.

The sample goes through the job's own user code, so the forecast counts the records that each stage, task and edge would
receive. It foresees the skew of the first routing tables, or of other groupings, but no queues and no redistributions.

`Forecast.estimates` and `Forecast.edge_estimates` scale these counts to records per second where all sources upstream
are paced, or else to the whole input. A stage that receives records by key ends the scaling: what a reduce emits grows
with the distinct keys, what a join emits with the product of its sides, and neither with the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.driver._graph_walk import Walk
from dpa.driver._joins import chosen
from dpa.driver.inputs import Inputs, OpenedInput, blaming, lazy_session
from dpa.driver.placing import PlacementForecast, Placing
from dpa.driver.reference import translated
from dpa.driver.spec import JobSpec
from dpa.driver.summary import hot_keys
from dpa.execution.block import Block
from dpa.execution.key_stats import KeyStats
from dpa.execution.keys import by_position, cast, encode
from dpa.logical.columns import Columns
from dpa.logical.step import Step
from dpa.measure.skew import skew
from dpa.protocol.wire.nodes import BackendNode, Resources
from dpa.result import HotKey, JoinReport, hot
from dpa.routing.keys import one_type

SAMPLE_ROWS = 100_000
"""Rows of each input that a forecast samples, approximately."""


class Basis(str, Enum):
    """What an estimate counts."""

    PER_SECOND = "per_second"
    """Records per second, by the rates of all sources upstream."""
    INPUT = "input"
    """Records of the whole input."""
    SAMPLE = "sample"
    """Records of the sample, because nothing says how many there are of the whole input."""


@dataclass(frozen=True)
class Estimate:
    """How many records reach a stage or travel along an edge.

    Attributes:
        amount: records, or records per second.
        basis: `per_second`: records per second, from the rates of all sources upstream; `input`: records of the whole
            input; `sample`: records of the sample, because the number in the whole input is unknown.
        exact: whether the amount is counted or declared rather than scaled from the sample.
    """

    amount: float
    basis: Basis
    exact: bool


@dataclass(frozen=True)
class StageForecast:
    """What a stage would be like.

    Attributes:
        name: the stage's name.
        kind: `source` or `operator`.
        does: what the stage does, such as `read Tweets` or `reduce Count by tag`.
        tasks: number of tasks.
        rows: for a source: rows of the whole input; None if they were not counted.
        rate: for a source with a `rate`: records per second of all its tasks together.
        sampled: for a source: rows of the sample; for an operator: records of the sample that reach it, before any
            combiner.
        grouping: how senders choose the task of a record; None if the stage receives no records by key, and then the
            fields below are empty.
        strategy: balancing strategy.
        tokens: tokens of each task.
        shares: share of the ring that each task owns at first, adding up to 1.
        loads: records of the sample that each task would receive by the first routing table, after a combiner.
        skew: skew S of `loads`.
        distinct: distinct keys of the sample.
        hot_keys: the sample's most frequent keys, the most frequent first; `share` is of `sampled`.
        mergeable: whether two states of one key can be merged, so that a hot key can be split over tasks.
        combinable: whether senders can fold records of one key.
        widened: for a source: columns that are read as another type than some files have, such as `n to int64`.
        resources: what each task requests of its node on a cluster.
    """

    name: str
    kind: str
    does: str
    tasks: int
    rows: int | None
    rate: float | None
    sampled: int
    grouping: str | None
    strategy: str | None
    tokens: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    loads: tuple[int, ...] = ()
    skew: float | None = None
    distinct: int = 0
    hot_keys: tuple[HotKey, ...] = ()
    mergeable: bool = True
    combinable: bool = True
    widened: tuple[str, ...] = ()
    resources: Resources = field(default_factory=Resources)

    @property
    def hot(self) -> tuple[HotKey, ...]:
        """Those that make a task uneven, by the rule of `dpa.result.hot`."""
        return hot(self.hot_keys, self.distinct, 1 / self.tasks)


@dataclass(frozen=True)
class EdgeForecast:
    """What would travel between two stages.

    Attributes:
        source: the stage that emits.
        target: the stage that receives. Two stages may have several edges.
        operators: what the sender does to each record on this edge, in order, such as `flat_map hashtags`.
        records: records of the sample on this edge, after these operators and before any combiner.
    """

    source: str
    target: str
    operators: tuple[str, ...]
    records: int


@dataclass(frozen=True)
class Forecast:
    """What a run of a graph would be like.

    Attributes:
        config: the resolved configuration, as in `resolved.yaml`.
        stages: each stage after its inputs.
        edges: in the order of the graph.
        placement: where tasks would run; None if the job leaves that to Ray.
        joins: how each join would be done.
    """

    config: dict[str, Any]
    stages: tuple[StageForecast, ...]
    edges: tuple[EdgeForecast, ...]
    placement: PlacementForecast | None = None
    joins: tuple[JoinReport, ...] = ()

    def into(self, name: str) -> list[int]:
        return [number for number, edge in enumerate(self.edges) if edge.target == name]

    def out_of(self, name: str) -> list[int]:
        return [number for number, edge in enumerate(self.edges) if edge.source == name]

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """For each stage, the records that reach it; of a source, those that it reads."""
        return {
            stage.name: _read(stage) if stage.kind == "source" else self._scales[stage.name].received.of(stage.sampled)
            for stage in self.stages
        }

    @cached_property
    def edge_estimates(self) -> tuple[Estimate, ...]:
        return tuple(self._scales[edge.source].sent.of(edge.records) for edge in self.edges)

    @cached_property
    def _scales(self) -> dict[str, _Scales]:
        found: dict[str, _Scales] = {}
        for stage in self.stages:
            edges = [self.edges[number] for number in self.into(stage.name)]
            if stage.kind == "source":
                received = _scale_of(stage)
            else:
                received = _mean([found[edge.source].sent for edge in edges], [edge.records for edge in edges])
            sent = received if stage.grouping is None else _Scale(None, 1.0 if received.of_input == 1.0 else None)
            found[stage.name] = _Scales(received, sent)
        return found


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
        placing = Placing.of(spec, opened) if spec.config.is_allocated else None
    placement = None if placing is None else placing.forecast(nodes)
    return forecast_of(spec, opened, samples, placement)


def forecast_of(
    spec: JobSpec,
    opened: Mapping[str, OpenedInput],
    samples: Mapping[str, tuple[int | None, pa.Table]],
    placement: PlacementForecast | None = None,
) -> Forecast:
    """Forecast a run from these samples: for each source, the number of all rows, None if unknown, and some of them.
    ExecutorError if user code fails on them."""
    choice = chosen(spec, opened)
    columns = spec.compilation({name: found.schema for name, found in opened.items()}).columns
    compilation = choice.spec.compilation({name: found.schema for name, found in choice.opened.items()})
    compiled = compilation.compiled({})
    walk = Walk(compiled)
    stages = []
    for step in compilation.steps:
        if step.is_source:
            rows, sample = samples[step.name]
            walk.sample(step.name, sample)
            source = _source(spec, step, rows, sample.num_rows)
            stages.append(replace(source, widened=opened[step.name].widened))
        elif step.is_stage:
            stages.append(_operator(step, walk.operate(step.name)))
    requested = spec.demand.each
    stages = [replace(stage, resources=requested.get(stage.name, Resources())) for stage in stages]
    operators = (done for stage in stages for done in compilation.operators_from(stage.name))
    edges = tuple(
        EdgeForecast(edge.source, edge.target, done, records)
        for edge, done, records in zip(compiled.graph.edges, operators, walk.records, strict=True)
    )
    return Forecast(_with_queries(spec, columns), tuple(stages), edges, placement, choice.joins)


def _with_queries(spec: JobSpec, columns: Columns) -> dict[str, Any]:
    """The resolved configuration, with the queries of Spark's that `sql: auto` stands for."""
    config = spec.config.resolved()
    for step in spec.results:
        asked = step.config.reference
        if asked is not None and asked.is_auto:
            with blaming(spec.file, step.at("reference")):
                sql, _ = translated(step, spec.steps, columns)
            config.get("stages", {}).get(step.name, config)["reference"]["sql"] = sql
    return config


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
        mergeable=step.receiver.can_merge,
        combinable=step.receiver.can_merge and not step.receiver.has_sides,
    )


def _key_stats(blocks: Sequence[Block]) -> KeyStats:
    """How often keys come, before any combiner."""
    columns = [by_position(block.keys) for block in blocks]
    kind = one_type(column.type for column in columns)
    keys, codes = encode(pa.chunked_array([cast(column, kind) for column in columns], kind))
    records = np.bincount(codes, np.concatenate([block.mapped() for block in blocks]), len(keys))
    return KeyStats.of(keys, records.astype(np.int64))


@dataclass(frozen=True)
class _Scale:
    """What one record of the sample stands for.

    Attributes:
        per_second: records/s; None unless all sources upstream are paced.
        of_input: records of the whole input, 1 if that is the sample; None if it is not known.
    """

    per_second: float | None
    of_input: float | None

    def of(self, sampled: int) -> Estimate:
        if self.per_second is not None:
            return Estimate(self.per_second * sampled, Basis.PER_SECOND, exact=False)
        if self.of_input is not None:
            return Estimate(self.of_input * sampled, Basis.INPUT, exact=self.of_input == 1.0)
        return Estimate(sampled, Basis.SAMPLE, exact=True)


@dataclass(frozen=True)
class _Scales:
    """What a record of the sample stands for that a stage receives or reads, and one that it sends."""

    received: _Scale
    sent: _Scale


def _read(source: StageForecast) -> Estimate:
    if source.rate is not None:
        return Estimate(source.rate, Basis.PER_SECOND, exact=True)
    if source.rows is not None:
        return Estimate(source.rows, Basis.INPUT, exact=True)
    return Estimate(source.sampled, Basis.SAMPLE, exact=True)


def _scale_of(source: StageForecast) -> _Scale:
    """A sample without rows says nothing of an input that has some."""
    if not source.sampled:
        return _Scale(None, 1.0 if source.rows == 0 else None)
    per_second = None if source.rate is None else source.rate / source.sampled
    return _Scale(per_second, None if source.rows is None else source.rows / source.sampled)


def _mean(scales: Sequence[_Scale], records: Sequence[int]) -> _Scale:
    """What a record stands for in the union of several edges: the mean, weighted by the sample's `records` on each, so
    that a stage receives the sum of what its edges carry."""
    weights = records if any(records) else [1] * len(records)

    def mean(numbers: Sequence[float | None]) -> float | None:
        known = [number for number in numbers if number is not None]
        if len(known) < len(numbers) or not known:
            return None
        if min(known) == max(known):
            return known[0]  # without an error of rounding
        return sum(number * weight for number, weight in zip(known, weights, strict=True)) / sum(weights)

    return _Scale(mean([scale.per_second for scale in scales]), mean([scale.of_input for scale in scales]))
