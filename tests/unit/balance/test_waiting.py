"""How long reducers wait for processors, of late, and how far differences are believed."""

from __future__ import annotations

import numpy as np
import pytest

from dpa.balance.adaptive._known_loads import Waiting
from dpa.measure.load import Load

QUARTER = 0.25


def reported(waited: np.ndarray, busy: float = 1.0) -> Waiting:
    """After reports a quarter of a second apart; `waited` has shape (reports, reducers)."""
    waiting = Waiting(report_seconds=QUARTER)
    for number, shares in enumerate(waited.tolist()):
        for reducer, share in enumerate(shares):
            waiting.add(reducer, Load(1, 0, busy=busy, waited=share), QUARTER * number)
    return waiting


def test_before_anything_is_reported_nobody_waits() -> None:
    waiting = Waiting(QUARTER)
    assert waiting.measured(0) == 0.0
    assert waiting.believed() == {}


def test_who_was_never_busy_is_expected_to_wait_as_the_others_do() -> None:
    waiting = reported(np.full((8, 1), 0.4))
    waiting.add(1, Load(0, 0), 2.0)
    assert waiting.measured(1) == 0.0
    assert waiting.believed() == pytest.approx({0: 0.4, 1: 0.4})


def test_a_wait_of_a_second_of_work_ago_counts_half() -> None:
    waited = np.repeat([[0.8], [0.0]], [40, 4], axis=0)
    assert reported(waited).measured(0) == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_what_changes_from_moment_to_moment_is_the_machines(seed: int) -> None:
    shares = np.clip(np.random.default_rng(seed).normal(0.5, 0.2, (20, 4)), 0, 1)
    waiting = reported(shares)
    measured = [waiting.measured(reducer) for reducer in range(4)]
    assert np.ptp(list(waiting.believed().values())) < 0.35 * np.ptp(measured)


def test_a_crowded_machine_is_believed() -> None:
    random = np.random.default_rng(0)
    shares = np.clip(random.normal([0.0, 0.0, 0.0, 0.6], 0.03, (20, 4)), 0, 1)
    believed = reported(shares).believed()
    assert believed[3] > 0.5
    assert max(believed[reducer] for reducer in range(3)) < 0.1
