"""What a job may say about its grouping, and the grouping that comes of it: one class of options for each kind.

The classes are plain and frozen. A job file's section `grouping` is made of them, so their fields, defaults, bounds and
docstrings are its keys (docs/job-files.md). Compiled groupings are imported when they are made: numba takes a while to
load."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
from annotated_types import Ge, Gt, Le

from dpa.routing.groupings.base import AmongMembers, Grouping
from dpa.routing.groupings.plain import KeyGrouping, RingGrouping, ShuffleGrouping
from dpa.routing.table import RoutingTable

Utilisation: TypeAlias = Literal["queue", "busy", "demand"]


@dataclass(frozen=True, kw_only=True)
class SignalOptions:
    """How reducers judge their load for senders that listen.

    Attributes:
        slot_seconds: length of a time slot.
        theta_busy: utilisation above which a reducer requests less.
        theta_idle: utilisation below which a reducer requests more.
        utilisation: as of `ConsistentOptions`. `queue` is what the paper's engine measures, and `demand` the paper's
            messages by capacity.
    """

    slot_seconds: float = 1.0
    theta_busy: float = 0.9
    theta_idle: float = 0.75
    utilisation: Utilisation = "demand"


@dataclass(frozen=True, kw_only=True)
class GroupingOptions(ABC):
    """How records find their reducer."""

    is_ring: ClassVar[bool] = False
    """Whether records go by a routing table, which balancing may change."""
    splits_keys: ClassVar[bool] = True
    """Whether records of one key may go to several reducers, also where the routing table never changes."""
    is_compiled: ClassVar[bool] = True
    """Whether numba compiles its loop over records, which `dpa[groupings]` installs."""

    kind: str
    """How a sender chooses the reducer of each record."""

    @property
    def signals(self) -> SignalOptions | None:
        """How reducers judge their load for the senders; None where senders do not listen."""
        return None

    def create(self, table: RoutingTable, source: int) -> Grouping:
        """The grouping of the sender number `source`, ready to choose: what is compiled has been."""
        if self.is_ring or table.members == tuple(range(table.reducers)):
            grouping = self._make(table, source)
        else:
            among = replace(table, reducers=len(table.members), members=())  # of the table it needs their number alone
            grouping = AmongMembers(self._make(among, source), table)
        grouping.choose(np.empty(0, dtype=np.uint32))  # of a block's type: read-only ones would be another to numba
        return grouping

    @abstractmethod
    def _make(self, table: RoutingTable, source: int) -> Grouping: ...


@dataclass(frozen=True, kw_only=True)
class BoundedOptions(GroupingOptions):
    """For groupings that bound loads."""

    epsilon: Annotated[float, Gt(0)] = 0.01
    """Load above the average that a reducer, or a virtual worker of `consistent`, may have, as a share of the
    average."""


@dataclass(frozen=True, kw_only=True)
class ListeningOptions(GroupingOptions):
    """For groupings whose senders listen to signals."""

    slot_seconds: Annotated[float, Ge(0.01)] = SignalOptions.slot_seconds
    """Seconds between two judgements of a reducer's load."""


@dataclass(frozen=True, kw_only=True)
class RingOptions(GroupingOptions):
    """`ring`: consistent hashing, balanced while it runs."""

    is_ring: ClassVar[bool] = True
    splits_keys: ClassVar[bool] = False
    is_compiled: ClassVar[bool] = False

    kind: Literal["ring"] = "ring"
    """Consistent hashing, balanced while it runs."""

    def _make(self, table: RoutingTable, source: int) -> Grouping:
        return RingGrouping(table, source)


@dataclass(frozen=True, kw_only=True)
class KeyOptions(GroupingOptions):
    """`key`: key grouping."""

    splits_keys: ClassVar[bool] = False
    is_compiled: ClassVar[bool] = False

    kind: Literal["key"] = "key"
    """The hash of the key modulo the number of reducers."""

    def _make(self, table: RoutingTable, source: int) -> Grouping:
        return KeyGrouping(table.reducers)


@dataclass(frozen=True, kw_only=True)
class ShuffleOptions(GroupingOptions):
    """`shuffle`: shuffle grouping."""

    is_compiled: ClassVar[bool] = False

    kind: Literal["shuffle"] = "shuffle"
    """Round robin, without regard to keys."""

    def _make(self, table: RoutingTable, source: int) -> Grouping:
        return ShuffleGrouping(table.reducers, source)


@dataclass(frozen=True, kw_only=True)
class PartialKeyOptions(GroupingOptions):
    """`partial_key`: partial key grouping."""

    kind: Literal["partial_key"] = "partial_key"
    """The less loaded of two reducers of the key."""

    def _make(self, table: RoutingTable, source: int) -> Grouping:
        from dpa.routing.groupings.choices import PartialKeyGrouping

        return PartialKeyGrouping(table.reducers)


