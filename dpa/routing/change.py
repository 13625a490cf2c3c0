"""The difference between a routing table and the one before it: this is what is sent, not the table.

A table of a million tokens is eight megabytes and goes to every task; what a redistribution changes is a few tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpa.errors import ProtocolError
from dpa.routing.assignment import Assignment
from dpa.routing.hashing import Hashes
from dpa.routing.table import Assigned, RoutingTable, in_use


@dataclass(frozen=True, eq=False)
class TableChange:
    """The step to the table numbered `version` from the one numbered `version - 1`.

    Attributes:
        version: number of the table that it makes.
        dropped: positions of the tokens that go, ascending.
        positions: positions of the tokens that come or change their assignment, ascending.
        assigned: their assignments, as numbers in `assignments`; shape of `positions`.
        assignments: those that these tokens have, each once.
        members: the reducers that take part; None: as before.
    """

    version: int
    dropped: Hashes
    positions: Hashes
    assigned: Assigned
    assignments: tuple[Assignment, ...]
    members: tuple[int, ...] | None = None

    @staticmethod
    def between(old: RoutingTable, new: RoutingTable) -> TableChange:
        """O(tokens)."""
        numbers = {assignment: number for number, assignment in enumerate(old.assignments)}
        in_old = np.array([numbers.get(assignment, -1) for assignment in new.assignments], dtype=np.int32)
        at = np.minimum(np.searchsorted(old.positions, new.positions), len(old.positions) - 1)
        same = (old.positions[at] == new.positions) & (old.assigned[at] == in_old.take(new.assigned))
        dropped = np.setdiff1d(old.positions, new.positions, assume_unique=True)
        members = None if new.members == old.members else new.members
        changed = in_use(new.assigned[~same], new.assignments)
        return TableChange(new.version, dropped, new.positions[~same], *changed, members)

    @staticmethod
    def of(table: RoutingTable, assignments: Mapping[int, Assignment], dropped: Hashes | None = None) -> TableChange:
        """The change of `table` that gives tokens, new ones or not, these assignments, by position."""
        positions = sorted(assignments)
        numbers: dict[Assignment, int] = {}
        assigned = [numbers.setdefault(assignments[position], len(numbers)) for position in positions]
        return TableChange(
            table.version + 1,
            np.empty(0, dtype=np.uint32) if dropped is None else dropped,
            np.array(positions, dtype=np.uint32),
            np.array(assigned, dtype=np.int32),
            tuple(numbers),
        )

    def apply(self, table: RoutingTable) -> RoutingTable:
        """O(tokens). Raises ProtocolError if the table is not the one before."""
        if table.version != self.version - 1:
            raise ProtocolError(f"the change to table {self.version} does not fit table {table.version}")
        kept = _without(table.positions, np.concatenate([self.dropped, self.positions]))
        positions = np.concatenate([table.positions[kept], self.positions])
        order = np.argsort(positions, kind="stable")
        numbers = {assignment: number for number, assignment in enumerate(table.assignments)}
        own = np.array([numbers.setdefault(one, len(numbers)) for one in self.assignments], dtype=np.int32)
        assigned = np.concatenate([table.assigned[kept], own.take(self.assigned)])[order]
        members = table.members if self.members is None else self.members
        reducers = table.reducers if self.members is None else max(table.reducers, *(one + 1 for one in members))
        return RoutingTable(
            self.version, positions[order], *in_use(assigned, tuple(numbers)), reducers, table.seed, members
        )


def _without(positions: Hashes, gone: Hashes) -> npt.NDArray[np.bool_]:
    kept = np.ones(len(positions), dtype=bool)
    at = np.searchsorted(positions, gone)
    inside = at < len(positions)
    at, gone = at[inside], gone[inside]
    kept[at[positions[at] == gone]] = False
    return kept
