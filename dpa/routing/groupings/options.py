"""What a job may say about its grouping, and the grouping that comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.ring import RingGrouping
from dpa.routing.table import RoutingTable

_CLASSES = {
    "key": "key.KeyGrouping",
    "shuffle": "shuffle.ShuffleGrouping",
    "partial_key": "partial_key.PartialKeyGrouping",
    "two_random": "two_random.TwoRandomGrouping",
    "bounded_load": "bounded_load.BoundedLoadGrouping",
    "random_choices": "random_choices.RandomChoicesGrouping",
    "d_choices": "d_choices.DChoicesGrouping",
    "w_choices": "w_choices.WChoicesGrouping",
    "weighted_w_choices": "weighted_w_choices.WeightedWChoicesGrouping",
    "consistent": "consistent.ConsistentGrouping",
}
"""Imported when they are used: most are compiled, by a library that takes a while to load."""

_POOLED = "pooled_choices.PooledChoicesGrouping"
"""A part of `consistent`, not a grouping of its own: onto reducers it is `random_choices`."""

RING = "ring"
KINDS = (RING, *_CLASSES)
"""Every grouping that a job file may name."""

LISTENING = ("weighted_w_choices", "consistent")
"""Those that go by what reducers report, too."""


@dataclass(frozen=True)
class GroupingOptions:
    """How records find their reducer; the fields mean what they mean in a job file (docs/job-files.md, `grouping`),
    which takes its defaults from here.

    Attributes:
        epsilon: how much above the average a bin may be loaded, as a share, in `bounded_load`, `random_choices` and
            `consistent`.
        virtual_workers: of each reducer, in `consistent`.
        proportional: whether `consistent` moves all that is due in one slot.
        pooled: whether the virtual workers of a reducer share their room, in `consistent`.
    """

    kind: str = RING
    epsilon: float = 0.01
    virtual_workers: int = 100
    proportional: bool = False
    pooled: bool = False

    @property
    def listens(self) -> bool:
        """Whether reducers are to send signals."""
        return self.kind in LISTENING

    @property
    def is_ring(self) -> bool:
        """Whether records go by a routing table."""
        return self.kind == RING

    @property
    def scatters(self) -> bool:
        """Whether records of one key may go to several reducers, also where the routing table never changes."""
        return not self.is_ring and bool(_class_of(self.kind).several_owners)

    def leaves_home(self, *, aggregates: bool) -> bool:
        """Whether a state may be elsewhere than with the owner of its key by the first routing table, also where the
        table never changes: so may those of any grouping but the ring, once rounds of aggregation send them there."""
        return self.scatters or (aggregates and not self.is_ring)

    def create(self, table: RoutingTable, source: int) -> Grouping:
        """The grouping of one sender, ready to choose: what is compiled has been."""
        grouping: Grouping = self._of(self.kind, table, source)
        grouping.choose(np.empty(0, dtype=np.uint32))  # of a block's type: read-only ones would be another to numba
        return grouping

    def _of(self, kind: str, table: RoutingTable, source: int) -> Any:
        bins = table.reducers
        match kind:
            case "ring":
                return RingGrouping(table, source)
            case "shuffle" | "two_random":
                return _class_of(kind)(bins, source)
            case "bounded_load" | "random_choices":
                return _class_of(kind)(bins, self.epsilon)
            case "consistent":
                inner = _POOLED if self.pooled else _CLASSES["random_choices"]
                virtual = _named(inner)(bins * self.virtual_workers, self.epsilon)
                return _class_of(kind)(bins, virtual, proportional=self.proportional)
        return _class_of(kind)(bins)


def _class_of(kind: str) -> Any:
    """The class of a grouping; what its constructor takes differs, `_of` knows."""
    return _named(_CLASSES[kind])


def _named(path: str) -> Any:
    module, _, name = path.partition(".")
    return getattr(import_module(f"dpa.routing.groupings.{module}"), name)
