"""Strategies: what to change on the ring once a reducer is found overloaded. One strategy a file, one small interface.

A strategy proposes and never enforces: rounds, thresholds and table versions belong to the policy.
"""

from __future__ import annotations

from dpa.balance.strategies._base import Proposal, Refusal, Strategy
from dpa.balance.strategies._doubling import Doubling
from dpa.balance.strategies._halving import Halving
from dpa.balance.strategies._none import NoBalancing

__all__ = ["Doubling", "Halving", "NoBalancing", "Proposal", "Refusal", "Strategy"]
