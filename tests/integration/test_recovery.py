"""Jobs on real Ray actors of which processes are killed: a death costs time, and no record is lost or counted twice."""

import os
import re
import signal
import threading
from collections import Counter
from pathlib import Path

import executors_for_tests as executors
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    OutOfMemoryError,
    RayTaskError,
    RuntimeEnvSetupError,
)

from dpa import Job
from dpa.driver.control import RunningJob
from dpa.errors import ConfigError, ControlError
from dpa.protocol.recovery import TaskDiedError
from dpa.protocol.wire.addresses import Address
from dpa.runtime._failures import failure
from dpa.telemetry.observers import Unobserved
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")

KINDS = ("mapper 0", "reducer 1", "load balancer", "coordinator")


def pid_of(job: str, task: str, generation: int) -> int:
    """The process of a task, by the title that it has given itself."""
    title = f"ray::{job} {task}" + (f"#{generation}" if generation else "")
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if command.read_bytes().rstrip(b"\0 ") == title.encode():
                return int(command.parent.name)
        except OSError:  # it has ended meanwhile
            continue
    raise AssertionError(f"there is no {title!r}")


class Killer(Unobserved):
    """Kills a process of a job in each generation, once records flow; then lets the job work on at full speed.

    With `slow`, the first death comes while a task is asked for that does not come up as long as that file is there.
    """

    def __init__(self, job: str, victims: tuple[str, ...], go: Path, slow: Path | None = None) -> None:
        self.job, self.victims, self.go, self.slow = job, victims, go, slow
        self.warnings: list[str] = []
        self.answers: list[str] = []
        self.killed = self.looks = 0

    def ask(self, running: RunningJob) -> None:
        try:
            running.scale("reducer", 3, warn=print)
        except ControlError as error:
            self.answers.append(str(error))

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.generation < self.killed or snapshot.phase != "stream" or snapshot.totals.processed < 100:
            return
        running = RunningJob.find(self.job)
        if self.killed == len(self.victims):
            status = running.status()
            if status is not None and status.generation == self.killed:  # asked by who knew the first generation
                self.go.touch()
            return
        if not self.killed and self.slow is not None:
            self.looks += 1
            if self.looks == 1:
                self.slow.touch()
                self.asking = threading.Thread(target=self.ask, args=(running,))
                self.asking.start()
            if self.looks < 5:  # the request is on its way
                return
        os.kill(pid_of(self.job, self.victims[self.killed], self.killed), signal.SIGKILL)
        self.killed += 1

    def warn(self, message: str) -> None:
        if self.slow is not None:
            self.slow.unlink(missing_ok=True)
        self.warnings.append(message)


def test_a_job_survives_the_death_of_each_kind_of_its_processes(tmp_path: Path) -> None:
    keys, go, slow = [f"key {number % 40}" for number in range(20_000)], tmp_path / "go", tmp_path / "slow"
    killer = Killer("survivor", KINDS, go, slow)
    result = Job(
        name="survivor",
        input=pa.table({"key": keys, "value": [1] * len(keys)}),
        reducer=executors.SlowToCome(0.002, str(go), str(slow)),
        parallelism={"mappers": 2, "reducers": 2},
        limits={"batch_records": 50, "in_flight_records": 400, "split_records": 1_000},
        recovery={"attempts": 4, "backoff": "200ms"},
        output={"path": str(tmp_path / "out")},
    ).run(killer)
    killer.asking.join()
    assert dict(zip(*pq.read_table(tmp_path / "out").to_pydict().values(), strict=True)) == Counter(keys)
    recoveries = result.report.recoveries
    assert [(recovery.task, recovery.generation) for recovery in recoveries] == list(zip(KINDS, range(4), strict=True))
    for recovery in recoveries:
        assert "worker process has died" in recovery.cause
        assert 0 <= recovery.rows < len(keys)
        assert recovery.seconds is not None and recovery.seconds > 0
    assert any(recovery.rows for recovery in recoveries), "those are known that had been reported"
    assert [warning.partition(" died: ")[0] for warning in killer.warnings[::2]] == list(KINDS), killer.warnings
    assert [answer.partition(": ")[2] for answer in killer.answers] == ["the job was restarted"]
    assert result.report.records.processed == len(keys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["go", "out"]


def test_a_job_goes_on_behind_its_newest_checkpoint(tmp_path: Path) -> None:
    rows, victims = 20_000, ("reducer 1", "coordinator")
    keys = [f"key {number % 40}" for number in range(rows)]
    killer = KillerBehindCheckpoints("goes-on", victims, tmp_path / "go")
    result = Job(
        name="goes-on",
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
    assert not [*(tmp_path / "saved").iterdir()], "the job has ended well"


class KillerBehindCheckpoints(Killer):
    """Kills when there is a new checkpoint of the generation."""

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.checkpoints is not None and snapshot.checkpoints.written:
            super().update(snapshot)


def test_a_death_is_told_from_an_error_of_what_a_process_runs() -> None:
    task = Address("reducer", 1)
    memory = "Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1) was 15GB / 16GB"
    for error, is_one in (
        (ActorDiedError(), True),
        (ActorUnavailableError("gone", None), True),
        (OutOfMemoryError(memory), True),
        (NodeDiedError("the node is gone"), True),
        (RayTaskError("become", "Traceback ...", ConfigError("no such module")), False),
        (ActorDiedError(RayTaskError("__init__", "Traceback ...", ImportError("no module"))), False),
        (RuntimeEnvSetupError("no such directory"), False),
    ):
        found = failure(task, error, "died")
        assert isinstance(found, TaskDiedError) == is_one, error
        assert str(found).startswith("reducer 1 died: ")
    said = str(failure(task, OutOfMemoryError(memory), "died"))
    assert "Ray's memory monitor killed it, as its node is short of memory: Memory on the node (IP: 10.0.0.1)" in said
