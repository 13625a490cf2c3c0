"""The one interface of all groupings: how a sender chooses the reducer of each record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings.signal import Signal
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners, RoutingTable


class Grouping(ABC):
    """One sender's grouping. Senders do not talk to each other: each goes by what it has sent itself.

    The contract that every grouping keeps, and its conformance suite checks:

    - Choices are made record by record, in order: cut the same records into other blocks, and they stay the same. (Only
      spread keys of the ring are dealt a block at a time: by their weights, give or take two, however they are cut.)
    - Equal senders (kind, options, source) that see the same records and signals choose alike, in any process.
    - Every choice is one that `may_process` allows.

    Attributes:
        several_owners: whether records of one key may go to several reducers, whose states must then be merged.
        forwards: whether records may change their reducer after they were sent, when a new routing table comes.
        bins: how many reducers there are to choose from.
    """

    several_owners: ClassVar[bool] = True
    forwards: ClassVar[bool] = False

    def __init__(self, bins: int) -> None:
        if bins < 1:
            raise ValueError(f"a grouping needs at least one reducer to choose, not {bins}")
        self.bins = bins

    def owners_of(self, hashes: Hashes) -> Owners | None:
        """The reducer of each key, shape of `hashes`; None if records of one key may part, and `choose` must tell."""
        return None

    @abstractmethod
    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record, given the hashes of their keys in the order in which they are sent; shape
        (records,)."""

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether records of each key may be sent to the reducer; shape of `hashes`."""
        return np.ones(len(hashes), dtype=bool)

    def observe(self, reducer: int, signal: Signal) -> None:  # noqa: B027  (optional)
        """Hear of a reducer's load; groupings that go by their own counts alone do not listen."""

    def adopt(self, table: RoutingTable) -> None:  # noqa: B027  (optional)
        """Go by a newer routing table; only the grouping that goes by tables has a use for it."""

    @property
    def moved(self) -> int:
        """How often a part of the keys has been given to another reducer because of signals."""
        return 0
