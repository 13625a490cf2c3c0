"""Any grouping but the ring where reducers have joined or left: it chooses among those that there are, by their
position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.signal import Signal
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners, RoutingTable


class AmongMembers(Grouping):
    """Choices of a grouping whose reducers are numbered without gaps, as numbers of members."""

    def __init__(self, inner: Grouping, table: RoutingTable) -> None:
        """`inner` has as many reducers as the table has members."""
        super().__init__(table.reducers)
        self._inner = inner
        self._members = np.array(table.members, dtype=np.int32)
        self._position = {member: position for position, member in enumerate(table.members)}

    def owners_of(self, hashes: Hashes) -> Owners | None:
        """The member of each key; None if `choose` decides."""
        positions = self._inner.owners_of(hashes)
        return None if positions is None else self._members.take(positions)

    def choose(self, hashes: Hashes) -> Owners:
        """The member of each record."""
        return self._members.take(self._inner.choose(hashes))

    def choose_by_key(self, hashes: Hashes, codes: npt.NDArray[np.int32]) -> Owners:
        """As `choose`."""
        return self._members.take(self._inner.choose_by_key(hashes, codes))

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether records of each key may be sent to a reducer: to none that is no member."""
        position = self._position.get(reducer)
        return np.zeros(len(hashes), dtype=bool) if position is None else self._inner.may_process(position, hashes)

    def observe(self, reducer: int, signal: Signal) -> None:
        """Receive a member's signal; one that has left may still have sent one."""
        position = self._position.get(reducer)
        if position is not None:
            self._inner.observe(position, signal)

    @property
    def moved(self) -> int:
        """As the grouping counts it."""
        return self._inner.moved
