"""The four kinds of machines put together for one job: what the runtime and the simulator both start from."""

from __future__ import annotations

from dataclasses import dataclass

from dpa.balance.balancer import Balancer
from dpa.balance.strategies import STRATEGIES
from dpa.balance.trigger import QueueLengthTrigger
from dpa.protocol.reducer import ReducerOptions
from dpa.routing.ring import PAPER_TOKEN_FORMAT, TokenRing


@dataclass(frozen=True)
class BalanceOptions:
    """How a job is balanced; the fields mean what they mean in a job file (docs/job-files.md, `balance`), which takes
    its defaults from here."""

    strategy: str = "halving"
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

    def ring(self, reducers: int) -> TokenRing:
        """The ring that a job with so many reducers starts with."""
        tokens = self.initial_tokens or STRATEGIES[self.strategy]().initial_tokens
        return TokenRing(reducers, tokens, token_format=self.token_format, seed=self.hash_seed)

    def balancer(self, reducers: int) -> Balancer:
        """The balancer's policy, on a new ring."""
        return Balancer(
            self.ring(reducers),
            STRATEGIES[self.strategy](),
            QueueLengthTrigger(self.tau, self.least_queue),
            max_rounds=self.max_rounds,
            check_seconds=self.check_seconds,
            act_on_old_reports=self.act_on_old_reports,
        )

    def reducer_options(self, slice_records: int, slice_seconds: float) -> ReducerOptions:
        """How the reducers behave; without a strategy that acts, they report no load."""
        return ReducerOptions(
            report_every=self.report_every if STRATEGIES[self.strategy]().acts else None,
            report_seconds=self.report_seconds,
            report_when_idle=self.report_when_idle,
            eager=self.forwarding == "eager",
            slice_records=slice_records,
            slice_seconds=slice_seconds,
        )
