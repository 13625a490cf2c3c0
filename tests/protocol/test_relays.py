"""Which relay a task has, and when it passes on what it has gathered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address, Present
from dpa.protocol.wire.relays import RELAYED_TASKS, Relay, relay_of, relays_for
from experiments.simulated_jobs.random_graphs import run_random_graph
from experiments.simulated_jobs.random_windows import run_random_windows
from experiments.simulation.violation import InvariantViolationError

STAGES = ("read", "pass", "sum")


def test_a_job_of_few_tasks_has_no_relays_and_one_of_many_has_as_many_tasks_at_each() -> None:
    assert relays_for(RELAYED_TASKS) == 0
    assert relay_of(Address("sum", 3), 0) is None
    relays = relays_for(3 * 256)
    found = Counter(relay_of(Address(stage, index), relays) for stage in STAGES for index in range(256))
    assert found == dict.fromkeys(range(relays), 3 * 256 // relays)
    assert relays_for(RELAYED_TASKS + 1) == 1
    assert relay_of(COORDINATOR, relays) is None and relay_of(BALANCER, relays) is None


@given(st.lists(st.floats(0, 10, allow_nan=False), min_size=1, max_size=200).map(sorted))
def test_what_comes_is_soon_on_its_way_in_few_bundles(times: list[float]) -> None:
    relay, passed = Relay[float](), list[float]()
    for at in times:
        if passed and passed[-1] < at:
            relay.take()
        due = relay.gather(at, at)
        passed += [] if due is None else [due]
        assert at <= passed[-1] <= at + 0.0401, "no message waits for longer than from one bundle to the next"
    assert all(after - before >= 0.0399 for before, after in pairwise(passed))
    assert passed[0] <= times[0] + 0.0051, "what comes after a while of silence goes soon"


def test_a_relay_says_once_of_a_bundle_when_it_is_due_and_passes_all_of_it_on() -> None:
    relay = Relay[str]()
    due = relay.gather("one", 10.0)
    assert due is not None and due > 10.0
    assert relay.gather("two", 10.001) is None
    assert relay.take() == ["one", "two"]
    following = relay.gather("three", due)
    assert following is not None and following > due
    assert relay.take() == ["three"]


def test_a_relay_spreads_what_is_for_tasks_that_there_are() -> None:
    relay, tasks = Relay[str](), [Address("sum", index) for index in range(3)]
    relay.meet(tasks[:2])
    relay.part(Present("sum", (1,), 2))
    assert relay.spread([(task, str(task)) for task in tasks]) == [(tasks[1], str(tasks[1]))]


@pytest.mark.parametrize("seed", [3, 5])
def test_jobs_are_right_through_relays_while_tasks_come_and_go_and_behind_any_cut(seed: int) -> None:
    run_random_graph(seed, changes=True, cuts=True, relays=True)
    run_random_windows(seed, changes=True, cuts=True, feeds=True, finals=True, relays=True)


def forgets_what_comes_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """Has a bundle of the first message alone."""
    gather = Relay.gather

    def first(self: Any, message: Any, at: float) -> float | None:
        return None if self._gathered else gather(self, message, at)

    patch.setattr(Relay, "gather", first)


def passes_on_one_bundle(patch: pytest.MonkeyPatch) -> None:
    """Keeps what comes after it."""
    patch.setattr(Relay, "take", lambda self: [*self._gathered])


def knows_no_task_that_comes_later(patch: pytest.MonkeyPatch) -> None:
    """Takes tasks that it does not know for gone."""
    meet = Relay.meet
    patch.setattr(Relay, "meet", lambda self, tasks: None if len(self._tasks) > 1 else meet(self, tasks))


@pytest.mark.parametrize("broken", [forgets_what_comes_meanwhile, passes_on_one_bundle, knows_no_task_that_comes_later])
def test_a_relay_that_is_broken_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises(InvariantViolationError):
        run_random_graph(3, 20_000, changes=True, relays=True)
