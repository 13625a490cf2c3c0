"""How often a job is begun again after deaths, and what is said when that was often enough."""

from __future__ import annotations

from dataclasses import replace

from dpa.protocol.recovery import Death, Recoveries, RecoveryOptions
from dpa.protocol.wire.addresses import BALANCER, Address

ONE = Death(Address("reducer", 1), "it was killed", node="two")
OTHER = Death(BALANCER, "it is gone", what="did not start")


def test_each_beginning_waits_twice_as_long_as_the_one_before_until_the_attempts_are_used_up() -> None:
    recoveries = Recoveries(RecoveryOptions(attempts=3, backoff=0.5))
    assert [recoveries.generation, recoveries.after(ONE)] == [0, 0.5]
    assert [recoveries.generation, recoveries.after(OTHER)] == [1, 1.0]
    assert [recoveries.generation, recoveries.after(ONE)] == [2, 2.0]
    assert [recoveries.generation, recoveries.after(ONE)] == [3, None]


def test_what_a_beginning_needs_is_tried_as_often_as_deaths_are_left_and_waited_for_as_long() -> None:
    recoveries = Recoveries(RecoveryOptions(attempts=3, backoff=0.5))
    recoveries.after(ONE)
    assert [*recoveries.waits()] == [1.0, 2.0]
    recoveries.after(ONE)
    recoveries.after(ONE)
    assert [*recoveries.waits()] == []


def test_a_death_that_is_planned_is_no_attempt_and_waits_for_nothing() -> None:
    recoveries, planned = Recoveries(RecoveryOptions(attempts=1, backoff=0.5)), replace(ONE, is_planned=True)
    assert [recoveries.after(death) for death in (planned, planned, ONE, planned, OTHER)] == [0, 0, 0.5, 0, None]
    assert recoveries.generation == 5


def test_without_attempts_the_first_death_is_the_last_and_is_said_as_it_is() -> None:
    recoveries = Recoveries(RecoveryOptions(attempts=0))
    assert recoveries.after(ONE) is None
    assert recoveries.in_words() == "reducer 1 on two died: it was killed"


def test_a_task_that_dies_of_the_same_cause_each_time_is_said_plainly() -> None:
    recoveries = Recoveries(RecoveryOptions(attempts=2))
    for generation in range(3):
        recoveries.after(replace(ONE, generation=generation, at=float(generation)))
    assert recoveries.in_words() == "reducer 1 on two died: it was killed; so it was in each of 3 generations"


def test_deaths_of_different_tasks_are_all_named() -> None:
    recoveries = Recoveries(RecoveryOptions(attempts=2))
    for generation, death in enumerate((ONE, OTHER, OTHER)):
        recoveries.after(replace(death, generation=generation))
    assert recoveries.in_words() == (
        "load balancer did not start: it is gone; before, in generation 0, reducer 1 on two died: it was killed; "
        "in generation 1, load balancer did not start: it is gone"
    )


def test_deaths_are_counted_anew_behind_each_checkpoint() -> None:
    recoveries = Recoveries(RecoveryOptions(attempts=2, backoff=0.5), generation=4)
    waits = [recoveries.after(ONE, has_progressed=has_progressed) for has_progressed in (False, False, True, False)]
    assert waits == [0.5, 1.0, 0.5, 1.0]
    assert (recoveries.generation, recoveries.attempts_left) == (8, 0)
    assert recoveries.after(OTHER) is None
    assert recoveries.in_words().startswith("load balancer did not start: it is gone; before, in generation 0, ")
    never = Recoveries(RecoveryOptions(attempts=0))
    assert never.after(ONE, has_progressed=True) is None
