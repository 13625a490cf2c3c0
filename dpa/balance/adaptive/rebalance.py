"""From measured demand to the next routing table: the cheapest moves that bring every reducer near the mean.

The search is greedy: the reducer with most seconds of work ahead gives its largest fitting range to the one with least,
until all are within the tolerance. A range that fits nowhere is split, down to a single key; a key that fits nowhere is
split over several reducers, each getting as much as it has room for. So nothing moves but the excess, in as few ranges
as will do (the objective is Dicer's: imbalance plus a movement cost).

The first table of a stage, and the one that spreads every key, are made here too."""

import heapq
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dpa.balance.adaptive._arrivals import Arrivals
from dpa.balance.adaptive._draft import Draft
from dpa.balance.adaptive.demand import Demand, Expected
from dpa.measure.load import KeySample, Load, Records
from dpa.routing.assignment import Assignment, KeySplit
from dpa.routing.change import TableChange
from dpa.routing.keys import Key
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable

_MIN_FIT = 0.25  # a move must fill this share of the tolerance, or it is not worth an entry in the table

_HOT = 0.5
"""A key with at least this share of a mean reducer's work is split before others are moved out of its way; a colder
one only where nothing else helps."""

_BUDGET = 0.01  # the share of all work that may return to former owners with idle arcs in one compaction


@dataclass(frozen=True)
class RebalanceOptions:
    """What a rebalance aims at.

    Attributes:
        tolerance: how far above the mean a reducer may stay, as a share of it.
        max_moved: the most of all work that may change its owner at once, as a share; splitting a key adds owners and
            takes none away, so it does not count.
        may_split: whether one key may have several reducers; needs a reducer executor that can merge.
    """

    tolerance: float = 0.05
    max_moved: float = 1.0
    may_split: bool = True


@dataclass(frozen=True)
class Rebalance:
    """A proposed routing table and what it would do.

    Attributes:
        before, after: seconds of work of the most loaded reducer, now and then.
        mean: seconds of work of each reducer if all had the same.
        moved: share of all work that changes its owner.
        split: share of all work that goes to a further reducer besides its owner, as it did not before.
        steps: the steps in words, as one phrase; empty if there are none.
        stuck: why no more was done, if the aim was not reached; else empty.
    """

    table: RoutingTable
    before: float
    after: float
    mean: float
    moved: float
    split: float
    steps: str
    stuck: str


def rebalance(
    demand: Demand,
    options: RebalanceOptions,
    *,
    base: frozenset[int] = frozenset(),
    unsplit: Iterable[int] = (),
    only: int | None = None,
) -> Rebalance:
    """Plan the next table.

    Args:
        base: positions of tokens that are never dropped from the table.
        unsplit: indices of split tokens that are to have one owner again; then no others but those owners are relieved.
        only: relieve this reducer alone, and to the mean itself.
    """
    draft = Draft(demand, options.max_moved)
    search = _Search(draft, options)
    before = draft.longest()
    keepers = [draft.unsplit(token) for token in unsplit]
    among = {keeper for keeper in keepers if keeper is not None}
    if only is not None:
        search.relieve(0.0, {only})
    elif among or not keepers:
        search.relieve(options.tolerance, among)
    table, moved, steps = demand.table, draft.moved, draft.in_words()
    if steps:
        negligible = _MIN_FIT * options.tolerance * draft.total / len(table.members)
        table, back = compacted(draft.next_table(), demand, base, draft.touched, negligible, draft.allowed)
        moved += back
    total = draft.total or 1.0
    moved += draft.moved_by_unsplitting()
    return Rebalance(
        table, before, draft.longest(), draft.mean, moved / total, draft.split / total, steps, search.stuck
    )


