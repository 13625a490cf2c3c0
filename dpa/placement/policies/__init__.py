"""Which tasks of a running job move, one policy a file: each is arithmetic on what was measured since the last look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dpa.placement.online import Deployment, Look, OnlinePlacement
from dpa.placement.policies._improve import Improving
from dpa.placement.policies._otd import OneTaskACycle
from dpa.placement.policies._replan import Replanning


class Policy(Protocol):
    """Decides at each look. Positions of tasks mean the same from look to look: a task that has moved keeps its."""

    def look(self, deployment: Deployment) -> Look:
        """Decide; called when nothing moves."""
        ...


POLICIES: Mapping[str, Callable[[OnlinePlacement], Policy]] = {
    "improve": Improving,
    "otd": OneTaskACycle,
    "replan": Replanning,
}
"""By their names in a job file."""


def policy_of(online: OnlinePlacement) -> Policy:
    """The policy that a job asks for."""
    return POLICIES[online.options.policy](online)
