"""A job without end that goes on with new code of its executors, behind the checkpoint at which it was stopped."""

import sys
import threading
from pathlib import Path

import pyarrow.compute as pc
import pytest

from dpa import Job, Result
from dpa.driver.control import RunningJob
from dpa.errors import JobCancelledError
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")

CODE = """
from dpa import Reducer


def weighed(row):
    yield row["key"], {weight}


class Total(Reducer):
    def zero(self):
        return 0

    def reduce(self, state, value):
        return state + value

    def merge(self, one, other):
        return one + other

    def finish(self, state):
        return {{"total": state, "version": {version}}}
"""


class Ended(Observer):
    """Has a job stopped, or its inputs closed, once it has read some rows, behind a checkpoint."""

    def __init__(self, how: str) -> None:
        self.how, self.asked = how, False

    def update(self, snapshot: TrackedSnapshot) -> None:
        written = snapshot.checkpoints is not None and snapshot.checkpoints.written
        if written and snapshot.records.read and not self.asked:
            self.asked = True
            threading.Thread(target=getattr(RunningJob.find("upgraded"), self.how)).start()


def run(directory: Path, how: str, resume: str | None = None) -> tuple[Job, Result | None]:
    job = Job(
        name="upgraded",
        input={"format": "feed", "use": "executors_for_tests:Numbers"},
        mapper="upgraded:weighed",
        reducer="upgraded:Total",
        parallelism={"mappers": 1, "reducers": 2},
        checkpoint={"path": str(directory / "checkpoints"), "every": "300ms"},
        python_path=[str(directory), str(Path(__file__).parent)],
    )
    try:
        return job, job.run(Ended(how), resume=resume)
    except JobCancelledError:
        return job, None
    finally:
        sys.modules.pop("upgraded", None)  # as in the process of another driver


def test_a_job_without_end_goes_on_with_the_states_that_it_had_and_with_new_code(tmp_path: Path) -> None:
    (tmp_path / "upgraded.py").write_text(CODE.format(weight=1, version=1))
    stopped, nothing = run(tmp_path, "stop")
    assert nothing is None and stopped.resumable is not None

    (tmp_path / "upgraded.py").write_text(CODE.format(weight=1_000, version=2) + "\n# of another size\n")
    _, result = run(tmp_path, "finish", resume=stopped.resumable)
    assert result is not None and result.report.checkpoints is not None
    before, after = result.report.checkpoints.read_before, result.report.records.read
    table = result.table()
    assert set(table["version"].to_pylist()) == {2} and before and after
    assert pc.sum(table["total"]).as_py() == before + 1_000 * after
