"""The interface of all groupings: how a sender chooses the reducer of each record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings.signal import Signal
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners, RoutingTable


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
        """The reducer of each key, shape of `hashes`; None if records of one key may go to several
        reducers: then `choose` decides."""
        return None

    @abstractmethod
    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record, given the hashes of their keys in the order in which they are sent; shape
        (records,)."""

    def choose_by_key(self, hashes: Hashes, codes: npt.NDArray[np.int32]) -> Owners:
        """The same of each record, given the hash of each key once, shape (keys,), and for each record the position of
        its key, shape (records,)."""
        return self.choose(hashes.take(codes))

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether records of each key may be sent to the reducer; shape of `hashes`."""
        return np.ones(len(hashes), dtype=bool)

    def observe(self, reducer: int, signal: Signal) -> None:  # noqa: B027  (optional)
        """Receive a reducer's signal; groupings that go by their own counts alone ignore it."""

    def adopt(self, table: RoutingTable) -> None:  # noqa: B027  (optional)
        """Go by a newer routing table; other groupings than the ring ignore it."""

    @property
    def moved(self) -> int:
        """The number of times that a part of the keys has been given to another reducer because of signals."""
        return 0
