"""When the adaptive policy acts and when it keeps still, report by report."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from adaptive_stage import ALL_CAN_DO, HASHES, KEYS, NAMES, REDUCERS, SERVICE_SECONDS, Stage, hot, looked, only, zipf

from dpa.balance.adaptive.policy import AdaptivePolicy
from dpa.balance.decision import Outcome
from dpa.balance.options import AdaptiveOptions
from dpa.balance.policy import BalancedStage
from dpa.errors import BalanceError
from dpa.measure.load import KeySample, Load, Offered
from dpa.measure.timing import ServiceTime
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.members import MemberChange


def test_it_looks_once_all_have_reported_under_the_newest_table_not_too_often_and_if_something_is_queued() -> None:
    stage, idle, patient = Stage(), Stage(), Stage(check_seconds=0.6)
    stage.offer(hot(0.6))
    assert stage.look(hot(0.6), among=range(3)) is None
    assert only(stage.look(hot(0.6))).outcome is Outcome.APPLIED
    assert stage.table.version == 1
    stage.offer(hot(0.6))
    assert stage.look(hot(0.6), version=0) is None
    idle.offer(hot(0.6))
    assert idle.look(hot(0.6), queue=0, busy=0.0) is None
    looks = [patient.look(zipf(0.0)) is not None for _ in range(7)]
    assert looks == [True, False, False, True, False, False, True]


@pytest.mark.parametrize(
    ("measured", "doubt"),
    [
        ({"forwarded_out": [400, 0, 0, 0]}, "400 records are between two tasks, 1,000 queued"),
        ({"service_seconds": None}, "task 0 has not processed a record yet"),
        ({"service_seconds": 0.0}, "no record has taken a time that can be measured"),
    ],
)
def test_nothing_is_decided_by_numbers_that_say_little(measured: dict[str, Any], doubt: str) -> None:
    decision = only(looked(hot(0.6), **measured).decisions[-1])
    assert (decision.outcome, decision.reason) == (Outcome.COOL_DOWN, doubt)


def test_what_a_reducer_that_has_left_forwarded_and_got_is_not_taken_to_be_on_its_way() -> None:
    stage = Stage()
    stage.look(zipf(0.0), forwarded_in=[0, 0, 400, 0], forwarded_out=[400, 0, 0, 0])
    stage.policy.change_members(MemberChange(leaves=(2,)))
    stage.report(2, stage.load(zipf(0.0), 2, queue=0, forwarded_in=400, forwarded_out=150))
    stage.offer(hot(0.6))
    stage.look(hot(0.6), among=[0, 1, 3], forwarded_in=[0, 150, 0, 0], forwarded_out=[400, 0, 0, 0])
    assert stage.decisions and not any("between two tasks" in decision.reason for decision in stage.decisions)


@pytest.mark.parametrize("key", range(5))
def test_a_key_with_60_percent_is_split_at_the_first_full_look(key: int) -> None:
    decision = looked(hot(0.6, key)).decisions[0]
    assert decision.outcome is Outcome.APPLIED
    assert f"split key 'key {key}' over" in decision.reason


def test_who_is_always_busy_or_has_a_long_queue_is_overloaded() -> None:
    stage = looked(hot(0.6), queue=3, busy=0.4)
    assert stage.applied == []
    assert "is busy 40% of the time" in stage.decisions[-1].reason
    for busy, queue, service_seconds, min_delay, overloaded in (
        (1.0, 0, 0.01, 0.25, True),
        (0.9, 1, 0.01, 0.25, True),
        (0.5, 24, 0.01, 0.25, False),
        (0.5, 25, 0.01, 0.25, True),
        (0.0, 10**6, 0.01, 0.25, True),
        (0.1, 0, 0.01, 0.0, False),  # an empty queue is not long, however short a long one may be
        (0.1, 0, None, 0.0, False),
    ):
        policy = AdaptivePolicy(BalancedStage(2), AdaptiveOptions(min_delay=min_delay))
        load = Load(queue, version=0, service_seconds=service_seconds, busy=busy)
        assert policy._is_overloaded(load) is overloaded


@pytest.mark.parametrize(("queue", "tables"), [([250] * 4, 1), ([250, 250, 250, 0], 2)], ids=["all", "not all"])
def test_where_all_have_work_and_wait_for_processors_one_table_is_made_for_the_end(
    queue: list[int], tables: int
) -> None:
    stage = Stage()
    for slower in (1, 1, 5, 5):
        stage.offer(hot(0.6))
        times = [slower * SERVICE_SECONDS, *[SERVICE_SECONDS] * (REDUCERS - 1)]
        decision = only(stage.look(hot(0.6), waited=0.5, queue=queue, service_seconds=times))
    assert len(stage.applied) == tables
    no_gain = "moving gains nothing: all have work and wait for a processor 50% of their busy time"
    assert (no_gain in decision.reason) == (tables == 1)
    assert tables == 2 or decision.outcome is Outcome.BELOW_THRESHOLD


@pytest.mark.parametrize(
    ("cores", "tables"), [([0.99] * 4, 1), ([0.99, 0.99, 0.99, 0.5], 4)], ids=["of all nodes", "of some nodes"]
)
def test_where_all_processors_are_used_new_hot_keys_cause_no_more_tables(cores: list[float], tables: int) -> None:
    stage = Stage()
    for key in np.repeat([0, 100, 200, 280], 8).tolist():
        shares = hot(0.6, key)
        stage.offer(shares)
        stage.look(shares, cores_busy=cores, queue=[2_000 * (part > 0.4) for part in stage.by_owner(shares)])
    made = [decision for decision in stage.applied if "more tasks than it needs" not in decision.reason]
    refused = [decision for decision in stage.decisions if "processors are used 99% of the time" in decision.reason]
    assert (len(made) == 1, bool(refused)) == (tables == 1, tables == 1)
    assert len(made) >= tables


def test_an_excess_that_chance_explains_is_none() -> None:
    """Of so few records that were looked at, an uneven part may be the sample's."""
    stage = Stage()
    shares = np.random.default_rng(1).multinomial(30, zipf(0.0)) / 30
    stage.offer(shares, rows=30)
    decision = only(stage.look(shares, queue=10))
    assert decision.outcome is Outcome.BELOW_THRESHOLD
    assert "with what will arrive" in decision.reason
    assert "do not exceed" in decision.reason


