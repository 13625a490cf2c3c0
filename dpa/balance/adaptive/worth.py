"""Whether a rebalance is worth it: what it evens out must exceed chance and patience, and its gain what it moves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpa.balance.adaptive.arrivals import Arrivals
from dpa.balance.adaptive.demand import Demand
from dpa.balance.adaptive.rebalance import Rebalance

if TYPE_CHECKING:
    from dpa.balance.options.adaptive import AdaptiveOptions

_NOISE = 3.0
"""A gain of less than the time of this many records may be none: each reducer is somewhere in a record of its own."""

_CERTAIN = 2.0
"""An excess counts as far as it exceeds so many standard errors of what it is estimated from."""


class Worth:
    """The judge of one stage's rebalances. Each change of the table for the same keys makes it ask for more, so that a
    stream that stays as it is comes to rest."""

    def __init__(self, options: AdaptiveOptions, arrivals: Arrivals) -> None:
        self._options = options
        self._arrivals = arrivals
        self._changes = self._began = 0

    def look(self, version: int) -> None:
        """There is a look, at a stage with this table. If the keys have changed, patience begins anew."""
        if self._arrivals.changes != self._changes:
            self._changes, self._began = self._arrivals.changes, version

    def why_not(self, proposal: Rebalance, demand: Demand, suspect: int) -> str | None:
        """Why a rebalance that is to relieve `suspect` is not worth it, or None."""
        options = self._options
        patience = options.max_imbalance * (1 + self._rounds(demand.table.version) / 2)
        limit = 1 + patience + _CERTAIN * self._error(demand, suspect)
        if proposal.before <= limit * proposal.mean:
            before, mean = proposal.before, proposal.mean
            return f"with what will arrive, {before:.3g} s of work do not exceed {mean:.3g} s x {limit:.3g}"
        gain = proposal.before - proposal.after
        least = max(options.min_gain, _NOISE / float(demand.speeds[suspect]))
        if gain < least:
            return f"the best rebalance gains {gain:.3g} s, not {least:.3g} s"
        cost = options.movement_cost * (proposal.moved + proposal.split) * proposal.mean
        if gain < cost:
            return f"the best rebalance gains {gain:.3g} s and moves {proposal.moved + proposal.split:.0%} of the load"
        return None

    def _rounds(self, version: int) -> int:
        """How often the table was changed for the keys that come now; for all, if those say nothing of the next."""
        return version - self._began if self._arrivals.is_steady else version

    def _error(self, demand: Demand, suspect: int) -> float:
        """The standard error of a reducer's expected arrivals, as a part of all its work: they are estimated from a
        sample."""
        loads, sample = demand.loads, self._arrivals.sample
        own = float(loads[suspect] / (loads.sum() or 1.0))
        if not sample.rows or not own:
            return 0.0
        return math.sqrt((1 - own) / (own * sample.rows)) * demand.arriving / float(loads.sum())
