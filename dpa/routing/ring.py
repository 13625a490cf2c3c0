"""The editable token ring of consistent hashing (DPA paper, section 4.2): tokens in hash order, each owned by a node.

It only places tokens; which tokens to add or drop is decided in `dpa.balance`. Lookups of whole columns go through the
immutable `RoutingTable` that `snapshot` makes.
"""

from __future__ import annotations

import mmh3
import numpy as np
from sortedcontainers import SortedList

from dpa.routing.hashing import hash_key
from dpa.routing.keys import Key
from dpa.routing.table import RoutingTable

PAPER_TOKEN_FORMAT = "token-{node}-{token}"


class TokenRing:
    """Tokens `0 .. tokens_of(node) - 1` of each node on the circle of 32-bit hashes.

    A change costs O(log T) for each token that comes or goes, T being the number of tokens.
    """

    def __init__(self, nodes: int, tokens: int, *, token_format: str = PAPER_TOKEN_FORMAT, seed: int = 0) -> None:
        """Give each of `nodes` nodes its first `tokens` tokens, named by `token_format` and hashed with `seed`."""
        if nodes < 1 or tokens < 1:
            raise ValueError(f"a ring needs at least one node with one token, not {nodes} with {tokens}")
        self._format = token_format
        self._seed = seed
        self._tokens = [0] * nodes
        self._points: SortedList[tuple[int, int]] = SortedList()
        for node in range(nodes):
            self.set_tokens(node, tokens)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self._tokens)

    def tokens_of(self, node: int) -> int:
        """How many tokens the node has."""
        return self._tokens[node]

    def set_tokens(self, node: int, count: int) -> None:
        """Grow or shrink a node to `count` tokens; the ones with the highest numbers come and go."""
        if count < 1:
            raise ValueError(f"node {node} must keep at least one token, not {count}")
        current = self._tokens[node]
        self._points.update((self._position(node, token), node) for token in range(current, count))
        for token in range(count, current):
            self._points.remove((self._position(node, token), node))
        self._tokens[node] = count

    def key_lookup(self, key: Key) -> int:
        """The node that owns the key: that of the first token clockwise, passing over one exactly at the key's hash."""
        index = self._points.bisect_right((hash_key(key, self._seed), self.nodes))
        return int(self._points[index % len(self._points)][1])

    def shares(self) -> list[float]:
        """The share of the circle that each node owns; they add up to 1."""
        owned = [0] * self.nodes
        previous = self._points[-1][0] - 2**32
        for position, node in self._points:
            owned[node] += position - previous
            previous = position
        return [arc / 2**32 for arc in owned]

    def snapshot(self, epoch: int) -> RoutingTable:
        """The ring as an immutable routing table numbered `epoch`."""
        points = np.array(self._points, dtype=np.int64)
        positions, first = np.unique(points[:, 0].astype(np.uint32), return_index=True)  # the first of two that collide
        return RoutingTable(
            epoch=epoch,
            positions=positions,
            places=points[first, 1].astype(np.int32),
            reducers=self.nodes,
            seed=self._seed,
        )

    def _position(self, node: int, token: int) -> int:
        return mmh3.hash(self._format.format(node=node, token=token), self._seed, signed=False)
