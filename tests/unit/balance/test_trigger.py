"""Triggers: equation 1 of the DPA paper, strictly, with silent reducers as empty ones; and by utilisation."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance._trigger import QueueTrigger, UtilisationTrigger, Verdict
from dpa.measure.load import Load

queue_lengths = st.dictionaries(st.integers(0, 5), st.integers(0, 10**6), min_size=1)


def judge(trigger: QueueTrigger, reducer: int, queues: dict[int, int]) -> Verdict:
    """What the trigger says of loads that have a queue and nothing else."""
    return trigger.judge(reducer, {node: Load(queue, version=0) for node, queue in queues.items()})


@given(queue_lengths, st.sampled_from(["0", "0.05", "0.2", "0.5", "1", "3"]), st.integers(0, 100), st.data())
def test_the_verdict_is_the_papers_equation(queues: dict[int, int], tau: str, least: int, data: st.DataObject) -> None:
    reducer = data.draw(st.sampled_from(sorted(queues)))
    second = max((queue for other, queue in queues.items() if other != reducer), default=0)
    expected = queues[reducer] > second * (1 + Fraction(tau)) and queues[reducer] >= least
    assert judge(QueueTrigger(float(tau), least), reducer, queues).overloaded == expected


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        ({0: 1300, 1: 1000}, "queue 1,300 of task 0 exceeds 1,000 x 1.2"),
        ({0: 1200, 1: 1000}, "queue 1,200 of task 0 does not exceed 1,000 x 1.2"),
        ({0: 3, 1: 0}, "queue 3 of task 0 is below the least queue of 5"),
    ],
)
def test_the_reason_names_the_numbers_that_decided(queues: dict[int, int], reason: str) -> None:
    assert judge(QueueTrigger(tau=0.2, least=5), 0, queues).reason == reason


# --- by utilisation


@pytest.mark.parametrize(
    ("busy", "queue", "overloaded"),
    [(1.0, 0, True), (0.9, 1, True), (0.5, 0, False), (0.5, 24, False), (0.5, 25, True), (0.0, 10**6, True)],
)
def test_a_reducer_that_is_always_busy_or_has_a_long_queue_is_overloaded(
    busy: float, queue: int, overloaded: bool
) -> None:
    load = Load(queue, version=0, service_seconds=0.01, busy=busy)
    assert UtilisationTrigger(min_delay=0.25).judge(0, load).overloaded is overloaded


@pytest.mark.parametrize("service_seconds", [None, 0.01])
def test_an_empty_queue_is_not_long_however_short_a_long_one_may_be(service_seconds: float | None) -> None:
    load = Load(0, version=0, service_seconds=service_seconds, busy=0.1)
    assert not UtilisationTrigger(min_delay=0.0).judge(0, load).overloaded


def test_the_reason_says_how_busy_and_how_much_is_queued() -> None:
    verdict = UtilisationTrigger().judge(2, Load(75, version=0, service_seconds=0.01, busy=0.956))
    assert verdict.reason == "task 2 is busy 96% of the time and has 0.75 s of work queued"
