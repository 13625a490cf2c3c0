"""What makes one routing table of the one before it: the difference is sent, not the table.

A table of a million tokens is eight megabytes and goes to every task; what a redistribution changes is a few tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpa.errors import ProtocolError
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners, RoutingTable, Spread


@dataclass(frozen=True, eq=False)
class TableChange:
    """The step to the table numbered `epoch` from the one numbered `epoch - 1`.

    Attributes:
        epoch: number of the table that it makes.
        dropped: positions of the tokens that go, ascending.
        positions: positions of the tokens that come or change their place, ascending.
        places: their places in the new table, shape of `positions`.
        spreads: the spreads of the new table, all of them: there are few.
    """

    epoch: int
    dropped: Hashes
    positions: Hashes
    places: Owners
    spreads: tuple[Spread, ...] = ()

    @staticmethod
    def between(old: RoutingTable, new: RoutingTable) -> TableChange:
        """The change that makes `new` of `old`. O(tokens)."""
        at = np.minimum(np.searchsorted(old.positions, new.positions), len(old.positions) - 1)
        same = (old.positions[at] == new.positions) & (old.places[at] == new.places)
        dropped = np.setdiff1d(old.positions, new.positions, assume_unique=True)
        return TableChange(new.epoch, dropped, new.positions[~same], new.places[~same], new.spreads)

    @staticmethod
    def of(
        table: RoutingTable, places: Mapping[int, int], spreads: tuple[Spread, ...], dropped: Hashes | None = None
    ) -> TableChange:
        """The change of `table` that puts tokens (new ones or not) in these places, by position."""
        none = np.empty(0, dtype=np.uint32)
        positions = np.fromiter(sorted(places), dtype=np.uint32, count=len(places))
        of_each = np.fromiter((places[int(position)] for position in positions), dtype=np.int32, count=len(places))
        return TableChange(table.epoch + 1, none if dropped is None else dropped, positions, of_each, spreads)

    def apply(self, table: RoutingTable) -> RoutingTable:
        """The table that this change makes of the one before it. O(tokens).

        Raises:
            ProtocolError: the table is not the one before it.
        """
        if table.epoch != self.epoch - 1:
            raise ProtocolError(f"the change to table {self.epoch} does not fit table {table.epoch}")
        gone = np.concatenate([self.dropped, self.positions])
        kept = _without(table.positions, gone)
        positions = np.concatenate([table.positions[kept], self.positions])
        order = np.argsort(positions, kind="stable")
        places = np.concatenate([table.places[kept], self.places])[order]
        return RoutingTable(self.epoch, positions[order], places, table.reducers, table.seed, self.spreads)

    @property
    def tokens(self) -> int:
        """How many tokens it names."""
        return len(self.dropped) + len(self.positions)


def _without(positions: Hashes, gone: Hashes) -> npt.NDArray[np.bool_]:
    """Which of the ascending positions are not among those that go."""
    kept = np.ones(len(positions), dtype=bool)
    at = np.searchsorted(positions, gone)
    inside = at < len(positions)
    at, gone = at[inside], gone[inside]
    kept[at[positions[at] == gone]] = False
    return kept
