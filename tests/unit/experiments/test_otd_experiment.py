"""Placements that follow the load, in virtual time."""

from __future__ import annotations

import pytest

from experiments.otd.methods import METHODS, OTD, OURS
from experiments.otd.virtual import KINDS, Course, course
from experiments.otd.virtual_page import PAPERS, delay, papers_courses, published_effects, settled


def run(kind: str, name: str, *, cycles: int = 25) -> Course:
    return course(KINDS[kind](4, 2), METHODS[name], cycles, (), seed=0)


@pytest.mark.parametrize("name", METHODS)
def test_a_compute_bound_job_gets_faster(name: str) -> None:
    found = run("compute", name)
    assert found.rate[0] < 0.7
    assert found.rate[-1] > 0.95
    assert sum(found.moves) > 0


def test_ours_reaches_in_one_cycle_what_otd_needs_many_for() -> None:
    theirs, ours = (run("communication", name) for name in (OTD, OURS))
    assert settled("communication", ours) == 1
    assert (settled("communication", theirs) or len(theirs.cpu)) > 10
    assert max(theirs.moves) == 1


def test_nothing_moves_once_the_load_is_steady() -> None:
    assert sum(run("compute", OURS).moves[5:]) == 0


def test_a_record_is_under_way_for_less_time_the_less_goes_between_nodes() -> None:
    assert delay(1.0) == pytest.approx(3e-3) and delay(0.0) == pytest.approx(2.2e-3)


def test_published_effects_are_judged_by_courses_of_the_papers_length() -> None:
    compute, talk = (papers_courses(kind, range(1)) for kind in KINDS)
    assert PAPERS == "2 x 4" and len(talk[0].cpu) == 62
    faster, crossing, _, shorter = published_effects(compute, talk)
    reached = compute[0].rate[10] / compute[0].rate[0] - 1
    assert faster.reached == f"{reached:.1%} to {reached:.1%}" and not faster.met
    assert crossing.reached == f"{compute[0].crossing[50]:.1%}"
    assert shorter.reached == "15.4% to 15.4%", "of 2.6 ms 0.4 ms less"
