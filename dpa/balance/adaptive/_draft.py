"""A rebalance under construction: moves of ranges between reducers, and the loads and the routing table they make.

What moves is a range of the hash circle, which can be split until one key is left."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from dataclasses import dataclass

import numpy as np

from dpa.balance.adaptive.demand import Demand, KeyDemand
from dpa.measure.load import Records
from dpa.routing.assignment import Assignment, KeySplit, Single
from dpa.routing.change import TableChange
from dpa.routing.table import RoutingTable

_AS_MUCH = 0.8
"""The reducer that keeps the states of a split token gets it back if it has this part of the greatest part."""

_NAMED_STEPS = 4  # steps that are named one by one; the rest are counted

_CIRCLE = 2**32


@dataclass(frozen=True)
class HashRange:
    """A range of hashes and the work that one reducer has with it.

    Attributes:
        start, stop: hashes of the range, from `start` up to `stop` without it; `stop` is its token's position, and is
            below `start` where the range passes 0.
        records: the work, in records.
        keys: the hot keys in it, by descending records.
        shared: whether the keys in it are split over this reducer and others.
    """

    start: int
    stop: int
    records: float
    keys: tuple[KeyDemand, ...] = ()
    shared: bool = False

    @property
    def width(self) -> int:
        return (self.stop - self.start) % _CIRCLE or _CIRCLE

    @property
    def single(self) -> bool:
        """One hash is one key, but for collisions."""
        return self.width == 1

    @property
    def name(self) -> str:
        """For people: the key, if it is one and known."""
        if self.single and self.keys:
            return self.keys[0].name
        return "a key" if self.single else f"token {self.stop:08x}"

    def split(self, records: float) -> list[HashRange]:
        """Smaller ranges that cover this one: its hottest known key by itself, else a range with about `records`, and
        the rest. A range of a single hash cannot be split."""
        if self.keys:
            return self._around(self.keys[0])
        cut = max(1, min(self.width - 1, round(self.width * records / self.records)))
        middle = (self.start + cut) % _CIRCLE
        share = self.records * cut / self.width
        return [HashRange(self.start, middle, share), HashRange(middle, self.stop, self.records - share)]

    def _around(self, hot: KeyDemand) -> list[HashRange]:
        """The range before the key, the key, and the range after it; the work of other than hot keys lies evenly."""
        after = (hot.hash + 1) % _CIRCLE
        known = sum(key.records for key in self.keys)
        even = max(self.records - known, 0.0) / self.width
        ranges = [HashRange(hot.hash, after, max(self.records - known, 0.0) / self.width + hot.records, (hot,))]
        for start, stop in ((self.start, hot.hash), (after, self.stop)):
            width = (stop - start) % _CIRCLE
            if width and width < self.width:
                keys = tuple(key for key in self.keys[1:] if (key.hash - start) % _CIRCLE < width)
                ranges.append(HashRange(start, stop, even * width + sum(key.records for key in keys), keys))
        return ranges


class SortedRanges:
    """One reducer's ranges, in order of their work."""

    def __init__(self, ranges: list[HashRange]) -> None:
        self._ranges = sorted(ranges, key=_records)

    def largest_within(self, records: float) -> HashRange | None:
        index = bisect_right(self._ranges, records, key=_records)
        return self._ranges[index - 1] if index else None

    def smallest_above(self, records: float) -> HashRange | None:
        index = bisect_right(self._ranges, records, key=_records)
        return self._ranges[index] if index < len(self._ranges) else None

    def add(self, added: HashRange) -> None:
        insort(self._ranges, added, key=_records)

    def remove(self, removed: HashRange) -> None:
        index = bisect_right(self._ranges, removed.records, key=_records) - 1
        while self._ranges[index] is not removed:
            index -= 1
        del self._ranges[index]


def _records(of: HashRange) -> float:
    return of.records


