"""The strategies that go by tokens: none at all, and the two of the DPA paper, section 4, with their policy.

What to change on the ring is a method of each strategy's options. Rounds, thresholds and the numbers of tables belong
to the policy, which sends nothing and owns no clock."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from dpa.balance._base import BalanceOptions, LoadReportOptions, TriggeredOptions
from dpa.balance.decision import Decision, Outcome
from dpa.balance.policy import BalancedStage, BalancePolicy, require_reducer
from dpa.measure.load import Load
from dpa.routing.members import MemberChange
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable

_MAX_TOKENS = 65_536
"""Doubling has no end of its own, but a ring with some thousand tokens a reducer is as even as it gets."""


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


@dataclass(frozen=True)
class QueueTrigger:
    """Overloaded if Q_max > Q_s * (1 + tau): the longest queue against the second longest (DPA paper, section 4.1,
    equation 1). Reducers that never reported count as 0.

    Attributes:
        tau: threshold, at least 0; the comparison is strict.
        least: a shorter queue than this is never overloaded.
    """

    tau: float
    least: int = 1

    def judge(self, reducer: int, loads: Mapping[int, Load]) -> tuple[bool, str]:
        """Whether to act on a report, and the numbers that decided, in words."""
        own = loads[reducer].queue
        found = f"queue {own:,} of task {reducer}"
        if own < self.least:
            return False, f"{found} is below the least queue of {self.least:,}"
        limit = max((load.queue for other, load in loads.items() if other != reducer), default=0)
        is_overloaded = own > limit * (1 + self.tau)
        relation = "exceeds" if is_overloaded else "does not exceed"
        return is_overloaded, f"{found} {relation} {limit:,} x {1 + self.tau:g}"


class TokenPolicy(BalancePolicy):
    """Applies a trigger and a strategy to a ring, at most `max_rounds` times for each reducer's load. A reducer is
    forgotten as soon as it is no member."""

    def __init__(
        self,
        ring: TokenRing,
        relieve: Callable[[TokenRing, int], Proposal | Refusal],
        trigger: QueueTrigger,
        *,
        max_rounds: int,
        check_seconds: float = 0.0,
        act_on_old_reports: bool = False,
        rounds: Mapping[int, int] | None = None,
    ) -> None:
        """`relieve` proposes a change of the ring that takes load off a reducer. `check_seconds`: least time between
        two looks at the trigger, and before the first; 0: every report is one. `act_on_old_reports`: also queues
        measured under an older table are judged, as in the authors' code. `rounds`: those of before."""
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

    def report(self, reducer: int, load: Load, now: float) -> Decision | None:
        """As `BalancePolicy.report`. If the decision is `applied`, the ring has changed and the version advanced."""
        if reducer not in self.table.members:
            return None  # it leaves
        self._loads[reducer] = load
        if load.version == self.table.version:
            self._current.add(reducer)
        # Without `check_seconds` the reporting reducer is judged, as in the authors' code; with it, the reducer with
        # the longest queue when it is time to look, as in the paper.
        suspect = self._most_loaded() if self._check_seconds else reducer
        waiting = self._why_not_yet(suspect, now)
        if waiting is not None:
            return self._decide(suspect, now, Outcome.COOL_DOWN, waiting)
        self._checked_at = now
        is_overloaded, reason = self._trigger.judge(suspect, self._loads)
        if not is_overloaded:
            return self._decide(suspect, now, Outcome.BELOW_THRESHOLD, reason)
        if self.rounds[suspect] >= self._max_rounds:
            used = f"{reason}, but all {self._max_rounds} rounds of task {suspect} are used up"
            return self._decide(suspect, now, Outcome.ROUNDS_USED_UP, used)
        # As in the authors' code, a round is used even if the strategy refuses (DPA paper, section 4.2): else a reducer
        # that cannot be relieved would be tried at every report.
        self.rounds[suspect] += 1
        return self.redistribute(suspect, now, because=reason)

    def redistribute(self, reducer: int, now: float, *, because: str = "asked for") -> Decision:
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
        members = change.after(self.table)
        self.ring.change_members(change)
        self.table = replace(self.ring.snapshot(self.table.version + 1), members=members)
        self._loads = {reducer: load for reducer, load in self._loads.items() if reducer in members}
        self._current.clear()
        self.rounds = Counter({reducer: self.rounds[reducer] for reducer in members})

    def _most_loaded(self) -> int:
        return max(self._loads, key=lambda reducer: (self._loads[reducer].queue, -reducer))

    def _why_not_yet(self, suspect: int, now: float) -> str | None:
        # A queue measured under an older table still holds what the newest table moves.
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


