"""The service time: a mean over the recent past, and by how much it may be off."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpa.measure.timing import ServiceTime


def test_the_service_time_is_the_mean_of_what_was_measured_of_late() -> None:
    service = ServiceTime(half_life=1.0)
    assert (service.seconds, service.evidence) == (None, 0.0)
    service.observe(3, 60.0)
    assert (service.seconds, service.evidence) == (20.0, 3.0)
    service.observe(100, 1.0)
    assert (service.seconds, service.evidence) == (0.01, 100.0), "the first one warms up"
    service.observe(10, 1.0)
    assert service.seconds == pytest.approx((0.5 * 1.0 + 1.0) / (0.5 * 100 + 10))
    for _ in range(30):
        service.observe(10, 1.0)
    assert service.seconds == pytest.approx(0.1)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9])
def test_a_service_time_of_any_length_is_taken(seconds: float) -> None:
    service = ServiceTime(half_life=1e-3)
    for _ in range(3):
        service.observe(4, seconds)
    assert service.seconds == pytest.approx(seconds / 4)


# --- its standard error


def test_of_one_measurement_nobody_knows_how_far_it_is_off() -> None:
    service = ServiceTime(half_life=1.0)
    assert service.error == math.inf
    service.observe(1, 1.0)
    service.observe(10, 0.1)
    assert service.error == math.inf, "the first one warms up"


def test_measurements_that_agree_leave_no_doubt() -> None:
    service = ServiceTime(half_life=1e9)
    for records in (5, 10, 20, 40):
        service.observe(records, records * 0.01)
    assert service.error == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("number", [8, 32, 128])
def test_the_error_is_as_large_as_means_really_differ(number: int) -> None:
    """Of many means of as many measurements, each of records that take 0.01 s give or take a third."""
    random = np.random.default_rng(number)
    means, errors = [], []
    for _ in range(300):
        service = ServiceTime(half_life=1e9)
        for seconds in random.uniform(0.005, 0.015, number + 1).tolist():
            service.observe(10, 10 * seconds)
        means.append(service.seconds)
        errors.append(service.error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.25)


def test_a_stale_past_adds_no_certainty() -> None:
    """However long it has run, the error is that of the measurements within a half-life or two."""
    random = np.random.default_rng(0)
    errors = []
    for number in (100, 1_000):
        service = ServiceTime(half_life=1.0)
        for seconds in random.uniform(0.005, 0.015, number).tolist():
            service.observe(10, 10 * seconds)
        errors.append(service.error)
    assert errors[1] > 0.5 * errors[0]
