"""The ring: consistent hashing by a routing table, which load balancing changes while the stream runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dpa.routing.assignment import KeySplit
from dpa.routing.distributor import Distributor
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners, RoutingTable

Distribute: TypeAlias = Callable[[KeySplit, int], npt.NDArray[np.int64]]
"""Of a key split and a number of records, the number that each reducer of the split gets; shape of its `reducers`."""


class RingGrouping(Grouping):
    """The table's owner of each key; records of a split key are distributed over its reducers."""

    splits_keys: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    def __init__(self, table: RoutingTable, source: int = 0, distribute: Distribute | None = None) -> None:
        """`distribute` is how records of a split key are distributed; by default by weight, by a `Distributor` of this
        sender."""
        super().__init__(table.reducers)
        self._table = table
        self._distributor = Distributor(source)
        self._distribute = distribute or self._distributor.distribute

    def owners_of(self, hashes: Hashes) -> Owners | None:
        """The reducer of each key, or None if any of them is split."""
        owners, splits = self._table.resolve(hashes)
        return None if splits else owners

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        owners, splits = self._table.resolve(hashes)
        for split, rows in splits:
            owners[rows] = self._distributed(split, len(rows))
        return owners

    def choose_by_key(self, hashes: Hashes, codes: npt.NDArray[np.int32]) -> Owners:
        """As `choose`; keys are looked up once, not with each of their records."""
        of_keys, splits = self._table.resolve(hashes)
        owners: Owners = of_keys.take(codes)
        for split, keys in splits:
            rows = np.flatnonzero(codes == keys[0] if len(keys) == 1 else np.isin(codes, keys))
            owners[rows] = self._distributed(split, len(rows))
        return owners

    def _distributed(self, split: KeySplit, records: int) -> Owners:
        """The reducer of each of some records of a split key, in order."""
        return np.repeat(np.array(split.reducers, dtype=np.int32), self._distribute(split, records))

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether the reducer owns each key, or is one of those that it is split over."""
        return self._table.may_process(reducer, hashes)

    def adopt(self, table: RoutingTable) -> None:
        """Go by a newer routing table."""
        self._table = table
        self._distributor.retain(table.splits.values())
