"""Descent by pairs of nodes: what two nodes have is divided anew between them, as well as possible."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from dpa.placement.model import Counts
from dpa.placement.objectives import Objective
from dpa.placement.scores import Floats

_ALL_DIVISIONS = 256
"""Up to this many ways of dividing what two nodes have, all are judged; beyond, those near what is now and the simple
ones."""

_SOME_DIVISIONS = 1_000  # ways about which no more exchanges between two groups are added, where there are many groups

_AT_ONCE, _COLUMNS = 32, 1_000
"""Nodes that are judged together with one, and these times groups; the best of them is taken."""

_ROUNDING = 1e-9  # the part of an objective that may be rounding, and is no gain


@dataclass
class Budget:
    """What bounds the time of a search: how much more may be judged, about. One division of what two nodes have counts
    as much as the graph has groups and links."""

    left: int


class Descent:
    """Improves placements until no pair of nodes can be divided better, or the budget is spent."""

    def __init__(self, objective: Objective, budget: Budget) -> None:
        self._objective, self._budget = objective, budget
        self._kinds = [node.kind for node in objective.cluster.nodes]
        self._at_once = max(1, min(_AT_ONCE, _COLUMNS // len(objective.graph.groups)))
        self._a_division = len(objective.graph.groups) + len(objective.graph.links)

    def improve(self, counts: Counts, since: Counts | None = None) -> Counts:
        """A placement (groups x nodes) that is no worse than `counts`, which stays as it is.

        Args:
            since: a placement that has been improved and differs on a few nodes: only pairs with one of these are
                judged, until others change.
        """
        table = _Table(self._objective, counts)
        nodes = range(len(self._kinds)) if since is None else np.flatnonzero((counts != since).any(axis=0)).tolist()
        waiting = dict.fromkeys(nodes)  # nodes to be judged with all others, in order
        while waiting and self._budget.left > 0:
            one = next(iter(waiting))
            partner = self._divide_with_best(table, one)
            if partner is None:
                del waiting[one]
            else:
                waiting.setdefault(partner)
        return table.counts()

    def _divide_with_best(self, table: _Table, one: int) -> int | None:
        """Returns the other node; None if none gains."""
        asked = self._partners(table, one)
        for start in range(0, len(asked), self._at_once):
            partner, judged = table.divide(one, asked[start : start + self._at_once])
            self._budget.left -= judged * self._a_division
            if partner is not None:
                return partner
            if self._budget.left <= 0:
                break
        return None

    def _partners(self, table: _Table, one: int) -> list[int]:
        """All other nodes; of those that are empty and of one kind, one."""
        empty_kinds = set() if table.contents[one].any() else {self._kinds[one]}
        partners = []
        for other, has_tasks in enumerate(np.any(table.contents, axis=1).tolist()):
            if other == one or (not has_tasks and self._kinds[other] in empty_kinds):
                continue
            if not has_tasks:
                empty_kinds.add(self._kinds[other])
            partners.append(other)
        return partners


class _Table:
    """Who has what, and what every node is worth."""

    def __init__(self, objective: Objective, counts: Counts) -> None:
        self._objective = objective
        self.contents = counts.T.astype(float)
        self._peaks, self._sums = objective.worth(objective.use(self.contents), np.arange(len(self.contents)))
        self._min_gain = _ROUNDING * (1.0 + abs(float(self._sums.sum())))

    def counts(self) -> Counts:
        return self.contents.T.round().astype(np.int64)

    def divide(self, one: int, others: list[int]) -> tuple[int | None, int]:
        """Returns the best of the others, or None if none gains, and how many divisions were judged."""
        groups = np.flatnonzero(self.contents[[one, *others]].any(axis=0))  # nothing else can change
        own = self.contents[one, groups]
        pools = own + self.contents[np.ix_(np.array(others), groups)]
        ways = [divisions(pool, own) for pool in pools]
        partner = np.repeat(np.arange(len(others)), [len(way) for way in ways])
        mine = np.concatenate(ways)
        both = np.concatenate([mine, pools[partner] - mine])
        nodes = np.array(others)[partner]
        use = self._objective.use(both, groups)
        peaks, sums = self._objective.worth(use, np.concatenate([np.full(len(mine), one), nodes]))
        # The worst node counts, whichever it is: what these two gain below the peak elsewhere is no gain.
        elsewhere = self._greatest_but(one, others)
        values = np.maximum(np.maximum(peaks[: len(mine)], peaks[len(mine) :]), elsewhere[partner])
        values += sums[: len(mine)] + sums[len(mine) :]
        now = np.maximum(np.maximum(self._peaks[one], self._peaks[others]), elsewhere)
        gains = (now + self._sums[one] + self._sums[others])[partner] - values
        best = int(gains.argmax())
        if not gains[best] > self._min_gain:
            return None, len(mine)
        other = int(nodes[best])
        for node, row in ((one, best), (other, len(mine) + best)):
            self.contents[node, groups], self._peaks[node], self._sums[node] = both[row], peaks[row], sums[row]
        return other, len(mine)

    def _greatest_but(self, one: int, others: list[int]) -> Floats:
        """For each of the others, the greatest peak of all nodes but itself and `one`; minus infinity if none."""
        rest = self._peaks.copy()
        rest[one] = -np.inf
        first = int(rest.argmax())
        greatest = np.full(len(others), rest[first])
        if first in others:
            rest[first] = -np.inf
            greatest[others.index(first)] = rest.max()
        return greatest


def divisions(pool: Floats, mine: Floats) -> Floats:
    """What the first of two nodes would have in ways of dividing a pool, a count a group: candidates x groups."""
    if np.prod(pool + 1) <= _ALL_DIVISIONS:
        return _all_divisions(tuple(pool.astype(int).tolist()))
    present = np.flatnonzero(pool)
    rows = [pool * share for share in (0.0, 1.0)]
    rows += [np.floor(pool * share) for share in (0.25, 0.5, 0.75)]
    values = {int(group): _levels(int(pool[group]), int(mine[group])) for group in present}
    for group, levels in values.items():
        rows += [_with(mine, {group: level}) for level in levels]
    for one, other in itertools.combinations(values, 2):
        if len(rows) >= _SOME_DIVISIONS:
            break
        rows += [_with(mine, {one: a, other: b}) for a, b in itertools.product(values[one], values[other])]
    found: Floats = np.array(rows)
    found = found[np.lexsort(found.T[::-1])]
    return np.asarray(found[np.append(True, (found[1:] != found[:-1]).any(axis=1))])


def _levels(pool: int, mine: int) -> list[int]:
    """Counts of one group to be tried: none, all, and what is 1, 2, 4, ... away from now."""
    steps = [2**power for power in range(max(1, pool.bit_length()))]
    near = {mine + sign * step for step in steps for sign in (-1, 1)}
    return sorted({0, pool} | {count for count in near if 0 <= count <= pool})


def _with(mine: Floats, changed: dict[int, int]) -> Floats:
    row = mine.copy()
    for group, count in changed.items():
        row[group] = count
    return row


@functools.lru_cache(maxsize=4096)
def _all_divisions(pool: tuple[int, ...]) -> Floats:
    grid = np.indices([count + 1 for count in pool]).reshape(len(pool), -1).T.astype(float)
    grid.setflags(write=False)
    return grid
