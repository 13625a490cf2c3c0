"""Reducers that are slow on purpose, on real Ray actors."""

import executors_for_tests as executors
import pytest

from dpa import Job

pytestmark = pytest.mark.usefixtures("ray")


def test_user_code_takes_at_least_the_factor_of_a_slow_reducer_longer_than_it_asks_for() -> None:
    result = Job(
        input=[{"key": f"key {number % 60}", "value": 1} for number in range(400)],
        reducer=executors.SlowSum(0.002),
        parallelism={"mappers": 1, "reducers": 2},
        testing={"slow_factor": [1, 5]},
        balance={"strategy": "none"},
    ).run()
    assert sum(result.table()["value"].to_pylist()) == 400
    _, slowed = result.report.main.tasks
    assert slowed.busy_seconds >= 5 * 0.002 * slowed.processed
