"""The interface of all groupings: how a sender chooses the reducer of each record, and what reducers report to it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners, RoutingTable


class CapacityRequest(str, Enum):
    """What a reducer requests of the mappers for the next time slot."""

    KEEP = "keep"
    DECREASE = "decrease"
    INCREASE = "increase"


@dataclass(frozen=True, slots=True)
class Signal:
    """A reducer's measurement at the end of a time slot, on the acknowledgements that it sends anyway (CG paper, V-C).
    Many acknowledgements carry the same signal.

    Attributes:
        slot: number of the slot, growing.
        utilisation: of the reducer in that slot: above 1 if more work came than it could do.
        request: what follows from that.
        records: the number that came in that slot, on which the utilisation rests.
        service_seconds: time to process one record in that slot, or in the last one with any; None before the first.
    """

    slot: int
    utilisation: float
    request: CapacityRequest
    records: int = 0
    service_seconds: float | None = None


class Grouping(ABC):
    """One sender's grouping. Senders do not communicate: each goes by the records that it has sent itself.

    The contract that every grouping keeps, and its conformance suite checks:

    - Choices are made record by record, in order: cut the same records into other blocks, and they stay the same. (Only
      split keys of the ring are distributed a block at a time: by weight, give or take two, however they are cut.)
    - Equal senders (kind, options, source) that see the same records and signals choose alike, in any process.
    - Every choice is one that `may_process` allows.

    Attributes:
        splits_keys: whether records of one key may go to several reducers, whose states must then be merged.
        forwards: whether records may change their reducer after they were sent, when a new routing table comes.
        reducers: the number of reducers to choose from; of virtual workers, in a part of `consistent`.
    """

    splits_keys: ClassVar[bool] = True
    forwards: ClassVar[bool] = False

    def __init__(self, reducers: int) -> None:
        if reducers < 1:
            raise ValueError(f"a grouping needs at least one reducer to choose, not {reducers}")
        self.reducers = reducers

    def owners_of(self, hashes: Hashes) -> Owners | None:
        """The reducer of each key, shape of `hashes`; None if records of one key may go to several reducers: then
        `choose` decides."""
        return None

    @abstractmethod
    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record, given the hashes of their keys in the order in which they are sent; shape
        (records,)."""

    def choose_by_key(self, hashes: Hashes, codes: npt.NDArray[np.int32]) -> Owners:
        """As `choose`, given the hash of each key once, shape (keys,), and for each record the position of its key,
        shape (records,)."""
        return self.choose(hashes.take(codes))

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether records of each key may be sent to the reducer; shape of `hashes`."""
        return np.ones(len(hashes), dtype=bool)

    def observe(self, reducer: int, signal: Signal) -> None:  # noqa: B027  (optional)
        """Receive a reducer's signal; groupings that go by their own counts alone ignore it."""

    def adopt(self, table: RoutingTable) -> None:  # noqa: B027  (optional)
        """Replace the routing table; groupings other than the ring ignore it."""

    @property
    def moved(self) -> int:
        """The number of times that a part of the keys has been given to another reducer because of signals."""
        return 0


def chosen_by(loop: Callable[..., None], hashes: Hashes, *state: Any) -> Owners:
    """The choices of a compiled loop, which writes them to its last argument."""
    owners = np.empty(len(hashes), dtype=np.int32)
    loop(hashes, *state, owners)
    return owners


class AmongMembers(Grouping):
    """Any grouping but the ring where reducers have joined or left: it chooses among members by their position, and
    this gives their numbers."""

    def __init__(self, inner: Grouping, table: RoutingTable) -> None:
        """`inner` has as many reducers as the table has members."""
        super().__init__(table.reducers)
        self._inner = inner
        self._members = np.array(table.members, dtype=np.int32)
        self._position = {member: position for position, member in enumerate(table.members)}

    def owners_of(self, hashes: Hashes) -> Owners | None:
        positions = self._inner.owners_of(hashes)
        return None if positions is None else self._members.take(positions)

    def choose(self, hashes: Hashes) -> Owners:
        return self._members.take(self._inner.choose(hashes))

    def choose_by_key(self, hashes: Hashes, codes: npt.NDArray[np.int32]) -> Owners:
        return self._members.take(self._inner.choose_by_key(hashes, codes))

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        position = self._position.get(reducer)
        return np.zeros(len(hashes), dtype=bool) if position is None else self._inner.may_process(position, hashes)

    def observe(self, reducer: int, signal: Signal) -> None:
        position = self._position.get(reducer)
        if position is not None:  # a member that has left may still have sent one
            self._inner.observe(position, signal)

    @property
    def moved(self) -> int:
        return self._inner.moved
