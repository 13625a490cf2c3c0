"""OTD's cycle: its table, its score, and the saddle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.otd.policy import Case, Measured, OnlineTaskDeployment

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
    ("cpu", "case"),
    [
        ([0.9, 0.3], Case.BALANCE),
        ([0.9, 0.7], Case.LACKING),
        ([0.6, 0.3], Case.OPTIMISE),
        ([0.6, 0.7], Case.QUIET),
    ],
)
def test_what_is_done_depends_on_high_and_low_loads(cpu: list[float], case: Case) -> None:
    traffic = np.array([[0.0, 9.0], [0.0, 0.0]])
    step = OnlineTaskDeployment(**AT_ONCE).step([0, 1], measured([0, 1], 2, traffic, cpu=cpu))
    assert step.case is case
    assert (step.migration is not None) == (case in (Case.BALANCE, Case.OPTIMISE))


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


def test_the_most_loaded_worker_is_relieved_and_none_becomes_so() -> None:
    workers = [0] * 9 + [1]
    online = OnlineTaskDeployment(**AT_ONCE)
    traffic = np.zeros((10, 10))
    for _ in range(10):
        step = online.step(workers, measured(workers, 2, traffic, task_cpu=0.1))
        if step.migration is not None:
            workers[step.migration.task] = step.migration.worker
    cpu = np.bincount(workers) * 0.1
    assert cpu.max() < 0.8 + 1e-9


def test_a_task_that_moved_rests() -> None:
    online = OnlineTaskDeployment(smoothing=1, rest=3)
    workers = [0, 1]
    towards = np.array([[0.0, 9.0], [0.0, 0.0]])
    first = online.step(workers, measured(workers, 2, towards))
    assert first.migration is not None
    moved = [1, 1] if first.migration.task == 0 else [0, 0]
    again = online.step(moved, measured(moved, 2, towards, cpu=[0.9, 0.1] if moved == [0, 0] else [0.1, 0.9]))
    assert again.migration is None or again.migration.task != first.migration.task


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


def test_one_busy_moment_is_smoothed_away() -> None:
    online = OnlineTaskDeployment(smoothing=3)
    traffic = np.zeros((2, 2))
    cases = [
        online.step([0, 1], measured([0, 1], 2, traffic, cpu=cpu)).case for cpu in ([0.6, 0.6], [0.6, 0.6], [0.95, 0.6])
    ]
    assert cases == [Case.QUIET] * 3
