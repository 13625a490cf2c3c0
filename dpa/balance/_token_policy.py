"""The policy of the DPA paper: from load reports to decisions and changes of the ring. Sends nothing and owns no
clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from dpa.balance._trigger import Trigger
from dpa.balance.decision import Decision, Outcome
from dpa.balance.policy import require_reducer
from dpa.measure.load import Load, Offered
from dpa.routing.members import MemberChange
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable


@dataclass(frozen=True)
class Proposal:
    """New numbers of tokens for some reducers, and the reason in one sentence."""

    tokens: dict[int, int]
    reason: str


@dataclass(frozen=True)
class Refusal:
    """The reason why nothing can be changed."""

    outcome: Outcome
    reason: str


class TokenPolicy:
    """Applies a trigger and a strategy to a ring, at most `max_rounds` times for each reducer's load.

    As in the authors' code, a round counts as used even if the strategy refuses (DPA paper, section 4.2): else a
    reducer that cannot be relieved would be tried at every report.
    """

    def __init__(
        self,
        ring: TokenRing,
        relieve: Callable[[TokenRing, int], Proposal | Refusal],
        trigger: Trigger,
        *,
        max_rounds: int,
        check_seconds: float = 0.0,
        act_on_old_reports: bool = False,
        rounds: Mapping[int, int] | None = None,
    ) -> None:
        """`relieve` proposes a change of the ring that takes load off a reducer. `check_seconds` is the least time
        between two looks at the trigger, and before the first; 0 looks at every report. `act_on_old_reports` judges
        queues measured under an older table too, as the authors' code does. `rounds`: that each reducer's load has
        caused before."""
        self.ring = ring
        self.table: RoutingTable = ring.snapshot(0)
        self._relieve = relieve
        self._trigger = trigger
        self._max_rounds = max_rounds
        self._check_seconds = check_seconds
        self._act_on_old_reports = act_on_old_reports
        self._checked_at: float | None = None
        self._loads: dict[int, Load] = {}
        self._current: set[int] = set()
        self.rounds: Counter[int] = Counter(rounds or {})

    def offered(self, sender: Hashable, offered: Offered, now: float, feed: Hashable = None) -> None:
        """The paper's methods go by queues alone."""

    def forget(self, reducer: int) -> None:
        """It is forgotten as soon as it is no member."""

    def forget_sender(self, sender: Hashable) -> None:
        """Senders are of no matter."""

    def report(self, reducer: int, load: Load, now: float) -> Decision | None:
        """Take in a reducer's load at time `now` (seconds), and act if that calls for it.

        Without `check_seconds` the reporting reducer is judged, as in the authors' code; with it, the reducer with the
        longest queue when it is time to look, as in the paper. A load measured under an older table is kept but, unless
        `act_on_old_reports` is set, not acted on: it still holds what the newest table moves.

        Returns:
            The decision. If it is `applied`, the ring has changed and the version advanced; otherwise neither has. None
            if the reducer is no member any more.
        """
        if reducer not in self.table.members:
            return None  # it leaves
        self._loads[reducer] = load
        if load.version == self.table.version:
            self._current.add(reducer)
        suspect = self._most_loaded() if self._check_seconds else reducer
        waiting = self._why_not_yet(suspect, now)
        if waiting is not None:
            return self._decide(suspect, now, Outcome.COOL_DOWN, waiting)
        self._checked_at = now
        verdict = self._trigger.judge(suspect, self._loads)
        if not verdict.overloaded:
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, verdict.reason)
        if self.rounds[suspect] >= self._max_rounds:
            used = f"{verdict.reason}, but all {self._max_rounds} rounds of task {suspect} are used up"
            return self._decide(suspect, now, Outcome.ROUNDS_USED_UP, used)
        self.rounds[suspect] += 1
        return self.redistribute(suspect, now, because=verdict.reason)

    def redistribute(self, reducer: int, now: float, *, because: str = "asked for") -> Decision:
        """Relieve a reducer whatever its load (the DPA paper's `redistribute(node_id)`, section 4.2).

        Raises:
            BalanceError: there is no such reducer.
        """
        require_reducer(self.table, reducer)
        proposal = self._relieve(self.ring, reducer)
        if isinstance(proposal, Refusal):
            return self._decide(reducer, now, proposal.outcome, f"{because}; {proposal.reason}")
        for changed, tokens in proposal.tokens.items():
            self.ring.set_tokens(changed, tokens)
        self.table = self.ring.snapshot(self.table.version + 1)
        self._current.clear()
        return self._decide(reducer, now, Outcome.APPLIED, f"{because}; {proposal.reason}", version=self.table.version)

    def change_members(self, change: MemberChange) -> None:
        """Make the next table.

        Raises:
            ProtocolError: the change does not fit the table.
        """
        members = change.after(self.table)
        self.ring.change_members(change)
        self.table = replace(self.ring.snapshot(self.table.version + 1), members=members)
        self._loads = {reducer: load for reducer, load in self._loads.items() if reducer in members}
        self._current.clear()
        self.rounds = Counter({reducer: self.rounds[reducer] for reducer in members})

    def _most_loaded(self) -> int:
        return max(self._loads, key=lambda reducer: (self._trigger.measure(self._loads[reducer]), -reducer))

    def _why_not_yet(self, suspect: int, now: float) -> str | None:
        """Why it is too early to judge, or None."""
        if suspect not in self._current and not self._act_on_old_reports:
            return f"the queue of task {suspect} was measured before table {self.table.version}"
        if self._checked_at is None and self._check_seconds:
            self._checked_at = now
        waited = self._check_seconds if self._checked_at is None else now - self._checked_at
        return (
            f"{waited:.3g} s since the last look, not {self._check_seconds:g}" if waited < self._check_seconds else None
        )

    def _decide(
        self, reducer: int, now: float, outcome: Outcome, reason: str, *, version: int | None = None
    ) -> Decision:
        loads = self._loads
        queues = {one: loads[one].queue if one in loads else 0 for one in sorted(self.table.members)}
        return Decision.of(now, reducer, outcome, reason, queues, version, self.rounds[reducer])
