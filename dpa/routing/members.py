"""Reducers that join a stage, leave it, or take another's place: the routing table in which they do, and who hands over
to whom.

Consistent hashing moves no more than it must: what a reducer that leaves had goes to those that follow on the circle,
and one that joins takes a part of many arcs. Arcs of single hot keys stay as they are, whoever their neighbours are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpa.errors import ProtocolError
from dpa.routing.assignment import Assignment, KeySplit, Single
from dpa.routing.change import TableChange
from dpa.routing.hashing import Hashes
from dpa.routing.table import RoutingTable


@dataclass(frozen=True)
class MemberChange:
    """Who comes and goes with one table.

    Attributes:
        joins: new reducers, which get a part of the keys. All new ones have the next numbers that none has had.
        leaves: members that own nothing afterwards; their keys go to those that stay.
        replaces: pairs of a member that leaves and the new reducer that gets all that it had.
    """

    joins: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()
    replaces: tuple[tuple[int, int], ...] = ()

    @property
    def coming(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted((*self.joins, *(new for _, new in self.replaces))))

    @property
    def going(self) -> frozenset[int]:
        return frozenset((*self.leaves, *(old for old, _ in self.replaces)))

    def after(self, table: RoutingTable) -> tuple[int, ...]:
        """The members by the next table. Raises ProtocolError if a reducer that leaves is no member, or leaves twice, a
        new one has not the next number, or none would stay."""
        numbers = tuple(range(table.reducers, table.reducers + len(self.coming)))
        olds = [*self.leaves, *(old for old, _ in self.replaces)]
        if len(set(olds)) < len(olds) or not self.going <= set(table.members) or self.coming != numbers:
            raise ProtocolError(f"{self} does not fit the members {table.members} of table {table.version}")
        place = dict(self.replaces)
        stay = tuple(place.get(member, member) for member in table.members if member not in self.leaves)
        if not (*stay, *self.joins):
            raise ProtocolError(f"{self} leaves no member in table {table.version}")
        return (*stay, *self.joins)


def left_by(before: RoutingTable, after: RoutingTable) -> frozenset[int]:
    return frozenset() if before.members == after.members else frozenset(before.members) - frozenset(after.members)


def with_members(table: RoutingTable, change: MemberChange, tokens: Mapping[int, Hashes]) -> RoutingTable:
    """The next table, with these changes; `tokens`: the positions that each reducer that joins claims. O(tokens).
    Raises ProtocolError if the change does not fit the table."""
    members, place, version = change.after(table), dict(change.replaces), table.version + 1
    stay = np.array([member for member in members if member not in change.joins] or members, dtype=np.int32)
    names = tuple(_renumbered(one, place) for one in table.assignments)
    owners = np.array([one.reducer if isinstance(one, Single) else -1 for one in names], dtype=np.int32)
    owner = owners.take(table.assigned)
    staying = np.flatnonzero(np.isin(owner, stay))
    assignments: dict[int, Assignment] = {}
    for token, (position, number) in enumerate(zip(table.positions.tolist(), table.assigned.tolist(), strict=True)):
        one = names[number]
        if isinstance(one, Single) and one.reducer in change.leaves:
            one = Single(_heir(token, owner, staying, stay))
        elif isinstance(one, KeySplit) and change.going | set(change.joins):
            one = _split_among(one, stay.tolist(), change.joins, version)
        if one is not table.assignments[number]:
            assignments[position] = one
    dropped = np.empty(0, dtype=np.uint32)
    if len(staying) and not change.joins:
        dropped = _needless(table, change, names, assignments)
    taken = set(table.positions.tolist())
    for reducer in change.joins:
        for position in _claimed(tokens[reducer], table, names, taken):
            assignments[position] = Single(reducer)
            taken.add(position)
    return replace(TableChange.of(table, assignments, dropped), members=members).apply(table)


def _renumbered(assignment: Assignment, place: Mapping[int, int]) -> Assignment:
    if not any(reducer in place for reducer in assignment.reducers):
        return assignment
    if isinstance(assignment, Single):
        return Single(place[assignment.reducer])
    return replace(assignment, reducers=tuple(place.get(reducer, reducer) for reducer in assignment.reducers))


def _heir(token: int, owner: np.ndarray, staying: np.ndarray, stay: np.ndarray) -> int:
    """Who gets the arc of a token: the next on the circle that has an arc of its own and stays."""
    if not len(staying):
        return int(stay[token % len(stay)])
    return int(owner[staying[np.searchsorted(staying, token) % len(staying)]])


def _needless(
    table: RoutingTable, change: MemberChange, names: tuple[Assignment, ...], assignments: dict[int, Assignment]
) -> Hashes:
    """The positions of tokens of leaving reducers before arcs that their heirs have too, ascending; takes them out of
    `assignments`. Arcs of single keys, and those before them, keep theirs."""
    positions = table.positions.tolist()
    found = []
    for token, (position, number) in enumerate(zip(positions, table.assigned.tolist(), strict=True)):
        own, after = names[number], positions[(token + 1) % len(positions)]
        if not isinstance(own, Single) or own.reducer not in change.leaves:
            continue
        following = assignments.get(after, names[table.assigned[(token + 1) % len(positions)]])
        is_cut = position - positions[token - 1] == 1 or after - position == 1
        if assignments[position] == following and not is_cut:
            found.append(position)
    for position in found:
        del assignments[position]
    return np.array(found, dtype=np.uint32)


def _split_among(split: KeySplit, stay: list[int], joins: Iterable[int], version: int) -> Assignment:
    """Without those that leave; whoever joins has a part if all others have."""
    weights = dict(zip(split.reducers, split.weights, strict=True))
    kept = {reducer: weight for reducer, weight in weights.items() if reducer in stay}
    new = dict.fromkeys(joins, sum(kept.values()) / len(kept)) if len(kept) == len(stay) else {}
    if not new and len(kept) == len(weights):
        return split
    if not kept:
        return Single(stay[split.reducers[0] % len(stay)])
    shares = {**kept, **new}
    if len(shares) == 1:
        return Single(next(iter(shares)))
    total = sum(shares.values())
    return KeySplit(
        tuple(shares),
        tuple(share / total for share in shares.values()),
        tuple(weights.get(reducer, 0.0) for reducer in shares),
        version,
    )


def _claimed(positions: Hashes, table: RoutingTable, names: tuple[Assignment, ...], taken: set[int]) -> Iterable[int]:
    """Those of the positions that cut an arc of one owner: arcs of split keys stay whole."""
    arcs = table.assigned.take(table.tokens_of(positions)).tolist()
    for position, number in zip(positions.tolist(), arcs, strict=True):
        if isinstance(names[number], Single) and position not in taken:
            yield position


Moves = frozenset[tuple[int, int]]
"""Pairs of reducers: the first gives ranges to the second."""


def hand_overs(old: RoutingTable, new: RoutingTable) -> Moves:
    """Who hands something over to whom, where states migrate: those between which ranges move, and each that leaves."""
    # A reducer that leaves without a range may still have something to hand over; the first member takes it.
    pairs = moves(old, new)
    givers = {source for source, _ in pairs}
    return pairs | {(gone, min(new.members)) for gone in left_by(old, new) - givers}


def moves(old: RoutingTable, new: RoutingTable) -> Moves:
    """Between whom ranges of the hash circle move. O(tokens). Raises ProtocolError if a table splits a key, whose state
    would have no one place."""
    for table in (old, new):
        if table.splits:
            raise ProtocolError(f"table {table.version} splits keys of a stage whose states migrate")
    last = np.union1d(old.positions, new.positions) - np.uint32(1)  # of each arc that has one owner in both
    before, after = old.owners_of(last), new.owners_of(last)
    moved = before != after
    codes = np.unique(before[moved].astype(np.int64) * new.reducers + after[moved])
    return frozenset(divmod(code, new.reducers) for code in codes.tolist())
