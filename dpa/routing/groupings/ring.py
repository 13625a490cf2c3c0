"""The ring: consistent hashing by a routing table, which load balancing changes while the stream runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.spreader import Spreader
from dpa.routing.table import Owners, RoutingTable, Spread

Deal: TypeAlias = Callable[[Spread, int], npt.NDArray[np.int64]]
"""How many of so many records each reducer of a spread gets; shape of its `reducers`."""


class RingGrouping(Grouping):
    """The table's owner of each key; records of a spread are dealt to its reducers."""

    several_owners: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    def __init__(self, table: RoutingTable, source: int = 0, deal: Deal | None = None) -> None:
        """`deal` tells how records of a spread are dealt: by its weights, a `Spreader` of this sender, if not given."""
        super().__init__(table.reducers)
        self._table = table
        self._spreader = Spreader(source)
        self._deal = deal or self._spreader.deal

    def owners_of(self, hashes: Hashes) -> Owners | None:
        """The reducer of each key, or None if any of them is spread."""
        places = self._table.places_of(hashes)
        return None if len(places) and places.max() >= self.bins else places

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        owners = self._table.places_of(hashes)
        for place in np.unique(owners[owners >= self.bins]).tolist():
            spread = self._table.spread_at(place)
            assert spread is not None
            rows = np.flatnonzero(owners == place)
            owners[rows] = np.repeat(np.array(spread.reducers, dtype=np.int32), self._deal(spread, len(rows)))
        return owners

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether the reducer owns each key, or is one of those that share it."""
        return self._table.may_process(reducer, hashes)

    def adopt(self, table: RoutingTable) -> None:
        """Go by a newer routing table."""
        self._table = table
        self._spreader.forget(table.spreads)
