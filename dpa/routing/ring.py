"""The editable token ring of consistent hashing (DPA paper, section 4.2): tokens in hash order, each of a reducer.

`dpa.balance` decides which tokens come or go. Whole columns are looked up in the immutable `RoutingTable` that
`snapshot` makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import count
from statistics import median

import mmh3
import numpy as np
from sortedcontainers import SortedList

from dpa.routing.hashing import hash_key
from dpa.routing.keys import Key
from dpa.routing.members import MemberChange
from dpa.routing.table import RoutingTable

PAPER_TOKEN_FORMAT = "token-{node}-{token}"

_NODES = 4_096  # numbers of nodes after which the tokens of a table may be named


class TokenRing:
    """Tokens `0 .. tokens_of(reducer) - 1` of each reducer on the circle of 32-bit hashes.

    A change costs O(log T) for each token that comes or goes, T being the number of tokens. `reducers` is above the
    number of any reducer that there has been."""

    def __init__(
        self,
        reducers: int,
        tokens: int,
        *,
        token_format: str = PAPER_TOKEN_FORMAT,
        seed: int = 0,
        nodes: Mapping[int, int] | None = None,
    ) -> None:
        """Each reducer has its first `tokens` tokens, named by `token_format` and hashed with `seed`. `{node}` in the
        format stands for the reducer's number, or the one that `nodes` has for it."""
        if reducers < 1 or tokens < 1:
            raise ValueError(f"a ring needs at least one reducer with one token, not {reducers} with {tokens}")
        self._format = token_format
        self._seed = seed
        self._tokens = dict.fromkeys(range(reducers), 0)
        self._names = {reducer: reducer for reducer in range(reducers)} | dict(nodes or {})  # in the order of members
        self.reducers = reducers
        self._points: SortedList[tuple[int, int]] = SortedList()
        for reducer in range(reducers):
            self.set_tokens(reducer, tokens)

    @classmethod
    def of(cls, table: RoutingTable, token_format: str) -> TokenRing | None:
        """The ring whose snapshot a table is, if reducers have no gaps in their numbers; None if there is none."""
        owners = dict(zip(table.positions.tolist(), table.sole_owners.tolist(), strict=True))
        # A node is known by its first token, which every node has.
        firsts = ((token_position(token_format, node, 0, table.seed), node) for node in range(_NODES))
        nodes = {owners[position]: node for position, node in firsts if position in owners}
        tokens = Counter(owners.values())
        if nodes.keys() != {*range(table.reducers)} or tokens.keys() != nodes.keys():
            return None
        ring = cls(table.reducers, 1, token_format=token_format, seed=table.seed, nodes=nodes)
        for reducer, number in tokens.items():
            ring.set_tokens(reducer, number)
        return ring if [(at, owners[at]) for at in sorted(owners)] == [*ring._points] else None

    @property
    def members(self) -> tuple[int, ...]:
        """A reducer that took another's place has its position."""
        return tuple(self._names)

    def tokens_of(self, reducer: int) -> int:
        return self._tokens.get(reducer, 0)

    def set_tokens(self, reducer: int, count: int) -> None:
        """The tokens with the highest numbers come and go."""
        if count < 1:
            raise ValueError(f"reducer {reducer} must keep at least one token, not {count}")
        current = self._tokens[reducer]
        self._points.update((self._position(reducer, token), reducer) for token in range(current, count))
        for token in range(count, current):
            self._points.remove((self._position(reducer, token), reducer))
        self._tokens[reducer] = count

    def join(self, tokens: int) -> int:
        """Returns the new reducer's number."""
        new, self.reducers = self.reducers, self.reducers + 1
        used = {*self._names.values()}
        self._tokens[new], self._names[new] = 0, next(node for node in count(new) if node not in used)
        self.set_tokens(new, tokens)
        return new

    def leave(self, reducer: int) -> None:
        if self.members == (reducer,):
            raise ValueError(f"reducer {reducer} is the last one of the ring")
        for token in range(self._tokens.pop(reducer)):
            self._points.remove((self._position(reducer, token), reducer))
        del self._names[reducer]

    def replace(self, reducer: int) -> int:
        """A new reducer gets all of another's tokens. Returns its number."""
        new, self.reducers = self.reducers, self.reducers + 1
        for token in range(self._tokens[reducer]):
            position = self._position(reducer, token)
            self._points.remove((position, reducer))
            self._points.add((position, new))
        self._tokens[new] = self._tokens.pop(reducer)
        self._names = {new if one == reducer else one: name for one, name in self._names.items()}
        return new

    def change_members(self, change: MemberChange) -> TokenRing:
        """Returns the ring. A reducer that joins gets as many tokens as others have: the median."""
        tokens = median(self._tokens.values())
        place = {new: old for old, new in change.replaces}
        for new in change.coming:  # in the order of their numbers
            if new in place:
                self.replace(place[new])
            else:
                self.join(max(1, int(tokens)))
        for reducer in change.leaves:
            self.leave(reducer)
        return self

    def key_lookup(self, key: Key) -> int:
        """The owner of the first token clockwise, passing over one exactly at the key's hash."""
        index = self._points.bisect_right((hash_key(key, self._seed), self.reducers))
        return int(self._points[index % len(self._points)][1])

    def shares(self) -> list[float]:
        """Of the circle, by reducer; they add up to 1."""
        owned = [0] * self.reducers
        previous = self._points[-1][0] - 2**32
        for position, reducer in self._points:
            owned[reducer] += position - previous
            previous = position
        return [arc / 2**32 for arc in owned]

    def snapshot(self, version: int) -> RoutingTable:
        points = np.array(self._points, dtype=np.int64)
        positions, first = np.unique(points[:, 0].astype(np.uint32), return_index=True)  # the first of two that collide
        owners = points[first, 1].astype(np.int32)
        return RoutingTable.unsplit(version, positions, owners, self.reducers, self._seed, self.members)

    def _position(self, reducer: int, token: int) -> int:
        return token_position(self._format, self._names[reducer], token, self._seed)


def token_position(token_format: str, node: int, token: int, seed: int) -> int:
    return mmh3.hash(token_format.format(node=node, token=token), seed, signed=False)
