"""Options of the strategies that go by tokens: none at all, and the two of the DPA paper, section 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from dpa.balance._token_policy import TokenPolicy
from dpa.balance._trigger import QueueLengthTrigger
from dpa.balance.options._base import BalanceOptions, LoadReportOptions, TriggeredOptions
from dpa.balance.policy import BalancedStage, BalancePolicy
from dpa.balance.strategies import Doubling, Halving, NoBalancing, Strategy


@dataclass(frozen=True, kw_only=True)
class NoBalancingOptions(BalanceOptions):
    """`none`: the first routing table is the last, and reducers report nothing."""

    moves_keys: ClassVar[bool] = False

    strategy: Literal["none"] = "none"
    """Nothing moves."""
    initial_tokens: Annotated[int, Ge(1)] = NoBalancing.initial_tokens

    def policy(self, stage: BalancedStage) -> BalancePolicy:
        """A policy that refuses even what it is asked for."""
        return TokenPolicy(self.ring(stage.reducers), NoBalancing(), QueueLengthTrigger(tau=0.0), max_rounds=0)

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

    method: ClassVar[type[Strategy]]

    def policy(self, stage: BalancedStage) -> BalancePolicy:
        """The paper's policy, on a new ring; it splits no keys."""
        return TokenPolicy(
            self.ring(stage.reducers),
            self.method(),
            self._trigger(self.tau, "second"),
            max_rounds=self.max_rounds,
            check_seconds=self.check_seconds,
            act_on_old_reports=self.act_on_old_reports,
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

    method = Halving

    strategy: Literal["halving"] = "halving"
    """The overloaded reducer gives up half of its tokens."""
    initial_tokens: Annotated[int, Ge(1)] = Halving.initial_tokens

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_tokens & (self.initial_tokens - 1):
            raise ValueError(f"halving needs a power of two as initial_tokens, not {self.initial_tokens}")


@dataclass(frozen=True, kw_only=True)
class DoublingOptions(TokenOptions):
    """`doubling`: all reducers but the overloaded one double their tokens."""

    method = Doubling

    strategy: Literal["doubling"] = "doubling"
    """All reducers but the overloaded one double their tokens."""
    initial_tokens: Annotated[int, Ge(1)] = Doubling.initial_tokens
