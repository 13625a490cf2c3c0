"""Storm's default: tasks are dealt to nodes in turn, whatever they cost and whoever they talk to."""

from __future__ import annotations

from dpa.placement._rooms import Rooms
from dpa.placement.model import Cluster, Placement, TaskGraph


class EvenAllocator:
    """Round robin over the nodes, groups in their order. A node without room for a task is passed over, which Storm's
    scheduler, that knows no costs, does not do."""

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """As `Allocator.allocate`."""
        rooms = Rooms(graph, cluster)
        nodes, turn = len(cluster.nodes), 0
        for group, cost in enumerate(rooms.task_cost):
            while rooms.left[group]:
                chosen = next((node for node in _from(turn, nodes) if rooms.fits(cost, node)), None)
                if chosen is None:
                    raise rooms.refusal(group)
                rooms.place(group, 1, chosen)
                turn = chosen + 1
        return rooms.placement()


def _from(turn: int, nodes: int) -> list[int]:
    return [(turn + step) % nodes for step in range(nodes)]