@dataclass(frozen=True, kw_only=True)
class NoBalancingOptions(BalanceOptions):
    """`none`: the first routing table is the last, and reducers report nothing. The ring is that of halving, so that
    both can be compared."""

    moves_keys: ClassVar[bool] = False

    strategy: Literal["none"] = "none"
    """Nothing moves."""
    initial_tokens: Annotated[int, Ge(1)] = 64

    def policy(self, stage: BalancedStage) -> BalancePolicy:
        # It refuses even what it is asked for.
        return TokenPolicy(self.first_ring(stage), self.relieve, QueueTrigger(tau=0.0), max_rounds=0)

    def relieve(self, ring: TokenRing, overloaded: int) -> Refusal:
        return Refusal(Outcome.NO_TARGET, "balancing is off")


@dataclass(frozen=True, kw_only=True)
class TokenOptions(TriggeredOptions):
    """What the paper's two methods have in common."""

    min_queue: Annotated[int, Ge(0)] = 1_000
    """Records below which no queue counts as overloaded (in the paper 1). Lower it if a record takes long."""
    tau: Annotated[float, Ge(0)] = 0.2
    """Act when the greatest load exceeds the second greatest by more than this share (equation 1 of the paper)."""
    max_rounds: Annotated[int, Ge(0)] = 4
    """Redistributions that one reducer's load may cause, including refused ones."""
    report_every: Annotated[int, Ge(1)] = 20_000
    """Dequeued records between two reports of a reducer's queue."""
    report_seconds: Annotated[float, Gt(0)] | None = 0.5
    """Seconds after which the next report is due while records are queued; null: no report is due by time."""
    report_when_idle: bool = True
    """Whether to report a queue that runs empty. The paper's runs do not: an old report stays."""
    act_on_old_reports: bool = False
    """Whether to act on a queue that was measured under an older table, as the paper's code does."""
    forwarding: Literal["eager", "lazy"] = "eager"
    """When to forward queued records that moved: as soon as the table comes, or when they reach the head of the queue,
    as in the paper; `adaptive` is always eager."""

    @abstractmethod
    def relieve(self, ring: TokenRing, overloaded: int) -> Proposal | Refusal:
        """Propose a change that takes load off the reducer `overloaded`; the ring itself stays unchanged."""

    def policy(self, stage: BalancedStage) -> BalancePolicy:
        return TokenPolicy(
            self.first_ring(stage),
            self.relieve,
            QueueTrigger(self.tau, self.min_queue),
            max_rounds=self.max_rounds,
            check_seconds=self.check_seconds,
            act_on_old_reports=self.act_on_old_reports,
            rounds=None if stage.first is None else stage.first.rounds,
        )

    @property
    def reports(self) -> LoadReportOptions:
        return LoadReportOptions(
            report_every=self.report_every, report_seconds=self.report_seconds, report_when_idle=self.report_when_idle
        )

    @property
    def forwards_eagerly(self) -> bool:
        return self.forwarding == "eager"


@dataclass(frozen=True, kw_only=True)
class HalvingOptions(TokenOptions):
    """`halving`: the overloaded reducer gives up half of its tokens."""

    strategy: Literal["halving"] = "halving"
    """The overloaded reducer gives up half of its tokens."""
    initial_tokens: Annotated[int, Ge(1)] = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_tokens & (self.initial_tokens - 1):
            raise ValueError(f"halving needs a power of two as initial_tokens, not {self.initial_tokens}")

    def relieve(self, ring: TokenRing, overloaded: int) -> Proposal | Refusal:
        """Drop the upper half of the reducer's tokens, down to one: only its own keys move."""
        tokens = ring.tokens_of(overloaded)
        if len(ring.members) == 1:
            return Refusal(Outcome.NO_TARGET, "there is no other task")
        if tokens == 1:
            return Refusal(Outcome.UNSPLITTABLE, f"task {overloaded} has one token left, which cannot be halved")
        left = tokens // 2
        return Proposal({overloaded: left}, f"halve the tokens of task {overloaded} from {tokens} to {left}")


@dataclass(frozen=True, kw_only=True)
class DoublingOptions(TokenOptions):
    """`doubling`: all reducers but the overloaded one double their tokens."""

    strategy: Literal["doubling"] = "doubling"
    """All reducers but the overloaded one double their tokens."""
    initial_tokens: Annotated[int, Ge(1)] = 1

    def relieve(self, ring: TokenRing, overloaded: int) -> Proposal | Refusal:
        """Double the tokens of all others: takes more from the reducer than halving, and reshuffles the rest too."""
        others = [reducer for reducer in ring.members if reducer != overloaded]
        if not others:
            return Refusal(Outcome.NO_TARGET, "there is no other task")
        tokens = {other: 2 * ring.tokens_of(other) for other in others}
        total = ring.tokens_of(overloaded) + sum(tokens.values())
        if total > _MAX_TOKENS:
            return Refusal(Outcome.UNSPLITTABLE, f"the ring would have {total:,} tokens, more than {_MAX_TOKENS:,}")
        return Proposal(tokens, f"double the tokens of all tasks but {overloaded}")
