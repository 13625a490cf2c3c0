"""Pairing of busy and idle reducers at one source: two queues, first come, first served (CG paper, section V-B)."""

from __future__ import annotations

from collections.abc import Callable

from dpa.routing.groupings.signal import CapacityRequest


class PairingQueues:
    """Reducers that wait to give up a virtual worker, and others that wait to gain one. None waits in both, or
    twice."""

    def __init__(self) -> None:
        self._waiting: dict[CapacityRequest, dict[int, None]] = {
            CapacityRequest.DECREASE: {},
            CapacityRequest.INCREASE: {},
        }

    def pair(self, reducer: int, request: CapacityRequest, may_give: Callable[[int], bool]) -> tuple[int, int] | None:
        """Take in a reducer's request. Returns the giver and the taker of a virtual worker, or None if the reducer now
        waits, or requests nothing.

        A pair has been served and must ask again; a reducer that asks again before keeps its position in the queue. A
        reducer that may not give does not wait.
        """
        wants = request is CapacityRequest.INCREASE or (request is CapacityRequest.DECREASE and may_give(reducer))
        for queued, queue in self._waiting.items():
            if not wants or queued is not request:
                queue.pop(reducer, None)
        if not wants:
            return None
        others = self._waiting[
            CapacityRequest.INCREASE if request is CapacityRequest.DECREASE else CapacityRequest.DECREASE
        ]
        for other in list(others):
            del others[other]
            giver, taker = (reducer, other) if request is CapacityRequest.DECREASE else (other, reducer)
            if may_give(giver):
                self._waiting[request].pop(reducer, None)
                return giver, taker
        self._waiting[request][reducer] = None
        return None
