"""Options of the strategy `adaptive`: measure, expect, plan, weigh (docs/balancing.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from dpa.balance.adaptive.first_table import FirstTable, planned
from dpa.balance.adaptive.policy import AdaptivePolicy
from dpa.balance.adaptive.rebalance import RebalanceOptions
from dpa.balance.options._base import LoadReportOptions, TriggeredOptions
from dpa.balance.policy import BalancedStage, BalancePolicy
from dpa.measure.load import KeySample
from dpa.routing.keys import Key


@dataclass(frozen=True, kw_only=True)
class AdaptiveOptions(TriggeredOptions):
    """`adaptive`: the excess that is measured moves, and a key that is too hot is split over several reducers."""

    strategy: Literal["adaptive"] = "adaptive"
    """The excess that is measured moves, and a key that is too hot is split over several reducers."""
    initial_tokens: Annotated[int, Ge(1)] = 64
    trigger: Literal["utilisation", "queue_length", "queueing_delay", "both"] = "utilisation"
    check_seconds: Annotated[float, Ge(0)] = 0.25
    max_imbalance: Annotated[float, Ge(0)] = 0.1
    """Act when the greatest load exceeds the mean of all by more than this share, and by more than chance explains.
    Each redistribution of the same keys adds half as much, until much more is known of these keys."""
    measure_seconds: Annotated[float, Gt(0)] = 0.25
    """Seconds between two reports of each reducer's load; in effect a multiple of a quarter of a second."""
    tolerance: Annotated[float, Gt(0)] = RebalanceOptions.tolerance
    """Excess over the mean in which a plan may leave a reducer, as a share of the mean."""
    horizon: Annotated[float, Ge(0)] = 2.0
    """Seconds of expected arrivals that a plan counts beside what is queued."""
    min_gain: Annotated[float, Ge(0)] = 0.25
    """Least seconds by which a plan must let the most loaded reducer end earlier."""
    movement_cost: Annotated[float, Ge(0)] = 0.25
    """Cost of moving the whole load, in units of the mean reducer's work (Dicer's objective): a plan must gain more
    than the share that it moves costs."""
    max_moved: Annotated[float, Gt(0), Le(1)] = RebalanceOptions.max_moved
    """Greatest share of the load that one plan may take from its owners; splitting a hot key takes nothing away."""

    first_table: Literal["sample", "ring"] = "sample"
    """Where keys are before any load is measured: as planned from a sample of the input, which goes through the job's
    mappers in the driver, or as the plain ring has them."""

    @property
    def rebalance(self) -> RebalanceOptions:
        """The aim of a rebalance."""
        return RebalanceOptions(tolerance=self.tolerance, max_moved=self.max_moved)

    @property
    def plans_first_table(self) -> bool:
        """As `first_table` says."""
        return self.first_table == "sample"

    def planned(
        self, reducers: int, keys: KeySample, names: Mapping[int, Key], *, may_split: bool = True
    ) -> FirstTable | None:
        """The first table, by the adaptive planner."""
        return planned(self.ring(reducers), keys, names, replace(self.rebalance, may_split=may_split))

    def policy(self, stage: BalancedStage) -> BalancePolicy:
        """The adaptive policy, on a new ring."""
        return AdaptivePolicy(stage, self, self._trigger(self.max_imbalance, "mean"))

    @property
    def reports(self) -> LoadReportOptions:
        """The load by token and by hot key, periodically."""
        return LoadReportOptions(
            report_every=None,
            report_seconds=self.measure_seconds,
            report_when_idle=False,
            half_life=self.half_life,
            measures_keys=True,
        )
