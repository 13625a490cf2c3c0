"""The token ring of consistent hashing (DPA paper, section 4.2): how many tokens each reducer has, and their positions.

`dpa.balance` decides which tokens come or go. Keys are looked up in the immutable `RoutingTable` that `snapshot` makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from statistics import median

import mmh3
import numpy as np

from dpa.routing.hashing import Hashes
from dpa.routing.members import MemberChange
from dpa.routing.table import RoutingTable

PAPER_TOKEN_FORMAT = "token-{node}-{token}"

_NODES = 4_096  # numbers of nodes after which the tokens of a table may be named


class TokenRing:
    """Tokens `0 .. tokens_of(reducer) - 1` of each reducer on the circle of 32-bit hashes. `reducers` is above the
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
        self._tokens = dict.fromkeys(range(reducers), tokens)
        self._names = {reducer: reducer for reducer in range(reducers)} | dict(nodes or {})  # in the order of members
        self.reducers = reducers

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
        ring._tokens.update(tokens)
        found = ring.snapshot(0)
        is_same = np.array_equal(found.positions, table.positions)
        return ring if is_same and np.array_equal(found.sole_owners, table.sole_owners) else None

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
        self._tokens[reducer] = count

    def change_members(self, change: MemberChange) -> TokenRing:
        """Returns the ring. A reducer that joins gets as many tokens as others have: the median."""
        tokens = max(1, int(median(self._tokens.values())))
        place = {new: old for old, new in change.replaces}
        for new in change.coming:  # in the order of their numbers
            if (old := place.get(new)) is not None:  # it gets all of the other's tokens
                self._tokens[new] = self._tokens.pop(old)
                self._names = {new if one == old else one: name for one, name in self._names.items()}
            else:
                used = {*self._names.values()}
                self._tokens[new], self._names[new] = tokens, next(node for node in count(new) if node not in used)
        for reducer in change.leaves:
            del self._tokens[reducer], self._names[reducer]
        self.reducers += len(change.coming)
        return self

    def shares(self) -> list[float]:
        """Of the circle, by reducer; they add up to 1."""
        table = self.snapshot(0)
        positions = table.positions.astype(np.int64)
        arcs = np.diff(positions, prepend=positions[-1] - 2**32)
        shares: list[float] = (np.bincount(table.sole_owners, arcs, self.reducers) / 2**32).tolist()
        return shares

    def snapshot(self, version: int) -> RoutingTable:
        """O(tokens log tokens)."""
        reducers = sorted(self._tokens)
        of_each = [
            token_positions(self._format, self._names[reducer], self._tokens[reducer], self._seed)
            for reducer in reducers
        ]
        owners = np.repeat(np.array(reducers, dtype=np.int32), [len(positions) for positions in of_each])
        positions, first = np.unique(np.concatenate(of_each), return_index=True)  # the first of two that collide
        return RoutingTable.unsplit(version, positions, owners[first], self.reducers, self._seed, self.members)


def token_position(token_format: str, node: int, token: int, seed: int) -> int:
    return mmh3.hash(token_format.format(node=node, token=token), seed, signed=False)


@lru_cache(maxsize=256)
def token_positions(token_format: str, node: int, tokens: int, seed: int) -> Hashes:
    """Of a node's first tokens, shape (tokens,). Kept: a change of the ring leaves most nodes as they are."""
    found = [token_position(token_format, node, token, seed) for token in range(tokens)]
    return np.array(found, dtype=np.uint32)
