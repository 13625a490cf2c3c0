"""No balancing: the first routing table is the last."""

from __future__ import annotations

from typing import ClassVar

from dpa.balance.decision import Outcome
from dpa.balance.strategies._base import Proposal, Refusal
from dpa.routing.ring import TokenRing


class NoBalancing:
    """Never changes the ring, which is that of halving, so that both can be compared."""

    initial_tokens: ClassVar[int] = 64
    acts: ClassVar[bool] = False

    def relieve(self, ring: TokenRing, overloaded: int) -> Proposal | Refusal:
        """Refuse."""
        return Refusal(Outcome.NO_TARGET, "balancing is off")
