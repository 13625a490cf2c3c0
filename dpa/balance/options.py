"""What a job may say about balancing a stage, and the policy that comes of it: one class of options for each strategy.

A further strategy is a subclass of `BalanceOptions`, beside its policy, and a row of `BY_STRATEGY`: the job file's
schema, its documentation's tests and the suites that run every strategy take it up from there."""

from dpa.balance._base import BalanceOptions, LoadReportOptions
from dpa.balance._tokens import DoublingOptions, HalvingOptions, NoBalancingOptions, TokenOptions
from dpa.balance.adaptive.policy import AdaptiveOptions

BY_STRATEGY: dict[str, type[BalanceOptions]] = {
    options.strategy: options for options in (NoBalancingOptions, HalvingOptions, DoublingOptions, AdaptiveOptions)
}
"""The options of every strategy, by the name that a job file gives it."""

__all__ = [
    "BY_STRATEGY",
    "AdaptiveOptions",
    "BalanceOptions",
    "DoublingOptions",
    "HalvingOptions",
    "LoadReportOptions",
    "NoBalancingOptions",
    "TokenOptions",
]
