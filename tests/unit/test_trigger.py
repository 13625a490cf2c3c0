"""The trigger: equation 1 of the DPA paper, strictly, with silent reducers as empty ones."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.load import Load
from dpa.balance.trigger import QueueLengthTrigger, Verdict

queue_lengths = st.dictionaries(st.integers(0, 5), st.integers(0, 10**6), min_size=1)


def judge(trigger: QueueLengthTrigger, reducer: int, queues: dict[int, int]) -> Verdict:
    """What the trigger says of loads that have a queue and nothing else."""
    return trigger.judge(reducer, {node: Load(queue, epoch=0) for node, queue in queues.items()})


@pytest.mark.parametrize(
    ("queues", "overloaded"),
    [
        ({0: 12, 1: 10}, False),
        ({0: 13, 1: 10}, True),
        ({0: 10, 1: 10}, False),
        ({0: 9, 1: 10}, False),
        ({0: 13, 1: 10, 2: 11}, False),
        ({0: 14, 1: 10, 2: 11}, True),
    ],
)
def test_a_queue_must_exceed_the_second_longest_by_more_than_tau(queues: dict[int, int], overloaded: bool) -> None:
    assert judge(QueueLengthTrigger(tau=0.2), 0, queues).overloaded is overloaded


@pytest.mark.parametrize(("own", "overloaded"), [(0, False), (1, True)])
def test_reducers_that_never_reported_count_as_empty(own: int, overloaded: bool) -> None:
    assert judge(QueueLengthTrigger(tau=0.2, least_queue=0), 3, {3: own}).overloaded is overloaded


def test_with_a_tau_of_0_any_lead_is_too_much() -> None:
    trigger = QueueLengthTrigger(tau=0.0)
    assert judge(trigger, 0, {0: 11, 1: 10}).overloaded
    assert not judge(trigger, 0, {0: 10, 1: 10}).overloaded


@pytest.mark.parametrize(("own", "overloaded"), [(99, False), (100, True)])
def test_a_queue_below_the_least_is_never_overloaded(own: int, overloaded: bool) -> None:
    assert judge(QueueLengthTrigger(tau=0.2, least_queue=100), 0, {0: own, 1: 0}).overloaded is overloaded


@given(queue_lengths, st.sampled_from(["0", "0.05", "0.2", "0.5", "1", "3"]), st.integers(0, 100), st.data())
def test_the_verdict_is_the_papers_equation(queues: dict[int, int], tau: str, least: int, data: st.DataObject) -> None:
    reducer = data.draw(st.sampled_from(sorted(queues)))
    second = max((queue for other, queue in queues.items() if other != reducer), default=0)
    expected = queues[reducer] > second * (1 + Fraction(tau)) and queues[reducer] >= least
    assert judge(QueueLengthTrigger(float(tau), least), reducer, queues).overloaded == expected


@given(queue_lengths, st.floats(0, 10))
def test_at_most_one_reducer_is_overloaded_at_a_time(queues: dict[int, int], tau: float) -> None:
    trigger = QueueLengthTrigger(tau)
    assert sum(judge(trigger, reducer, queues).overloaded for reducer in queues) <= 1


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        ({0: 1300, 1: 1000}, "queue 1,300 of reducer 0 exceeds 1,000 x 1.2"),
        ({0: 1200, 1: 1000}, "queue 1,200 of reducer 0 does not exceed 1,000 x 1.2"),
        ({0: 3, 1: 0}, "queue 3 of reducer 0 is below the least queue of 5"),
    ],
)
def test_the_reason_names_the_numbers_that_decided(queues: dict[int, int], reason: str) -> None:
    assert judge(QueueLengthTrigger(tau=0.2, least_queue=5), 0, queues).reason == reason
