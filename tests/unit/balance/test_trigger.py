"""Triggers: equation 1 of the DPA paper, strictly, with silent reducers as empty ones; and by utilisation."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance._tokens import QueueTrigger
from dpa.balance.adaptive.policy import AdaptivePolicy
from dpa.balance.options import AdaptiveOptions
from dpa.balance.policy import BalancedStage
from dpa.measure.load import Load

queue_lengths = st.dictionaries(st.integers(0, 5), st.integers(0, 10**6), min_size=1)


def judge(trigger: QueueTrigger, reducer: int, queues: dict[int, int]) -> tuple[bool, str]:
    """What the trigger says of loads that have a queue and nothing else."""
    return trigger.judge(reducer, {node: Load(queue, version=0) for node, queue in queues.items()})


@given(queue_lengths, st.sampled_from(["0", "0.05", "0.2", "0.5", "1", "3"]), st.integers(0, 100), st.data())
def test_the_verdict_is_the_papers_equation(queues: dict[int, int], tau: str, least: int, data: st.DataObject) -> None:
    reducer = data.draw(st.sampled_from(sorted(queues)))
    second = max((queue for other, queue in queues.items() if other != reducer), default=0)
    expected = queues[reducer] > second * (1 + Fraction(tau)) and queues[reducer] >= least
    assert judge(QueueTrigger(float(tau), least), reducer, queues)[0] == expected


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        ({0: 1300, 1: 1000}, "queue 1,300 of task 0 exceeds 1,000 x 1.2"),
        ({0: 1200, 1: 1000}, "queue 1,200 of task 0 does not exceed 1,000 x 1.2"),
        ({0: 3, 1: 0}, "queue 3 of task 0 is below the least queue of 5"),
    ],
)
def test_the_reason_names_the_numbers_that_decided(queues: dict[int, int], reason: str) -> None:
    assert judge(QueueTrigger(tau=0.2, least=5), 0, queues)[1] == reason


# --- by utilisation


@pytest.mark.parametrize(
    ("busy", "queue", "service_seconds", "min_delay", "overloaded"),
    [
        (1.0, 0, 0.01, 0.25, True),
        (0.9, 1, 0.01, 0.25, True),
        (0.5, 24, 0.01, 0.25, False),
        (0.5, 25, 0.01, 0.25, True),
        (0.0, 10**6, 0.01, 0.25, True),
        (0.1, 0, 0.01, 0.0, False),  # an empty queue is not long, however short a long one may be
        (0.1, 0, None, 0.0, False),
    ],
)
def test_a_reducer_that_is_always_busy_or_has_a_long_queue_is_overloaded(
    busy: float, queue: int, service_seconds: float | None, min_delay: float, overloaded: bool
) -> None:
    policy = AdaptivePolicy(BalancedStage(2), AdaptiveOptions(min_delay=min_delay))
    load = Load(queue, version=0, service_seconds=service_seconds, busy=busy)
    assert policy._is_overloaded(load) is overloaded
