"""When the adaptive strategy acts: once all reducers have been measured, one has much more to do than the mean, and
the gain of a rebalance is worth what it moves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpa.balance.adaptive.arrivals import Arrivals
from dpa.balance.adaptive.demand import Demand, Expected, smoothed
from dpa.balance.adaptive.rebalance import Rebalance, rebalance
from dpa.balance.adaptive.spread import is_spread, spread
from dpa.balance.decision import Decision, Outcome
from dpa.balance.policy import require_reducer
from dpa.balance.trigger import Trigger
from dpa.measure.load import Load, Offered, Sample
from dpa.routing.table import RoutingTable

if TYPE_CHECKING:
    from dpa.balance.options.adaptive import AdaptiveOptions

_UNSPLIT_THRESHOLD = 0.25
"""A key is split over more reducers than it needs once its work would keep less than this share of the reducers beyond
its first busy: half of what makes a key hot, so that none is split and unsplit by turns."""

_UNSPLIT_LOOKS = 20
"""A key is unsplit once it has been below the threshold for this many looks in a row."""

_OVERDUE = 8.0
"""After this many report periods without a report from a reducer, the others are judged without it: user code that
holds the interpreter keeps even reports from being sent."""

_NOISE = 3.0
"""A gain of less than the time of this many records may be none: each reducer is somewhere in a record of its own."""

_CERTAIN = 2.0
"""An excess counts as far as it exceeds so many standard errors of what it is estimated from."""

_CORES_BUSY = 0.25
"""All processors are busy where reducers that all have work wait for one during this part of their busy time."""

_MOMENTARY = 0.5
"""Keys that come and go are spread over all reducers once those of a moment give one reducer so much more than its even
share."""

_BETWEEN = 0.05
"""While more than this share of all queued records is on its way between reducers, queue lengths mean little."""

_SINCE = 0.1
"""Nor do they while so great a part of what is queued was sent since they were reported."""


class AdaptivePolicy:
    """Looks whenever every reducer has reported under the newest table since the last look."""

    def __init__(self, table: RoutingTable, trigger: Trigger, options: AdaptiveOptions) -> None:
        """Start with a table; the arcs of its tokens stay the coarsest grain."""
        self.table = table
        self._trigger = trigger
        self._options = options
        self._base = frozenset(table.positions.tolist())
        self._arrivals = Arrivals(len(table.positions))
        self._regime = (0, 0)
        self._loads: dict[int, Load] = {}
        self._reported_at: dict[int, tuple[float, float]] = {}
        self._fresh: set[int] = set()
        self._began: float | None = None
        self._looked_at: float | None = None
        self._looks_below: dict[int, int] = {}
        self._rounds = [0] * table.reducers

    def offered(self, sender: Hashable, offered: Offered, now: float) -> None:
        """Take in what a sender has offered."""
        self._arrivals.add(sender, offered)

    def report(self, reducer: int, load: Load, now: float) -> Decision | None:
        """Take in a reducer's load at time `now` (seconds), and act if that calls for it. None: no time to look."""
        self._reported_at[reducer] = (now, self._arrivals.last_words)
        is_first_of_nothing = reducer not in self._loads and not load.queue and load.service_seconds is None
        if load.version == self.table.version and not is_first_of_nothing:  # its first records may be on their way
            self._fresh.add(reducer)
        self._loads[reducer] = load
        if self._began is None:
            self._began = now
        waited = now - (self._began if self._looked_at is None else self._looked_at)
        overdue = waited > _OVERDUE * self._options.measure_seconds
        is_early = self._looked_at is not None and waited < self._options.check_seconds
        if is_early or (len(self._fresh) < self.table.reducers and not overdue):
            return None
        self._looked_at = now
        self._arrivals.look()
        if self._arrivals.changes != self._regime[0]:
            self._regime = (self._arrivals.changes, self.table.version)
        fresh, self._fresh = self._fresh, set()
        if not any(self._loads[one].queue for one in fresh) and not (fresh and self.table.splits):
            return None
        return self._look(self._known(fresh, now), now)

    def redistribute(self, reducer: int, now: float) -> Decision:
        """Bring a reducer down to the mean, whatever the trigger says.

        Raises:
            BalanceError: there is no such reducer.
        """
        require_reducer(self.table, reducer)
        current = [one for one, load in self._loads.items() if load.version == self.table.version]
        demand = self._demand(self._known(current, now))
        proposal = rebalance(demand, self._options.rebalance, base=self._base, only=reducer)
        if not proposal.steps:
            known = "it has no more than the mean" if reducer in current else "it has not reported since the last table"
            why = proposal.stuck or known
            return self._decide(reducer, now, Outcome.NO_TARGET, f"asked for; {why}")
        return self._apply(reducer, now, proposal, "asked for")

    def _look(self, loads: dict[int, Load], now: float) -> Decision:
        demand = self._demand(loads)
        seconds = demand.seconds
        suspect = max(loads, key=lambda reducer: (seconds[reducer], -reducer))
        between = sum(load.forwarded_out - load.forwarded_in for load in loads.values())
        queued = sum(load.queue for load in loads.values())
        if between > _BETWEEN * queued and len(loads) == self.table.reducers:
            why = f"{between:,} records are between two reducers, {queued:,} queued"
            return self._decide(suspect, now, Outcome.COOL_DOWN, why)
        since = self._arrivals.last_words - min(self._reported_at[reducer][1] for reducer in loads)
        if since > _SINCE * queued:
            why = f"{since:,.0f} records have come since a reducer reported, {queued:,} are queued"
            return self._decide(suspect, now, Outcome.COOL_DOWN, why)
        if all(load.service_seconds is None for load in loads.values()):
            return self._decide(suspect, now, Outcome.COOL_DOWN, "no reducer has processed a record yet")
        below = self._below_unsplit_threshold(demand) if self._arrivals.is_steady else []
        if below:
            proposal = rebalance(demand, self._options.rebalance, base=self._base, unsplit=below)
            limit = proposal.mean * (1 + self._options.rebalance.tolerance)
            if proposal.after <= max(proposal.before, limit) and _width(proposal.table) < _width(self.table):
                return self._apply(suspect, now, proposal, "a key is split over more reducers than it needs")
        verdict = self._trigger.judge(suspect, loads)
        if not verdict.overloaded:
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, verdict.reason)
        if all(load.queue and load.waited >= _CORES_BUSY for load in loads.values()):
            waited = min(load.waited for load in loads.values())
            why = f"all have work and wait for a processor {waited:.0%} of their busy time or more"
            return self._decide(
                suspect, now, Outcome.BELOW_THRESHOLD, f"{verdict.reason}, but moving gains nothing: {why}"
            )
        if self._comes_and_goes() and not is_spread(demand):
            return self._apply(suspect, now, spread(demand), f"{verdict.reason}; keys come and go faster than tables")
        proposal = rebalance(demand, self._options.rebalance, base=self._base)
        if not proposal.steps:
            why = proposal.stuck or "no move helps"
            return self._decide(suspect, now, Outcome.UNSPLITTABLE, f"{verdict.reason}; {why}")
        worth = self._not_worth(proposal, demand, suspect)
        if worth is not None:
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, f"{verdict.reason}, but {worth}")
        return self._apply(suspect, now, proposal, verdict.reason)

    def _comes_and_goes(self) -> bool:
        """Whether the keys of each moment overload some reducer, other keys each time."""
        latest = self._arrivals.latest
        if self._arrivals.is_steady or not latest.total:
            return False
        parts = [part.total / latest.total for part in self._by_owner(latest)]
        return max(parts) > (1 + _MOMENTARY) / self.table.reducers

    def _not_worth(self, proposal: Rebalance, demand: Demand, suspect: int) -> str | None:
        """Why a rebalance is not worth its movement cost, or None."""
        patience = self._options.max_imbalance * (1 + self._in_this_regime() / 2)
        limit = 1 + patience + _CERTAIN * self._error(demand, suspect)
        if proposal.before <= limit * proposal.mean:
            before, mean = proposal.before, proposal.mean
            return f"with what will arrive, {before:.3g} s of work do not exceed {mean:.3g} s x {limit:.3g}"
        gain = proposal.before - proposal.after
        least = max(self._options.min_gain, _NOISE / float(demand.speeds[suspect]))
        if gain < least:
            return f"the best rebalance gains {gain:.3g} s, not {least:.3g} s"
        cost = self._options.movement_cost * (proposal.moved + proposal.split) * proposal.mean
        if gain < cost:
            return f"the best rebalance gains {gain:.3g} s and moves {proposal.moved + proposal.split:.0%} of the load"
        return None

    def _error(self, demand: Demand, suspect: int) -> float:
        """The standard error of a reducer's expected arrivals, as a part of all its work: they are estimated from a
        sample."""
        loads, sample = demand.loads, self._arrivals.sample
        own = float(loads[suspect] / (loads.sum() or 1.0))
        if not sample.rows or not own:
            return 0.0
        return math.sqrt((1 - own) / (own * sample.rows)) * demand.arriving / float(loads.sum())

    def _in_this_regime(self) -> int:
        """How often the table was changed for the keys that come now. Each time it takes a greater excess, so that a
        stream that stays as it is comes to rest."""
        return self.table.version - self._regime[1] if self._arrivals.is_steady else self.table.version

    def _apply(self, reducer: int, now: float, proposal: Rebalance, because: str) -> Decision:
        self.table = proposal.table
        self._fresh.clear()
        self._looks_below.clear()
        self._rounds[reducer] += 1
        gains = f"{proposal.before:.3g} s of work become {proposal.after:.3g} s, the mean is {proposal.mean:.3g} s"
        decision = self._decide(reducer, now, Outcome.APPLIED, f"{because}; {proposal.steps}: {gains}")
        return replace(decision, version=proposal.table.version, moved=proposal.moved, split=proposal.split)

    def _demand(self, loads: dict[int, Load]) -> Demand:
        return Demand.of(self.table, loads, self._expected(self._options.horizon), self._options.horizon)

    def _expected(self, seconds: float) -> Expected:
        return Expected(self._arrivals.rate * seconds, self._arrivals.sample, self._arrivals.names)

    def _known(self, reducers: Iterable[int], now: float) -> dict[int, Load]:
        """The loads of these reducers as expected by now: no two were measured at the same moment."""
        loads = smoothed({reducer: self._loads[reducer] for reducer in sorted(reducers)})
        arrivals, offered = self._arrivals, self._by_owner(self._arrivals.sample)
        aged = {}
        for reducer, load in loads.items():
            at, last_words = self._reported_at[reducer]
            arrived = arrivals.rate * (now - at) + arrivals.last_words - last_words
            own = offered[reducer]
            aged[reducer] = load.aged(now - at, own.scaled(arrived * own.total / (arrivals.sample.total or 1.0)))
        return aged

    def _by_owner(self, sample: Sample) -> list[Sample]:
        """Each reducer's part of a sample, without keys that are split."""
        owners = self.table.sole_owners[self.table.tokens_of(sample.hashes)]
        order = np.argsort(owners, kind="stable")
        bounds = np.searchsorted(owners[order], np.arange(self.table.reducers + 1))
        parts = (np.sort(order[start:stop]) for start, stop in itertools.pairwise(bounds.tolist()))
        return [Sample(sample.hashes[part], sample.records[part], sample.rows) for part in parts]

    def _below_unsplit_threshold(self, demand: Demand) -> list[int]:
        """The split tokens whose work has needed fewer reducers for some looks, while records still arrive."""
        mean = float(demand.loads.sum() / demand.speeds.sum()) if demand.arriving else 0.0  # seconds
        looks: dict[int, int] = {}
        found = []
        for token, of_each in demand.parts.items():
            if demand.unreported.intersection(of_each):
                continue  # their parts of it are not known
            position = int(demand.table.positions[token])
            speeds = demand.speeds[list(of_each)]
            if mean and sum(of_each.values()) < _UNSPLIT_THRESHOLD * float(speeds.sum() - speeds.max()) * mean:
                looks[position] = self._looks_below.get(position, 0) + 1
                if looks[position] >= _UNSPLIT_LOOKS:
                    found.append(token)
        self._looks_below = looks
        return found

    def _decide(self, reducer: int, now: float, outcome: Outcome, reason: str) -> Decision:
        loads = self._loads
        queues = tuple(loads[one].queue if one in loads else 0 for one in range(self.table.reducers))
        return Decision(now, reducer, outcome, reason, queues, None, self._rounds[reducer])


def _width(table: RoutingTable) -> int:
    """The number of reducers that all key splits have together."""
    return sum(len(split.reducers) for split in table.splits.values())
