"""When the adaptive strategy acts: once all reducers have been measured, one has much more to do than the mean, and
the gain of a rebalance is worth what it moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from dpa._util.words import key_text
from dpa.balance._base import LoadReportOptions, TriggeredOptions
from dpa.balance.adaptive._arrivals import Arrivals
from dpa.balance.adaptive._known_loads import KnownLoads, by_owner
from dpa.balance.adaptive._worth import Unsplitting, Worth
from dpa.balance.adaptive.demand import SHOWN, Demand, Expected
from dpa.balance.adaptive.rebalance import (
    FirstTable,
    Rebalance,
    RebalanceOptions,
    is_spread,
    planned,
    rebalance,
    spread,
)
from dpa.balance.decision import Decision, Outcome
from dpa.balance.policy import BalancedStage, BalancePolicy, require_reducer
from dpa.measure.load import KeySample, Load, MeasuredKey, Offered
from dpa.routing.keys import Key
from dpa.routing.members import MemberChange, with_members
from dpa.routing.table import RoutingTable

_BUSY = 0.9  # the part of the time from which on a reducer is busy nearly all of it
_CORES_BUSY = 0.25
"""All processors are busy where reducers that all have work wait for one during this part of their busy time."""

_CORES_USED = 0.95
"""They are also busy where this part of their time is used: a reducer without work leaves its processor to another."""

_MOMENTARY = 0.5
"""Keys that come and go are spread over all reducers once those of a moment give one reducer so much more than its even
share."""

_BETWEEN = 0.05
"""While more than this share of all queued records is on its way between reducers, queue lengths mean little."""

_SINCE = 0.1  # nor do they while so great a part of what is queued was sent since they were reported


@dataclass(frozen=True, kw_only=True)
class AdaptiveOptions(TriggeredOptions):
    """`adaptive`: the excess that is measured moves, and a key that is too hot is split over several reducers."""

    strategy: Literal["adaptive"] = "adaptive"
    """The excess that is measured moves, and a key that is too hot is split over several reducers."""
    initial_tokens: Annotated[int, Ge(1)] = 64
    min_delay: Annotated[float, Ge(0)] = 0.25
    """Seconds of work below which no queue counts as overloaded."""
    check_seconds: Annotated[float, Ge(0)] = 0.25
    max_imbalance: Annotated[float, Ge(0)] = 0.1
    """Act when the greatest load exceeds the mean by more than this share, and by more than chance explains. Each
    redistribution of the same keys adds half as much, until much more is known of these keys."""
    measure_seconds: Annotated[float, Gt(0)] = 0.25
    """Seconds between two reports of each reducer's load; in effect a multiple of 0.25 s, and longer in a job of more
    than 32 tasks."""
    tolerance: Annotated[float, Gt(0)] = RebalanceOptions.tolerance
    """Excess over the mean that a plan may leave to a reducer, as a share of the mean."""
    horizon: Annotated[float, Ge(0)] = 2.0
    """Seconds of expected arrivals that a plan counts in addition to the queues."""
    min_gain: Annotated[float, Ge(0)] = 0.25
    """Seconds by which the most loaded reducer must end earlier for a plan to be worth it."""
    max_moved: Annotated[float, Gt(0), Le(1)] = RebalanceOptions.max_moved
    """Greatest share of the load that one plan may move; splitting a hot key counts as moving nothing."""

    first_table: Literal["sample", "ring"] = "sample"
    """Where keys are before any load is measured: as planned from a sample of the input, which goes through the job's
    mappers in the driver, or as on the plain ring."""

    @property
    def rebalance(self) -> RebalanceOptions:
        return RebalanceOptions(tolerance=self.tolerance, max_moved=self.max_moved)

    @property
    def plans_first_table(self) -> bool:
        return self.first_table == "sample"

    def planned(
        self, reducers: int, keys: KeySample, names: Mapping[int, Key], *, may_split: bool = True
    ) -> FirstTable | None:
        return planned(self.ring(reducers), keys, names, replace(self.rebalance, may_split=may_split))

    def policy(self, stage: BalancedStage) -> AdaptivePolicy:
        return AdaptivePolicy(stage, self)

    @property
    def reports(self) -> LoadReportOptions:
        return LoadReportOptions(report_seconds=self.measure_seconds, measures_keys=True)


class AdaptivePolicy(BalancePolicy):
    """Looks whenever every reducer has reported under the newest table since the last look."""

    def __init__(self, stage: BalancedStage, options: AdaptiveOptions) -> None:
        ring, first = options.ring(stage.reducers).snapshot(0), stage.first
        self.table = ring if first is None else first.table
        self.rounds: dict[int, int] = {}
        self._unheard = dict(stage.feeds)  # nothing is judged before each has offered records, or that takes too long
        self._aim = replace(options.rebalance, may_split=stage.may_split)
        self._options = options
        self._claimed = {
            reducer: frozenset(ring.positions[ring.sole_owners == reducer].tolist()) for reducer in ring.members
        }
        self._arrivals = Arrivals(len(ring.positions))
        if first is not None:
            self._arrivals.expect(first.keys, first.names)
            self._arrivals.keep(_last_hashes(self.table))
        self._known = KnownLoads(
            ring.members, self._arrivals, measure_seconds=options.measure_seconds, check_seconds=options.check_seconds
        )
        self._unsplitting = Unsplitting()
        self._worth = Worth(self._arrivals, max_imbalance=options.max_imbalance, min_gain=options.min_gain)
        self._rounds: Counter[int] = Counter()
        self._between: dict[int, int] = {}  # forwarded by each, less what it got
        self._between_gone = 0  # the same of all that are gone

    @property
    def hottest(self) -> tuple[MeasuredKey, ...]:
        """Empty while the stage has one task."""
        found = []
        for hashed, key, share, low, high in self._arrivals.hottest:
            tasks = self.table.assignment_of(hashed).reducers
            found.append(MeasuredKey(key_text(key, SHOWN), share, low, high, tasks[0], split=len(tasks) > 1))
        return tuple(found)

    @property
    def _base(self) -> frozenset[int]:
        """The tokens whose arcs stay the coarsest grain: the first of each reducer."""
        return frozenset().union(*self._claimed.values())

    def forget(self, reducer: int) -> None:
        # What it has forwarded stays so much more than it got.
        self._between_gone += self._between.pop(reducer, 0)

    def forget_sender(self, sender: Hashable) -> None:
        self._arrivals.forget(sender)

    def offered(self, sender: Hashable, offered: Offered, now: float, feed: Hashable = None) -> None:
        if offered.sample.rows:
            self._unheard.pop(feed, None)
        if len(self.table.members) > 1:
            self._arrivals.add(sender, offered)

    def report(self, reducer: int, load: Load, now: float) -> Decision | None:
        self._between[reducer] = load.forwarded_out - load.forwarded_in
        if len(self.table.members) == 1 or reducer not in self.table.members:
            return None  # there is nobody to give anything to, or it is leaving
        self._known.add(reducer, load, self.table.version, now)
        if not self._known.is_time(now):
            return None
        fresh = self._known.look(now)
        self._arrivals.look()
        self._worth.look(self.table.version, now)
        queues = self._known.queues
        if not any(queues[one] for one in fresh) and not (fresh and self.table.splits):
            return None
        return self._look(self._known.expected(fresh, self.table, now), now)

    def redistribute(self, reducer: int, now: float) -> Decision:
        require_reducer(self.table, reducer)
        current = self._known.under(self.table.version)
        demand = self._demand(self._known.expected(current, self.table, now))
        proposal = rebalance(demand, self._aim, base=self._base, only=reducer)
        if not proposal.steps:
            known = "it has no more than the mean" if reducer in current else "it has not reported since the last table"
            why = proposal.stuck or known
            return self._decide(reducer, now, Outcome.NO_TARGET, f"asked for; {why}")
        return self._apply(reducer, now, proposal, "asked for")

    def change_members(self, change: MemberChange) -> None:
        # Who joins claims a part of many arcs, and all are measured anew.
        tokens = {reducer: self._options.positions(reducer) for reducer in change.joins}
        self.table = with_members(self.table, change, tokens)
        for old, new in change.replaces:
            self._claimed[new] = self._claimed.pop(old)
        for reducer in change.leaves:
            del self._claimed[reducer]
        self._claimed |= {reducer: frozenset(positions.tolist()) for reducer, positions in tokens.items()}
        self._known.follow(self.table.members)
        self._unsplitting.restart()
        self._arrivals.keep(_last_hashes(self.table))
        self._rounds = Counter({reducer: self._rounds[reducer] for reducer in self.table.members})

    def _look(self, loads: Mapping[int, Load], now: float) -> Decision:
        """Four questions: are the numbers good, is a split key cold, is a reducer overloaded, and is a rebalance worth
        it?"""
        demand = self._demand(loads)
        suspect = _by_work(loads, demand)[0]
        doubt = self._doubt(loads, now)
        if doubt is not None:
            return self._decide(suspect, now, Outcome.COOL_DOWN, doubt)
        narrower = self._narrower(demand)
        if narrower is not None:
            return self._apply(suspect, now, narrower, "a key is split over more tasks than it needs")
        suspect = next((one for one in _by_work(loads, demand) if self._is_overloaded(loads[one])), suspect)
        own = loads[suspect]
        reason = f"task {suspect} is busy {own.busy:.0%} of the time and has {own.delay:.3g} s of work queued"
        if not self._is_overloaded(own):
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, reason)
        busy = self._why_no_core_is_free(loads)
        if busy is not None:
            why = f"{reason}, but moving gains nothing: {busy}"
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, why)
        if self._aim.may_split and self._comes_and_goes() and not is_spread(demand):
            return self._apply(suspect, now, spread(demand), f"{reason}; keys come and go faster than tables")
        proposal = rebalance(demand, self._aim, base=self._base)
        if not proposal.steps:
            why = proposal.stuck or "no move helps"
            return self._decide(suspect, now, Outcome.UNSPLITTABLE, f"{reason}; {why}")
        worthless = self._worth.why_not(proposal, demand, suspect)
        if worthless is not None:
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, f"{reason}, but {worthless}")
        return self._apply(suspect, now, proposal, reason)

    def _why_no_core_is_free(self, loads: Mapping[int, Load]) -> str | None:
        # One table is made all the same: for these keys or, where no processor is ever free, at all. It prepares for
        # the end, when a single reducer would be left working.
        used = min(load.cores_busy for load in loads.values())
        if self.table.version and used >= _CORES_USED:
            return f"their processors are used {used:.0%} of the time"
        waited = min(load.waited for load in loads.values())
        if self._worth.rounds and waited >= _CORES_BUSY and all(load.queue for load in loads.values()):
            return f"all have work and wait for a processor {waited:.0%} of their busy time or more"
        return None

    def _is_overloaded(self, own: Load) -> bool:
        # Where queues are kept short, overload shows in busy tasks and blocked senders. Whether others have less to do
        # is left to the plan.
        return own.busy >= _BUSY or (own.delay > 0 and own.delay >= self._options.min_delay)

    def _doubt(self, loads: Mapping[int, Load], now: float) -> str | None:
        between = self._between_gone + sum(self._between.values())
        queued = sum(load.queue for load in loads.values())
        if between > _BETWEEN * queued and len(loads) == len(self.table.members):
            return f"{between:,} records are between two tasks, {queued:,} queued"
        since = self._known.unaccounted(loads)
        if since > _SINCE * queued:
            return f"{since:,.0f} records have come since a task reported, {queued:,} are queued"
        unknown = [reducer for reducer, load in loads.items() if load.queue and load.service_seconds is None]
        if unknown and (len(unknown) == len(loads) or not self._known.had_time(now)):
            return f"task {unknown[0]} has not processed a record yet"
        if not self._known.had_time(now):
            unsure = self._known.measured_once(loads)
            if unsure:
                return f"task {unsure[0]} has too few measurements to tell its speed from chance"
            if self._unheard:
                return f"{next(iter(self._unheard.values()))} has not offered a record yet"
        if not any(load.service_seconds for load in loads.values()):
            return "no record has taken a time that can be measured"
        if not self._arrivals.sample.rows:
            return "no sender has said yet what it offers"
        return None

    def _narrower(self, demand: Demand) -> Rebalance | None:
        """A plan in which keys that have long been cold are split no more; None if each would overload a reducer."""
        cold = self._unsplitting.look(demand) if self._arrivals.is_steady else []
        if not cold:
            return None
        proposal = rebalance(demand, self._aim, base=self._base, unsplit=cold)
        limit = proposal.mean * (1 + self._aim.tolerance)
        is_narrower = _width(proposal.table) < _width(self.table)
        return proposal if proposal.after <= max(proposal.before, limit) and is_narrower else None

    def _comes_and_goes(self) -> bool:
        """Whether the keys of each moment overload some reducer, other keys each time."""
        latest = self._arrivals.latest
        if self._arrivals.is_steady or not latest.total:
            return False
        parts = [part.total / latest.total for part in by_owner(self.table, latest).values()]
        return max(parts) > (1 + _MOMENTARY) / len(self.table.members)

    def _demand(self, loads: Mapping[int, Load]) -> Demand:
        arrivals, horizon = self._arrivals, self._options.horizon
        expected = Expected(arrivals.rate * horizon, arrivals.sample, arrivals.names)
        return Demand.of(self.table, loads, expected, horizon, self._worth.backlog)

    def _apply(self, reducer: int, now: float, proposal: Rebalance, because: str) -> Decision:
        self.table = proposal.table
        self._known.outdate()
        self._unsplitting.restart()
        self._arrivals.keep(_last_hashes(self.table))
        self._rounds[reducer] += 1
        gains = f"{proposal.before:.3g} s of work become {proposal.after:.3g} s, the mean is {proposal.mean:.3g} s"
        decision = self._decide(reducer, now, Outcome.APPLIED, f"{because}; {proposal.steps}: {gains}")
        return replace(decision, version=proposal.table.version, moved=proposal.moved, split=proposal.split)

    def _decide(self, reducer: int, now: float, outcome: Outcome, reason: str) -> Decision:
        return Decision.of(now, reducer, outcome, reason, self._known.queues, None, self._rounds[reducer])


def _by_work(loads: Mapping[int, Load], demand: Demand) -> list[int]:
    """The one with the most seconds of work first."""
    seconds = demand.seconds
    return sorted(loads, key=lambda reducer: (-seconds[reducer], reducer))


def _last_hashes(table: RoutingTable) -> list[int]:
    """The last hash of each split range: a key's own, if it is the only one."""
    return [int(table.positions[token]) - 1 & 0xFFFFFFFF for token in table.splits]


def _width(table: RoutingTable) -> int:
    """Reducers of all key splits, added up."""
    return sum(len(split.reducers) for split in table.splits.values())