@dataclass(frozen=True, kw_only=True)
class RandomChoicesOptions(BoundedOptions):
    """`random_choices`: power of random choices."""

    kind: Literal["random_choices"] = "random_choices"
    """The first reducer with room of the key's random sequence."""

    def _make(self, table: RoutingTable, source: int) -> Grouping:
        from dpa.routing.groupings.bounded import RandomChoicesGrouping

        return RandomChoicesGrouping(table.reducers, self.epsilon)


@dataclass(frozen=True, kw_only=True)
class WChoicesOptions(GroupingOptions):
    """`w_choices`: hot keys to the least loaded of all reducers, others to one of two."""

    kind: Literal["w_choices"] = "w_choices"
    """Hot keys go to the least loaded of all reducers, others to one of two."""

    def _make(self, table: RoutingTable, source: int) -> Grouping:
        from dpa.routing.groupings.choices import WChoicesGrouping

        return WChoicesGrouping(table.reducers)


@dataclass(frozen=True, kw_only=True)
class WeightedWChoicesOptions(ListeningOptions):
    """`weighted_w_choices`: W-Choices by capacity."""

    kind: Literal["weighted_w_choices"] = "weighted_w_choices"
    """As `w_choices`, by capacities that reducers report."""

    @property
    def signals(self) -> SignalOptions:
        return SignalOptions(slot_seconds=self.slot_seconds)

    def _make(self, table: RoutingTable, source: int) -> Grouping:
        from dpa.routing.groupings.by_capacity import WeightedWChoicesGrouping

        return WeightedWChoicesGrouping(table.reducers)


@dataclass(frozen=True, kw_only=True)
class ConsistentOptions(BoundedOptions, ListeningOptions):
    """`consistent`: consistent grouping."""

    kind: Literal["consistent"] = "consistent"
    """Keys go to virtual workers, virtual workers to reducers by what each requests."""
    virtual_workers: Annotated[int, Ge(1), Le(10_000)] = 100
    """Virtual workers of each reducer at the start."""
    proportional: bool = False
    """Whether all virtual workers that are due move at once, which needs `utilisation: demand`; false: one for each
    signal, as in the paper."""
    pooled: bool = False
    """Whether a key whose virtual worker is full goes to another one of the same reducer with room, which makes fewer
    copies; false: to a random one, as in the paper."""
    theta_busy: Annotated[float, Gt(0)] = SignalOptions.theta_busy
    """Without `proportional`: utilisation above which a reducer requests less."""
    theta_idle: Annotated[float, Ge(0)] = SignalOptions.theta_idle
    """Without `proportional`: utilisation below which a reducer requests more; must be below `theta_busy`."""
    utilisation: Utilisation = SignalOptions.utilisation
    """`queue`: mean queue, divided by a fair share of all records that may be in flight, or by `limits.queue_seconds`
    of records if that is less. `busy`: share of time in user code. `demand`: work that arrived, divided by the work
    that can be done; may exceed 1."""

    def __post_init__(self) -> None:
        if self.theta_idle >= self.theta_busy:
            raise ValueError(f"theta_idle ({self.theta_idle}) must be below theta_busy ({self.theta_busy})")
        if self.proportional and self.utilisation != "demand":
            why = f"{self.utilisation!r} does not measure by how much a reducer is overloaded"
            raise ValueError(f"proportional needs utilisation 'demand': {why}")

    @property
    def signals(self) -> SignalOptions:
        return SignalOptions(
            slot_seconds=self.slot_seconds,
            theta_busy=self.theta_busy,
            theta_idle=self.theta_idle,
            utilisation=self.utilisation,
        )

    def _make(self, table: RoutingTable, source: int) -> Grouping:
        from dpa.routing.groupings.bounded import PooledChoicesGrouping, RandomChoicesGrouping
        from dpa.routing.groupings.by_capacity import ConsistentGrouping

        choices = PooledChoicesGrouping if self.pooled else RandomChoicesGrouping
        inner = choices(table.reducers * self.virtual_workers, self.epsilon)
        return ConsistentGrouping(table.reducers, inner, proportional=self.proportional)


BY_KIND: dict[str, type[GroupingOptions]] = {
    options.kind: options
    for options in (
        RingOptions,
        KeyOptions,
        ShuffleOptions,
        PartialKeyOptions,
        RandomChoicesOptions,
        WChoicesOptions,
        WeightedWChoicesOptions,
        ConsistentOptions,
    )
}
"""The options of every grouping, by the name that a job file gives it."""

RING = RingOptions.kind
KINDS = tuple(BY_KIND)
