"""Routing tables: immutable, numbered snapshots of who owns which part of the hash circle."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpa.routing.hashing import Hashes, Key, hash_key

_COLUMN = 4_096
"""From so many hashes on, looking up arcs first pays."""
_ARC_BITS = 16
_DIVIDED = -1

Owners = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """Key ownership as of one epoch: the same answer in every process that holds the same table.

    Attributes:
        epoch: the table's number; tables with greater numbers are newer.
        positions: token hashes in ascending order, shape (tokens,).
        owners: the reducer that owns each token, shape (tokens,).
        reducers: how many reducers there are; owners are below it.
        seed: of the hash of keys.
    """

    epoch: int
    positions: Hashes
    owners: Owners
    reducers: int
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.positions) == 0 or len(self.positions) != len(self.owners):
            raise ValueError("a routing table needs at least one token, and one owner for each token")
        self.positions.setflags(write=False)
        self.owners.setflags(write=False)

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: what is derived from them does not travel."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def owners_of(self, hashes: Hashes) -> Owners:
        """The reducer that owns each hash; shape of `hashes`. O(log tokens) each, O(1) in large columns."""
        if len(hashes) < _COLUMN:
            return self._searched(hashes)
        owners = self._arc_owners.take(hashes >> _ARC_BITS)
        inside = np.flatnonzero(owners == _DIVIDED)
        owners[inside] = self._searched(hashes[inside])
        return owners

    def _searched(self, hashes: Hashes) -> Owners:
        index = np.searchsorted(self.positions, hashes, side="right")
        index[index == len(self.positions)] = 0
        return self.owners[index]

    @cached_property
    def _arc_owners(self) -> Owners:
        """The owner of each of 2**16 equal arcs of the circle, `_DIVIDED` for those in which a token lies."""
        starts = np.arange(2**_ARC_BITS, dtype=np.uint32) << np.uint32(_ARC_BITS)
        index = np.searchsorted(self.positions, starts, side="left")
        index[index == len(self.positions)] = 0
        owners = self.owners[index]
        owners[self.positions >> _ARC_BITS] = _DIVIDED
        return owners

    def key_lookup(self, key: Key) -> int:
        """The reducer that owns one key (the DPA paper's interface, section 4.2)."""
        return int(self.owners_of(np.array([hash_key(key, self.seed)], dtype=np.uint32))[0])
