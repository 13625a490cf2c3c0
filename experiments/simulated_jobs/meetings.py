"""What is under way at the same time in simulated runs with faults: cuts, hand-overs, changes of tasks, and kills."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from dpa.protocol.balancer.machine import BalanceState
from dpa.protocol.coordinator.cuts import CutState
from dpa.protocol.wire.events import Rescale
from experiments.simulation.cluster import SimulatedCluster

CUT, HAND_OVER, RESCALE, MOVE, KILL = "cut", "hand-over", "rescale", "move", "kill"
PAIRS = [*combinations((CUT, HAND_OVER, RESCALE, MOVE, KILL), 2)]
"""A cut is under way until its checkpoint is written, a change of tasks from the request on, a hand-over until all
tasks have settled a table; a kill is a moment."""


class Meetings:
    """Counts pairs.

    Attributes:
        of: by pair, events of the coordinator and the load balancer after which both were under way; of a kill, kills.
    """

    def __init__(self) -> None:
        self.of: Counter[tuple[str, str]] = Counter()

    def watch(self, cluster: SimulatedCluster) -> None:
        """Look at a run after an event."""
        self.of.update(combinations(_under_way(cluster), 2))

    def died(self, cluster: SimulatedCluster) -> None:
        """Look at a run of which a process is about to be killed."""
        self.of.update((one, KILL) for one in _under_way(cluster))


def _under_way(cluster: SimulatedCluster) -> list[str]:
    coordinator = cluster.coordinator
    moving = {BalanceState.SETTLING, BalanceState.FREEZING}
    changes = {RESCALE if isinstance(request, Rescale) else MOVE for request in coordinator.membership.requests}
    found = {
        CUT: coordinator.states()["cut"] != CutState.WAITING.value,
        HAND_OVER: any(balance.state in moving for balance in cluster.balancer.stages.values()),
        RESCALE: RESCALE in changes,
        MOVE: MOVE in changes,
    }
    return [one for one, is_under_way in found.items() if is_under_way]
