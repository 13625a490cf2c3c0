"""The balancer's policy: every outcome of a decision, rounds, versions - and that a balanced system stays still."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance._tokens import QueueTrigger, TokenPolicy
from dpa.balance.decision import Decision, Outcome
from dpa.balance.options import BalanceOptions, DoublingOptions, HalvingOptions, NoBalancingOptions
from dpa.errors import DpaError
from dpa.measure.load import Load
from dpa.routing.ring import TokenRing

reports = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), max_size=40)
acting = pytest.mark.parametrize("strategy", [HalvingOptions(), DoublingOptions()], ids=["halving", "doubling"])


def balancer_of(
    strategy: BalanceOptions | None = None,
    *,
    reducers: int = 4,
    tokens: int = 8,
    rounds: int = 4,
    check_seconds: float = 0.0,
    **more: bool,
) -> TokenPolicy:
    trigger = QueueTrigger(tau=0.2)
    ring = TokenRing(reducers, tokens)
    relieve = (strategy or HalvingOptions()).relieve
    return TokenPolicy(ring, relieve, trigger, max_rounds=rounds, check_seconds=check_seconds, **more)


def report(balancer: TokenPolicy, reducer: int, queue: int, now: float, version: int | None = None) -> Decision:
    """A reducer reports its queue, measured under the newest table unless `version` says otherwise."""
    return balancer.report(reducer, Load(queue, balancer.table.version if version is None else version), now)


def tokens_of(balancer: TokenPolicy) -> list[int]:
    return [balancer.ring.tokens_of(reducer) for reducer in range(balancer.ring.reducers)]


# --- the outcomes


def test_an_overloaded_reducer_is_relieved_by_the_next_table() -> None:
    balancer = balancer_of()
    decision = report(balancer, 2, 100, now=1.5)
    reason = "queue 100 of task 2 exceeds 0 x 1.2; halve the tokens of task 2 from 8 to 4"
    assert decision == Decision(1.5, 2, Outcome.APPLIED, reason, (0, 0, 100, 0), version=1, round=1)
    assert tokens_of(balancer) == [8, 8, 4, 8]


def test_a_queue_below_the_threshold_changes_nothing() -> None:
    balancer = balancer_of()
    report(balancer, 0, 0, now=0.0)
    report(balancer, 1, 100, now=0.0)
    decision = report(balancer, 2, 120, now=0.0)
    assert decision.outcome is Outcome.BELOW_THRESHOLD
    assert decision.reason == "queue 120 of task 2 does not exceed 100 x 1.2"
    assert decision.loads == (0, 100, 120, 0)


def test_once_a_reducers_rounds_are_used_up_it_is_left_alone_and_others_are_not() -> None:
    balancer = balancer_of(rounds=2)
    outcomes = [report(balancer, 0, 100, now=0.0).outcome for _ in range(3)]
    assert outcomes == [Outcome.APPLIED, Outcome.APPLIED, Outcome.ROUNDS_USED_UP]
    assert report(balancer, 1, 1000, now=0.0).outcome is Outcome.APPLIED


def test_a_round_is_used_even_where_the_strategy_refuses() -> None:
    balancer = balancer_of(tokens=1, rounds=2)
    decisions = [report(balancer, 0, 100, now=0.0) for _ in range(3)]
    assert [decision.outcome for decision in decisions] == [
        Outcome.UNSPLITTABLE,
        Outcome.UNSPLITTABLE,
        Outcome.ROUNDS_USED_UP,
    ]
    assert [decision.round for decision in decisions] == [1, 2, 2]
    assert balancer.table.version == 0


@acting
def test_a_single_reducer_has_no_target(strategy: BalanceOptions) -> None:
    assert report(balancer_of(strategy, reducers=1), 0, 100, now=0.0).outcome is Outcome.NO_TARGET


def test_with_balancing_off_a_report_is_noted_and_nothing_else() -> None:
    decision = report(balancer_of(NoBalancingOptions()), 0, 100, now=0.0)
    assert (decision.outcome, decision.version) == (Outcome.NO_TARGET, None)
    assert (decision.loads, decision.reason) == (
        (100, 0, 0, 0),
        "queue 100 of task 0 exceeds 0 x 1.2; balancing is off",
    )


def test_during_the_cool_down_reports_are_noted_but_not_acted_on() -> None:
    balancer = balancer_of(check_seconds=1.0)
    assert report(balancer, 0, 0, now=10.0).outcome is Outcome.COOL_DOWN
    cooling = report(balancer, 1, 100, now=10.9)
    assert (cooling.outcome, cooling.loads) == (Outcome.COOL_DOWN, (0, 100, 0, 0))
    assert cooling.reason == "0.9 s since the last look, not 1"
    assert report(balancer, 1, 10, now=11.0).outcome is Outcome.APPLIED
    assert report(balancer, 1, 10, now=11.5).outcome is Outcome.COOL_DOWN


def test_when_it_is_time_to_look_the_reducer_with_the_longest_queue_is_judged() -> None:
    balancer = balancer_of(check_seconds=1.0)
    report(balancer, 3, 100, now=0.0)
    decision = report(balancer, 0, 5, now=1.0)
    assert (decision.reducer, decision.outcome) == (3, Outcome.APPLIED)
    assert tokens_of(balancer) == [8, 8, 8, 4]


def test_the_authors_code_acts_on_a_queue_measured_under_an_older_table_too() -> None:
    balancer = balancer_of(act_on_old_reports=True)
    outcomes = [report(balancer, 2, queue, now=0.0, version=0).outcome for queue in (100, 90)]
    assert outcomes == [Outcome.APPLIED, Outcome.APPLIED]


def test_a_queue_measured_under_an_older_table_is_noted_but_not_acted_on() -> None:
    balancer = balancer_of()
    report(balancer, 2, 100, now=0.0, version=0)
    stale = report(balancer, 2, 90, now=0.0, version=0)
    assert (stale.outcome, stale.loads, stale.round) == (Outcome.COOL_DOWN, (0, 0, 90, 0), 1)
    assert stale.reason == "the queue of task 2 was measured before table 1"
    assert report(balancer, 2, 90, now=0.0, version=1).outcome is Outcome.APPLIED


def test_asked_for_relief_looks_at_no_load_and_uses_no_round() -> None:
    balancer = balancer_of(rounds=1)
    asked = balancer.redistribute(3, now=0.0)
    assert (asked.outcome, asked.version, asked.round) == (Outcome.APPLIED, 1, 0)
    assert asked.reason.startswith("asked for; halve")
    assert report(balancer, 3, 100, now=0.0).outcome is Outcome.APPLIED


@acting
@pytest.mark.parametrize("unknown", [-1, 4, 99])
def test_relief_of_a_reducer_that_does_not_exist_is_refused_clearly(strategy: BalanceOptions, unknown: int) -> None:
    balancer = balancer_of(strategy)
    with pytest.raises(DpaError, match=f"no reducer {unknown}"):
        balancer.redistribute(unknown, now=0.0)
    assert (tokens_of(balancer), balancer.table.version) == ([8, 8, 8, 8], 0)


# --- what holds whatever is reported


@acting
@given(reports, st.integers(0, 3))
def test_versions_count_what_was_applied_and_only_that_changes_the_ring(strategy, some, rounds: int) -> None:
    balancer = balancer_of(strategy, tokens=4, rounds=rounds)
    applied = 0
    for reducer, queue in some:
        before = tokens_of(balancer)
        decision = report(balancer, reducer, queue, now=0.0)
        applied += decision.outcome is Outcome.APPLIED
        assert (decision.version, balancer.table.version) == (
            applied if decision.outcome is Outcome.APPLIED else None,
            applied,
        )
        assert (tokens_of(balancer) != before) == (decision.outcome is Outcome.APPLIED)


@acting
@pytest.mark.parametrize("check_seconds", [0.0, 2.0])
@given(reports, st.integers(0, 3))
def test_nothing_is_applied_without_a_load_reason_or_beyond_the_rounds(strategy, check_seconds, some, rounds) -> None:
    balancer = balancer_of(strategy, tokens=16, rounds=rounds, check_seconds=check_seconds)
    queues, caused, applied_at = [0] * 4, [0] * 4, [-2]
    for now, (reducer, queue) in enumerate(some):
        queues[reducer] = queue
        decision = report(balancer, reducer, queue, now, version=balancer.table.version)
        assert decision.loads == tuple(queues)
        if decision.outcome is Outcome.APPLIED:
            suspect = decision.reducer
            caused[suspect] += 1
            assert queues[suspect] > 1.2 * max(queues[:suspect] + queues[suspect + 1 :])
            assert now - applied_at[-1] >= check_seconds
            applied_at.append(now)
    assert max(caused) <= rounds


# --- a balanced system stays still


@acting
@pytest.mark.parametrize("keys", [1, 20, 1000])
def test_load_that_follows_the_ring_comes_to_rest_without_ping_pong(strategy: BalanceOptions, keys: int) -> None:
    balancer = balancer_of(strategy, tokens=4, rounds=6)
    versions = []
    for _ in range(60):
        owners = [balancer.ring.key_lookup(key) for key in range(keys)]
        for reducer in range(4):
            report(balancer, reducer, owners.count(reducer), now=0.0)
        versions.append(balancer.table.version)
    assert len(set(versions[-30:])) == 1
    assert versions[-1] <= 4 * 6