class Draft:
    """Work is in records.

    Attributes:
        demand: the work ahead as measured.
        reported: which reducers have reported, shape (reducers,).
        total: the work of those.
        mean: seconds of work of each of them if all had the same.
        allowed: the work that may still change its owner.
        moved: the work that has changed its owner, keys that were unsplit aside.
        split: the work that goes to a further reducer besides its owner, as it did not before.
        touched: reducers of the tokens that were assigned to one, by position.
    """

    def __init__(self, demand: Demand, max_moved: float) -> None:
        """`max_moved`: the most of all work that may change its owner, as a share."""
        self.demand = demand
        self.reported = np.zeros(demand.table.reducers, dtype=bool)
        self.reported[[member for member in demand.table.members if member not in demand.unreported]] = True
        self._table = demand.table
        self._loads: Records = demand.loads
        self.total = float(self._loads[self.reported].sum())
        self.mean = self.total / (float(demand.speeds[self.reported].sum()) or 1.0)
        self.allowed = max_moved * self.total
        self.moved = self.split = 0.0
        self.touched: dict[int, int] = {}
        owners = self._table.sole_owners
        self._order = np.argsort(owners, kind="stable")
        self._bounds = np.searchsorted(owners[self._order], np.arange(self._table.reducers + 1))
        self._keys_of = self._keys_by_token()
        self._ranges: dict[int, SortedRanges] = {}
        self._split_tokens = {int(self._table.positions[token]): token for token in demand.parts}
        self._parts = {position: dict(demand.parts[token]) for position, token in self._split_tokens.items()}
        self._split_anew: set[int] = set()
        self._unsplit: dict[int, dict[int, float]] = {}
        self._split_names: dict[int, str] = {}
        self._steps: Counter[str] = Counter()

    @property
    def seconds(self) -> Records:
        """Shape (reducers,)."""
        return self._loads / self.demand.speeds

    def seconds_of(self, reducer: int) -> float:
        return float(self._loads[reducer] / self.demand.speeds[reducer])

    def longest(self) -> float:
        """Seconds of work of the most loaded reducer that has reported."""
        return float(np.max(self.seconds[self.reported], initial=0.0))

    def ranges_of(self, reducer: int) -> SortedRanges:
        """What the reducer can give away. Keys must have been unsplit before this is first called."""
        if reducer not in self._ranges:
            own = self._order[self._bounds[reducer] : self._bounds[reducer + 1]]
            ranges = [self._range(token, float(self.demand.records[token])) for token in own.tolist()]
            for position, token in self._split_tokens.items():
                of_each = self._parts.get(position)
                if of_each is None and self.touched[position] == reducer:  # unsplit
                    ranges.append(self._range(token, sum(self._unsplit[position].values())))
                elif of_each is not None and reducer in of_each:
                    ranges.append(self._range(token, of_each[reducer], shared=True))
            self._ranges[reducer] = SortedRanges([one for one in ranges if one.records > 0])
        return self._ranges[reducer]

    def unsplit(self, token: int) -> int | None:
        """Give a split token to the one of its reducers that has most of it; it may be split again, more narrowly.
        Returns that reducer, or None if that would move more than is allowed."""
        position = int(self._table.positions[token])
        of_each = self._parts[position]
        owner, most = self._table.splits[token].reducers[0], max(of_each.values())
        if of_each.get(owner, 0.0) >= _AS_MUCH * most:
            keeper = owner  # parts of about the same size: else all tokens that were split alike would go to one
        else:
            keeper = max(of_each, key=lambda reducer: (of_each[reducer], -reducer))
        away = sum(records for reducer, records in of_each.items() if reducer != keeper)
        if away > self.allowed:
            return None
        self.allowed -= away
        del self._parts[position]
        for reducer, records in of_each.items():
            if reducer != keeper:
                self._transfer(records, reducer, keeper)
        self.touched[position] = keeper
        self._unsplit[position] = of_each
        self._steps[f"unsplit {self._name(token)}, which is below the unsplit threshold"] += 1
        return keeper

    def cut(self, whole: HashRange, records: float, owner: int) -> None:
        """Split a range so that a part of it has about `records`, or is its hottest key."""
        ranges = self.ranges_of(owner)
        ranges.remove(whole)
        for part in whole.split(records):
            ranges.add(part)
            self.touched[part.stop] = owner

    def move(self, moved: HashRange, donor: int, receiver: int) -> None:
        """Give a range, or the donor's part of a shared one, to the receiver."""
        self.ranges_of(donor).remove(moved)
        self._transfer(moved.records, donor, receiver)
        if moved.stop not in self._unsplit:
            self.moved += moved.records
            self.allowed -= moved.records
        if moved.shared:
            of_each = self._parts[moved.stop]
            of_each[receiver] = of_each.get(receiver, 0.0) + of_each.pop(donor)
            self._split_anew.add(moved.stop)
        else:
            self.touched[moved.stop] = receiver
        what = f"move {moved.name}" if moved.single and moved.keys else "move tokens"
        self._steps[f"{what} from task {donor} to {receiver}"] += 1

    def share(self, shared: HashRange, records: float, donor: int, receiver: int) -> None:
        """Split the key of a range: `records` of it go to the receiver as well."""
        ranges = self.ranges_of(donor)
        ranges.remove(shared)
        of_each = self._parts.setdefault(shared.stop, {donor: shared.records})
        of_each[donor] -= records
        of_each[receiver] = of_each.get(receiver, 0.0) + records
        ranges.add(HashRange(shared.start, shared.stop, shared.records - records, shared.keys, shared=True))
        self._split_anew.add(shared.stop)
        self._transfer(records, donor, receiver)
        if shared.stop not in self._unsplit:
            self.split += records
        self._split_names[shared.stop] = shared.name

    def moved_by_unsplitting(self) -> float:
        """Work of unsplit tokens that comes to a reducer which did not have it before."""
        moved = 0.0
        for position, was in self._unsplit.items():
            now = self._parts.get(position, {self.touched[position]: sum(was.values())})
            moved += sum(max(records - was.get(reducer, 0.0), 0.0) for reducer, records in now.items())
        return moved

    def next_table(self) -> RoutingTable:
        # A split that is not changed stays the very same, and so do its records.
        assignments: dict[int, Assignment] = {at: Single(reducer) for at, reducer in self.touched.items()}
        assignments.update((position, self._assignment(position)) for position in self._split_anew)
        return TableChange.of(self._table, assignments).apply(self._table)

    def in_words(self) -> str:
        """Splits first; empty if there are no steps."""
        words = [f"split {name} over {len(self._parts[at])} tasks" for at, name in self._split_names.items()]
        words += [what if number == 1 else f"{what} ({number} of them)" for what, number in self._steps.items()]
        more = len(words) - _NAMED_STEPS
        return ", ".join(words[:_NAMED_STEPS]) + (f" and {more} more steps" if more > 0 else "")

    def _transfer(self, records: float, donor: int, receiver: int) -> None:
        self._loads[donor] -= records
        self._loads[receiver] += records

    def _range(self, token: int, records: float, *, shared: bool = False) -> HashRange:
        keys = self._keys_of.get(token, [])
        known = sum(key.records for key in keys)
        # Estimates of hot keys are scaled down to what was measured of the token.
        scale = min(1.0, records / known) if known else 1.0
        scaled = (KeyDemand(key.key, key.hash, key.records * scale) for key in keys)
        ordered = tuple(sorted(scaled, key=lambda key: -key.records))
        start, stop = int(self._table.positions[token - 1]), int(self._table.positions[token])
        return HashRange(start, stop, records, ordered, shared)

    def _keys_by_token(self) -> dict[int, list[KeyDemand]]:
        hashes = np.fromiter(self.demand.keys, dtype=np.uint32, count=len(self.demand.keys))
        found: dict[int, list[KeyDemand]] = {}
        for token, key in zip(self._table.tokens_of(hashes).tolist(), self.demand.keys.values(), strict=True):
            found.setdefault(token, []).append(key)
        return found

    def _name(self, token: int) -> str:
        """For people: the hottest key of a token, or the one that alone is in its range; else the token."""
        keys = self._keys_of.get(token)
        if keys:
            return max(keys, key=lambda key: key.records).name
        position = int(self._table.positions[token])
        before = position - 1 & 0xFFFFFFFF
        if before in self.demand.names and self._range(token, 0.0).single:
            return KeyDemand(self.demand.names[before], before, 0.0).name
        return f"token {position:08x}"

    def _assignment(self, position: int) -> Assignment:
        of_each = self._parts[position]
        total = sum(of_each.values())
        shares = {reducer: records / total for reducer, records in of_each.items() if records > 1e-6 * total}
        if len(shares) == 1:
            return Single(next(iter(shares)))
        token = self._split_tokens.get(position)
        former: tuple[int, ...] = () if token is None else self._table.splits[token].reducers
        reducers = [reducer for reducer in former if reducer in shares]
        reducers += [reducer for reducer in shares if reducer not in reducers]
        if token is None:  # it had one owner, the first part that was made
            before = {reducers[0]: 1.0}
        else:
            was = self.demand.parts[token]
            was_total = sum(was.values()) or 1.0
            before = {reducer: records / was_total for reducer, records in was.items()}
        rounding = sum(shares[reducer] for reducer in reducers)
        return KeySplit(
            tuple(reducers),
            tuple(shares[reducer] / rounding for reducer in reducers),
            tuple(before.get(reducer, 0.0) for reducer in reducers),
            self._table.version + 1,
        )
