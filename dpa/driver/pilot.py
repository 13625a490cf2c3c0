"""What a job's user code costs: a sample of each input goes through the job in this process, whose processor time and
blocks are measured. What messages cost is not in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from dpa.driver.inputs import OpenedInput
from dpa.driver.local_backend import LocalBackend
from dpa.driver.observer import Unobserved
from dpa.driver.spec import JobSpec
from dpa.errors import PlacementError
from dpa.placement.profile import Profile
from dpa.sources.splits import memory_splits

PILOT_ROWS = 100_000
"""Rows of each input that are sampled, approximately."""


def piloted(spec: JobSpec, opened: Mapping[str, OpenedInput]) -> Profile:
    """The profile of a job on a sample of these inputs, at the rate at which all its user code keeps one processor
    busy.

    Raises:
        ConfigError: an input cannot be read, or the sample has no rows.
        ExecutorError: user code fails on the sample.
    """
    splits = {name: tuple(memory_splits(found.sample(PILOT_ROWS)[1], PILOT_ROWS)) for name, found in opened.items()}
    plan = spec.plan(splits, {name: found.schema for name, found in opened.items()})
    unobserved = Unobserved()
    outcome = LocalBackend(redistributes=False).run(plan, unobserved.update, unobserved.warn)
    if not any(split.rows for of in splits.values() for split in of):
        raise PlacementError("a sample of the input has no rows: declare what stages cost")
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
