"""The schemes that `experiments.redeploy` compares, and what it reads from a simulated run."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from experiments.harness import Target
from experiments.redeploy.cases import MOVED, Outcomes, all_cases
from experiments.redeploy.course import Course, Gap, Quantum
from experiments.redeploy.losses import Runs, Storm, lost_parts
from experiments.redeploy.losses import run as run_storm
from experiments.redeploy.outcome import NONE, Case, Outcome, longest_gaps
from experiments.redeploy.page import draw, page
from experiments.redeploy.plans import Layout, Redeployment, redeployments
from experiments.redeploy.real import RealSetup, outcome_of
from experiments.redeploy.schemes import (
    LAZY,
    OURS,
    PUBLISHED,
    RESTART,
    SCHEMES,
    SINGLE,
    STOP,
    Known,
    Polling,
    lazy_tasks,
    restart_workers,
    single_tasks,
    stop_job,
)
from experiments.redeploy.targets import targets
from experiments.redeploy.virtual import Setup, simulate
from experiments.watching import Noted

LAYOUT = Layout()
SMALL = Setup(seconds=40, first=12.0, every=60.0, layout=Layout(2, 1, 4), start_seconds=5.0)


@pytest.mark.parametrize("moved", MOVED)
def test_as_many_tasks_move_as_are_asked_for_and_workers_stay_even(moved: int) -> None:
    plans = list(redeployments(LAYOUT, moved, range(20), seed=3))
    for plan, following in zip(plans, [*plans[1:], None], strict=True):
        assert len(plan.moved) == moved
        assert following is None or following.before == plan.after
        counts = Counter(plan.after)
        assert max(counts.values()) - min(counts.values()) <= 2
    assert len({plan.moved for plan in plans}) > 1


PLAN = Redeployment(100.0, before=(0, 0, 1, 2), after=(2, 0, 1, 2))
"""Task 0 moves from worker 0, on node 0, to worker 2, on node 1; worker 1 is not touched."""

PLACES = Layout(nodes=2, workers=2, tasks=4)
KNOWN = Known(on_node=(101.0, 104.0), in_worker=(102.0, 103.0, 106.0, 107.0))


def test_tasks_are_away_as_long_as_their_scheme_takes() -> None:
    """All of a job that stops; all of workers that restart; a single one from when its old worker knows until its
    new one has started it."""
    every = dict.fromkeys(range(4), (100.0, 130.0))
    assert stop_job(PLAN, KNOWN, PLACES, PUBLISHED) == every
    away = restart_workers(PLAN, KNOWN, PLACES, PUBLISHED)
    assert away == {0: (101.0, 119.5), 1: (101.0, 116.5), 3: (104.0, 119.5)}
    assert single_tasks(PLAN, KNOWN, PLACES, PUBLISHED) == {0: (102.0, 106.5)}
    assert lazy_tasks(PLAN, KNOWN, PLACES, PUBLISHED) == {0: (104.0, 106.5)}


def test_no_gap_is_longer_than_both_cycles_and_lazy_kill_shortens_each() -> None:
    draw = random.Random(5)
    longest = 0.0
    for plan in redeployments(LAYOUT, 8, [60.0 * number for number in range(200)], seed=1):
        known = Known.drawn(plan.at, LAYOUT, PUBLISHED, draw)
        gaps = single_tasks(plan, known, LAYOUT, PUBLISHED)
        lazy = lazy_tasks(plan, known, LAYOUT, PUBLISHED)
        for task, (since, until) in gaps.items():
            assert plan.at <= since <= plan.at + 13.0
            assert lazy[task] == (since + 2.0, until)
            longest = max(longest, until - since)
    assert 10.0 < longest <= 10.0 + 3.0 + PUBLISHED.start


def test_a_look_for_plans_takes_processor_time_of_tasks() -> None:
    short = replace(PUBLISHED, agent_cycle=0.3, worker_cycle=0.09)
    assert Polling(0.0, 0.0).slowness(LAYOUT, short) == 1.0
    assert Polling(0.012, 0.009).slowness(LAYOUT, short) == pytest.approx(1 / (1 - 0.1 - 0.01))
    with pytest.raises(ValueError, match="of a processor"):
        Polling(0.0, 0.1).slowness(LAYOUT, short)


def test_a_gap_is_a_time_in_which_nobody_works_though_records_wait() -> None:
    """Task 0 works, though not from 6.5 to 7 when records have come, and is followed by task 7 at 9."""
    quanta = [
        Quantum(0, 1.0, 2.0, 10, 0.0),
        Quantum(0, 2.5, 6.0, 10, 0.0),
        Quantum(0, 7.0, 7.5, 10, 0.0),
        Quantum(7, 9.0, 10.0, 10, 0.0),
        Quantum(1, 0.0, 10.0, 1, 0.0),
    ]
    arrivals = [(0.0, 1, 1), (1.0, 0, 10), (2.5, 0, 10), (6.5, 0, 10), (8.0, 7, 10)]
    found = Course(quanta, arrivals).gaps({0: 0, 1: 1, 7: 0})
    assert found == {0: [Gap(6.5, 7.0), Gap(8.0, 9.0)], 1: []}


def test_the_longest_gap_of_each_moved_task_is_found_and_that_of_all_others() -> None:
    plans = [Redeployment(10.0, (0, 1, 0), (1, 1, 0)), Redeployment(20.0, (1, 1, 0), (1, 0, 0))]
    gaps = {0: [Gap(5.0, 9.9), Gap(11.0, 12.0), Gap(13.0, 13.5), Gap(20.0, 20.2)], 1: [Gap(22.0, 25.0)], 2: []}
    assert longest_gaps(gaps, plans, 30.0) == ((1.0, 3.0), pytest.approx(0.2))


def test_tasks_of_ours_move_without_a_gap_however_long_they_take_to_start() -> None:
    ours, none = (simulate(SMALL, Case(scheme, moved), seed=1) for scheme, moved in ((OURS, 2), (NONE, 0)))
    assert len(ours.gaps) == 2 and ours.longest_gap < 0.1
    assert ours.rate == pytest.approx(none.rate, rel=0.05)
    assert ours.degraded(0.6, none.usual_rate) == 0


def runs_of(scheme: str, moved: int = 1, storm: Storm | None = None) -> Runs:
    """Three minutes of the model, three times."""
    return run_storm(storm or Storm(), LAYOUT, Case(scheme, moved), [50.0, 110.0], 180, range(3))


def test_a_job_that_stops_stands_for_as_long_and_does_not_catch_up_and_a_restart_stops_it_and_loses_nothing() -> None:
    stopped = runs_of(STOP)
    assert stopped.degraded(1.0).tolist() == [60.0] * 3
    assert stopped.throughput == pytest.approx(120 / 180)
    for lost in runs_of(RESTART).degraded(1.0):
        assert 2 * 14.0 <= lost <= 2 * (PUBLISHED.restart + PUBLISHED.agent_cycle + PUBLISHED.worker_cycle)


def test_words_are_lost_where_the_senders_worker_and_the_tasks_do_not_know_the_same() -> None:
    """Task 0 leaves worker 0 at 102 and is on worker 2 at 106.5; workers learn at 102, 103, 106 and 107. From 103 on
    worker 1 sends to the new place too soon, until 107 worker 3 to the old one."""
    lost = lost_parts(Storm(words=1), PLACES, Case(SINGLE, 1), [(PLAN, KNOWN)], 120)
    of_senders = {at: round(4 * 4 * lost[round(at * 10)]) for at in (101.5, 102.5, 103.5, 106.2, 106.7, 107.5)}
    assert of_senders == {101.5: 0, 102.5: 4, 103.5: 4, 106.2: 4, 106.7: 1, 107.5: 0}


def test_clients_whose_sentences_are_lost_send_nothing_until_the_timeout() -> None:
    short, long = (runs_of(SINGLE, 16, Storm(timeout=timeout)) for timeout in (1.0, 30.0))
    assert long.throughput.mean() < short.throughput.mean()
    assert long.rates[:, 45] == pytest.approx(1.0) and long.rates.min() < 0.2
    assert runs_of(SINGLE, 16, Storm(window=1e9)).throughput.mean() > long.throughput.mean()


def test_a_gap_on_real_actors_is_the_time_between_two_records_of_a_tasks_keys() -> None:
    """Keys of the first task are processed until 2.4 and from 4.9 on, others all the time."""
    setup = RealSetup(shrink=20.0, seconds=6, layout=Layout(1, 2, 2))
    assert setup.moments == [2.5, 5.5]
    mine, other = (int(np.flatnonzero(setup.task_of == task)[0]) for task in range(2))
    due = np.arange(0.0, 6.0, 0.1).repeat(2)
    keys = np.tile([mine, other], 60)
    done = np.where((keys == mine) & (due > 2.45) & (due < 4.9), 4.9, due)
    plans = [Redeployment(2.5, (0, 1), (1, 1)), Redeployment(5.5, (1, 1), (1, 0))]
    found = outcome_of(Case(OURS, 1), Noted(due, done, keys), plans, setup)
    assert found.gaps == pytest.approx((2.5, 0.1)) and found.others == pytest.approx(0.1)
    assert (found.p50, found.p99) == pytest.approx((0.0, 2.3), abs=0.1)
    assert sum(found.rates) == 120 and found.rates[3] == 10


def test_every_case_is_run_once_and_all_that_targets_and_page_look_at() -> None:
    cases = list(all_cases())
    assert len(cases) == len(set(cases)) and cases[0].scheme == NONE
    modelled = {case: Runs(case, np.array([rates_of(case)] * 2), (0.01,)) for case in cases if case.scheme in SCHEMES}
    runs = (Outcome(case, rates_of(case), 0.1, 0.2, (0.01,) * case.moved, 0.0) for case in cases)
    found = Outcomes(tuple(runs), modelled)
    by_name = {target.name: target for target in targets(found)}
    assert by_name["9a: single tasks, s that lost 60 %"] == Target(
        "9a: single tasks, s that lost 60 %", "20 (published) within", "11 to 11", False
    )
    assert by_name["single tasks: 16 tasks degrade longer than 1"].met
    assert not by_name["10d: lazy kill, cycles of 0.3 s are slower than of 3 s"].met
    text = page(found, Setup(), Storm())
    assert "| 9a: stopping the job | 279 | 50 (50 to 50) | 267 | 50 (50 to 50) |" in text
    assert "| 0.3/0.1 | 5 (5 to 5) |" in text
    figure = draw(found, cases[1:6], Setup().moments)
    assert len(figure.axes) == 6 and all(axes.has_data() for axes in figure.axes)


def rates_of(case: Case) -> tuple[float, ...]:
    """More seconds without a record, the more a scheme stops and the longer its cycles are."""
    lost = {NONE: 0, OURS: 0, STOP: 50, RESTART: 30, SINGLE: 10 + case.moved, LAZY: 5}[case.scheme]
    if case.scheme == LAZY:
        lost += int(case.durations.agent_cycle)
    return (0.0,) * lost + (1.0,) * (100 - lost)
