"""Routing tables: immutable, numbered snapshots of who owns which part of the hash circle.

A token owns the arc of hashes from the token before it up to its own position, which is passed over. Most arcs belong
to one reducer. An arc may also be *spread* over several, which is what becomes of one key too hot for any of them: then
each of them may process its records, and the first one owns its state in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpa.routing.hashing import Hashes, hash_key
from dpa.routing.keys import Key

_COLUMN = 4_096
"""From so many hashes on, looking up arcs first pays."""
_ARC_BITS = 16
_DIVIDED = -1

Owners = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Spread:
    """Several reducers that share the records of one arc.

    Attributes:
        reducers: at least two, each once; the first owns the states in the end.
        weights: the share of the records that each is to get, above 0 and adding up to 1.
        before: the share of the records that each had when the spread was made, adding up to at most 1.
        since: number of the first routing table that has it.
    """

    reducers: tuple[int, ...]
    weights: tuple[float, ...]
    before: tuple[float, ...]
    since: int

    def __post_init__(self) -> None:
        if len(self.reducers) < 2 or len(set(self.reducers)) < len(self.reducers):
            raise ValueError(f"a spread needs at least two reducers, each once, not {self.reducers}")
        if (
            len(self.weights) != len(self.reducers)
            or not min(self.weights) > 0
            or not abs(sum(self.weights) - 1) <= 1e-6
        ):
            raise ValueError(f"a spread needs a weight above 0 for each reducer, 1 in all, not {self.weights}")
        if len(self.before) != len(self.reducers) or min(self.before) < 0 or not sum(self.before) <= 1 + 1e-6:
            raise ValueError(f"a spread needs the former share of each reducer, at most 1 in all, not {self.before}")

    def weights_at(self, reducer: int) -> tuple[float, ...]:
        """How records that were routed to `reducer` before are to be dealt: it keeps as many as its new weight allows,
        and the others get the rest by what they gain. So no more records move than need to."""
        own = self.reducers.index(reducer) if reducer in self.reducers else None
        if own is None:
            return self.weights
        gains = [max(new - old, 0.0) for new, old in zip(self.weights, self.before, strict=True)]
        if self.before[own] <= self.weights[own] or not any(gains):  # by rounding alone, shares can shrink only
            return tuple(float(index == own) for index in range(len(self.weights)))
        kept = self.weights[own] / self.before[own]
        dealt = [(1 - kept) * gain / sum(gains) for gain in gains]
        dealt[own] = kept
        return tuple(dealt)


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """Key ownership as of one epoch: the same answer in every process that holds the same table.

    Attributes:
        epoch: the table's number; tables with greater numbers are newer.
        positions: token hashes in ascending order, each once, shape (tokens,).
        places: what becomes of each token's arc, shape (tokens,): the reducer that owns it or, from `reducers` on, the
            spread `spreads[place - reducers]`.
        reducers: how many reducers there are.
        seed: of the hash of keys.
        spreads: the arcs that several reducers share.
    """

    epoch: int
    positions: Hashes
    places: Owners
    reducers: int
    seed: int = 0
    spreads: tuple[Spread, ...] = ()

    def __post_init__(self) -> None:
        if len(self.positions) == 0 or len(self.positions) != len(self.places):
            raise ValueError("a routing table needs at least one token, and one place for each token")
        self.positions.setflags(write=False)
        self.places.setflags(write=False)

    def __reduce__(self) -> tuple[type[RoutingTable], tuple[object, ...]]:
        """Made anew of the fields alone: what is derived from them does not travel, and arrays are read-only again."""
        return RoutingTable, tuple(getattr(self, field.name) for field in fields(self))

    def places_of(self, hashes: Hashes) -> Owners:
        """The place of each hash: a reducer, or a spread from `reducers` on; shape of `hashes`. O(log tokens) each,
        O(1) in large columns."""
        if len(hashes) < _COLUMN:
            return self.places[self.tokens_of(hashes)]
        places = self._arc_places.take(hashes >> _ARC_BITS)
        inside = np.flatnonzero(places == _DIVIDED)
        places[inside] = self.places[self.tokens_of(hashes[inside])]
        return places

    def owners_of(self, hashes: Hashes) -> Owners:
        """The one reducer that owns the state of each hash in the end; shape of `hashes`."""
        places = self.places_of(hashes)
        return self._first_reducer.take(places) if self.spreads else places

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether the reducer may process records of each hash: it owns it, or is one of those that share it."""
        places = self.places_of(hashes)
        shared = [self.reducers + index for index, spread in enumerate(self.spreads) if reducer in spread.reducers]
        return np.isin(places, [reducer, *shared])

    def spread_at(self, place: int) -> Spread | None:
        """The spread that a place stands for, or None if it is a reducer."""
        return self.spreads[place - self.reducers] if place >= self.reducers else None

    def tokens_of(self, hashes: Hashes) -> npt.NDArray[np.intp]:
        """The index of the token that owns each hash; shape of `hashes`."""
        index = np.searchsorted(self.positions, hashes, side="right")
        index[index == len(self.positions)] = 0
        return index

    def key_lookup(self, key: Key) -> int:
        """The reducer that owns one key (the DPA paper's interface, section 4.2)."""
        return int(self.owners_of(np.array([hash_key(key, self.seed)], dtype=np.uint32))[0])

    @cached_property
    def _arc_places(self) -> Owners:
        """The place of each of 2**16 equal arcs of the circle, `_DIVIDED` for those in which a token lies."""
        starts = np.arange(2**_ARC_BITS, dtype=np.uint32) << np.uint32(_ARC_BITS)
        index = np.searchsorted(self.positions, starts, side="left")
        index[index == len(self.positions)] = 0
        places = self.places[index]
        places[self.positions >> _ARC_BITS] = _DIVIDED
        return places

    @cached_property
    def _first_reducer(self) -> Owners:
        """The reducer of each place, the first one of a spread."""
        first = [spread.reducers[0] for spread in self.spreads]
        return np.array([*range(self.reducers), *first], dtype=np.int32)
