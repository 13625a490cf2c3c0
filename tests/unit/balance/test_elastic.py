"""How many tasks a stage should have."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.balance.elastic import ElasticOptions, ElasticPolicy, Scaling, StageWork

OPTIONS = ElasticOptions(max_tasks=20, busy=0.9, idle=0.6, backlog_seconds=20.0, seconds=2.0)
RATE = 100.0
"""Records that a task processes in a second."""


def work(tasks: int, load: float, **others: Any) -> StageWork:
    """A stage to which is offered what would keep `load` tasks busy."""
    return StageWork(tasks, load * RATE, RATE, **others)


def looks(policy: ElasticPolicy, seen: StageWork, seconds: float, start: float = 0.0) -> list[Scaling]:
    """Two looks a second."""
    return [policy.look(seen, start + number / 2) for number in range(int(2 * seconds) + 1)]


class Stage:
    """A stage in the hands of the policy: changes are carried out at once, but take `cost` seconds by the policy's
    reckoning; records that come and cannot be processed wait.

    Attributes:
        sizes: its number of tasks, from change to change.
    """

    def __init__(self, tasks: int, options: ElasticOptions = OPTIONS, cost: float = 2.0) -> None:
        self.sizes = [tasks]
        self.waiting = 0.0
        self._policy = ElasticPolicy(options)
        self._cost = cost
        self._up_at = -math.inf

    def run(self, load: Callable[[float], float], seconds: float) -> Iterator[tuple[float, int]]:
        """Look twice a second; yields the moments and the number of tasks that are up."""
        tasks = self.sizes[-1]
        for number in range(int(2 * seconds)):
            now = number / 2
            if now >= self._up_at and tasks != self.sizes[-1]:
                self._policy.changed(self._cost, started=self.sizes[-1] > tasks)
                tasks = self.sizes[-1]
            self.waiting = max(0.0, self.waiting + 0.5 * RATE * (load(now) - tasks))
            if tasks == self.sizes[-1]:
                found = self._policy.look(work(tasks, load(now), backlog=self.waiting), now)
                if found.tasks != tasks:
                    self.sizes.append(found.tasks)
                    self._up_at = now + (self._cost if found.tasks > tasks else 0.0)
            yield now, tasks

    def sizes_after(self, load: Callable[[float], float], seconds: float) -> list[int]:
        """The numbers of tasks that it had."""
        for _ in self.run(load, seconds):
            pass
        return self.sizes


@pytest.mark.parametrize("half", [1.0, 1.5, 3.0, 6.0, 15.0])
def test_a_square_wave_shorter_than_a_change_pays_for_is_not_chased(half: float) -> None:
    assert len(Stage(1).sizes_after(lambda at: 4.5 if at % (2 * half) < half else 0.5, 300)) <= 2


@pytest.mark.parametrize(("seconds", "high"), [(60.0, 4.0), (60.0, 8.0), (120.0, 8.0), (120.0, 12.0)])
def test_a_ramp_is_answered_ahead_and_nothing_of_that_is_undone(seconds: float, high: float) -> None:
    sizes = Stage(2).sizes_after(lambda at: 1 + (high - 1) * min(at / seconds, 1.0), seconds + 120)
    assert len(sizes) <= 4 and sizes == sorted(sizes)
    assert high <= OPTIONS.busy * sizes[-1] and sizes[-1] <= high / OPTIONS.idle


@pytest.mark.parametrize(
    ("first", "load", "seconds", "sizes"),
    [
        (4, lambda at: 2.8 if at < 30 else 4.5, 120, [4, 6]),  # what rises in one step is no ramp
        (1, lambda at: min(at / 2, 1.0), 60, [1, 2]),  # nor are the first moments of a stream
        *(  # a load that falls slowly is followed by one change where it settles
            (9, lambda at, lasts=lasts: 1 + 5.5 * math.exp(-max(at - 10, 0) / lasts), 200, [9, 2])
            for lasts in (5.0, 10.0, 15.0)
        ),
    ],
)
def test_what_settles_causes_one_change(
    first: int, load: Callable[[float], float], seconds: float, sizes: list[int]
) -> None:
    assert Stage(first).sizes_after(load, seconds) == sizes


def test_a_load_that_falls_for_long_is_followed_before_it_settles() -> None:
    sizes = Stage(16).sizes_after(lambda at: max(11 - at / 60, 1), 600)
    assert len(sizes) > 2 and sizes == sorted(sizes, reverse=True)


@settings(max_examples=30)
@given(st.floats(40, 400), st.floats(2, 12))
def test_no_task_is_ended_while_the_load_rises(period: float, high: float) -> None:
    def load(at: float) -> float:
        return 0.5 + (high - 0.5) * (1 - math.cos(2 * math.pi * at / period)) / 2

    stage = Stage(1)
    before = 1
    for now, _ in stage.run(load, 500):
        if stage.sizes[-1] < before:
            assert load(now) <= 1.25 * min(load(max(now - back, 0.0)) for back in range(20))
        before = stage.sizes[-1]


@given(st.floats(0.3, 2), st.floats(3, 12), st.floats(50, 100))
def test_a_step_up_and_down_takes_two_changes_to_about_the_ideal_numbers(low: float, high: float, lasts: float) -> None:
    first = math.ceil(low / OPTIONS.target)
    sizes = Stage(first).sizes_after(lambda at: high if 20 <= at < 20 + lasts else low, lasts + 120)
    assert len(sizes) == 3
    assert [size - math.ceil(load / OPTIONS.target) for size, load in zip(sizes[1:], (high, low), strict=True)] in (
        [0, 0],
        [1, 0],  # for the backlog
    )


def test_a_backlog_that_is_not_worked_off_in_time_is_a_reason_though_tasks_would_not_be_too_busy() -> None:
    found = looks(ElasticPolicy(OPTIONS), work(4, 3.0, backlog=50 * RATE), 2)[-1]
    assert (found.tasks, found.kind) == (6, "more tasks")  # 3 tasks for what comes, 2.5 for what waits
    assert found.reason == "300 records/s offered, 100 a task, 5,000 waiting"
    assert looks(ElasticPolicy(OPTIONS), work(4, 3.0, backlog=19 * RATE), 2)[-1].kind == "within bounds"


@pytest.mark.parametrize("load", [2.0, 4.5, 9.0])
@pytest.mark.parametrize("cost", [0.5, 2.0, 5.0])
def test_after_a_step_the_backlog_is_gone_within_the_stated_time(load: float, cost: float) -> None:
    stage = Stage(1, cost=cost)
    course = [(now, tasks, stage.waiting) for now, tasks in stage.run(lambda at: 0.5 if at < 10 else load, 80)]
    changed = next(now for now, tasks, _ in course if tasks > 2 or tasks > 1)
    gone = next(now for now, _, waiting in course if now > changed and waiting == 0.0)
    assert gone - changed <= OPTIONS.backlog_seconds + 1.0


def test_a_stage_that_stays_behind_gets_more_tasks_as_long_as_that_helps() -> None:
    policy = ElasticPolicy(OPTIONS)
    assert looks(policy, work(3, 2.4, behind_seconds=19.0), 30)[-1].kind == "within bounds"
    found = policy.look(work(3, 2.4, behind_seconds=20.0, processed=200.0), 31.0)
    assert (found.tasks, found.kind) == (4, "more tasks") and found.reason.endswith("over its backlog for 20 s")
    again = policy.look(work(4, 2.4, behind_seconds=20.0, processed=210.0), 60.0)
    assert (again.tasks, again.kind) == (4, "more did not help")


def test_nothing_is_decided_before_a_record_has_been_processed_nor_after_a_long_time_without_a_look() -> None:
    assert looks(ElasticPolicy(OPTIONS), StageWork(1, 500.0, None), 10)[-1].kind == "nothing is known"
    policy = ElasticPolicy(OPTIONS)
    looks(policy, work(4, 0.1), 3.0)
    assert policy.look(work(4, 0.1), 23.3).tasks == 4


def test_a_change_begins_the_wait_anew_and_the_more_a_start_takes_the_longer_tasks_are_kept() -> None:
    policy = ElasticPolicy(OPTIONS)
    looks(policy, work(1, 4.0), 1.5)
    policy.changed(1.0, started=False)
    assert [found.tasks for found in looks(policy, work(1, 4.0), 2, start=2.0)] == [1, 1, 1, 1, 6]
    policy = ElasticPolicy(OPTIONS)
    policy.changed(5.0, started=True)
    policy.changed(0.1, started=False)  # to end tasks is quick
    kept = [found.tasks for found in looks(policy, work(5, 1.0), 90)]
    assert kept.index(2) / 2 == pytest.approx(50 * 5 / 3, abs=0.5)  # ten starts of five tasks, while three idle


def test_bounds_are_kept_and_nothing_is_started_where_user_code_runs_and_processors_are_used_up() -> None:
    assert looks(ElasticPolicy(OPTIONS), work(15, 40.0), 2)[-1].tasks == 20
    assert looks(ElasticPolicy(OPTIONS), work(20, 40.0), 2)[-1].kind == "at a bound"
    assert looks(ElasticPolicy(ElasticOptions(min_tasks=3)), work(5, 0.0), 50)[-1].tasks == 3
    options = ElasticOptions(max_tasks=6, idle=0.0, busy=1e-308, backlog_seconds=1e-308)
    assert looks(ElasticPolicy(options), work(2, 3.0, backlog=1e9), 3.0)[-1].tasks == 6
    found = looks(ElasticPolicy(OPTIONS), work(3, 5.0, cores_busy=0.97, running=0.4), 2)[-1]
    assert (found.tasks, found.kind) == (3, "processors are used up")
    assert "the processors are used 97% of the time" in found.reason
    assert looks(ElasticPolicy(OPTIONS), work(3, 5.0, cores_busy=0.97, running=0.02), 2)[-1].tasks == 7


@pytest.mark.parametrize(("left", "cost", "tasks"), [(3.0, 2.0, 3), (6.0, 2.0, 7), (6.0, 4.0, 3)])
def test_nothing_is_started_for_less_than_it_costs_nor_ended_at_the_end(left: float, cost: float, tasks: int) -> None:
    policy = ElasticPolicy(OPTIONS)
    policy.changed(cost, started=True)
    assert looks(policy, work(3, 5.0, seconds_left=left), 2)[-1].tasks == tasks
    found = looks(ElasticPolicy(OPTIONS), work(5, 1.0, seconds_left=1.0), 40)[-1]
    assert (found.tasks, found.kind) == (5, "not worth it")


@given(st.integers(1, 20), st.floats(0, 30))
def test_a_load_that_stays_asks_for_one_change_at_most(tasks: int, load: float) -> None:
    stage = Stage(tasks)
    sizes = stage.sizes_after(lambda at: load, 150)
    assert len(sizes) <= 2
    assert stage.sizes[-1] == 20 or load <= OPTIONS.busy * stage.sizes[-1]


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=r"min_tasks \(3\) must not exceed max_tasks \(2\)"):
        ElasticOptions(min_tasks=3, max_tasks=2)
    with pytest.raises(ValueError, match=r"idle \(0.5\) must be below busy \(0.5\)"):
        ElasticOptions(busy=0.5, idle=0.5)
