"""Groupings that count no loads: key grouping, shuffle grouping, and the ring, whose table load balancing changes."""

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dpa.routing.assignment import Distributor, KeySplit
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners, RoutingTable

Distribute: TypeAlias = Callable[[KeySplit, int], npt.NDArray[np.int64]]
"""Of a key split and a number of records, the number that each reducer of the split gets; shape of its `reducers`."""


class KeyGrouping(Grouping):
    """KG: hash(key) mod n, as in any hash partitioning."""

    splits_keys: ClassVar[bool] = False

    def owners_of(self, hashes: Hashes) -> Owners:
        return (hashes % np.uint32(self.reducers)).astype(np.int32)

    def choose(self, hashes: Hashes) -> Owners:
        return self.owners_of(hashes)

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.owners_of(hashes) == reducer
        return found


class ShuffleGrouping(Grouping):
    """SG: each record to the next reducer, without regard to keys; senders start at different ones."""

    def __init__(self, reducers: int, source: int = 0) -> None:
        super().__init__(reducers)
        self._next = source % reducers

    def choose(self, hashes: Hashes) -> Owners:
        owners = (np.arange(self._next, self._next + len(hashes)) % self.reducers).astype(np.int32)
        self._next = (self._next + len(hashes)) % self.reducers
        return owners


class RingGrouping(Grouping):
    """Consistent hashing: the table's owner of each key; records of a split key are distributed over its reducers."""

    splits_keys: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    def __init__(self, table: RoutingTable, source: int = 0, distribute: Distribute | None = None) -> None:
        """`distribute`: of records of a split key; by default by weight, by a `Distributor` of this sender."""
        super().__init__(table.reducers)
        self._table = table
        self._distributor = Distributor(source)
        self._distribute = distribute or self._distributor.distribute

    def owners_of(self, hashes: Hashes) -> Owners | None:
        owners, splits = self._table.resolve(hashes)
        return None if splits else owners

    def choose(self, hashes: Hashes) -> Owners:
        owners, splits = self._table.resolve(hashes)
        for split, rows in splits:
            owners[rows] = self._distributed(split, len(rows))
        return owners

    def choose_by_key(self, hashes: Hashes, codes: npt.NDArray[np.int32]) -> Owners:
        of_keys, splits = self._table.resolve(hashes)  # a key is looked up once, not with each of its records
        owners: Owners = of_keys.take(codes)
        for split, keys in splits:
            rows = np.flatnonzero(codes == keys[0] if len(keys) == 1 else np.isin(codes, keys))
            owners[rows] = self._distributed(split, len(rows))
        return owners

    def _distributed(self, split: KeySplit, records: int) -> Owners:
        return np.repeat(np.array(split.reducers, dtype=np.int32), self._distribute(split, records))

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        return self._table.may_process(reducer, hashes)

    def adopt(self, table: RoutingTable) -> None:
        self._table = table
        self._distributor.retain(table.splits.values())
