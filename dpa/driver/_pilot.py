"""What a job's user code costs: a sample of each input goes through the job in this process, whose processor time and
blocks are measured. What messages cost is not in it."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from dpa.driver.inputs import OpenedInput
from dpa.driver.local_backend import LocalBackend
from dpa.driver.spec import JobSpec
from dpa.errors import PlacementError
from dpa.placement.profile import Profile
from dpa.protocol.plan import RunHooks, RunOutcome
from dpa.sources.splits import memory_splits

PILOT_ROWS = 100_000
"""Rows of each input that are sampled at most, approximately."""

PILOT_SECONDS = 10.0
"""How long all pilots of a job may take together, approximately."""

_FIRST_ROWS, _MORE = 10, 10
"""A pilot on few rows says how many more there is time for: the rows of the first, and how many times as many the next
one has."""


def piloted(spec: JobSpec, opened: Mapping[str, OpenedInput], clock: Callable[[], float] = time.monotonic) -> Profile:
    """The profile of a job on a sample of these inputs, at the rate at which all its user code keeps one processor
    busy. Where a row takes long, the sample is small.

    Raises:
        ConfigError: an input cannot be read.
        PlacementError: the sample has no rows, or takes no time.
        ExecutorError: user code fails on the sample.
    """
    samples = {name: found.sample(PILOT_ROWS)[1] for name, found in opened.items()}
    largest = max(sample.num_rows for sample in samples.values())
    if not largest:
        raise PlacementError("a sample of the input has no rows: declare what stages cost")
    rows, began, before = min(_FIRST_ROWS, largest), clock(), math.inf
    while True:
        turn = clock()
        outcome = _run(spec, opened, {name: _part(sample, rows / largest) for name, sample in samples.items()})
        ended = clock()
        taken = ended - turn
        growth = max(float(_MORE), taken / before)  # of a join, time grows faster than rows
        if rows == largest or ended - began + taken * growth > PILOT_SECONDS:
            return _profile(spec, outcome)
        rows, before = min(rows * _MORE, largest), max(taken, 1e-6)


def _part(sample: pa.Table, share: float) -> pa.Table:
    """This share of a sample's rows, at least one, evenly spread over it."""
    rows = min(sample.num_rows, max(1, round(sample.num_rows * share)))
    return sample.take(pa.array(np.linspace(0, sample.num_rows - 1, rows).astype(np.int64)))


def _run(spec: JobSpec, opened: Mapping[str, OpenedInput], samples: Mapping[str, pa.Table]) -> RunOutcome:
    splits = {name: tuple(memory_splits(sample, PILOT_ROWS)) for name, sample in samples.items()}
    plan = spec.plan(splits, {name: found.schema for name, found in opened.items()})
    return LocalBackend(redistributes=False).run(plan, RunHooks())


def _profile(spec: JobSpec, outcome: RunOutcome) -> Profile:
    seconds = sum(used.cpu_seconds for used in outcome.use.values())
    if not seconds:
        raise PlacementError("user code took no time on a sample: declare what stages cost")
    costs: dict[str, list[float]] = defaultdict(list)
    traffic: dict[tuple[str, str], float] = defaultdict(float)
    for address, used in outcome.use.items():
        costs[address.stage].append(used.cpu_seconds / seconds)
        for to, sent in used.sent.items():
            traffic[address.stage, to.stage] += sent.bytes / seconds
    for source in spec.sources:  # of which one task has read everything
        costs[source.name] = [sum(costs[source.name]) / len(costs[source.name])] * len(costs[source.name])
    return Profile({stage: tuple(of) for stage, of in costs.items()}, dict(traffic))
