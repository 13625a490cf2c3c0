"""From measured demand to the next routing table: the cheapest moves that bring every reducer near the mean.

The loads are levelled greedily: the reducer with most seconds of work ahead gives its largest fitting piece to the one
with least, until all are within the tolerance. A piece that fits nowhere is divided, down to a single key; a key that
fits nowhere is spread over several reducers, each getting as much as it has room for. So nothing moves but the excess,
in as few pieces as will do (the objective is Dicer's: imbalance, and a charge on what is moved).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dpa.balance.adaptive.demand import Demand, KeyDemand
from dpa.balance.adaptive.pieces import Piece, Pile
from dpa.balance.adaptive.tidying import tidied
from dpa.balance.load import Records
from dpa.routing.change import TableChange
from dpa.routing.table import RoutingTable, Spread

_LEAST_FIT = 0.25
"""A move must fill this share of the tolerance, or it is not worth an entry in the table."""

_HOT = 0.5
"""A key with at least this share of a mean reducer's work is spread before others are moved out of its way; a colder
one only where nothing else helps."""

_NAMED_STEPS = 4
"""Steps that a plan names one by one; the rest are counted."""


@dataclass(frozen=True)
class PlanOptions:
    """What a plan aims at.

    Attributes:
        tolerance: how far above the mean a reducer may stay, as a share of it.
        most_moved: the most of all work that may change its owner in one plan, as a share; spreading a key adds owners
            and takes none away, so it does not count.
        may_spread: whether one key may have several reducers; needs a reducer executor that can merge.
    """

    tolerance: float = 0.05
    most_moved: float = 1.0
    may_spread: bool = True


@dataclass(frozen=True)
class Plan:
    """A proposed routing table and what it would do.

    Attributes:
        table: the proposal.
        before, after: seconds of work of the most loaded reducer, now and then.
        mean: seconds of work if all were level.
        moved: share of all work that changes its owner.
        spread: share of all work that is dealt to a reducer besides its owner, where it was not before.
        what: the steps in words, as one phrase; empty if there are none.
        stuck: why no more was done, if the aim was not reached; else empty.
    """

    table: RoutingTable
    before: float
    after: float
    mean: float
    moved: float
    spread: float
    what: str
    stuck: str


def level(
    demand: Demand,
    options: PlanOptions,
    *,
    base: frozenset[int] = frozenset(),
    cooled: Iterable[int] = (),
    only: int | None = None,
) -> Plan:
    """Plan the next table.

    Args:
        demand: the work ahead.
        options: what to aim at.
        base: positions of tokens that are never dropped from the table.
        cooled: indices of spread tokens that are to have one owner again; then nobody is relieved but those owners.
        only: relieve this reducer alone, and to the mean itself.
    """
    draft = _Draft(demand, options)
    gathered = [draft.gather_in(token) for token in cooled]
    keepers = {keeper for keeper in gathered if keeper is not None}
    if only is not None:
        draft.level(0.0, {only})
    elif keepers or not gathered:
        draft.level(options.tolerance, keepers)
    return draft.finish(base)


class _Draft:
    """A plan under construction. Work is in records; `_seconds` is what a reducer needs for its own."""

    def __init__(self, demand: Demand, options: PlanOptions) -> None:
        self._demand = demand
        self._table = demand.table
        self._options = options
        self._loads: Records = demand.loads
        self._heard = np.array([reducer not in demand.silent for reducer in range(len(self._loads))])
        self._total = float(self._loads[self._heard].sum())
        self._mean = self._total / (float(demand.speeds[self._heard].sum()) or 1.0)
        self._before = self._longest()
        self._order = np.argsort(self._table.places, kind="stable")
        self._bounds = np.searchsorted(self._table.places[self._order], np.arange(self._table.reducers + 1))
        self._keys_of = self._keys_by_token()
        self._piles: dict[int, Pile] = {}
        self._places: dict[int, int] = {}
        self._parts = {int(self._table.positions[token]): dict(of_each) for token, of_each in demand.parts.items()}
        self._dealt_anew: set[int] = set()
        self._gathered: dict[int, dict[int, float]] = {}
        self._moved = self._spread = 0.0
        self._allowed = options.most_moved * self._total  # what may still change its owner
        self._steps: Counter[str] = Counter()
        self._stuck = ""

    def gather_in(self, token: int) -> int | None:
        """Give a spread token to the one of its reducers that has most of it; it may be spread again, more narrowly.
        Returns that reducer, or None if that would move more than is allowed. All that are to be gathered in are,
        before the first pile is made."""
        position = int(self._table.positions[token])
        of_each = self._parts[position]
        keeper = max(of_each, key=lambda reducer: (of_each[reducer], -reducer))
        away = sum(records for reducer, records in of_each.items() if reducer != keeper)
        if away > self._allowed:
            return None
        self._allowed -= away
        del self._parts[position]
        for reducer, records in of_each.items():
            if reducer != keeper:
                self._transfer(records, reducer, keeper)
        self._places[position] = keeper
        self._gathered[position] = of_each
        self._steps[f"end the spread of {self._name(token)}, which has cooled"] += 1
        return keeper

    def level(self, tolerance: float, among: set[int]) -> None:
        """Move work from the most to the least loaded until no donor is above the mean by more than the tolerance.
        Donors are all reducers, or those of `among` if there are any."""
        limit = self._mean * (1 + tolerance)
        seconds = self._loads / self._demand.speeds
        donors = [(-float(seconds[node]), node) for node in np.flatnonzero((seconds > limit) & self._heard).tolist()]
        if among:
            donors = [donor for donor in donors if donor[1] in among]
        receivers = [(float(seconds[node]), node) for node in np.flatnonzero(self._heard).tolist()]
        heapq.heapify(donors)
        heapq.heapify(receivers)
        while donors:
            donor = heapq.heappop(donors)[1]
            while self._seconds(donor) > limit * (1 + 1e-9):
                receiver = self._least_loaded(receivers, donor)
                if receiver is None:
                    break
                done = not self._step(donor, receiver)
                heapq.heappush(receivers, (self._seconds(receiver), receiver))
                if done:
                    break

    def finish(self, base: frozenset[int]) -> Plan:
        """The plan as far as it has come."""
        total = self._total or 1.0
        table = self._table
        if self._steps:
            crumb = _LEAST_FIT * self._options.tolerance * self._total / table.reducers
            table, back = tidied(self._next_table(), self._demand, base, self._places, crumb, self._allowed)
            self._moved += back
        after = self._longest()
        moved, spread = (self._moved + self._regathered()) / total, self._spread / total
        return Plan(table, self._before, after, self._mean, moved, spread, self._words(), self._stuck)

    def _longest(self) -> float:
        """Seconds of work of the most loaded reducer, of those that are known."""
        return float(np.max((self._loads / self._demand.speeds)[self._heard], initial=0.0))

    def _regathered(self) -> float:
        """Records of gathered tokens that come to a reducer, compared with where they were before."""
        moved = 0.0
        for position, was in self._gathered.items():
            now = self._parts.get(position, {self._places[position]: sum(was.values())})
            moved += sum(max(records - was.get(reducer, 0.0), 0.0) for reducer, records in now.items())
        return moved

    def _step(self, donor: int, receiver: int) -> bool:
        """Have the donor give one piece to the receiver, or divide one; False if there is nothing to be done."""
        options, speeds = self._options, self._demand.speeds
        excess = (self._seconds(donor) - self._mean) * speeds[donor]
        room = (self._mean * (1 + options.tolerance / 2) - self._seconds(receiver)) * speeds[receiver]
        fit = float(min(excess, room))
        least = _LEAST_FIT * options.tolerance * self._mean * float(min(speeds[donor], speeds[receiver]))
        if fit < least:
            return False
        pile = self._pile(donor)
        limit = min(fit, self._allowed)
        small, large = pile.largest_within(limit), pile.smallest_above(max(limit, least))
        if large is not None and (small is None or small.records < limit / 2):
            alone = large.single or large.spread
            if not alone and limit >= least:
                self._divide(pile, large, limit, donor)
                return True
            hot = large.spread or large.records >= _HOT * self._mean * speeds[donor]
            if alone and options.may_spread and (hot or small is None or small.records < least):
                self._share(pile, large, min(fit, large.records / 2) if large.records <= fit else fit, donor, receiver)
                return True
        if small is not None and small.records > 0:
            self._move(pile, small, donor, receiver)
            return True
        if limit < fit:
            self._stuck = f"the rest would move more than {options.most_moved:.0%} of the load at once"
        else:
            self._stuck = (
                f"{large.name} of reducer {donor} cannot be spread" if large else f"reducer {donor} has one piece"
            )
        return False

    def _divide(self, pile: Pile, piece: Piece, records: float, owner: int) -> None:
        pile.take(piece)
        for part in piece.divided(0.95 * records):
            pile.add(part)
            self._places[part.stop] = owner

    def _move(self, pile: Pile, piece: Piece, donor: int, receiver: int) -> None:
        pile.take(piece)
        self._transfer(piece.records, donor, receiver)
        if piece.stop not in self._gathered:
            self._moved += piece.records
            self._allowed -= piece.records
        if piece.spread:
            of_each = self._parts[piece.stop]
            of_each[receiver] = of_each.get(receiver, 0.0) + of_each.pop(donor)
            self._dealt_anew.add(piece.stop)
        else:
            self._places[piece.stop] = receiver
        what = f"move {piece.name}" if piece.single and piece.keys else "move tokens"
        self._steps[f"{what} from reducer {donor} to {receiver}"] += 1

    def _share(self, pile: Pile, piece: Piece, records: float, donor: int, receiver: int) -> None:
        """Deal so many of the piece's records to the receiver."""
        pile.take(piece)
        of_each = self._parts.setdefault(piece.stop, {donor: piece.records})
        of_each[donor] -= records
        of_each[receiver] = of_each.get(receiver, 0.0) + records
        pile.add(Piece(piece.start, piece.stop, piece.records - records, piece.keys, spread=True))
        self._dealt_anew.add(piece.stop)
        self._transfer(records, donor, receiver)
        if piece.stop not in self._gathered:
            self._spread += records
        self._steps[f"spread {piece.name}"] += 1

    def _transfer(self, records: float, donor: int, receiver: int) -> None:
        self._loads[donor] -= records
        self._loads[receiver] += records

    def _seconds(self, reducer: int) -> float:
        return float(self._loads[reducer] / self._demand.speeds[reducer])

    def _least_loaded(self, receivers: list[tuple[float, int]], donor: int) -> int | None:
        """Whoever has least to do, off the heap; entries that are out of date are put right on the way."""
        aside = None
        found = None
        while receivers:
            seconds, reducer = heapq.heappop(receivers)
            if reducer == donor:
                aside = reducer
            elif seconds < self._seconds(reducer) - 1e-12:
                heapq.heappush(receivers, (self._seconds(reducer), reducer))
            else:
                found = reducer
                break
        if aside is not None:
            heapq.heappush(receivers, (self._seconds(aside), aside))
        return found

    def _pile(self, reducer: int) -> Pile:
        if reducer not in self._piles:
            mine = self._order[self._bounds[reducer] : self._bounds[reducer + 1]]
            pieces = [self._piece(token, float(self._demand.records[token])) for token in mine.tolist()]
            for token in self._demand.parts:
                position = int(self._table.positions[token])
                of_each = self._parts.get(position)
                if of_each is None and self._places[position] == reducer:  # gathered in
                    pieces.append(self._piece(token, sum(self._gathered[position].values())))
                elif of_each is not None and reducer in of_each:
                    pieces.append(self._piece(token, of_each[reducer], spread=True))
            self._piles[reducer] = Pile([piece for piece in pieces if piece.records > 0])
        return self._piles[reducer]

    def _piece(self, token: int, records: float, *, spread: bool = False) -> Piece:
        """The piece that a token is; what its hot keys are thought to have is scaled down to what it was measured to
        have."""
        keys = self._keys_of.get(token, [])
        known = sum(key.records for key in keys)
        scale = min(1.0, records / known) if known else 1.0
        scaled = (KeyDemand(key.key, key.hash, key.records * scale) for key in keys)
        ordered = tuple(sorted(scaled, key=lambda key: -key.records))
        start, stop = int(self._table.positions[token - 1]), int(self._table.positions[token])
        return Piece(start, stop, records, ordered, spread)

    def _keys_by_token(self) -> dict[int, list[KeyDemand]]:
        hashes = np.fromiter(self._demand.keys, dtype=np.uint32, count=len(self._demand.keys))
        found: dict[int, list[KeyDemand]] = {}
        for token, key in zip(self._table.tokens_of(hashes).tolist(), self._demand.keys.values(), strict=True):
            found.setdefault(token, []).append(key)
        return found

    def _name(self, token: int) -> str:
        keys = self._keys_of.get(token)
        return keys[0].name if keys else f"token {int(self._table.positions[token]):08x}"

    def _next_table(self) -> RoutingTable:
        """The table with all changes: spreads that stay as they are keep their number, and so their records stay."""
        table, epoch = self._table, self._table.epoch + 1
        places, spreads = dict(self._places), list[Spread]()
        known = {int(table.positions[token]): table.spread_at(int(table.places[token])) for token in self._demand.parts}
        for position in known.keys() | self._parts.keys():
            old = known.get(position)
            if position in self._dealt_anew:
                spread: Spread | int | None = self._new_spread(position, old, epoch)
            elif position in self._places:
                continue  # has one owner again
            else:
                spread = old
            if isinstance(spread, Spread):
                places[position] = table.reducers + len(spreads)
                spreads.append(spread)
            elif spread is not None:
                places[position] = spread
        return TableChange.of(table, places, tuple(spreads)).apply(table)

    def _new_spread(self, position: int, old: Spread | None, epoch: int) -> Spread | int:
        """The spread that the parts of a token make; the one reducer if only one is left."""
        of_each = self._parts[position]
        total = sum(of_each.values())
        shares = {reducer: records / total for reducer, records in of_each.items() if records > 1e-6 * total}
        if len(shares) == 1:
            return next(iter(shares))
        token = int(np.searchsorted(self._table.positions, position))
        was = self._demand.parts.get(token, {}) if old is not None else {}
        was_total = sum(was.values()) or 1.0
        before = {reducer: records / was_total for reducer, records in was.items()} if old is not None else None
        first = old.reducers if old is not None else ()
        ordered = [reducer for reducer in first if reducer in shares]
        ordered += [reducer for reducer in shares if reducer not in ordered]
        if before is None:  # it had one owner, the first part that was made
            before = {ordered[0]: 1.0}
        rounding = sum(shares[reducer] for reducer in ordered)
        return Spread(
            tuple(ordered),
            tuple(shares[reducer] / rounding for reducer in ordered),
            tuple(before.get(reducer, 0.0) for reducer in ordered),
            epoch,
        )

    def _words(self) -> str:
        spreads = {what: number for what, number in self._steps.items() if what.startswith("spread")}
        others = [(what, number) for what, number in self._steps.items() if what not in spreads]
        words = [f"{what} over {1 + number} reducers" for what, number in spreads.items()]
        words += [what if number == 1 else f"{what} ({number} of them)" for what, number in others]
        more = len(words) - _NAMED_STEPS
        return ", ".join(words[:_NAMED_STEPS]) + (f" and {more} more steps" if more > 0 else "")
