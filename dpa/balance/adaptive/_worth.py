"""Whether a change of the table is worth it: a rebalance, whose excess must exceed chance and patience and whose gain
what it moves; and one owner again for a key that was split."""

import math

from dpa.balance.adaptive._arrivals import Arrivals
from dpa.balance.adaptive.demand import Demand
from dpa.balance.adaptive.rebalance import Rebalance

_MOVEMENT_COST = 0.25
"""Cost of moving the whole load, in units of the mean reducer's work (Dicer's objective): a plan that moves a tenth of
the load must save a fortieth of the mean. What moves is forwarded and merged later, so moving must not be free."""

_NOISE = 3.0
"""A gain of less than the time of this many records may be none: each reducer is somewhere in a record of its own."""

_ONCE = 0.05
"""Where nothing comes any more, a gain of less than this part of the stream's time so far is not worth a table."""

_CERTAIN = 2.0  # standard errors of what it is estimated from that an excess must exceed to count

_LEARNT = (4.0, 16.0)
"""The multiples of the evidence for the last table from which, and up to which, what is still uneven is worth another
table, whatever patience and chance say: a plan is then at least twice as precise."""

_THRESHOLD = 0.25
"""A key is split over more reducers than it needs once its work would keep less than this share of the reducers beyond
its first busy: half of what makes a key hot, so that none is split and unsplit by turns."""

_LOOKS = 20  # a key is unsplit once it has been below the threshold for this many looks in a row


class Worth:
    """The judge of one stage's rebalances. Each change of the table for the same keys makes it ask for more, so that a
    stream that stays as it is comes to rest."""

    def __init__(self, arrivals: Arrivals, *, max_imbalance: float, min_gain: float) -> None:
        self._max_imbalance, self._min_gain = max_imbalance, min_gain
        self._arrivals = arrivals
        self._changes = self._first = self._version = 0
        self._began: float | None = None
        self._age = 0.0
        self._evidence = self._used = 0.0

    def look(self, version: int, now: float) -> None:
        """Begin a look, at a stage with this table. If the keys have changed, patience begins anew."""
        self._began = now if self._began is None else self._began
        if version != self._version:
            self._used = self._evidence
        self._age, self._version, self._evidence = now - self._began, version, self._arrivals.sample.rows
        if self._arrivals.changes != self._changes:
            self._changes, self._first = self._arrivals.changes, version

    @property
    def rounds(self) -> int:
        """How often the table was changed for the keys that come now; for all, if those say nothing of the next."""
        return self._version - self._first if self._arrivals.is_steady else self._version

    @property
    def _has_learnt(self) -> bool:
        """Whether enough more is known of the same keys to mend what the last table left uneven."""
        least, most = _LEARNT
        return self.rounds > 0 and least * self._used <= self._evidence < most * self._used

    @property
    def backlog(self) -> float:
        """What a queued record counts beside one that is to come: less with each table that is made for the same keys.
        A backlog passes, and a table that was made for it would have to be undone."""
        return 1 / (1 + self.rounds / 2)

    def why_not(self, proposal: Rebalance, demand: Demand, suspect: int) -> str | None:
        error = self._error(demand, suspect)
        limit = 1 + self._max_imbalance
        if not self._has_learnt:
            limit += self._max_imbalance * self.rounds / 2 + _CERTAIN * error
        if proposal.before <= limit * proposal.mean:
            before, mean = proposal.before, proposal.mean
            return f"with what will arrive, {before:.3g} s of work do not exceed {mean:.3g} s x {limit:.3g}"
        gain = proposal.before - proposal.after
        once = 0.0 if demand.arriving else _ONCE * self._age
        least = max(self._min_gain, once, _NOISE / float(demand.speeds[suspect]))
        if gain < least:
            return f"the best rebalance gains {gain:.3g} s, not {least:.3g} s"
        cost = _MOVEMENT_COST * (proposal.moved + proposal.split) * proposal.mean
        if gain < cost:
            return f"the best rebalance gains {gain:.3g} s and moves {proposal.moved + proposal.split:.0%} of the load"
        return None

    def _error(self, demand: Demand, suspect: int) -> float:
        """The standard error of a reducer's work, as a part of it: what will arrive is estimated from a sample, and its
        speed from some quanta."""
        loads, sample = demand.loads, self._arrivals.sample
        own = float(loads[suspect] / (loads.sum() or 1.0))
        if not sample.rows or not own:
            return 0.0
        of_arrivals = math.sqrt((1 - own) / (own * sample.rows)) * demand.arriving / float(loads.sum())
        return math.hypot(of_arrivals, float(demand.errors[suspect]))


class Unsplitting:
    """When a key that was split is to have one owner again: once it has needed fewer reducers for some looks in a
    row."""

    def __init__(self) -> None:
        self._looks: dict[int, int] = {}

    def restart(self) -> None:
        self._looks.clear()

    def look(self, demand: Demand) -> list[int]:
        """The split tokens to unsplit; none where no more records arrive."""
        speed = demand.speeds[[*demand.table.members]].sum()
        mean = float(demand.loads.sum() / speed) if demand.arriving else 0.0  # seconds
        looks: dict[int, int] = {}
        found = []
        for token, of_each in demand.parts.items():
            if demand.unreported.intersection(of_each):
                continue  # their parts of it are not known
            position = int(demand.table.positions[token])
            speeds = demand.speeds[list(of_each)]
            if mean and sum(of_each.values()) < _THRESHOLD * float(speeds.sum() - speeds.max()) * mean:
                looks[position] = self._looks.get(position, 0) + 1
                if looks[position] >= _LOOKS:
                    found.append(token)
        self._looks = looks
        return found