class _Search:
    """The greedy search; `stuck` says why it did not reach its aim."""

    def __init__(self, draft: Draft, options: RebalanceOptions) -> None:
        self.stuck = ""
        self._draft = draft
        self._options = options

    def relieve(self, tolerance: float, among: set[int]) -> None:
        """Move work from the most to the least loaded until no donor is above the mean by more than the tolerance.
        Donors are all reducers, or those of `among` if there are any."""
        draft = self._draft
        limit = draft.mean * (1 + tolerance)
        seconds = draft.seconds
        overloaded = np.flatnonzero((seconds > limit) & draft.reported).tolist()
        donors = [(-float(seconds[donor]), donor) for donor in overloaded if not among or donor in among]
        receivers = [(float(seconds[reducer]), reducer) for reducer in np.flatnonzero(draft.reported).tolist()]
        heapq.heapify(donors)
        heapq.heapify(receivers)
        while donors:
            donor = heapq.heappop(donors)[1]
            while draft.seconds_of(donor) > limit * (1 + 1e-9):
                receiver = self._least_loaded(receivers, donor)
                if receiver is None:
                    break
                done = not self._step(donor, receiver)
                heapq.heappush(receivers, (draft.seconds_of(receiver), receiver))
                if done:
                    break

    def _step(self, donor: int, receiver: int) -> bool:
        """Give one of the donor's ranges to the receiver, or split one. Returns whether either was possible."""
        draft, options, speeds = self._draft, self._options, self._draft.demand.speeds
        excess = (draft.seconds_of(donor) - draft.mean) * speeds[donor]
        room = (draft.mean * (1 + options.tolerance / 2) - draft.seconds_of(receiver)) * speeds[receiver]
        fit = float(min(excess, room))
        least = _MIN_FIT * options.tolerance * draft.mean * float(min(speeds[donor], speeds[receiver]))
        if fit < least:
            return False
        ranges = draft.ranges_of(donor)
        limit = min(fit, draft.allowed)
        small, large = ranges.largest_within(limit), ranges.smallest_above(max(limit, least))
        # A range that fits goes first, unless it is so small that a part of a larger one fills the room much better.
        if large is not None and (small is None or small.records < limit / 2):
            indivisible = large.single or large.shared
            if not indivisible and limit >= least:
                draft.cut(large, 0.95 * limit, donor)  # a little less: a cut falls between hashes, not records
                return True
            hot = large.shared or large.records >= _HOT * draft.mean * speeds[donor]
            if indivisible and options.may_split and (hot or small is None or small.records < least):
                given = min(fit, large.records / 2) if large.records <= fit else fit
                draft.share(large, given, donor, receiver)
                return True
        if small is not None and small.records > 0:
            draft.move(small, donor, receiver)
            return True
        if limit < fit:
            self.stuck = f"the rest would move more than {options.max_moved:.0%} of the load at once"
        elif large is not None:
            self.stuck = f"{large.name} of task {donor} cannot be split"
        else:
            self.stuck = f"task {donor} has one range"
        return False

    def _least_loaded(self, receivers: list[tuple[float, int]], donor: int) -> int | None:
        """The reducer with the least work, off the heap."""
        aside = found = None
        while receivers:
            seconds, reducer = heapq.heappop(receivers)
            if reducer == donor:
                aside = reducer
            elif seconds < self._draft.seconds_of(reducer) - 1e-12:  # out of date: it has got work since
                heapq.heappush(receivers, (self._draft.seconds_of(reducer), reducer))
            else:
                found = reducer
                break
        if aside is not None:
            heapq.heappush(receivers, (self._draft.seconds_of(aside), aside))
        return found


def compacted(
    table: RoutingTable,
    demand: Demand,
    keep: Container[int],
    touched: Container[int],
    negligible: float,
    allowed: float = np.inf,
) -> tuple[RoutingTable, float]:
    """A table that says almost the same with fewer tokens, and the records that have another owner in it.

    An arc with less than `negligible` records returns to the reducer of the arc after it, from which it was taken when
    it had more. A token between two arcs of one reducer is dropped if one of them has less than that.

    Args:
        demand: the work by token, measured under the table before it.
        keep: positions of tokens that are neither returned nor dropped.
        touched: those of tokens that have just been assigned.
        allowed: the most that may have another owner, in records.
    """
    work = _work(table, demand)
    spare = np.array(
        [position not in keep and position not in touched for position in table.positions.tolist()], dtype=bool
    )
    assigned, owners = table.assigned.copy(), table.sole_owners
    after = np.roll(owners, -1)
    idle = np.flatnonzero(spare & (owners >= 0) & (after >= 0) & (owners != after) & (work < negligible))
    idle = idle[np.argsort(work[idle], kind="stable")]
    idle = idle[np.cumsum(work[idle]) <= min(_BUDGET * float(demand.loads.sum()), allowed)]
    assigned[idle] = np.roll(assigned, -1)[idle]
    same = (owners >= 0) & (assigned == np.roll(assigned, -1))
    dropped = spare & same & (np.minimum(work, np.roll(work, -1)) < negligible)
    if not dropped.any() and not len(idle):
        return table, 0.0
    kept = ~dropped
    smaller = replace(table, positions=table.positions[kept], assigned=assigned[kept])
    return smaller, float(work[idle].sum())


