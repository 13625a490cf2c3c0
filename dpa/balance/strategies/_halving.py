"""Token halving (DPA paper, section 4.2): the overloaded reducer gives up half of its tokens to those that come
next on the ring."""

from __future__ import annotations

from typing import ClassVar

from dpa.balance.decision import Outcome
from dpa.balance.strategies._base import Proposal, Refusal
from dpa.routing.ring import TokenRing


class Halving:
    """Drops the upper half of the overloaded reducer's tokens, down to one. Moves keys of that reducer only."""

    initial_tokens: ClassVar[int] = 64
    acts: ClassVar[bool] = True

    def relieve(self, ring: TokenRing, overloaded: int) -> Proposal | Refusal:
        """Propose to halve the reducer's tokens, or refuse if one is left or there is no other reducer."""
        tokens = ring.tokens_of(overloaded)
        if len(ring.members) == 1:
            return Refusal(Outcome.NO_TARGET, "there is no other task")
        if tokens == 1:
            return Refusal(Outcome.UNSPLITTABLE, f"task {overloaded} has one token left, which cannot be halved")
        return Proposal(
            {overloaded: tokens // 2}, f"halve the tokens of task {overloaded} from {tokens} to {tokens // 2}"
        )
