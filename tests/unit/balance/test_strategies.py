"""Strategies: one suite of rules that every strategy keeps, then what is special to each."""

import copy

import pytest
from builders import rings
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance._tokens import Proposal, Refusal
from dpa.balance.decision import Outcome
from dpa.balance.options import DoublingOptions, HalvingOptions, NoBalancingOptions
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


# --- every strategy


@every_strategy
@given(rings(), st.data())
def test_a_proposal_leaves_the_ring_alone(strategy, ring: TokenRing, data: st.DataObject) -> None:
    before = tokens_of(ring)
    strategy.relieve(ring, data.draw(st.integers(0, ring.reducers - 1)))
    assert tokens_of(ring) == before


@every_strategy
@given(rings(), st.data())
def test_a_strategy_proposes_a_change_or_refuses_and_says_why(strategy, ring, data: st.DataObject) -> None:
    answer = strategy.relieve(ring, data.draw(st.integers(0, ring.reducers - 1)))
    assert answer.reason
    if isinstance(answer, Refusal):
        assert answer.outcome in (Outcome.NO_TARGET, Outcome.UNSPLITTABLE)
    else:
        assert answer.tokens
        assert all(tokens >= 1 and tokens != ring.tokens_of(reducer) for reducer, tokens in answer.tokens.items())


@every_strategy
@given(rings(), st.data())
def test_the_same_ring_gets_the_same_answer(strategy, ring: TokenRing, data: st.DataObject) -> None:
    overloaded = data.draw(st.integers(0, ring.reducers - 1))
    assert strategy.relieve(ring, overloaded) == strategy.relieve(copy.deepcopy(ring), overloaded)


@every_strategy
@given(rings(), st.data())
def test_relief_never_moves_a_key_to_the_overloaded_node(strategy, ring: TokenRing, data: st.DataObject) -> None:
    overloaded = data.draw(st.integers(0, ring.reducers - 1))
    proposal = strategy.relieve(ring, overloaded)
    if isinstance(proposal, Proposal):
        after = relieved(ring, proposal)
        assert overloaded not in {new for _, new in moves(ring, after)}
        assert after.shares()[overloaded] <= ring.shares()[overloaded]


@every_strategy
@given(st.integers(1, 64))
def test_a_single_reducer_cannot_be_relieved(strategy, tokens: int) -> None:
    answer = strategy.relieve(TokenRing(1, tokens), 0)
    assert isinstance(answer, Refusal)
    assert answer.outcome is Outcome.NO_TARGET


@every_strategy
def test_relief_comes_to_an_end(strategy) -> None:
    ring = TokenRing(3, strategy.initial_tokens)
    for _ in range(20):
        proposal = strategy.relieve(ring, 1)
        if isinstance(proposal, Refusal):
            return
        ring = relieved(ring, proposal)
    pytest.fail(f"20 rounds have not been enough: {tokens_of(ring)}")


@every_strategy
def test_a_strategy_that_acts_can_act_on_the_ring_it_starts_with(strategy) -> None:
    answer = strategy.relieve(TokenRing(4, strategy.initial_tokens), 2)
    assert isinstance(answer, Proposal) == strategy.moves_keys


# --- halving


@given(rings(), st.data())
def test_halving_moves_keys_of_the_overloaded_reducer_only(ring: TokenRing, data: st.DataObject) -> None:
    overloaded = data.draw(st.integers(0, ring.reducers - 1))
    proposal = HalvingOptions().relieve(ring, overloaded)
    if isinstance(proposal, Proposal):
        assert {old for old, _ in moves(ring, relieved(ring, proposal))} <= {overloaded}


@pytest.mark.parametrize(("tokens", "left"), [(64, 32), (5, 2), (3, 1), (2, 1)])
def test_halving_drops_the_upper_half_of_the_tokens(tokens: int, left: int) -> None:
    proposal = HalvingOptions().relieve(TokenRing(3, tokens), 1)
    assert proposal == Proposal({1: left}, f"halve the tokens of task 1 from {tokens} to {left}")


def test_halving_refuses_at_one_token() -> None:
    answer = HalvingOptions().relieve(TokenRing(3, 1), 1)
    assert answer == Refusal(Outcome.UNSPLITTABLE, "task 1 has one token left, which cannot be halved")


# --- doubling


@given(rings(max_reducers=4), st.data())
def test_doubling_doubles_all_reducers_but_the_overloaded_one(ring: TokenRing, data: st.DataObject) -> None:
    overloaded = data.draw(st.integers(0, ring.reducers - 1))
    proposal = DoublingOptions().relieve(ring, overloaded)
    if isinstance(proposal, Proposal):
        wanted = [count if reducer == overloaded else 2 * count for reducer, count in enumerate(tokens_of(ring))]
        assert tokens_of(relieved(ring, proposal)) == wanted


def test_doubling_may_move_keys_between_reducers_that_are_not_overloaded() -> None:
    ring = TokenRing(4, 4)
    proposal = DoublingOptions().relieve(ring, 0)
    assert isinstance(proposal, Proposal)
    assert any(0 not in move for move in moves(ring, relieved(ring, proposal)))


def test_doubling_stops_where_the_ring_would_grow_without_use() -> None:
    assert isinstance(DoublingOptions().relieve(TokenRing(2, 16_384), 0), Proposal)
    answer = DoublingOptions().relieve(TokenRing(2, 32_768), 0)
    assert answer == Refusal(Outcome.UNSPLITTABLE, "the ring would have 98,304 tokens, more than 65,536")


# --- none


def test_no_balancing_refuses_whatever_the_ring() -> None:
    assert NoBalancingOptions().relieve(TokenRing(4, 64), 0) == Refusal(Outcome.NO_TARGET, "balancing is off")
