"""OTD's cycle: its table, its score, and the saddle; and placements that follow the load, in virtual time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.otd.methods import METHODS, OTD, OURS
from experiments.otd.policy import Case, Measured, OnlineTaskDeployment
from experiments.otd.virtual import KINDS, Course, course
from experiments.otd.virtual_page import PAPERS, delay, papers_courses, published_effects, settled


def run(kind: str, name: str) -> Course:
    return course(KINDS[kind](4, 2), METHODS[name], 25, (), seed=0)


@pytest.mark.parametrize("name", METHODS)
def test_a_compute_bound_job_gets_faster(name: str) -> None:
    found = run("compute", name)
    assert found.rate[0] < 0.7
    assert found.rate[-1] > 0.95
    assert sum(found.moves) > 0


def test_ours_reaches_in_one_cycle_what_otd_needs_many_for_and_then_nothing_moves() -> None:
    theirs, ours = (run("communication", name) for name in (OTD, OURS))
    assert settled("communication", ours) == 1
    assert (settled("communication", theirs) or len(theirs.cpu)) > 10
    assert max(theirs.moves) == 1
    assert sum(run("compute", OURS).moves[5:]) == 0


def test_published_effects_are_judged_by_courses_of_the_papers_length() -> None:
    compute, talk = (papers_courses(kind, range(1)) for kind in KINDS)
    assert PAPERS == "2 x 4" and len(talk[0].cpu) == 62
    faster, crossing, _, shorter = published_effects(compute, talk)
    reached = compute[0].rate[10] / compute[0].rate[0] - 1
    assert faster.reached == f"{reached:.1%} to {reached:.1%}" and not faster.met
    assert crossing.reached == f"{compute[0].crossing[50]:.1%}"
    assert shorter.reached == "15.4% to 15.4%", "of 2.6 ms 0.4 ms less"
    assert delay(1.0) == pytest.approx(3e-3) and delay(0.0) == pytest.approx(2.2e-3), "less goes between nodes"


AT_ONCE = {"smoothing": 1, "rest": 1}


def measured(workers: list[int], count: int, traffic: np.ndarray, task_cpu: float = 0.01, **given: object) -> Measured:
    """What workers would measure; their processors' use can be given."""
    costs = np.full(len(workers), task_cpu)
    cpu = np.bincount(workers, costs, count)
    return Measured(traffic, costs, np.asarray(given.get("cpu", cpu), dtype=float), np.zeros(count))


def crossing(workers: list[int], traffic: np.ndarray) -> float:
    """Bytes a second between nodes."""
    place = np.array(workers)
    return float(traffic[place[:, None] != place[None, :]].sum())


@pytest.mark.parametrize(
    ("cpu", "case"), [([0.9, 0.3], "BALANCE"), ([0.9, 0.7], "LACKING"), ([0.6, 0.3], "OPTIMISE"), ([0.6, 0.7], "QUIET")]
)
def test_what_is_done_depends_on_high_and_low_loads(cpu: list[float], case: str) -> None:
    traffic = np.array([[0.0, 9.0], [0.0, 0.0]])
    step = OnlineTaskDeployment(**AT_ONCE).step([0, 1], measured([0, 1], 2, traffic, cpu=cpu))
    assert step.case is Case[case]
    assert (step.migration is not None) == (case in ("BALANCE", "OPTIMISE"))


@settings(max_examples=60)
@given(
    workers=st.lists(st.integers(0, 3), min_size=2, max_size=8),
    amounts=st.lists(st.integers(0, 9), min_size=64, max_size=64),
)
def test_a_moves_score_is_the_traffic_between_nodes_that_it_saves(workers: list[int], amounts: list[int]) -> None:
    traffic = np.triu(np.array(amounts, dtype=float).reshape(8, 8)[: len(workers), : len(workers)], 1)
    step = OnlineTaskDeployment(**AT_ONCE).step(workers, measured(workers, 4, traffic))
    if step.migration is not None:
        after = list(workers)
        after[step.migration.task] = step.migration.worker
        assert crossing(workers, traffic) - crossing(after, traffic) == pytest.approx(step.migration.gain)


def test_evenly_spread_traffic_is_no_end() -> None:
    workers = [place % 2 for place in range(36)]
    traffic = np.zeros((36, 36))
    traffic[:12, 12:] = 1.0
    online = OnlineTaskDeployment()
    for _ in range(61):
        step = online.step(workers, measured(workers, 2, traffic))
        if step.migration is not None:
            workers[step.migration.task] = step.migration.worker
    assert crossing(workers, traffic) < 0.06 * traffic.sum()


def test_the_most_loaded_worker_is_relieved_none_becomes_so_and_one_busy_moment_is_smoothed_away() -> None:
    workers, online, traffic = [0] * 9 + [1], OnlineTaskDeployment(**AT_ONCE), np.zeros((10, 10))
    for _ in range(10):
        step = online.step(workers, measured(workers, 2, traffic, task_cpu=0.1))
        if step.migration is not None:
            workers[step.migration.task] = step.migration.worker
    assert (np.bincount(workers) * 0.1).max() < 0.8 + 1e-9
    online, traffic = OnlineTaskDeployment(smoothing=3), np.zeros((2, 2))
    for cpu in ([0.6, 0.6], [0.6, 0.6], [0.95, 0.6]):
        assert online.step([0, 1], measured([0, 1], 2, traffic, cpu=cpu)).case is Case.QUIET


@pytest.mark.parametrize("rest", [0, 1, 3])
def test_it_rests_for_as_many_cycles_as_it_should(rest: int) -> None:
    online = OnlineTaskDeployment(smoothing=1, rest=rest)
    still, towards = np.zeros((1, 1)), [[0.9, 0.1], [0.1, 0.9]]
    worker, moved_at = 0, []
    for cycle in range(8):
        step = online.step([worker], measured([worker], 2, still, cpu=towards[worker]))
        if step.migration is not None:
            worker = step.migration.worker
            moved_at.append(cycle)
    assert set(np.diff(moved_at).tolist()) == {rest + 1}
