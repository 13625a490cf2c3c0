"""The section of a job file that says where tasks run."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field, model_validator

from dpa.config._section import OneOf, Section
from dpa.config.variants import Plain
from dpa.placement.allocators import ALLOCATORS
from dpa.placement.online import OnlineOptions

Amount: TypeAlias = Annotated[float, Field(ge=0, le=1e12)]
"""A cost, or megabytes."""


class NodeConfig(Section):
    """A node of the cluster, where what Ray says of it is not enough."""

    processors: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Processors for tasks; a node twice as fast has twice as many; null: as many as Ray knows."""
    reserved: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Processors of these that others use."""
    megabytes_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Bandwidth in each direction; null: no limit."""


class PlacementConfig(Section):
    """Which node runs which task."""

    allocator: Annotated[str, OneOf(ALLOCATORS)] = "top_down_search"
    """The algorithm that chooses the nodes."""
    profile: str | None = None
    """`report.json` of an earlier run, from which the costs of stages and their traffic are taken; a relative path
    starts at the job file. Null, and no `costs`: user code is measured on a sample of the input."""
    costs: dict[str, Amount] = {}
    """Declared cost of all tasks of each stage, in any unit."""
    traffic: dict[str, dict[str, Amount]] = {}
    """Declared megabytes from each stage to each that follows, while `costs` processor seconds are spent."""
    nodes: dict[str, NodeConfig] = {}
    """The nodes to use, by their names in Ray; empty: all."""
    tolerance: float = Field(default=1.2, gt=1, le=100)
    """Load that a node may have, in units of its even share. Where tasks are too coarse for it, the most even packing
    counts instead."""
    divide: bool = True
    """Whether each task counts with the cost that the profile has of it; false: all tasks of a stage count as alike."""
    online: Annotated[OnlineOptions, Plain(OnlineOptions)] | None = None
    """How tasks move to other nodes while the job runs; null: they stay where they were placed."""

    @model_validator(mode="after")
    def _goes_together(self) -> PlacementConfig:
        if self.online is not None and self.allocator == "exact":
            raise ValueError("`online` asks the allocator while records flow, for which `exact` takes too long")
        if self.profile is not None and self.costs:
            raise ValueError("give `profile`, which is measured, or `costs`, which are declared, not both")
        if self.traffic and not self.costs:
            raise ValueError("`traffic` is declared together with `costs`")
        return self
