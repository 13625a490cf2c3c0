"""Strategies: what to change on the ring once a reducer is found overloaded. One strategy a file, one small interface.

A strategy proposes and never enforces: rounds, thresholds and routing-table numbers are the balancer's business.
"""

from __future__ import annotations

from collections.abc import Callable

from dpa.balance.strategies.base import Proposal, Refusal, Strategy
from dpa.balance.strategies.doubling import Doubling
from dpa.balance.strategies.halving import Halving
from dpa.balance.strategies.none import NoBalancing

STRATEGIES: dict[str, Callable[[], Strategy]] = {"none": NoBalancing, "halving": Halving, "doubling": Doubling}
"""Every strategy by the name that a job file gives it."""

__all__ = ["STRATEGIES", "Doubling", "Halving", "NoBalancing", "Proposal", "Refusal", "Strategy"]
