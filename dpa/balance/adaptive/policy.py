"""When the adaptive strategy acts: once all reducers have been measured, one has much more to do than the mean, and
the gain of a rebalance is worth what it moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from dpa.balance.adaptive.demand import Demand, smoothed
from dpa.balance.adaptive.rebalance import Rebalance, rebalance
from dpa.balance.decision import Decision, Outcome
from dpa.balance.policy import require_reducer
from dpa.balance.trigger import Trigger
from dpa.measure.load import Load
from dpa.routing.table import RoutingTable

if TYPE_CHECKING:
    from dpa.balance.options.adaptive import AdaptiveOptions

_UNSPLIT_THRESHOLD = 0.25
"""A key is split over more reducers than it needs once its work would keep less than this share of the reducers beyond
its first busy: half of what makes a key hot, so that none is split and unsplit by turns."""

_UNSPLIT_LOOKS = 4
"""A key is unsplit once it has been below the threshold for this many looks in a row."""

_OVERDUE = 8.0
"""After this many report periods without a report from a reducer, the others are judged without it: user code that
holds the interpreter keeps even reports from being sent."""

_NOISE = 3.0
"""A gain of less than the time of this many records may be none: each reducer is somewhere in a record of its own."""

_BETWEEN = 0.05
"""While more than this share of all queued records is on its way between reducers, queue lengths mean little."""


class AdaptivePolicy:
    """Looks whenever every reducer has reported under the newest table since the last look."""

    def __init__(self, table: RoutingTable, trigger: Trigger, options: AdaptiveOptions) -> None:
        """Start with a table; the arcs of its tokens stay the coarsest grain."""
        self.table = table
        self._trigger = trigger
        self._options = options
        self._base = frozenset(table.positions.tolist())
        self._loads: dict[int, Load] = {}
        self._reported_at: dict[int, float] = {}
        self._fresh: set[int] = set()
        self._looked_at: float | None = None
        self._looks_below: dict[int, int] = {}
        self._rounds = [0] * table.reducers

    def report(self, reducer: int, load: Load, now: float) -> Decision | None:
        """Take in a reducer's load at time `now` (seconds), and act if that calls for it. None: no time to look."""
        self._loads[reducer] = load
        self._reported_at[reducer] = now
        if load.version == self.table.version:
            self._fresh.add(reducer)
        if self._looked_at is None:
            self._looked_at = now
        waited = now - self._looked_at
        overdue = waited > _OVERDUE * self._options.measure_seconds
        if waited < self._options.check_seconds or (len(self._fresh) < self.table.reducers and not overdue):
            return None
        if not any(self._loads[one].queue for one in self._fresh) and not (self._fresh and self.table.splits):
            return None
        self._looked_at = now
        decision = self._look(self._known(self._fresh, now), now)
        self._fresh.clear()
        return decision

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
        suspect = max(loads, key=lambda reducer: (self._trigger.measure(loads[reducer]), -reducer))
        between = sum(load.forwarded_out - load.forwarded_in for load in loads.values())
        queued = sum(load.queue for load in loads.values())
        if between > _BETWEEN * queued and len(loads) == self.table.reducers:
            why = f"{between:,} records are between two reducers, {queued:,} queued"
            return self._decide(suspect, now, Outcome.COOL_DOWN, why)
        if all(load.service_seconds is None for load in loads.values()):
            return self._decide(suspect, now, Outcome.COOL_DOWN, "no reducer has processed a record yet")
        demand = self._demand(loads)
        below = self._below_unsplit_threshold(demand)
        if below:
            proposal = rebalance(demand, self._options.rebalance, base=self._base, unsplit=below)
            limit = proposal.mean * (1 + self._options.rebalance.tolerance)
            if proposal.after <= max(proposal.before, limit) and _width(proposal.table) < _width(self.table):
                return self._apply(suspect, now, proposal, "a key is split over more reducers than it needs")
        verdict = self._trigger.judge(suspect, loads)
        if not verdict.overloaded:
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, verdict.reason)
        proposal = rebalance(demand, self._options.rebalance, base=self._base)
        if not proposal.steps:
            why = proposal.stuck or "no move helps"
            return self._decide(suspect, now, Outcome.UNSPLITTABLE, f"{verdict.reason}; {why}")
        worth = self._not_worth(proposal, loads[suspect])
        if worth is not None:
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, f"{verdict.reason}, but {worth}")
        return self._apply(suspect, now, proposal, verdict.reason)

    def _not_worth(self, proposal: Rebalance, load: Load) -> str | None:
        """Why a rebalance is not worth its movement cost, or None."""
        limit = 1 + self._trigger.tau
        if proposal.before <= limit * proposal.mean:
            before, mean = proposal.before, proposal.mean
            return f"with what will arrive, {before:.3g} s of work do not exceed {mean:.3g} s x {limit:g}"
        gain = proposal.before - proposal.after
        least = max(self._options.min_gain, _NOISE * (load.service_seconds or 0.0))
        if gain < least:
            return f"the best rebalance gains {gain:.3g} s, not {least:.3g} s"
        cost = self._options.movement_cost * (proposal.moved + proposal.split) * proposal.mean
        if gain < cost:
            return f"the best rebalance gains {gain:.3g} s and moves {proposal.moved + proposal.split:.0%} of the load"
        return None

    def _apply(self, reducer: int, now: float, proposal: Rebalance, because: str) -> Decision:
        self.table = proposal.table
        self._fresh.clear()
        self._looks_below.clear()
        self._rounds[reducer] += 1
        gains = f"{proposal.before:.3g} s of work become {proposal.after:.3g} s, the mean is {proposal.mean:.3g} s"
        decision = self._decide(reducer, now, Outcome.APPLIED, f"{because}; {proposal.steps}: {gains}")
        return replace(decision, version=proposal.table.version, moved=proposal.moved, split=proposal.split)

    def _demand(self, loads: dict[int, Load]) -> Demand:
        return Demand.of(self.table, loads, self._options.horizon)

    def _known(self, reducers: Iterable[int], now: float) -> dict[int, Load]:
        """The loads of these reducers as expected by now: no two were measured at the same moment."""
        loads = smoothed({reducer: self._loads[reducer] for reducer in sorted(reducers)})
        return {reducer: load.aged(now - self._reported_at[reducer]) for reducer, load in loads.items()}

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
