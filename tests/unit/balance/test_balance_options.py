"""Options of every strategy: the ring and policy they make, and the load reports they ask for."""

from __future__ import annotations

import pytest

from dpa.balance.options import (
    BY_STRATEGY,
    AdaptiveOptions,
    DoublingOptions,
    HalvingOptions,
    LoadReportOptions,
    NoBalancingOptions,
)
from dpa.balance.policy import BalancedStage
from dpa.errors import BalanceError
from dpa.routing.table import RoutingTable

every_strategy = pytest.mark.parametrize("strategy", BY_STRATEGY)


@every_strategy
def test_a_policy_starts_with_the_table_of_the_ring(strategy: str) -> None:
    options = BY_STRATEGY[strategy](token_format="{node}/{token}", hash_seed=7, initial_tokens=4)
    first: RoutingTable = options.policy(BalancedStage(3)).table
    ring = options.ring(3)
    assert [ring.tokens_of(node) for node in range(3)] == [4, 4, 4]
    assert first.positions.tolist() == ring.snapshot(0).positions.tolist()
    assert first.seed == 7


@every_strategy
def test_every_policy_refuses_a_reducer_that_does_not_exist(strategy: str) -> None:
    with pytest.raises(BalanceError):
        BY_STRATEGY[strategy]().policy(BalancedStage(3)).redistribute(3, 0.0)


@every_strategy
def test_reducers_report_wherever_keys_may_move(strategy: str) -> None:
    options = BY_STRATEGY[strategy]()
    assert (options.reports != LoadReportOptions()) == options.moves_keys


def test_the_strategies_ask_for_different_reports() -> None:
    by_queue = HalvingOptions(report_every=5, report_seconds=None, report_when_idle=False)
    assert by_queue.reports == LoadReportOptions(
        report_every=5, report_seconds=None, report_when_idle=False, measures_keys=False
    )
    assert AdaptiveOptions(measure_seconds=2.0).reports == LoadReportOptions(
        report_every=None, report_seconds=2.0, report_when_idle=False, measures_keys=True
    )


def test_records_are_forwarded_when_the_table_comes_unless_options_say_otherwise() -> None:
    lazy = [DoublingOptions(forwarding="lazy"), HalvingOptions(forwarding="lazy")]
    assert not any(options.forwards_eagerly for options in lazy)
    assert all(options().forwards_eagerly for options in BY_STRATEGY.values())


@pytest.mark.parametrize("tokens", [3, 12])
def test_halving_refuses_tokens_that_cannot_be_halved(tokens: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        HalvingOptions(initial_tokens=tokens)


@pytest.mark.parametrize("token_format", ["{node}", "{node}{token}", "{node}-{token}-{zone}", "{0}"])
def test_tokens_need_names_of_their_own(token_format: str) -> None:
    with pytest.raises(ValueError, match="token_format must contain"):
        NoBalancingOptions(token_format=token_format)
