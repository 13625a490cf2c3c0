"""The first look at a stage rests on the standard errors of its reducers' speeds, and on every stage that feeds it."""

from __future__ import annotations

import math

import pytest
from adaptive_stage import REDUCERS, SERVICE_SECONDS, Stage, hot, only, zipf

from dpa.balance.decision import Outcome

SLOW_AT_FIRST = [SERVICE_SECONDS, SERVICE_SECONDS, 20 * SERVICE_SECONDS, SERVICE_SECONDS]
"""A reducer imports something with its first records."""


def test_a_speed_that_was_measured_once_moves_nothing() -> None:
    stage, even = Stage(), hot(1 / 300)
    for seconds in (SLOW_AT_FIRST, [SERVICE_SECONDS] * REDUCERS):
        stage.offer(even)
        decision = only(stage.look(even, service_seconds=seconds, error=math.inf))
        assert decision.outcome is Outcome.COOL_DOWN
        assert "has too few measurements" in decision.reason
    for _ in range(4):
        stage.offer(even)
        stage.look(even)
    assert min(stage.by_owner(even)) > 0.15, "no reducer was left with little to do"


def test_one_that_is_measured_too_seldom_for_long_is_waited_for_no_longer() -> None:
    stage, shares = Stage(), hot(0.6)
    for _ in range(16):
        stage.offer(shares)
        stage.look(shares, error=math.inf)
    assert stage.applied and stage.applied[0].at > 8 * 0.25


def test_nothing_moves_before_every_stage_that_feeds_it_has_offered_records() -> None:
    customers, orders = zipf(0.0), hot(0.5, key=7)
    stage = Stage(feeds=["orders", "customers"])
    for _ in range(3):
        stage.offer(hot(0.3, key=100), feed=1)
        decision = only(stage.look(customers))
        assert decision.outcome is Outcome.COOL_DOWN
        assert decision.reason == "orders has not offered a record yet"
    stage.offer(orders, feed=0)
    stage.offer(customers, feed=1)
    assert only(stage.look(orders)).outcome is Outcome.APPLIED


@pytest.mark.parametrize("feeds", [["orders"], ["orders", "customers"]], ids=["its only feed", "one of two"])
def test_a_stage_that_offers_nothing_is_waited_for_but_not_for_ever(feeds: list[str]) -> None:
    stage, shares = Stage(feeds=[*feeds, "idle"]), hot(0.6)
    for _ in range(16):
        for feed in range(len(feeds)):
            stage.offer(shares, feed=feed)
        stage.look(shares)
    assert stage.applied and stage.applied[0].at > 8 * 0.25
