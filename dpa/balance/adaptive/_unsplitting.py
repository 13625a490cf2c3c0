"""When a key that was split is to have one owner again: once it has needed fewer reducers for some time."""

from __future__ import annotations

from dpa.balance.adaptive.demand import Demand

_THRESHOLD = 0.25
"""A key is split over more reducers than it needs once its work would keep less than this share of the reducers beyond
its first busy: half of what makes a key hot, so that none is split and unsplit by turns."""

_LOOKS = 20
"""A key is unsplit once it has been below the threshold for this many looks in a row."""


class Unsplitting:
    """For how many looks in a row each split token has been below the threshold."""

    def __init__(self) -> None:
        self._looks: dict[int, int] = {}

    def restart(self) -> None:
        """There is another table."""
        self._looks.clear()

    def look(self, demand: Demand) -> list[int]:
        """The split tokens whose work has needed fewer reducers for long enough, while records still arrive."""
        mean = float(demand.loads.sum() / demand.speed_of_all) if demand.arriving else 0.0  # seconds
        looks: dict[int, int] = {}
        found = []
        for token, of_each in demand.parts.items():
            if demand.unreported.intersection(of_each):
                continue  # their parts of it are not known
            position = int(demand.table.positions[token])
            speeds = demand.speeds[list(of_each)]
            if mean and sum(of_each.values()) < _THRESHOLD * float(speeds.sum() - speeds.max()) * mean:
                looks[position] = self._looks.get(position, 0) + 1
                if looks[position] >= _LOOKS:
                    found.append(token)
        self._looks = looks
        return found
