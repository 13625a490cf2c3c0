"""How often a job is begun again after deaths, and what is said when that was often enough."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from dpa.errors import JobFailedError
from dpa.protocol.recovery import Death, Recoveries, RecoveryOptions
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from experiments.interleavings_faults import run
from experiments.simulated_jobs.generations import Fault, Faults, SimulatedGenerations
from experiments.simulated_jobs.meetings import KILL, PAIRS, Meetings
from experiments.simulated_jobs.random_jobs import random_job
from experiments.simulation.cluster import SimulatedCluster

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


@pytest.mark.parametrize(
    ("attempts", "deaths", "words"),
    [
        (0, (ONE,), "reducer 1 on two died: it was killed"),
        (2, (ONE, ONE, ONE), "reducer 1 on two died: it was killed; so it was in each of 3 generations"),
        (
            2,
            (ONE, OTHER, OTHER),
            "load balancer did not start: it is gone; before, in generation 0, reducer 1 on two died: it was killed; "
            "in generation 1, load balancer did not start: it is gone",
        ),
    ],
)
def test_the_last_death_is_said_as_it_is_and_those_before_plainly_or_by_name(
    attempts: int, deaths: tuple[Death, ...], words: str
) -> None:
    recoveries = Recoveries(RecoveryOptions(attempts=attempts))
    for generation, death in enumerate(deaths):
        waits = recoveries.after(replace(death, generation=generation, at=float(generation)))
    assert waits is None
    assert recoveries.in_words() == words


def test_deaths_are_counted_anew_behind_each_checkpoint() -> None:
    recoveries = Recoveries(RecoveryOptions(attempts=2, backoff=0.5), generation=4)
    waits = [recoveries.after(ONE, has_progressed=has_progressed) for has_progressed in (False, False, True, False)]
    assert waits == [0.5, 1.0, 0.5, 1.0]
    assert (recoveries.generation, recoveries.attempts_left) == (8, 0)
    assert recoveries.after(OTHER) is None
    assert recoveries.in_words().startswith("load balancer did not start: it is gone; before, in generation 0, ")
    never = Recoveries(RecoveryOptions(attempts=0))
    assert never.after(ONE, has_progressed=True) is None


# --- simulated jobs with faults: whatever dies when, results are those of the model

MADE = random_job(0)


def generations(faults: Faults, seed: int = 0, **options: Any) -> SimulatedGenerations:
    job = MADE.job
    return SimulatedGenerations(lambda number, graph: replace(job, graph=graph), job.graph, seed, faults, **options)


def test_a_job_survives_kills_at_any_step() -> None:
    cluster = SimulatedCluster(MADE.job, 0)
    cluster.run()
    kinds, deaths = ("source", "operator", BALANCER.stage, COORDINATOR.stage), 0
    for turn, step in enumerate(range(0, cluster.steps, cluster.steps // 40)):
        world = generations(Faults((Fault(step, kinds[turn % 4], turn),)), turn)
        MADE.check(world.run(), world.history)
        deaths += world.counts["deaths"]
    assert deaths > 30


def test_a_job_that_bears_no_death_fails_with_the_first_and_says_why() -> None:
    world = generations(Faults((Fault(40, "operator"),)), recovery=RecoveryOptions(attempts=0))
    with pytest.raises(JobFailedError, match=r"^reducer 0 died: it was killed$"):
        world.run()


def test_runs_with_faults_reach_what_they_are_to() -> None:
    meetings, counts = Meetings(), Counter[str]()
    for seed in (*SOUND, 10):  # in which many messages outlive their generation
        counts += run(seed, watch=meetings.watch, died=meetings.died).counts
    assert counts["generations that began behind a checkpoint"] > 8, counts
    assert counts["generations that found their checkpoints taken over"] > 3, counts
    assert counts["messages of dead generations"] > 50, counts
    assert all(meetings.of[pair] for pair in PAIRS if KILL not in pair), meetings.of
    assert sum(meetings.of[pair] for pair in PAIRS if KILL in pair) > 5, meetings.of


SOUND = (1, 3, 4, 5, 11, 15, 17, 19, 23, 29, 34, 105, 231, 246)
"""Seeds each of which unmasks a fault in what a cut has, in what is written and restored of it, or in who may write."""
