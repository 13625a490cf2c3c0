"""Token doubling (DPA paper, section 4.2): every node but the overloaded one doubles its tokens."""

from __future__ import annotations

from typing import ClassVar

from dpa.balance.decision import Outcome
from dpa.balance.strategies.base import Proposal, Refusal
from dpa.routing.ring import TokenRing

_MOST_TOKENS = 65_536
"""Doubling grows without end, while a ring with some thousand tokens a node is as even as it gets: stop there."""


class Doubling:
    """Doubles all other nodes' tokens. Takes more from the overloaded node than halving does, and reshuffles the rest
    too."""

    initial_tokens: ClassVar[int] = 1
    acts: ClassVar[bool] = True

    def relieve(self, ring: TokenRing, overloaded: int) -> Proposal | Refusal:
        """Propose to double the tokens of all other nodes, or refuse where there is none."""
        others = [node for node in range(ring.nodes) if node != overloaded]
        if not others:
            return Refusal(Outcome.NO_TARGET, "there is no other reducer")
        total = ring.tokens_of(overloaded) + sum(2 * ring.tokens_of(node) for node in others)
        if total > _MOST_TOKENS:
            return Refusal(Outcome.UNSPLITTABLE, f"the ring would have {total:,} tokens, more than {_MOST_TOKENS:,}")
        return Proposal(
            {node: 2 * ring.tokens_of(node) for node in others}, f"double the tokens of all reducers but {overloaded}"
        )
