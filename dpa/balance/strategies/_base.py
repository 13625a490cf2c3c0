"""The interface of a strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from dpa.balance.decision import Outcome
from dpa.routing.ring import TokenRing


@dataclass(frozen=True)
class Proposal:
    """New numbers of tokens for some reducers, and the reason in one sentence."""

    tokens: dict[int, int]
    reason: str


@dataclass(frozen=True)
class Refusal:
    """The reason why nothing can be changed."""

    outcome: Outcome
    reason: str


class Strategy(Protocol):
    """Chooses how to relieve an overloaded reducer.

    Attributes:
        initial_tokens: the number of tokens a reducer starts with, unless the job sets it.
        acts: whether the strategy ever changes anything; if not, reducers need not report their load.
    """

    initial_tokens: ClassVar[int]
    acts: ClassVar[bool]

    def relieve(self, ring: TokenRing, overloaded: int) -> Proposal | Refusal:
        """Propose a change of the ring that takes load off the reducer `overloaded`; the ring itself stays
        unchanged."""
        ...
