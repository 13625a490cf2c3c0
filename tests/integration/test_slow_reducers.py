"""Reducers that are slow on purpose, on real Ray actors."""

import os
import time
from pathlib import Path

import executors_for_tests as executors
import pyarrow as pa
import pytest

from dpa import Job
from dpa.errors import JobFailedError

pytestmark = pytest.mark.usefixtures("ray")
can_pin = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be pinned here")


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(process: int) -> bool:
    """Whether it does, though the machine may be busy."""
    until = time.monotonic() + 60
    while is_running(process) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_running(process)


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


@can_pin
def test_a_busy_process_contends_for_the_processor_of_a_reducer_and_ends_with_it() -> None:
    result = Job(
        input=[{"key": f"key {number}", "value": 1} for number in range(60)],
        reducer=executors.Beside(),
        parallelism={"mappers": 1, "reducers": 2},
        testing={"cpu_contention": [1]},
        balance={"strategy": "none"},
    ).run()
    contended = [row for row in result.table().to_pylist() if row["beside"]]
    assert len(contended) == result.report.main.tasks[1].keys < 60
    assert {row["processors"] for row in contended} == {1}
    [busy] = {process for row in contended for process in row["beside"]}
    assert ends(busy)


@can_pin
def test_a_busy_process_ends_with_a_reducer_that_is_killed(tmp_path: Path) -> None:
    notes = tmp_path / "beside"
    job = Job(
        input=pa.table({"key": ["a"], "value": [13]}),
        reducer=executors.Beside(str(notes)),
        parallelism={"mappers": 1, "reducers": 1},
        testing={"cpu_contention": [0]},
        balance={"strategy": "none"},
        recovery={"attempts": 0},
    )
    with pytest.raises(JobFailedError, match="reducer 0 died"):
        job.run()
    [busy] = map(int, notes.read_text().split())
    assert ends(busy)
