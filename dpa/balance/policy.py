"""The interface between the protocol and any balancing policy."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from dpa.balance.adaptive.rebalance import FirstTable
from dpa.balance.decision import Decision
from dpa.errors import BalanceError
from dpa.measure.load import Load, MeasuredKey, Offered
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


class BalancePolicy(ABC):
    """Takes in loads and decides on routing tables. A policy that goes by reducers alone ignores what senders offer.

    Attributes:
        table: the newest one; every applied decision replaces it by the next.
        rounds: redistributions that each reducer's load has caused; empty where they are not counted.
    """

    table: RoutingTable
    rounds: Mapping[int, int]

    @property
    def hottest(self) -> tuple[MeasuredKey, ...] | None:
        """The most frequent first; None if the policy does not look at keys."""
        return None

    @abstractmethod
    def report(self, reducer: int, load: Load, now: float) -> Decision | None:
        """Take in a reducer's load at time `now` (seconds, never decreasing), and act if that calls for it. None: it is
        no time to decide, or the reducer is no member any more."""

    def offered(  # noqa: B027  (optional)
        self, sender: Hashable, offered: Offered, now: float, feed: Hashable = None
    ) -> None:
        """Take in what a sender has offered the stage, on the edge `feed`."""

    @abstractmethod
    def redistribute(self, reducer: int, now: float) -> Decision:
        """Relieve a reducer, even if its load is low (the DPA paper's `redistribute(node_id)`, section 4.2). Raises
        BalanceError if there is no such reducer."""

    def forget(self, reducer: int) -> None:  # noqa: B027  (optional)
        """A reducer has left."""

    def forget_sender(self, sender: Hashable) -> None:  # noqa: B027  (optional)
        """A sender has ended."""

    @abstractmethod
    def change_members(self, change: MemberChange) -> None:
        """Make the next table, in which reducers join, leave, or take the place of others. Raises ProtocolError if the
        change does not fit the table."""


def require_reducer(table: RoutingTable, reducer: int) -> None:
    """Raises BalanceError if the table has no such reducer."""
    if reducer in table.members:
        return
    if len(table.members) == table.reducers:
        raise BalanceError(f"there is no reducer {reducer}; they are numbered 0 to {table.reducers - 1}")
    raise BalanceError(f"there is no reducer {reducer}; there are {', '.join(map(str, sorted(table.members)))}")
