"""The strategies that go by tokens: none at all, and the two of the DPA paper, section 4.

What to change on the ring is a method of each; rounds, thresholds and the numbers of tables belong to the policy.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from dpa.balance._base import BalanceOptions, LoadReportOptions, TriggeredOptions
from dpa.balance._token_policy import Proposal, Refusal, TokenPolicy
from dpa.balance._trigger import QueueTrigger
from dpa.balance.decision import Outcome
from dpa.balance.policy import BalancedStage, BalancePolicy
from dpa.routing.ring import TokenRing

_MAX_TOKENS = 65_536
"""Doubling could go on without end, while a ring with some thousand tokens a reducer is as even as it gets."""


@dataclass(frozen=True, kw_only=True)
class NoBalancingOptions(BalanceOptions):
    """`none`: the first routing table is the last, and reducers report nothing. The ring is that of halving, so that
    both can be compared."""

    moves_keys: ClassVar[bool] = False

    strategy: Literal["none"] = "none"
    """Nothing moves."""
    initial_tokens: Annotated[int, Ge(1)] = 64

    def policy(self, stage: BalancedStage) -> BalancePolicy:
        """A policy that refuses even what it is asked for."""
        return TokenPolicy(self.first_ring(stage), self.relieve, QueueTrigger(tau=0.0), max_rounds=0)

    def relieve(self, ring: TokenRing, overloaded: int) -> Refusal:
        """Refuse."""
        return Refusal(Outcome.NO_TARGET, "balancing is off")

    @property
    def reports(self) -> None:
        """Nobody reads any."""
        return None


@dataclass(frozen=True, kw_only=True)
class TokenOptions(TriggeredOptions):
    """What the paper's two methods have in common."""

    trigger: Literal["queue_length", "queueing_delay", "both"] = "queue_length"
    tau: Annotated[float, Ge(0)] = 0.2
    """Act when the greatest load exceeds the second greatest by more than this share (equation 1 of the paper)."""
    max_rounds: Annotated[int, Ge(0)] = 4
    """Redistributions that one reducer's load may cause; a refused one counts too."""
    report_every: Annotated[int, Ge(1)] = 20_000
    """Dequeued records between two reports of a reducer's queue."""
    report_seconds: Annotated[float, Gt(0)] | None = 0.5
    """Seconds after a report at which the next one is due while records are queued; null: time causes none."""
    report_when_idle: bool = True
    """Whether a queue that runs empty is reported; not in the paper's runs, where an old report stays."""
    act_on_old_reports: bool = False
    """Whether to act on a queue that was measured under an older table, as the paper's code does."""
    forwarding: Literal["eager", "lazy"] = "eager"
    """When queued records that moved are forwarded: as soon as the table comes, or when they reach the head of the
    queue, as in the paper; `adaptive` is always eager."""

    @abstractmethod
    def relieve(self, ring: TokenRing, overloaded: int) -> Proposal | Refusal:
        """Propose a change of the ring that takes load off the reducer `overloaded`; the ring itself stays
        unchanged."""

    def policy(self, stage: BalancedStage) -> BalancePolicy:
        """The paper's policy, on a new ring; it splits no keys."""
        return TokenPolicy(
            self.first_ring(stage),
            self.relieve,
            self.trigger_at(self.tau, "second"),
            max_rounds=self.max_rounds,
            check_seconds=self.check_seconds,
            act_on_old_reports=self.act_on_old_reports,
            rounds=None if stage.first is None else stage.first.rounds,
        )

    @property
    def reports(self) -> LoadReportOptions:
        """Queues, by number of records and by time."""
        return LoadReportOptions(
            report_every=self.report_every,
            report_seconds=self.report_seconds,
            report_when_idle=self.report_when_idle,
            half_life=self.half_life,
        )

    @property
    def forwards_eagerly(self) -> bool:
        """As `forwarding` says."""
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
        """Drop the upper half of the reducer's tokens, down to one: keys of that reducer alone move."""
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
        """Double the tokens of all others: takes more from the reducer than halving does, and reshuffles the rest
        too."""
        others = [reducer for reducer in ring.members if reducer != overloaded]
        if not others:
            return Refusal(Outcome.NO_TARGET, "there is no other task")
        tokens = {other: 2 * ring.tokens_of(other) for other in others}
        total = ring.tokens_of(overloaded) + sum(tokens.values())
        if total > _MAX_TOKENS:
            return Refusal(Outcome.UNSPLITTABLE, f"the ring would have {total:,} tokens, more than {_MAX_TOKENS:,}")
        return Proposal(tokens, f"double the tokens of all tasks but {overloaded}")
