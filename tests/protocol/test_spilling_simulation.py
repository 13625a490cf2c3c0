"""Jobs in the simulator whose tasks have room for hardly any state: what they make of their input is what others make,
whatever moves, comes and goes, and behind any cut."""

from pathlib import Path

import pytest

from dpa.execution.spill.bounded import BoundedStates
from dpa.execution.spill.room import Room
from experiments.simulated_jobs.random_graphs import run_random_graph
from experiments.simulated_jobs.random_jobs import run_random_job


@pytest.fixture
def spilled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often states were spilled: once for each entry."""
    found: list[int] = []
    spill = BoundedStates._spill
    monkeypatch.setattr(BoundedStates, "_spill", lambda self, cold: (found.append(len(cold)), spill(self, cold)))
    return found


@pytest.mark.parametrize("mode", [{}, {"migrates": True}, {"placed": True}], ids=lambda mode: next(iter(mode), "merge"))
def test_a_job_whose_tasks_come_and_go_spills_and_goes_on_behind_any_cut(
    mode: dict[str, bool], tmp_path: Path, spilled: list[int]
) -> None:
    for seed in range(2):
        run_random_job(seed, changes=True, cuts=True, room=Room(2_000, path=str(tmp_path)), **mode)
    assert len(spilled) > 10
    assert not list(tmp_path.iterdir()), "nothing is left"


def test_graphs_spill_and_go_on_behind_any_cut(tmp_path: Path, spilled: list[int]) -> None:
    for seed in range(6):
        run_random_graph(seed, cuts=True, room=Room(2_000, path=str(tmp_path)))
    assert len(spilled) > 10