def test_a_gain_that_is_not_worth_a_table_and_keys_that_no_sender_has_named_are_no_reason() -> None:
    stage = Stage(min_gain=10.0)
    decision = only(stage.look(hot(0.6)))  # the first queues were cut into ranges without knowing of the hot key
    assert (decision.outcome, decision.reason) == (Outcome.COOL_DOWN, "no sender has said yet what it offers")
    stage.offer(hot(0.6))
    decision = only(stage.look(hot(0.6)))
    assert decision.outcome is Outcome.BELOW_THRESHOLD
    assert "not 10 s" in decision.reason


def test_waits_for_processors_that_change_from_moment_to_moment_make_no_reducer_slower() -> None:
    """On shared cores a reducer's records took half as long again for some seconds, and its keys were moved away."""
    random, stage, shares = np.random.default_rng(0), Stage(), zipf(0.0)
    times = [ServiceTime() for _ in range(REDUCERS)]
    for look in range(80):
        waited = np.clip(random.normal(0.5, 0.2, REDUCERS), 0, 0.9).tolist()
        for one, share in zip(times, waited, strict=True):
            one.observe(round(0.25 * (1 - share) / SERVICE_SECONDS), 0.25)
        stage.offer(shares, rows=1e5)
        stage.look(
            shares,
            service_seconds=[one.seconds for one in times],
            error=[min(one.error, 1.0) for one in times],
            waited=waited,
            queue=[50, 50, 50, 0 if look % 3 else 50],  # so that the processors are not all busy at each look
        )
    assert len(stage.applied) <= 2
    assert all(decision.at <= 5.0 for decision in stage.applied)


def test_a_reducer_that_waits_much_longer_than_others_gets_less() -> None:
    """One on a crowded machine, say."""
    stage = Stage()
    times, waited = [SERVICE_SECONDS] * 3 + [4 * SERVICE_SECONDS], [0.0] * 3 + [0.75]
    for _ in range(8):
        stage.offer(zipf(0.3))
        stage.look(zipf(0.3), service_seconds=times, waited=waited)
    assert stage.by_owner(zipf(0.3))[3] < 0.15


def test_a_reducer_that_is_overloaded_is_seen_beside_one_with_more_to_come() -> None:
    """Only the one with most work ahead was judged, which may not be busy yet."""
    stage = Stage()
    shares = excess(stage, 1.0)
    stage.offer(shares)
    decision = only(stage.look(shares, queue=[0, 250, 0, 0], busy=[0.2, 1.0, 0.2, 0.2]))
    assert decision.reducer == 1
    assert "task 1 is busy 100% of the time" in decision.reason


def test_a_single_reducer_is_never_looked_at() -> None:
    policy = AdaptiveOptions().policy(BalancedStage(1))
    policy.offered("sender", Offered(0.25, KeySample(HASHES[:1], np.ones(1), 1.0)), 0.0)
    assert all(policy.report(0, Load(1_000, 0, 0.1, evidence=9.0, busy=1.0), now) is None for now in range(9))


def test_what_is_left_in_the_end_must_be_worth_a_table() -> None:
    """Half a second of work was moved in the last moment of a stream of a minute."""
    for looks, acts_ in ((2, True), (200, False)):
        stage = Stage()
        for _ in range(looks):
            stage.offer(zipf(0.0), rows=1e5)
            stage.look(zipf(0.0), busy=0.5, queue=0)
        stage.policy.offered("sender", Offered(0.25, KeySample.empty(), ended=True), stage.now)
        stage.look(zipf(0.0), busy=0.5, queue=1)  # so that nobody waits for last words
        before = len(stage.applied)
        stage.look(zipf(0.0), queue=[250, 1, 1, 1])
        assert (len(stage.applied) > before) is acts_, looks


