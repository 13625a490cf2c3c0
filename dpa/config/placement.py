"""The section of a job file that says where tasks run."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from dpa.config.section import Section
from dpa.config.variants import Plain
from dpa.placement.online import OnlineOptions

Amount: TypeAlias = Annotated[float, Field(ge=0, le=1e12)]
"""A cost, or megabytes."""


class NodeConfig(Section):
    """A node of the cluster, where what Ray says of it is not enough."""

    processors: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Processors for tasks; without it as many as Ray knows. A node twice as fast has twice as many."""
    reserved: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How many of them others use."""
    megabytes_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """What it can send, and as much that it can receive; without it there is no limit."""


class PlacementConfig(Section):
    """Which node runs which task."""

    allocator: Literal[
        "even",
        "random",
        "task_level",
        "top_down",
        "top_down_search",
        "greedy_matching",
        "greedy_matching_improved",
        "online",
        "exact",
        "pairwise",
    ] = "top_down_search"
    """The algorithm (docs/placement.md)."""
    profile: str | None = None
    """`report.json` of an earlier run, which says what stages cost and send each other; without it and without `costs`
    the job's user code is measured on a sample."""
    costs: dict[str, Amount] = {}
    """For each stage, what all its tasks cost, in any unit: declared instead of measured."""
    traffic: dict[str, dict[str, Amount]] = {}
    """For each stage and each that follows, megabytes between them while `costs` processor seconds are spent."""
    nodes: dict[str, NodeConfig] = {}
    """The nodes to use, by their names in Ray; without it all."""
    tolerance: float = Field(default=1.2, gt=1, le=100)
    """By how much a node may have more than its share, where tasks are fine enough; more where they are not."""
    divide: bool = True
    """Whether the tasks of a stage that the profile shows to cost unlike are placed by their own costs; else all tasks
    of a stage count as alike."""
    online: Annotated[OnlineOptions, Plain(OnlineOptions)] | None = None
    """How tasks move to other nodes while the job runs; without it they stay where they are placed at first."""

    @model_validator(mode="after")
    def _an_allocator_for_running_jobs(self) -> PlacementConfig:
        if self.online is not None and self.allocator == "exact":
            raise ValueError("`online` asks the allocator while records flow, for which `exact` takes too long")
        return self

    @model_validator(mode="after")
    def _one_origin_of_costs(self) -> PlacementConfig:
        if self.profile is not None and self.costs:
            raise ValueError("give `profile`, which is measured, or `costs`, which are declared, not both")
        if self.traffic and not self.costs:
            raise ValueError("`traffic` is declared together with `costs`")
        return self