def _work(table: RoutingTable, demand: Demand) -> Records:
    """Records of each token of the table; infinite where nothing was measured, or only the parts of a split token."""
    measured = demand.table.positions
    at = np.minimum(np.searchsorted(measured, table.positions), len(measured) - 1)
    owners = demand.table.sole_owners[at]
    reported = (owners >= 0) & ~np.isin(owners, list(demand.unreported))
    known = (measured[at] == table.positions) & (table.sole_owners >= 0) & reported
    return np.where(known, demand.records[at], np.inf)


def is_spread(demand: Demand) -> bool:
    """Whether there is nothing to split: every arc with work is split but those of reducers that have not reported, or
    fewer than two have reported."""
    if len(set(demand.table.members) - demand.unreported) < 2:
        return True
    owners = demand.table.sole_owners
    whole = owners[(owners >= 0) & (demand.records > 0)]
    return bool(np.isin(whole, list(demand.unreported)).all())


def spread(demand: Demand) -> Rebalance:
    """For keys that come and go faster than tables can follow, as in sorted input: the table in which each arc is split
    over all reducers that have reported, by their speeds. Arcs that are split already, or belong to another reducer,
    stay.

    Which reducer owns a key then matters no more: the records of each go to all, and its states are merged in the end.
    There are few such keys, or none of them would have enough records at a time to be noticed."""
    table, seconds = demand.table, demand.seconds
    reported = [reducer for reducer in sorted(table.members) if reducer not in demand.unreported]
    speed = {reducer: float(demand.speeds[reducer]) for reducer in reported}
    share = {reducer: one / sum(speed.values()) for reducer, one in speed.items()}
    splits = {reducer: _spread_over(reducer, share, table.version + 1) for reducer in reported}
    owners = table.sole_owners.tolist()
    assignments: dict[int, Assignment] = {
        position: splits[owner]
        for position, owner in zip(table.positions.tolist(), owners, strict=True)
        if owner in splits
    }
    total = float(demand.loads.sum()) or 1.0
    given = sum(
        work * (1 - share[owner]) for work, owner in zip(demand.records.tolist(), owners, strict=True) if owner in share
    )
    mean = float(demand.loads[reported].sum()) / sum(speed.values())
    return Rebalance(
        table=TableChange.of(table, assignments).apply(table),
        before=float(seconds[reported].max()),
        after=mean,
        mean=mean,
        moved=0.0,
        split=given / total,
        steps=f"split every token over {len(reported)} tasks",
        stuck="",
    )


def _spread_over(owner: int, share: dict[int, float], version: int) -> KeySplit:
    # The owner comes first, and so keeps the states in the end.
    reducers = (owner, *(reducer for reducer in share if reducer != owner))
    before = tuple(float(reducer == owner) for reducer in reducers)
    return KeySplit(reducers, tuple(share[reducer] for reducer in reducers), before, version)


@dataclass(frozen=True, eq=False)
class FirstTable:
    """The first routing table of a stage, planned from a sample of its records before there is any load.

    It is drafted as every later table is. A sample says how often keys come, not what they cost or how fast reducers
    are: those are taken to be equal until they are measured.

    Attributes:
        table: numbered 0.
        keys: the keys to expect, in their proportions.
        names: the frequent ones of them, by hash.
        rounds: redistributions that each reducer's load has caused before, where the policy counts them.
    """

    table: RoutingTable
    keys: KeySample
    names: Mapping[int, Key]
    rounds: Mapping[int, int] = field(default_factory=dict)

    @property
    def splits(self) -> int:
        return len(self.table.splits)


def planned(ring: TokenRing, keys: KeySample, names: Mapping[int, Key], aim: RebalanceOptions) -> FirstTable:
    """From a sample of at least one record; the tokens of `ring` stay. The standard error of a key's share p is
    `sqrt(p (1 - p) / keys.rows)`, and keys that are frequent by chance alone are not named."""
    before = ring.snapshot(-1)
    arrivals = Arrivals(len(before.positions))
    arrivals.expect(keys, names)
    expected = Expected(arrivals.sample.total, arrivals.sample, arrivals.names)
    nothing = Load(queue=0, version=before.version)
    demand = Demand.of(before, dict.fromkeys(before.members, nothing), expected)
    anew = RebalanceOptions(aim.tolerance, may_split=aim.may_split)  # nothing moves, so `max_moved` does not matter
    plan = rebalance(demand, anew, base=frozenset(before.positions.tolist()))
    table = plan.table if plan.steps else ring.snapshot(0)
    return FirstTable(table, arrivals.sample, arrivals.names)
