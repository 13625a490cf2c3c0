"""The groupings by the names that the paper gives them, and the constants that its figures share.

Figures keep the paper's words: its workers are our reducers, and bins are what a grouping chooses from, workers or
virtual workers.
"""

from __future__ import annotations

from collections.abc import Callable

from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.bounded import PooledChoicesGrouping, RandomChoicesGrouping
from dpa.routing.groupings.by_capacity import ConsistentGrouping, WeightedWChoicesGrouping
from dpa.routing.groupings.choices import PartialKeyGrouping, WChoicesGrouping
from dpa.routing.groupings.options import SignalOptions
from dpa.routing.groupings.plain import KeyGrouping, ShuffleGrouping
from experiments.charts import COLOURS, INK
from experiments.streams import SLOT_SECONDS

EPSILON = 0.01
VIRTUAL_WORKERS = 100
SOURCES = 5
WORKERS = (5, 10, 50, 100)
THETA_BUSY, THETA_IDLE = 0.85, 0.75

Make = Callable[[int, int], Grouping]
"""Makes the grouping of a source: (number of bins, number of the source)."""

SCHEMES: dict[str, Make] = {
    "KG": lambda bins, source: KeyGrouping(bins),
    "PKG": lambda bins, source: PartialKeyGrouping(bins),
    "SG": ShuffleGrouping,
    "PoRC": lambda bins, source: RandomChoicesGrouping(bins, EPSILON),
    "W-C": lambda bins, source: WChoicesGrouping(bins),
    "weighted W-C": lambda bins, source: WeightedWChoicesGrouping(bins),
    "CG": lambda bins, source: consistent(bins),
    "CG, pooled": lambda bins, source: consistent(bins, inner=_pooled),
    "CG, proportional": lambda bins, source: consistent(bins, proportional=True),
    "CG, ours": lambda bins, source: consistent(bins, inner=_pooled, proportional=True),
}

_LOOKS = {
    "KG": (COLOURS[5], "-"),
    "PKG": (COLOURS[1], "-"),
    "SG": (COLOURS[7], ":"),
    "PoRC": (COLOURS[2], "-"),
    "W-C": (COLOURS[4], "-"),
    "weighted W-C": (COLOURS[4], ":"),
    "CG": (COLOURS[0], "-"),
    "CG, pooled": (COLOURS[0], ":"),
    "CG, proportional": (COLOURS[0], "--"),
    "CG, ours": (COLOURS[0], "-."),
    "ring, adaptive": (INK, "-"),
}


def _pooled(virtual_workers: int, source: int) -> Grouping:
    return PooledChoicesGrouping(virtual_workers, EPSILON)


def look(scheme: str) -> dict[str, str]:
    """Colour and line of a scheme, the same in every picture."""
    colour, line = _LOOKS.get(scheme, (COLOURS[0], "-"))
    return {"color": colour, "linestyle": line, "label": scheme}


def consistent(
    bins: int,
    *,
    virtual_workers: int = VIRTUAL_WORKERS,
    epsilon: float = EPSILON,
    proportional: bool = False,
    inner: Make | None = None,
    source: int = 0,
) -> ConsistentGrouping:
    """Consistent grouping with PoRC, or another grouping, onto the virtual workers."""
    virtual = bins * virtual_workers
    onto = inner(virtual, source) if inner is not None else RandomChoicesGrouping(virtual, epsilon)
    return ConsistentGrouping(bins, onto, proportional=proportional)


def delegation(slot_seconds: float = SLOT_SECONDS) -> SignalOptions:
    """How workers judge themselves in the paper's simulations: assigned messages by capacity."""
    return SignalOptions(slot_seconds=slot_seconds, theta_busy=THETA_BUSY, theta_idle=THETA_IDLE, utilisation="demand")
