"""Routing tables: immutable, numbered snapshots of who owns which part of the hash circle.

A token owns the arc of hashes from the token before it up to, but not including, its own position. Each arc has an
*assignment*: a single reducer, or a split over several of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpa.routing.assignment import Assignment, KeySplit, Single
from dpa.routing.hashing import Hashes, hash_key
from dpa.routing.keys import Key

_LARGE_COLUMN = 4_096  # from this many hashes on, looking up arcs of equal length first pays

_ARC_BITS = 16
_CUT = np.iinfo(np.int32).min

Owners = npt.NDArray[np.int32]
"""Reducers by number."""

Assigned = npt.NDArray[np.int32]
"""Assignments by their number in a tuple of them."""

Rows = npt.NDArray[np.intp]


class Owning(Protocol):
    """What says to whom keys belong: a routing table, above all. `seed` is that of the hashes of keys."""

    @property
    def seed(self) -> int: ...

    def owners_of(self, hashes: Hashes) -> Owners: ...


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """Key ownership as of one version: the same answer in every process that holds the same table.

    Attributes:
        version: the table's number; tables with greater numbers are newer.
        positions: token hashes in ascending order, each once, shape (tokens,).
        assigned: the assignment of each token's arc, as its number in `assignments`; shape (tokens,).
        assignments: each once, in no particular order; some may be unused.
        reducers: above the number of any reducer that there has been.
        seed: of the hash of keys.
        members: the reducers that take part, each once; one that takes another's place has its position. Empty: all.
    """

    version: int
    positions: Hashes
    assigned: Assigned
    assignments: tuple[Assignment, ...]
    reducers: int
    seed: int = 0
    members: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.members:
            object.__setattr__(self, "members", tuple(range(self.reducers)))
        if len(self.positions) == 0 or len(self.positions) != len(self.assigned):
            raise ValueError("a routing table needs at least one token, and an assignment for each token")
        if len(set(self.assignments)) < len(self.assignments):
            raise ValueError("a routing table needs each assignment once")
        self.positions.setflags(write=False)
        self.assigned.setflags(write=False)

    def __reduce__(self) -> tuple[type[RoutingTable], tuple[object, ...]]:
        # Derived properties do not travel, and `__post_init__` makes the arrays read-only again.
        return RoutingTable, tuple(getattr(self, field.name) for field in fields(self))

    @staticmethod
    def unsplit(
        version: int, positions: Hashes, owners: Owners, reducers: int, seed: int = 0, members: tuple[int, ...] = ()
    ) -> RoutingTable:
        """`owners`: the one reducer of each token's arc, shape (tokens,)."""
        used = in_use(owners, [Single(index) for index in range(reducers)])
        return RoutingTable(version, positions, *used, reducers, seed, members)

    def owners_of(self, hashes: Hashes) -> Owners:
        """Who owns the state of each hash in the end; shape of `hashes`. O(log tokens) each, O(1) in large columns."""
        return self.resolve(hashes)[0]

    def resolve(self, hashes: Hashes) -> tuple[Owners, list[tuple[KeySplit, Rows]]]:
        """The owner of each hash, shape of `hashes`, and for each key split among them the rows that it covers."""
        owners = self._sole_owners_of(hashes)
        if not self._has_splits:
            return owners, []
        rows = np.flatnonzero(owners < 0)
        codes = owners[rows]
        splits = []
        for code in np.unique(codes).tolist():
            split, of_split = self.assignments[~code], rows[codes == code]
            if isinstance(split, KeySplit):
                owners[of_split] = split.reducers[0]
                splits.append((split, of_split))
        return owners, splits

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether the reducer owns each hash, or is one of those that it is split over; shape of `hashes`."""
        owners, splits = self.resolve(hashes)
        allowed: npt.NDArray[np.bool_] = owners == reducer
        for split, rows in splits:
            allowed[rows] = reducer in split.reducers
        return allowed

    def assignment_of(self, hashed: int) -> Assignment:
        return self.assignments[int(self.assigned[self.tokens_of(np.array([hashed], dtype=np.uint32))[0]])]

    def tokens_of(self, hashes: Hashes) -> npt.NDArray[np.intp]:
        """The index of the token that owns each hash; shape of `hashes`."""
        index = np.searchsorted(self.positions, hashes, side="right")
        index[index == len(self.positions)] = 0
        return index

    def key_lookup(self, key: Key) -> int:
        """The DPA paper's interface, section 4.2."""
        return self.assignment_of(hash_key(key, self.seed)).reducers[0]

    @cached_property
    def sole_owners(self) -> Owners:
        """The one reducer of each token's arc, shape (tokens,); negative where the arc is split."""
        numbered = enumerate(self.assignments)
        codes = [one.reducer if isinstance(one, Single) else ~number for number, one in numbered]
        return np.array(codes, dtype=np.int32).take(self.assigned)

    @cached_property
    def splits(self) -> Mapping[int, KeySplit]:
        """By the token's index."""
        if not self._has_splits:
            return {}
        tokens = np.flatnonzero(self.sole_owners < 0).tolist()
        found = ((token, self.assignments[self.assigned[token]]) for token in tokens)
        return {token: split for token, split in found if isinstance(split, KeySplit)}

    @cached_property
    def _has_splits(self) -> bool:
        return any(isinstance(assignment, KeySplit) for assignment in self.assignments)

    def _sole_owners_of(self, hashes: Hashes) -> Owners:
        if len(hashes) < _LARGE_COLUMN:
            return self.sole_owners[self.tokens_of(hashes)]
        # Most of 2**16 equal arcs have no token in them: their owner is looked up, and the hashes in others are
        # searched.
        owners = self._sole_owners_of_arcs.take(hashes >> _ARC_BITS)
        cut = np.flatnonzero(owners == _CUT)
        owners[cut] = self.sole_owners[self.tokens_of(hashes[cut])]
        return owners

    @cached_property
    def _sole_owners_of_arcs(self) -> Owners:
        """Of each of 2**16 equal arcs of the circle; `_CUT` where a token lies in it."""
        starts = np.arange(2**_ARC_BITS, dtype=np.uint32) << np.uint32(_ARC_BITS)
        index = np.searchsorted(self.positions, starts, side="left")
        index[index == len(self.positions)] = 0
        owners = self.sole_owners[index]
        owners[self.positions >> _ARC_BITS] = _CUT
        return owners


def in_use(assigned: Assigned, assignments: Sequence[Assignment]) -> tuple[Assigned, tuple[Assignment, ...]]:
    """Without the assignments that no token has, the others numbered anew."""
    used = np.flatnonzero(np.bincount(assigned, minlength=len(assignments)))
    number = np.zeros(len(assignments), dtype=np.int32)
    number[used] = np.arange(len(used))
    return number.take(assigned), tuple(assignments[index] for index in used.tolist())
