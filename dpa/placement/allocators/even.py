"""Storm's even allocator, task by task."""

from dpa.placement.model import Cluster, Placement, TaskGraph
from dpa.placement.rooms import Rooms


class EvenAllocator:
    """Storm's default: round robin over the nodes, groups in their order. A node without room for a task is passed
    over; Storm's scheduler does not do this, as it knows no costs."""

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        rooms = Rooms(graph, cluster)
        nodes, turn = len(cluster.nodes), 0
        for group, cost in enumerate(rooms.task_cost):
            while rooms.left[group]:
                in_turn = ((turn + step) % nodes for step in range(nodes))
                chosen = next((node for node in in_turn if rooms.fits(cost, node)), None)
                if chosen is None:
                    raise rooms.refusal(group)
                rooms.place(group, 1, chosen)
                turn = chosen + 1
        return rooms.placement()
