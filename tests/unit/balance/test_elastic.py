"""How many tasks a stage should have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.elastic import ElasticOptions, ElasticPolicy, Scaling, StageWork

OPTIONS = ElasticOptions(min_tasks=2, max_tasks=6, busy=0.9, idle=0.4, seconds=2.0)


def looks(policy: ElasticPolicy, work: StageWork, seconds: int, start: int = 0) -> list[Scaling]:
    """A look a second."""
    return [policy.look(work, float(now)) for now in range(start, start + seconds + 1)]


def test_more_tasks_are_wanted_once_all_have_been_busy_for_long_enough() -> None:
    first, second, third = looks(ElasticPolicy(OPTIONS), StageWork(3, 1.0), 2)
    assert (first.tasks, first.kind, second.tasks) == (3, "not for long enough", 3)
    assert (third.tasks, third.kind, third.reason) == (5, "more tasks", "busy 100% of the time for 2.0 s")


def test_fewer_tasks_are_wanted_once_they_have_been_idle_for_twice_as_long() -> None:
    decisions = looks(ElasticPolicy(OPTIONS), StageWork(5, 0.3), 4)
    assert [decision.tasks for decision in decisions] == [5, 5, 5, 5, 3]
    assert decisions[-1].kind == "fewer tasks"


def test_a_moment_in_between_begins_the_wait_anew() -> None:
    policy = ElasticPolicy(OPTIONS)
    looks(policy, StageWork(3, 1.0), 1)
    assert policy.look(StageWork(3, 0.7), 2.0).kind == "within bounds"
    assert [decision.tasks for decision in looks(policy, StageWork(3, 1.0), 2, start=3)] == [3, 3, 5]


def test_a_change_begins_the_wait_anew() -> None:
    policy = ElasticPolicy(OPTIONS)
    looks(policy, StageWork(3, 1.0), 1)
    policy.changed(1.0)
    assert policy.look(StageWork(5, 1.0), 2.0).kind == "not for long enough"


def test_bounds_are_kept() -> None:
    assert looks(ElasticPolicy(OPTIONS), StageWork(5, 1.0), 2)[-1].tasks == 6
    assert looks(ElasticPolicy(OPTIONS), StageWork(6, 1.0), 2)[-1].kind == "at a bound"
    assert looks(ElasticPolicy(OPTIONS), StageWork(2, 0.0), 4)[-1].kind == "at a bound"


def test_nothing_is_started_where_processors_are_used_up() -> None:
    decision = looks(ElasticPolicy(OPTIONS), StageWork(3, 1.0, cores_busy=0.97), 2)[-1]
    assert (decision.tasks, decision.kind) == (3, "processors are used up")
    assert "the processors are used 97% of the time" in decision.reason


@pytest.mark.parametrize(("left", "cost", "tasks"), [(4.0, 2.0, 3), (6.0, 2.0, 5), (6.0, 3.0, 3)])
def test_nothing_is_started_that_costs_more_than_it_gains(left: float, cost: float, tasks: int) -> None:
    policy = ElasticPolicy(OPTIONS)
    policy.changed(cost)
    assert looks(policy, StageWork(3, 1.0, seconds_left=left), 2)[-1].tasks == tasks


@given(st.integers(2, 6), st.floats(0, 1))
def test_what_is_wanted_is_within_bounds_and_stays(tasks: int, busy: float) -> None:
    """The same work on the number of tasks that is wanted asks for no step back."""
    policy = ElasticPolicy(OPTIONS)
    wanted = looks(policy, StageWork(tasks, busy), 4)[-1].tasks
    assert OPTIONS.min_tasks <= wanted <= OPTIONS.max_tasks
    policy.changed(1.0)
    after = looks(policy, StageWork(wanted, min(busy * tasks / wanted, 1.0)), 4)[-1].tasks
    assert (after - wanted) * (wanted - tasks) >= 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"min_tasks": 3, "max_tasks": 2}, r"min_tasks \(3\) must not exceed max_tasks \(2\)"),
        ({"busy": 0.5, "idle": 0.5}, r"idle \(0.5\) must be below busy \(0.5\)"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ElasticOptions(**options)
