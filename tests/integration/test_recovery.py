"""Jobs on real Ray actors of which processes are killed: a death costs time, and no record is lost or counted twice."""

import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import executors_for_tests as executors
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa import Job
from dpa.checkpoints import CheckpointStore
from dpa.telemetry.observers import Unobserved
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")

KINDS = ("mapper 0", "reducer 1", "load balancer", "coordinator")


def pid_of(job: str, task: str, generation: int) -> int:
    """The process of a task, by the title that it has given itself."""
    title = f"ray::{job} {task}" + (f"#{generation}" if generation else "")
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if command.read_bytes().rstrip(b"\0 ").decode() == title:
                return int(command.parent.name)
        except OSError:  # it has ended meanwhile
            continue
    raise AssertionError(f"there is no {title!r}")


class Killer(Unobserved):
    """Kills a process of a job in each generation, once records flow; then lets it work on at full speed."""

    def __init__(self, job: str, victims: tuple[str, ...], go: Path) -> None:
        self.job, self.victims, self.go = job, victims, go
        self.warnings: list[str] = []
        self.killed = 0
        self.pids: set[int] = set()

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.generation < self.killed or snapshot.phase != "stream" or snapshot.totals.processed < 100:
            return
        if self.killed == len(self.victims):
            self.go.touch()
            return
        os.kill(pid_of(self.job, self.victims[self.killed], self.killed), signal.SIGKILL)
        self.killed += 1

    def warn(self, message: str) -> None:
        print(f"{time.time():.2f}", message)
        self.warnings.append(message)


def test_a_job_survives_the_death_of_each_kind_of_its_processes(tmp_path: Path) -> None:
    keys = [f"key {number % 40}" for number in range(20_000)]
    killer = Killer("survivor", KINDS, tmp_path / "go")
    result = Job(
        name="survivor",
        input=pa.table({"key": keys, "value": [1] * len(keys)}),
        reducer=executors.SlowSum(0.002, str(tmp_path / "go")),
        parallelism={"mappers": 2, "reducers": 2},
        limits={"batch_records": 50, "in_flight_records": 400, "split_records": 1_000},
        recovery={"attempts": 4, "backoff": "200ms"},
        output={"path": str(tmp_path / "out")},
    ).run(killer)
    found = dict(zip(*pq.read_table(tmp_path / "out").to_pydict().values(), strict=True))
    assert found == Counter(keys)
    for r in result.report.recoveries:
        print(r)
    assert [recovery.task for recovery in result.report.recoveries] == list(KINDS)
    assert [recovery.generation for recovery in result.report.recoveries] == [0, 1, 2, 3]
    assert all(recovery.rows > 0 and recovery.seconds is not None for recovery in result.report.recoveries)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["go", "out"]


def test_a_job_goes_on_behind_its_newest_checkpoint(tmp_path: Path) -> None:
    rows, victims = 20_000, ("reducer 1", "coordinator")
    keys = [f"key {number % 40}" for number in range(rows)]
    killer = KillerBehindCheckpoints("saved", victims, tmp_path / "go")
    result = Job(
        name="saved",
        input=pa.table({"key": keys, "value": [1] * rows}),
        reducer=executors.SlowSum(0.002, str(tmp_path / "go")),
        parallelism={"mappers": 2, "reducers": 2},
        limits={"batch_records": 50, "in_flight_records": 400, "split_records": 1_000},
        recovery={"backoff": "200ms"},
        checkpoint={"path": str(tmp_path / "saved"), "every": "300ms", "keep": 2},
        output={"path": str(tmp_path / "out")},
    ).run(killer)
    found = dict(zip(*pq.read_table(tmp_path / "out").to_pydict().values(), strict=True))
    assert found == Counter(keys)
    assert [recovery.task for recovery in result.report.recoveries] == [*victims]
    behind = [int(found) for found in re.findall(r"behind ([\d,]+) rows", " ".join(killer.warnings).replace(",", ""))]
    assert len(behind) == 2 and 0 < behind[0] < behind[1]
    assert result.report.records.read <= rows - behind[1], "numbers are of the last generation"
    made = result.report.checkpoints
    assert made is not None and made.written >= 2 and made.size > 0 and made.waited > 0 and not made.failed
    [saved] = (tmp_path / "saved").iterdir()
    assert len(CheckpointStore.open(str(tmp_path / "saved")).chain(saved.name).slots()) >= 2


class KillerBehindCheckpoints(Killer):
    """Kills when there is a new checkpoint of the generation."""

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.checkpoints is not None and snapshot.checkpoints.written:
            super().update(snapshot)
