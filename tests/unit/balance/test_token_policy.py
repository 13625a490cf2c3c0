"""The balancer's policy: every outcome of a decision, rounds, versions - and that a balanced system stays still."""

from fractions import Fraction
from typing import Any

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
    strategy: BalanceOptions | None = None, *, reducers: int = 4, tokens: int = 8, rounds: int = 4, **more: Any
) -> TokenPolicy:
    relieve = (strategy or HalvingOptions()).relieve
    return TokenPolicy(TokenRing(reducers, tokens), relieve, QueueTrigger(tau=0.2), max_rounds=rounds, **more)


def report(balancer: TokenPolicy, reducer: int, queue: int, now: float, version: int | None = None) -> Decision:
    """A reducer reports its queue, measured under the newest table unless `version` says otherwise."""
    return balancer.report(reducer, Load(queue, balancer.table.version if version is None else version), now)


def tokens_of(balancer: TokenPolicy) -> list[int]:
    return [balancer.ring.tokens_of(reducer) for reducer in range(balancer.ring.reducers)]


def test_an_overloaded_reducer_is_relieved_by_the_next_table_and_one_below_the_threshold_is_not() -> None:
    balancer = balancer_of()
    decision = report(balancer, 2, 100, now=1.5)
    reason = "queue 100 of task 2 exceeds 0 x 1.2; halve the tokens of task 2 from 8 to 4"
    assert decision == Decision(1.5, 2, Outcome.APPLIED, reason, (0, 0, 100, 0), version=1, round=1)
    assert tokens_of(balancer) == [8, 8, 4, 8]
    reason = "queue 120 of task 1 does not exceed 100 x 1.2"
    decision = Decision(2.0, 1, Outcome.BELOW_THRESHOLD, reason, (0, 120, 100, 0), version=None, round=0)
    assert report(balancer, 1, 120, now=2.0) == decision


def test_rounds_are_used_up_also_where_the_strategy_refuses_but_not_by_who_asks_for_relief() -> None:
    balancer = balancer_of(rounds=2)
    outcomes = [report(balancer, 0, 100, now=0.0).outcome for _ in range(3)]
    assert outcomes == [Outcome.APPLIED, Outcome.APPLIED, Outcome.ROUNDS_USED_UP]
    assert report(balancer, 1, 1000, now=0.0).outcome is Outcome.APPLIED
    balancer = balancer_of(tokens=1, rounds=2)
    decisions = [report(balancer, 0, 100, now=0.0) for _ in range(3)]
    outcomes = [Outcome.UNSPLITTABLE, Outcome.UNSPLITTABLE, Outcome.ROUNDS_USED_UP]
    assert [(one.outcome, one.round) for one in decisions] == list(zip(outcomes, (1, 2, 2), strict=True))
    assert balancer.table.version == 0
    balancer = balancer_of(rounds=1)
    asked = balancer.redistribute(3, now=0.0)
    assert (asked.outcome, asked.version, asked.round) == (Outcome.APPLIED, 1, 0)
    assert asked.reason.startswith("asked for; halve")
    assert report(balancer, 3, 100, now=0.0).outcome is Outcome.APPLIED


def test_with_balancing_off_a_report_is_noted_and_nothing_else() -> None:
    reason = "queue 100 of task 0 exceeds 0 x 1.2; balancing is off"
    decision = report(balancer_of(NoBalancingOptions()), 0, 100, now=0.0)
    assert decision == Decision(0.0, 0, Outcome.NO_TARGET, reason, (100, 0, 0, 0), version=None, round=1)


def test_during_the_cool_down_reports_are_noted_and_then_the_reducer_with_the_longest_queue_is_judged() -> None:
    balancer = balancer_of(check_seconds=1.0)
    assert report(balancer, 0, 0, now=10.0).outcome is Outcome.COOL_DOWN
    cooling = report(balancer, 3, 100, now=10.9)
    assert (cooling.outcome, cooling.loads) == (Outcome.COOL_DOWN, (0, 0, 0, 100))
    assert cooling.reason == "0.9 s since the last look, not 1"
    decision = report(balancer, 0, 5, now=11.0)
    assert (decision.reducer, decision.outcome) == (3, Outcome.APPLIED)
    assert tokens_of(balancer) == [8, 8, 8, 4]
    assert report(balancer, 3, 10, now=11.5).outcome is Outcome.COOL_DOWN


def test_a_queue_measured_under_an_older_table_is_noted_and_acted_on_only_as_the_authors_code_does() -> None:
    balancer, authors = balancer_of(), balancer_of(act_on_old_reports=True)
    for each in (balancer, authors):
        report(each, 2, 100, now=0.0, version=0)
    stale = report(balancer, 2, 90, now=0.0, version=0)
    assert (stale.outcome, stale.loads, stale.round) == (Outcome.COOL_DOWN, (0, 0, 90, 0), 1)
    assert stale.reason == "the queue of task 2 was measured before table 1"
    assert report(balancer, 2, 90, now=0.0, version=1).outcome is Outcome.APPLIED
    assert report(authors, 2, 90, now=0.0, version=0).outcome is Outcome.APPLIED


@acting
def test_relief_of_a_reducer_that_does_not_exist_is_refused_clearly(strategy: BalanceOptions) -> None:
    balancer = balancer_of(strategy)
    for unknown in (-1, 4, 99):
        with pytest.raises(DpaError, match=f"no reducer {unknown}"):
            balancer.redistribute(unknown, now=0.0)
    assert (tokens_of(balancer), balancer.table.version) == ([8, 8, 8, 8], 0)


@acting
@given(reports, st.integers(0, 3))
def test_versions_count_what_was_applied_and_only_that_changes_the_ring(strategy, some, rounds: int) -> None:
    balancer, applied = balancer_of(strategy, tokens=4, rounds=rounds), 0
    for reducer, queue in some:
        before = tokens_of(balancer)
        decision = report(balancer, reducer, queue, now=0.0)
        has_changed = decision.outcome is Outcome.APPLIED
        applied += has_changed
        assert (decision.version, balancer.table.version) == (applied if has_changed else None, applied)
        assert (tokens_of(balancer) != before) == has_changed


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


queue_lengths = st.dictionaries(st.integers(0, 5), st.integers(0, 10**6), min_size=1)


@given(queue_lengths, st.sampled_from(["0", "0.05", "0.2", "0.5", "1", "3"]), st.integers(0, 100), st.data())
def test_the_verdict_is_the_papers_equation(queues: dict[int, int], tau: str, least: int, data: st.DataObject) -> None:
    reducer = data.draw(st.sampled_from(sorted(queues)))
    second = max((queue for other, queue in queues.items() if other != reducer), default=0)
    expected = queues[reducer] > second * (1 + Fraction(tau)) and queues[reducer] >= least
    loads = {node: Load(queue, version=0) for node, queue in queues.items()}
    assert QueueTrigger(float(tau), least).judge(reducer, loads)[0] == expected


def test_the_reason_names_the_numbers_that_decided() -> None:
    for queue, other, reason in (
        (1300, 1000, "queue 1,300 of task 0 exceeds 1,000 x 1.2"),
        (1200, 1000, "queue 1,200 of task 0 does not exceed 1,000 x 1.2"),
        (3, 0, "queue 3 of task 0 is below the least queue of 5"),
    ):
        assert QueueTrigger(tau=0.2, least=5).judge(0, {0: Load(queue, 0), 1: Load(other, 0)})[1] == reason
