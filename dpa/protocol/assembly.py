"""The four kinds of machines put together for one job: what the runtime and the simulator both start from."""

from __future__ import annotations

from dataclasses import dataclass

from dpa.balance.adaptive.balancer import AdaptiveBalancer, AdaptiveOptions
from dpa.balance.adaptive.planner import PlanOptions
from dpa.balance.balancer import Balancer
from dpa.balance.delegation import DelegationOptions, Utilisation
from dpa.balance.policy import BalancePolicy
from dpa.balance.strategies import STRATEGIES
from dpa.balance.trigger import Against, BothTrigger, QueueingDelayTrigger, QueueLengthTrigger, Trigger
from dpa.protocol.reducer import ReducerOptions
from dpa.routing.groupings.options import GroupingOptions
from dpa.routing.ring import PAPER_TOKEN_FORMAT, TokenRing

ADAPTIVE = "adaptive"
STRATEGY_NAMES = (*STRATEGIES, ADAPTIVE)
"""Every strategy that a job file may name."""

_ADAPTIVE_TOKENS = 64
"""As many as halving starts with: arcs small enough to move one by one."""


@dataclass(frozen=True)
class SignalSettings:
    """How reducers judge themselves for groupings that listen (docs/job-files.md, `grouping`)."""

    slot_seconds: float = 1.0
    theta_busy: float = 0.9
    theta_idle: float = 0.75
    utilisation: Utilisation = "demand"

    def delegation(self, grouping: GroupingOptions, queue_records: int) -> DelegationOptions | None:
        """The same where so many queued records count as a full queue; None if the grouping does not listen."""
        if not grouping.listens:
            return None
        return DelegationOptions(
            self.slot_seconds, self.theta_busy, self.theta_idle, self.utilisation, max(1, queue_records)
        )


@dataclass(frozen=True)
class AdaptiveSettings:
    """How the strategy `adaptive` measures and plans (docs/job-files.md, `balance.adaptive`)."""

    report_seconds: float = 0.25
    tolerance: float = 0.05
    horizon: float = 2.0
    least_gain: float = 0.25
    charge: float = 0.25
    most_moved: float = 1.0
    half_life: float = 1.0
    hot_keys: int = 32


@dataclass(frozen=True)
class BalanceOptions:
    """How a job is balanced; the fields mean what they mean in a job file (docs/job-files.md, `balance`), which takes
    its defaults from here."""

    strategy: str = "adaptive"
    tau: float = 0.2
    max_rounds: int = 4
    least_queue: int = 1_000
    report_every: int = 20_000
    report_seconds: float | None = 0.5
    report_when_idle: bool = True
    check_seconds: float = 0.5
    act_on_old_reports: bool = False
    initial_tokens: int | None = None
    token_format: str = PAPER_TOKEN_FORMAT
    hash_seed: int = 0
    forwarding: str = "eager"
    trigger: str | None = None
    least_delay: float = 0.25
    adaptive: AdaptiveSettings = AdaptiveSettings()

    @property
    def is_adaptive(self) -> bool:
        """Whether load is measured by token and planned for, instead of a ring's tokens being halved or doubled."""
        return self.strategy == ADAPTIVE

    def ring(self, reducers: int) -> TokenRing:
        """The ring that a job with so many reducers starts with."""
        usual = _ADAPTIVE_TOKENS if self.is_adaptive else STRATEGIES[self.strategy]().initial_tokens
        tokens = self.initial_tokens or usual
        return TokenRing(reducers, tokens, token_format=self.token_format, seed=self.hash_seed)

    def policy(self, reducers: int) -> BalancePolicy:
        """The balancing policy, on a new ring."""
        ring = self.ring(reducers)
        if not self.is_adaptive:
            return Balancer(
                ring,
                STRATEGIES[self.strategy](),
                self._trigger("queue_length", "second"),
                max_rounds=self.max_rounds,
                check_seconds=self.check_seconds,
                act_on_old_reports=self.act_on_old_reports,
            )
        given = self.adaptive
        options = AdaptiveOptions(
            plan=PlanOptions(tolerance=given.tolerance, most_moved=given.most_moved),
            horizon=given.horizon,
            least_gain=given.least_gain,
            charge=given.charge,
            report_seconds=given.report_seconds,
            check_seconds=self.check_seconds,
        )
        return AdaptiveBalancer(ring.snapshot(0), self._trigger("queueing_delay", "mean"), options)

    def reducer_options(
        self, slice_records: int, slice_seconds: float, delegation: DelegationOptions | None = None
    ) -> ReducerOptions:
        """How the reducers behave; without a strategy that acts, they report no load to the balancer."""
        adaptive = self.is_adaptive
        acts = not adaptive and STRATEGIES[self.strategy]().acts
        return ReducerOptions(
            report_every=self.report_every if acts else None,
            report_seconds=self.adaptive.report_seconds if adaptive else self.report_seconds,
            report_when_idle=self.report_when_idle,
            eager=adaptive or self.forwarding == "eager",
            slice_records=slice_records,
            slice_seconds=slice_seconds,
            measure=adaptive,
            half_life=self.adaptive.half_life,
            hot_keys=self.adaptive.hot_keys,
            delegation=delegation,
        )

    def _trigger(self, usual: str, against: Against) -> Trigger:
        length = QueueLengthTrigger(self.tau, self.least_queue, against)
        delay = QueueingDelayTrigger(self.tau, self.least_delay, against)
        triggers: dict[str, Trigger] = {
            "queue_length": length,
            "queueing_delay": delay,
            "both": BothTrigger(length, delay),
        }
        return triggers[self.trigger or usual]
