"""Strategies: one suite of rules that every strategy keeps, then what is special to each."""

import copy
from typing import Any

import pytest
from builders import rings
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance._tokens import Proposal, Refusal
from dpa.balance.decision import Outcome
from dpa.balance.options import (
    BY_STRATEGY,
    AdaptiveOptions,
    BalanceOptions,
    DoublingOptions,
    HalvingOptions,
    LoadReportOptions,
    NoBalancingOptions,
)
from dpa.balance.policy import BalancedStage
from dpa.errors import BalanceError
from dpa.routing.ring import TokenRing

MANY = [f"key {number}" for number in range(300)]
every_strategy = pytest.mark.parametrize(
    "strategy", [NoBalancingOptions(), HalvingOptions(), DoublingOptions()], ids=["none", "halving", "doubling"]
)


def tokens_of(ring: TokenRing) -> list[int]:
    return [ring.tokens_of(reducer) for reducer in range(ring.reducers)]


def relieved(ring: TokenRing, proposal: Proposal) -> TokenRing:
    """A copy of the ring with the proposal applied."""
    changed = copy.deepcopy(ring)
    for reducer, tokens in proposal.tokens.items():
        changed.set_tokens(reducer, tokens)
    return changed


def moves(before: TokenRing, after: TokenRing) -> set[tuple[int, int]]:
    """Between which reducers keys have moved."""
    owners = ((before.key_lookup(key), after.key_lookup(key)) for key in MANY)
    return {(old, new) for old, new in owners if old != new}


@every_strategy
@given(rings(), st.data())
def test_a_strategy_proposes_a_change_or_refuses_and_says_why(strategy, ring: TokenRing, data: st.DataObject) -> None:
    before, overloaded = tokens_of(ring), data.draw(st.integers(0, ring.reducers - 1))
    answer = strategy.relieve(ring, overloaded)
    assert tokens_of(ring) == before
    assert answer == strategy.relieve(copy.deepcopy(ring), overloaded)
    assert answer.reason
    if isinstance(answer, Refusal):
        assert answer.outcome in (Outcome.NO_TARGET, Outcome.UNSPLITTABLE)
        return
    assert answer.tokens
    assert all(tokens >= 1 and tokens != ring.tokens_of(reducer) for reducer, tokens in answer.tokens.items())
    after = relieved(ring, answer)
    assert overloaded not in {new for _, new in moves(ring, after)}
    assert after.shares()[overloaded] <= ring.shares()[overloaded]
    if isinstance(strategy, HalvingOptions):
        assert {old for old, _ in moves(ring, after)} <= {overloaded}
    else:
        assert tokens_of(after) == [count * (1 + (reducer != overloaded)) for reducer, count in enumerate(before)]


@every_strategy
@given(st.integers(1, 64))
def test_a_single_reducer_cannot_be_relieved(strategy, tokens: int) -> None:
    answer = strategy.relieve(TokenRing(1, tokens), 0)
    assert isinstance(answer, Refusal)
    assert answer.outcome is Outcome.NO_TARGET


@every_strategy
def test_relief_begins_with_the_first_ring_of_a_strategy_that_acts_and_comes_to_an_end(strategy) -> None:
    ring = TokenRing(3, strategy.initial_tokens)
    for number in range(20):
        proposal = strategy.relieve(ring, 1)
        if isinstance(proposal, Refusal):
            assert (number > 0) == strategy.moves_keys
            return
        ring = relieved(ring, proposal)
    pytest.fail(f"20 rounds have not been enough: {tokens_of(ring)}")


def test_halving_drops_the_upper_half_of_the_tokens_and_refuses_at_one() -> None:
    for tokens, left in ((64, 32), (5, 2), (3, 1), (2, 1)):
        proposal = HalvingOptions().relieve(TokenRing(3, tokens), 1)
        assert proposal == Proposal({1: left}, f"halve the tokens of task 1 from {tokens} to {left}")
    answer = HalvingOptions().relieve(TokenRing(3, 1), 1)
    assert answer == Refusal(Outcome.UNSPLITTABLE, "task 1 has one token left, which cannot be halved")


def test_doubling_may_move_keys_between_reducers_that_are_not_overloaded_and_stops_where_the_ring_would_grow() -> None:
    ring = TokenRing(4, 4)
    proposal = DoublingOptions().relieve(ring, 0)
    assert isinstance(proposal, Proposal)
    assert any(0 not in move for move in moves(ring, relieved(ring, proposal)))
    assert isinstance(DoublingOptions().relieve(TokenRing(2, 16_384), 0), Proposal)
    answer = DoublingOptions().relieve(TokenRing(2, 32_768), 0)
    assert answer == Refusal(Outcome.UNSPLITTABLE, "the ring would have 98,304 tokens, more than 65,536")


@pytest.mark.parametrize("strategy", BY_STRATEGY)
def test_a_policy_starts_with_the_table_of_the_ring_and_has_reducers_report_where_keys_may_move(strategy: str) -> None:
    options = BY_STRATEGY[strategy](token_format="{node}/{token}", hash_seed=7, initial_tokens=4)
    policy, ring = options.policy(BalancedStage(3)), options.ring(3)
    assert [ring.tokens_of(node) for node in range(3)] == [4, 4, 4]
    assert policy.table.positions.tolist() == ring.snapshot(0).positions.tolist()
    assert policy.table.seed == 7
    assert (options.reports != LoadReportOptions()) == options.moves_keys
    assert options.forwards_eagerly
    with pytest.raises(BalanceError):
        policy.redistribute(3, 0.0)


def test_the_strategies_ask_for_different_reports_and_may_forward_late() -> None:
    by_queue = HalvingOptions(report_every=5, report_seconds=None, report_when_idle=False, forwarding="lazy")
    assert by_queue.reports == LoadReportOptions(report_every=5)
    assert AdaptiveOptions(measure_seconds=2.0).reports == LoadReportOptions(report_seconds=2.0, measures_keys=True)
    assert not by_queue.forwards_eagerly and not DoublingOptions(forwarding="lazy").forwards_eagerly


@pytest.mark.parametrize(
    ("options", "changes", "why"),
    [
        (HalvingOptions, {"initial_tokens": 3}, "power of two"),
        (HalvingOptions, {"initial_tokens": 12}, "power of two"),
        *(
            (NoBalancingOptions, {"token_format": token_format}, "token_format must contain")
            for token_format in ("{node}", "{node}{token}", "{node}-{token}-{zone}", "{0}")
        ),
    ],
)
def test_tokens_that_cannot_be_halved_or_have_no_names_of_their_own_are_refused(
    options: type[BalanceOptions], changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        options(**changes)
