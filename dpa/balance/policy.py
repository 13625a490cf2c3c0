"""The interface between the protocol and any balancing policy."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dpa.balance.adaptive.first_table import FirstTable
from dpa.balance.decision import Decision
from dpa.errors import BalanceError
from dpa.measure.load import Load, Offered
from dpa.routing.members import MemberChange
from dpa.routing.table import RoutingTable


@dataclass(frozen=True)
class BalancedStage:
    """What a policy has to know of its stage.

    Attributes:
        reducers: how many tasks it begins with.
        may_split: whether a key may have several of them at a time.
        first: the first table, and the evidence that it rests on, where one was planned.
        feeds: the edges on which records come, each with the name of its sender.
    """

    reducers: int
    may_split: bool = True
    first: FirstTable | None = None
    feeds: Mapping[Hashable, str] = field(default_factory=dict)


class BalancePolicy(Protocol):
    """Takes in loads and decides on routing tables.

    Attributes:
        table: the newest one; every applied decision replaces it by the next.
    """

    table: RoutingTable

    @property
    def rounds(self) -> Mapping[int, int]:
        """Redistributions that each reducer's load has caused; empty where they are not counted."""
        ...

    def report(self, reducer: int, load: Load, now: float) -> Decision | None:
        """Take in a reducer's load at time `now` (seconds, never decreasing), and act if that calls for it. None: it is
        no time to decide, or the reducer is no member any more."""
        ...

    def offered(self, sender: Hashable, offered: Offered, now: float, feed: Hashable = None) -> None:
        """Take in what a sender has offered the stage, on the edge `feed`."""
        ...

    def redistribute(self, reducer: int, now: float) -> Decision:
        """Relieve a reducer whatever its load (the DPA paper's `redistribute(node_id)`, section 4.2). Raises
        BalanceError if there is no such reducer."""
        ...

    def forget(self, reducer: int) -> None:
        """A reducer has left."""
        ...

    def forget_sender(self, sender: Hashable) -> None: ...

    def change_members(self, change: MemberChange) -> None:
        """Make the next table, in which reducers join, leave, or take the place of others. Raises ProtocolError if the
        change does not fit the table."""
        ...


def require_reducer(table: RoutingTable, reducer: int) -> None:
    """Raises BalanceError if the table has no such reducer."""
    if reducer in table.members:
        return
    if len(table.members) == table.reducers:
        raise BalanceError(f"there is no reducer {reducer}; they are numbered 0 to {table.reducers - 1}")
    raise BalanceError(f"there is no reducer {reducer}; there are {', '.join(map(str, sorted(table.members)))}")
