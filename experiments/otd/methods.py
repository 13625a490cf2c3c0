"""The policies that are compared, each with what it is asked with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpa.placement.model import Cluster, OnlineOptions
from dpa.placement.online import OnlinePlacement, Policy, policy_of

TOLERANCE = 1.2


@dataclass(frozen=True)
class Method:
    """A policy, as a job file names it, and the section's allocator."""

    policy: str
    allocator: str

    def made(self, cluster: Cluster) -> Policy:
        """The policy for a cluster."""
        ids = tuple(node.name for node in cluster.nodes)
        options = OnlineOptions(policy=self.policy)
        return policy_of(OnlinePlacement(options, cluster, ids, self.allocator, TOLERANCE))


OTD, OURS = "OTD", "ours"

METHODS: Mapping[str, Method] = {
    OTD: Method(f"{__package__}.policy:OneTaskACycle", "even"),
    "TD, re-planned": Method("replan", "top_down"),
    "GMA, re-planned": Method("replan", "greedy_matching"),
    OURS: Method("improve", "top_down_search"),
}