def test_an_unsplit_key_is_named_though_it_is_no_longer_frequent() -> None:
    stage = Stage()
    for _ in range(2):
        stage.offer(hot(0.6))
        stage.look(hot(0.6))
    assert stage.table.splits
    cool = np.where(np.arange(KEYS) == 0, 1e-6, hot(0.0))
    for _ in range(80):
        stage.offer(cool / cool.sum())
        stage.look(cool / cool.sum(), queue=5, busy=0.5)
    assert not stage.table.splits
    assert any("unsplit key 'key 0'" in decision.reason for decision in stage.applied)


def excess(stage: Stage, over: float) -> np.ndarray:
    """Keys of which reducer 0 has `over` more than the mean under the newest table, the others equally less."""
    owners = stage.table.owners_of(HASHES)
    wanted = np.array([1 + over] + [1 - over / (REDUCERS - 1)] * (REDUCERS - 1)) / REDUCERS
    shares = wanted[owners] / np.bincount(owners, minlength=REDUCERS)[owners]
    return shares / shares.sum()


def test_a_reducer_that_does_not_report_is_given_nothing() -> None:
    """A reducer that had long said nothing, its code holding the interpreter, counted as idle and was given work."""
    stage = Stage()
    before = stage.table
    key = next(key for key, name in enumerate(NAMES) if before.key_lookup(name) != 3)
    for _ in range(12):
        stage.offer(hot(0.6, key))
        stage.look(hot(0.6, key), among=range(3))
    assert stage.applied
    was, (owners, splits) = before.owners_of(HASHES), stage.table.resolve(HASHES)
    assert (owners != was).any() or splits
    assert set(was[owners == 3].tolist()) <= {3}
    assert not any(3 in split.reducers for split, _ in splits)


@pytest.mark.parametrize(("known", "ends"), [(range(4), True), (range(3), False)])
def test_a_key_is_not_unsplit_while_one_of_its_reducers_does_not_report(known: range, ends: bool) -> None:
    """Its part was taken for next to nothing, and it could be given the rest."""
    stage = Stage()
    first = stage.table
    split = KeySplit((3, 0), (0.9, 0.1), (1.0, 0.0), since=0)
    stage.policy.table = replace(TableChange.of(first, {int(first.positions[7]): split}).apply(first), version=0)
    for _ in range(60):
        stage.offer(zipf(0.0), rate=0.5 * ALL_CAN_DO)
        stage.look(zipf(0.0), among=known, queue=5, busy=0.5)
    assert (not stage.table.splits) is ends


def test_a_reducer_that_is_asked_to_be_relieved_is_brought_to_the_mean_if_it_is_known() -> None:
    stage = Stage()
    shares = excess(stage, 0.05)
    stage.offer(shares)
    for reducer in range(REDUCERS):
        stage.report(reducer, stage.load(shares, reducer, queue=[1_000, 900, 900, 900][reducer]))
    decision = stage.policy.redistribute(0, 0.1)
    assert decision.outcome is Outcome.APPLIED
    assert decision.moved == pytest.approx(75 / 3_700, abs=0.02)
    with pytest.raises(BalanceError, match="no reducer 4"):
        stage.policy.redistribute(4, 0.1)
    decision = Stage().policy.redistribute(0, 0.0)
    assert decision.outcome is Outcome.NO_TARGET
    assert "has not reported" in decision.reason


def test_a_speed_that_was_measured_once_moves_nothing() -> None:
    stage, even = Stage(), hot(1 / 300)
    for third in (20 * SERVICE_SECONDS, SERVICE_SECONDS):  # it imports something with its first records
        seconds = [SERVICE_SECONDS, SERVICE_SECONDS, third, SERVICE_SECONDS]
        stage.offer(even)
        decision = only(stage.look(even, service_seconds=seconds, error=math.inf))
        assert decision.outcome is Outcome.COOL_DOWN
        assert "has too few measurements" in decision.reason
    for _ in range(4):
        stage.offer(even)
        stage.look(even)
    assert min(stage.by_owner(even)) > 0.15, "no reducer was left with little to do"


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


@pytest.mark.parametrize(
    ("feeds", "measured", "doubt"),
    [
        ((), {"error": math.inf}, "has too few measurements"),
        ((), {"service_seconds": [SERVICE_SECONDS] * 3 + [None]}, "task 3 has not processed a record yet"),
        (("orders", "idle"), {}, "idle has not offered a record yet"),
        (("orders", "customers", "idle"), {}, "idle has not offered a record yet"),
    ],
)
def test_what_is_not_known_yet_is_waited_for_but_not_for_ever(
    feeds: tuple[str, ...], measured: dict[str, Any], doubt: str
) -> None:
    stage, shares = Stage(feeds=feeds), hot(0.6)
    for _ in range(16):
        for feed in range(max(len(feeds) - 1, 1)):
            stage.offer(shares, feed=feed)
        stage.look(shares, **measured)
    assert doubt in stage.decisions[0].reason
    assert stage.applied and stage.applied[0].at > 8 * 0.25
