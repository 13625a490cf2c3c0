"""Token doubling (DPA paper, section 4.2): every node but the overloaded one doubles its tokens."""

from __future__ import annotations

from typing import ClassVar

from dpa.balance.decision import Outcome
from dpa.balance.strategies._base import Proposal, Refusal
from dpa.routing.ring import TokenRing

_MAX_TOKENS = 65_536
"""Doubling could go on without end, while a ring with some thousand tokens a reducer is as even as it gets."""


class Doubling:
    """Doubles all other reducers' tokens. Takes more from the overloaded reducer than halving does, and reshuffles the
    rest too."""

    initial_tokens: ClassVar[int] = 1
    acts: ClassVar[bool] = True

    def relieve(self, ring: TokenRing, overloaded: int) -> Proposal | Refusal:
        """Propose to double the tokens of all other reducers, or refuse if there is none."""
        others = [reducer for reducer in ring.members if reducer != overloaded]
        if not others:
            return Refusal(Outcome.NO_TARGET, "there is no other task")
        total = ring.tokens_of(overloaded) + sum(2 * ring.tokens_of(other) for other in others)
        if total > _MAX_TOKENS:
            return Refusal(Outcome.UNSPLITTABLE, f"the ring would have {total:,} tokens, more than {_MAX_TOKENS:,}")
        return Proposal(
            {other: 2 * ring.tokens_of(other) for other in others},
            f"double the tokens of all tasks but {overloaded}",
        )
