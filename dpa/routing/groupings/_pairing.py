"""Pairing of busy and idle workers at one source: two queues, first come, first served (CG paper, section V-B)."""

from __future__ import annotations

from collections.abc import Callable

from dpa.routing.groupings.signal import Wish


class PairingQueues:
    """Who waits to give up a virtual worker, and who to gain one. Nobody waits in both, or twice."""

    def __init__(self) -> None:
        self._waiting: dict[Wish, dict[int, None]] = {Wish.DECREASE: {}, Wish.INCREASE: {}}

    def pair(self, worker: int, wish: Wish, may_give: Callable[[int], bool]) -> tuple[int, int] | None:
        """A worker's wish: who gives a virtual worker to whom, or None if the worker now waits, or wants nothing.

        Whoever is paired has been served and must ask again; whoever asks again before keeps its place. A worker that
        may not give is not waited for.
        """
        wants = wish is Wish.INCREASE or (wish is Wish.DECREASE and may_give(worker))
        for queued, queue in self._waiting.items():
            if not wants or queued is not wish:
                queue.pop(worker, None)
        if not wants:
            return None
        others = self._waiting[Wish.INCREASE if wish is Wish.DECREASE else Wish.DECREASE]
        for other in list(others):
            del others[other]
            giver, taker = (worker, other) if wish is Wish.DECREASE else (other, worker)
            if may_give(giver):
                self._waiting[wish].pop(worker, None)
                return giver, taker
        self._waiting[wish][worker] = None
        return None
