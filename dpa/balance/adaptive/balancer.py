"""When the adaptive strategy acts: once all reducers have been measured, one has much more to do than the mean, and
what a plan gains is worth what it moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dpa.balance.adaptive.demand import Demand, steadied
from dpa.balance.adaptive.planner import Plan, PlanOptions, level
from dpa.balance.decision import Decision, Outcome
from dpa.balance.load import Load
from dpa.balance.policy import require_reducer
from dpa.balance.trigger import Trigger
from dpa.routing.table import RoutingTable

_COOL = 0.25
"""A spread is wider than it need be once its key would keep less than this share of the reducers beyond its first
busy: half of what makes a key hot, so that none is spread and gathered in by turns."""

_COOL_LOOKS = 4
"""So many looks in a row must find it so."""

_OVERDUE = 8.0
"""After so many report periods without a word from a reducer, the others are judged without it: user code that holds
the interpreter keeps even reports from being sent."""

_NOISE = 3.0
"""A gain of less than so many records' time may be none: each reducer is somewhere in a record of its own."""

_BETWEEN = 0.05
"""While more than this share of all queued records is on its way between reducers, the queues tell little."""


@dataclass(frozen=True)
class AdaptiveOptions:
    """How readily to act, and on what.

    Attributes:
        plan: what a plan aims at.
        horizon: how many seconds of arrivals count beside what is queued.
        least_gain: the least time by which the most loaded reducer must be done earlier, in seconds.
        charge: how much of the mean a plan must gain for each share of the load that it moves (Dicer's objective).
        report_seconds: how often reducers report.
        check_seconds: the least time between two looks, in seconds.
    """

    plan: PlanOptions
    horizon: float
    least_gain: float
    charge: float
    report_seconds: float
    check_seconds: float


class AdaptiveBalancer:
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
        self._cool_looks: dict[int, int] = {}
        self._rounds = [0] * table.reducers

    def report(self, reducer: int, load: Load, now: float) -> Decision | None:
        """Take in a reducer's load at time `now` (seconds), and act if that calls for it."""
        self._loads[reducer] = load
        self._reported_at[reducer] = now
        if load.epoch == self.table.epoch:
            self._fresh.add(reducer)
        if self._looked_at is None:
            self._looked_at = now
        waited = now - self._looked_at
        overdue = waited > _OVERDUE * self._options.report_seconds
        if waited < self._options.check_seconds or (len(self._fresh) < self.table.reducers and not overdue):
            return None
        if not any(self._loads[node].queue for node in self._fresh) and not (self._fresh and self.table.spreads):
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
        current = [node for node, load in self._loads.items() if load.epoch == self.table.epoch]
        plan = level(self._demand(self._known(current, now)), self._options.plan, base=self._base, only=reducer)
        if not plan.what:
            known = "it has no more than the mean" if reducer in current else "it has not reported since the last table"
            why = plan.stuck or known
            return self._decide(reducer, now, Outcome.NO_TARGET, f"asked for; {why}")
        return self._apply(reducer, now, plan, "asked for")

    def _look(self, loads: dict[int, Load], now: float) -> Decision:
        suspect = max(loads, key=lambda node: (self._trigger.measure(loads[node]), -node))
        between = sum(load.sent_on - load.taken_over for load in loads.values())
        queued = sum(load.queue for load in loads.values())
        if between > _BETWEEN * queued and len(loads) == self.table.reducers:
            why = f"{between:,} records are between two reducers, {queued:,} queued"
            return self._decide(suspect, now, Outcome.COOL_DOWN, why)
        if all(load.service_seconds is None for load in loads.values()):
            return self._decide(suspect, now, Outcome.COOL_DOWN, "no reducer has processed a record yet")
        demand = self._demand(loads)
        cooled = self._cooled(demand)
        if cooled:
            plan = level(demand, self._options.plan, base=self._base, cooled=cooled)
            level_enough = plan.after <= max(plan.before, plan.mean * (1 + self._options.plan.tolerance))
            if level_enough and _width(plan.table) < _width(self.table):
                return self._apply(suspect, now, plan, "a spread is wider than its key needs")
        verdict = self._trigger.judge(suspect, loads)
        if not verdict.overloaded:
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, verdict.reason)
        plan = level(demand, self._options.plan, base=self._base)
        if not plan.what:
            why = plan.stuck or "no move helps"
            return self._decide(suspect, now, Outcome.UNSPLITTABLE, f"{verdict.reason}; {why}")
        worth = self._not_worth(plan, loads[suspect])
        if worth is not None:
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, f"{verdict.reason}, but {worth}")
        return self._apply(suspect, now, plan, verdict.reason)

    def _not_worth(self, plan: Plan, load: Load) -> str | None:
        """Why a plan is not worth its price, or None."""
        limit = 1 + self._trigger.tau
        if plan.before <= limit * plan.mean:
            return f"with what will arrive, {plan.before:.3g} s of work do not exceed {plan.mean:.3g} s x {limit:g}"
        gain = plan.before - plan.after
        least = max(self._options.least_gain, _NOISE * (load.service_seconds or 0.0))
        if gain < least:
            return f"the best plan gains {gain:.3g} s, not {least:.3g} s"
        price = self._options.charge * (plan.moved + plan.spread) * plan.mean
        if gain < price:
            return f"the best plan gains {gain:.3g} s and moves {plan.moved + plan.spread:.0%} of the load"
        return None

    def _apply(self, reducer: int, now: float, plan: Plan, because: str) -> Decision:
        self.table = plan.table
        self._fresh.clear()
        self._cool_looks.clear()
        self._rounds[reducer] += 1
        gains = f"{plan.before:.3g} s of work become {plan.after:.3g} s, the mean is {plan.mean:.3g} s"
        decision = self._decide(reducer, now, Outcome.APPLIED, f"{because}; {plan.what}: {gains}")
        return replace(decision, epoch=plan.table.epoch, moved=plan.moved, spread=plan.spread)

    def _demand(self, loads: dict[int, Load]) -> Demand:
        return Demand.gather(self.table, loads, self._options.horizon)

    def _known(self, reducers: Iterable[int], now: float) -> dict[int, Load]:
        """The loads of these reducers as they should be by now: no two were measured at the same moment."""
        loads = steadied({node: self._loads[node] for node in sorted(reducers)})
        return {node: load.aged(now - self._reported_at[node]) for node, load in loads.items()}

    def _cooled(self, demand: Demand) -> list[int]:
        """The spread tokens whose work has needed fewer reducers for some looks, while records still arrive."""
        usual = float(demand.loads.sum() / demand.speeds.sum()) if demand.arriving else 0.0  # seconds
        looks: dict[int, int] = {}
        found = []
        for token, of_each in demand.parts.items():
            if demand.silent.intersection(of_each):
                continue  # what they have of it is not known
            position = int(demand.table.positions[token])
            speeds = demand.speeds[list(of_each)]
            if usual and sum(of_each.values()) < _COOL * float(speeds.sum() - speeds.max()) * usual:
                looks[position] = self._cool_looks.get(position, 0) + 1
                if looks[position] >= _COOL_LOOKS:
                    found.append(token)
        self._cool_looks = looks
        return found

    def _decide(self, reducer: int, now: float, outcome: Outcome, reason: str) -> Decision:
        queues = tuple(self._loads[node].queue if node in self._loads else 0 for node in range(self.table.reducers))
        return Decision(now, reducer, outcome, reason, queues, None, self._rounds[reducer])


def _width(table: RoutingTable) -> int:
    """How many reducers all spreads have."""
    return sum(len(spread.reducers) for spread in table.spreads)
