"""What `experiments.elastic` reads from a run."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.elastic.loads import HELD_OUT, LOADS, Load
from experiments.elastic.outcome import Change, Outcome, outcome_of, tasks_at
from experiments.elastic.page import page
from experiments.elastic.targets import targets
from experiments.elastic.virtual import LONG, METHODS, OURS, SHORT

SERVICE = 0.1
STEP = Load("step", 40.0, lambda at: np.where((at >= 10) & (at < 30), 3.0, 0.75), (10.0, 30.0))


def outcome(*changes: tuple[float, int], late_by: float = 0.0) -> Outcome:
    """Of a run with these changes, each of a second, that processes what is due so much later between 12 and 17 s."""
    at = np.arange(0.0, 45.0, 0.25)
    when = at - np.where((at > 12) & (at < 17), late_by, 0.0)
    done = np.searchsorted(STEP.due(SERVICE), when, side="right").astype(float)
    made = [Change(moment, 1.0, tasks, "") for moment, tasks in changes]
    return outcome_of(STEP, (SHORT, OURS, 0), made, (at, done), SERVICE, 0.75)


def test_records_are_due_at_the_rate_of_the_load_and_late_more_than_a_second_after_that() -> None:
    due = STEP.due(SERVICE)
    assert len(due) == pytest.approx(20 * 7.5 + 20 * 30, abs=2)
    assert np.count_nonzero((due >= 12) & (due < 13)) == pytest.approx(30, abs=1)
    assert STEP.ideal(0.75)[[5, 15, 35]].tolist() == [1, 4, 1]
    assert outcome(late_by=0.9).late == 0.0
    found = outcome(late_by=2.0)
    assert found.late == found.longest == pytest.approx(5.0, abs=0.6)


def test_tasks_that_start_are_counted_but_not_there() -> None:
    found = outcome((12.0, 4))
    assert [tasks_at(STEP, found.changes, at) for at in (11.0, 12.5, 13.0)] == [1, 1, 4]
    assert found.task_seconds == pytest.approx(12 * 1 + (44.75 - 12) * 4)


def test_a_plateau_wants_its_number_in_one_change() -> None:
    for changes, off, undone in (
        (((12.0, 4), (35.0, 1)), 0, 0),
        (((12.0, 5), (35.0, 2)), 0, 0),  # near enough
        (((12.0, 3), (20.0, 4), (35.0, 1)), 1, 0),
        (((12.0, 8), (35.0, 1)), 1, 0),
        (((12.0, 6), (20.0, 4), (35.0, 1)), 1, 1),
        ((), 1, 0),
    ):
        found = outcome(*changes)
        assert (found.off, found.undone, found.turns) == (off, undone, 2)


def test_the_page_and_the_targets_are_of_all_runs() -> None:
    runs = [
        replace(outcome((12.0, 4), (35.0, 1), late_by=2.0), load=load.name, queues=queues, method=method)
        for load in LOADS
        for queues in (SHORT, LONG)
        for method in METHODS
    ]
    runs += [replace(runs[0], load=load.name, turns=1) for load in HELD_OUT]
    text = page(runs)
    assert all(f"| {load.name} |" in text for load in (*LOADS, *HELD_OUT))
    missed = {target.name for target in targets(runs) if not target.met}
    assert {f"held out, {load.name}: changes, most of all runs" for load in HELD_OUT} <= missed
    assert {name for name in missed if not name.startswith("held out, ")} == {
        "ours: changes that a short wave is chased with"
    }
