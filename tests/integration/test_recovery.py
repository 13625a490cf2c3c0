"""Jobs on real Ray actors of which processes are killed: a death costs time, and no record is lost or counted twice."""

import json
import os
import re
import signal
import threading
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import executors_for_tests as executors
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from observers_for_tests import pid_of
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    NodeDiedError,
    OutOfMemoryError,
    RayTaskError,
    RuntimeEnvSetupError,
)

from dpa import Flow, Job, Results, results
from dpa.driver.control import RunningJob
from dpa.errors import CheckpointDamagedError, CheckpointStoreError, ConfigError, ControlError
from dpa.protocol.recovery import TaskDiedError
from dpa.protocol.wire.addresses import Address
from dpa.runtime.actors.failures import failure
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot
from experiments.s3_server import keys as keys_of
from experiments.s3_server import s3_server, uri_of

pytestmark = pytest.mark.usefixtures("ray")

KINDS = ("mapper 0", "reducer 1", "load balancer", "control relay 1", "coordinator")
TASKS = ("mapper 0", "mapper 1", "reducer 0", "reducer 1")
ALL = (*TASKS, "load balancer", "coordinator")


class Killer(Observer):
    """Kills a process of a job in each generation, once records flow; then lets the job work on at full speed.

    With `slow`, the first death comes while a task is asked for that does not come up as long as that file is there.
    """

    def __init__(self, job: str, victims: tuple[str, ...], go: Path, slow: Path | None = None) -> None:
        self.job, self.victims, self.go, self.slow = job, victims, go, slow
        self.warnings: list[str] = []
        self.answers: list[str] = []
        self.asking: threading.Thread | None = None
        self.killed = 0
        self.processes: list[set[int]] = []
        self.ready: list[int] = []

    def ask(self, running: RunningJob) -> None:
        try:
            running.scale("reducer", 3, warn=print)
        except ControlError as error:
            self.answers.append(str(error))

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.generation < self.killed or snapshot.phase != "stream" or snapshot.records.processed < 100:
            return
        running = RunningJob.find(self.job)
        if self.killed == len(self.victims):
            status = running.status()
            if status is not None and status.generation == self.killed:  # asked by who knew the first generation
                self.go.touch()
            return
        if not self.killed and self.slow is not None:
            if self.asking is None:
                self.slow.touch()
                self.asking = threading.Thread(target=self.ask, args=(running,))
                self.asking.start()
            if not self.slow.with_name("waits").exists():  # the request is on its way
                return
        self.processes.append({pid_of(self.job, task, self.killed) for task in ALL})
        for victim in [pid_of(self.job, task, self.killed) for task in self.victims[self.killed].split(" and ")]:
            os.kill(victim, signal.SIGKILL)
        self.killed += 1

    def warn(self, message: str) -> None:
        if self.slow is not None:
            self.slow.unlink(missing_ok=True)
        self.warnings.append(message)


def test_a_job_survives_the_death_of_each_kind_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relays among them, as a job of many tasks has."""
    monkeypatch.setattr("dpa.runtime.launch.relays_for", lambda tasks: 2)
    keys, go, slow = [f"key {number % 40}" for number in range(20_000)], tmp_path / "go", tmp_path / "slow"
    killer = Killer("survivor", (*KINDS[:-1], "coordinator and reducer 0"), go, slow)
    result = Job(
        name="survivor",
        input=pa.table({"key": keys, "value": [1] * len(keys)}),
        reducer=executors.SlowToCome(0.004, str(go), str(slow)),
        parallelism={"mappers": 2, "reducers": 2},
        limits={"batch_records": 50, "in_flight_records": 400, "split_records": 1_000},
        recovery={"attempts": len(KINDS), "backoff": "200ms"},
        output={"path": str(tmp_path / "out")},
    ).run(killer)
    assert killer.asking is not None
    killer.asking.join()
    assert dict(zip(*pq.read_table(tmp_path / "out").to_pydict().values(), strict=True)) == Counter(keys)
    for before, after in pairwise(killer.processes):
        assert len(before & after) >= len(ALL) - 1, "processes that live are kept"
    recoveries = result.report.recoveries
    assert [(recovery.task, recovery.generation) for recovery in recoveries] == [
        (kind, number) for number, kind in enumerate(KINDS)
    ]
    for recovery in recoveries:
        assert recovery.cause.startswith("its process was killed, crashed or exited; ")
        assert 0 <= recovery.rows < len(keys)
        assert recovery.begun is not None and recovery.restored is not None and recovery.seconds is not None
        assert 0.2 <= recovery.begun <= recovery.restored <= recovery.seconds, "not before the back-off"
    assert any(recovery.rows for recovery in recoveries), "those are known that had been reported"
    assert [warning.partition(" died: ")[0] for warning in killer.warnings[::2]] == list(KINDS), killer.warnings
    assert [answer.partition(": ")[2] for answer in killer.answers] == ["the job was restarted"]
    assert result.report.records.processed == len(keys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["go", "out", "waits"]


def test_a_job_goes_on_behind_its_newest_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpa.runtime.launch.relays_for", lambda tasks: 2)  # through which it is known of epochs
    rows, victims = 20_000, ("reducer 1", "coordinator")
    keys = [f"key {number % 40}" for number in range(rows)]
    killer = KillerBehindCheckpoints("goes-on", victims, tmp_path / "go")
    result = Job(
        name="goes-on",
        input=pa.table({"key": keys, "value": [1] * rows}),
        reducer=executors.SlowSum(0.006, str(tmp_path / "go")),
        parallelism={"mappers": 2, "reducers": 2},
        limits={"batch_records": 50, "in_flight_records": 150, "split_records": 1_000},
        recovery={"backoff": "200ms"},
        checkpoint={"path": str(tmp_path / "saved"), "every": "300ms", "keep": 2},
        output={"path": str(tmp_path / "out"), "publish": "changes"},
    ).run(killer)
    assert dict(zip(*result.table().to_pydict().values(), strict=True)) == Counter(keys)
    before, after = killer.processes
    assert len(after - before) == 1 and after - before <= {*killer.ready}, "the process that was ready is another now"
    assert_each_change_is_there_once(results(tmp_path / "out"), Counter(keys))
    assert [recovery.task for recovery in result.report.recoveries] == [*victims]
    behind = [
        int(found) for found in re.findall(r"begins after ([\d,]+) rows", " ".join(killer.warnings).replace(",", ""))
    ]
    assert len(behind) == 2 and 0 < behind[0] < behind[1]
    assert result.report.records.read <= rows - behind[1], "numbers are of the last generation"
    made = result.report.checkpoints
    assert made is not None and made.written >= 2 and made.size > 0 and made.waited > 0 and not made.failed
    assert not [*(tmp_path / "saved").iterdir()], "the job has ended well"


def test_results_of_all_sinks_are_committed_once_where_a_task_dies_while_they_are_staged(tmp_path: Path) -> None:
    """And one of them is out of reach for a moment then."""
    keys, lines = [f"key {number % 40}" for number in range(500)], tmp_path / "lines.json"
    flow = Flow("sinks", recovery={"backoff": "100ms"})
    rows = flow.read(pa.table({"key": keys, "value": [1] * len(keys)})).key_by("key", value="value")
    died = str(tmp_path / "died")
    deadly = {"use": "sinks_for_tests:DeadlyLines", "args": {"path": str(lines), "died": died}}
    with s3_server("results") as port:
        for name, where in (("files", tmp_path / "out"), ("objects", uri_of(port, "results/out")), ("own", deadly)):
            write = where if isinstance(where, dict) else str(where)
            rows.reduce(executors.add, name=name, parallelism=1, grouping="key", write=write)
        result = flow.run()
        found = [result.table(name) for name in ("files", "objects")]
        assert len(keys_of(port, "results")) == 2, "the manifest, and what it names"
    assert [recovery.task for recovery in result.report.recoveries] == ["own 0"]
    found.append(pa.Table.from_pylist([json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]))
    for table in found:
        assert dict(zip(*table.to_pydict().values(), strict=True)) == Counter(keys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["died", "died-away", "lines.json", "out"]


def assert_each_change_is_there_once(found: Results, wanted: Counter[str]) -> None:
    """Of each key one insert, and then updates, of epochs that grow, to greater sums, and to the wanted one at last."""
    assert dict(zip(*found.latest().to_pydict().values(), strict=True)) == wanted
    changes = found.table.sort_by("epoch").to_pylist()
    epochs = {row["epoch"] for row in changes}
    # The last changes nothing, where the one before came at the very end.
    assert {*range(1, found.epoch)} <= epochs <= {*range(1, found.epoch + 1)} and len(epochs) >= 3
    for key in wanted:
        own = [row for row in changes if row["key"] == key]
        assert [row["change"] for row in own] == ["insert", *["update"] * (len(own) - 1)]
        for column in ("epoch", "value"):
            assert [row[column] for row in own] == sorted({row[column] for row in own})


class KillerBehindCheckpoints(Killer):
    """Kills when there is a new checkpoint of the generation, and a process is ready."""

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.checkpoints is None or not snapshot.checkpoints.written:
            return
        import psutil  # Ray brings it

        ready = []
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                if "".join(child.cmdline()[:1]).startswith("ray::StageActor"):
                    ready.append(child.pid)
        if ready:
            self.ready += ready
            super().update(snapshot)


class Disaster(Observer):
    """Kills several processes at once, then one while the job recovers; then nobody reaches the store of checkpoints,
    until that is said."""

    def __init__(self, job: str, store: Path, go: Path) -> None:
        self.job, self.store, self.go = job, store, go
        self.said: list[str] = []
        self.is_over = False

    def kill(self, *tasks: str) -> None:
        for number in [pid_of(self.job, task, 0) for task in tasks]:
            os.kill(number, signal.SIGKILL)

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.checkpoints is None or not snapshot.checkpoints.written or self.is_over:
            return
        if snapshot.generation == 0:
            self.is_over = True
            self.kill("reducer 0", "reducer 1", "mapper 0", "load balancer")

    def warn(self, message: str) -> None:
        self.said.append(message)
        match len(self.said):
            case 1:
                self.kill("mapper 1")
            case 2:
                self.store.rename(self.store.with_name("away"))
                self.store.symlink_to(self.store)
            case 3:
                self.store.unlink()
                self.store.with_name("away").rename(self.store)
                self.go.touch()


def test_a_job_survives_deaths_at_once_one_while_it_recovers_and_a_store_that_is_out_of_reach(tmp_path: Path) -> None:
    keys = [f"key {number % 40}" for number in range(8_000)]
    disaster = Disaster("disaster", tmp_path / "saved", tmp_path / "go")
    result = Job(
        name="disaster",
        input=pa.table({"key": keys, "value": [1] * len(keys)}),
        reducer=executors.SlowSum(0.004, str(tmp_path / "go")),
        parallelism={"mappers": 2, "reducers": 2},
        limits={"batch_records": 20, "in_flight_records": 100, "split_records": 1_000},
        recovery={"backoff": "100ms"},
        checkpoint={"path": str(tmp_path / "saved"), "every": "300ms"},
    ).run(disaster)
    assert dict(zip(*result.table().to_pydict().values(), strict=True)) == Counter(keys)
    at_once, during, store, flow = disaster.said
    assert at_once.partition(" died: its process was killed")[0] in (*TASKS, "load balancer")
    assert " did not start: its process was killed, crashed or exited; " in during
    assert store.startswith("coordinator failed: ") and "symbolic links" in store
    assert "generation 3 begins after " in store and flow.startswith("records flow again, ")
    assert [recovery.generation for recovery in result.report.recoveries] == [0, 1, 2]
    assert not [*(tmp_path / "saved").iterdir()]


def test_a_death_is_told_from_an_error_of_what_a_process_runs() -> None:
    task = Address("reducer", 1)
    memory = "Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1) was 15GB / 16GB"
    for error, is_one in (
        (ActorDiedError(), True),
        (ActorUnavailableError("gone", None), True),
        (OutOfMemoryError(memory), True),
        (NodeDiedError("the node is gone"), True),
        (RayTaskError("become", "Traceback ...", ConfigError("no such module")), False),
        (RayTaskError("begin", "Traceback ...", CheckpointDamagedError("it is damaged")).as_instanceof_cause(), False),
        (RayTaskError("begin", "Traceback ...", CheckpointStoreError("no way")).as_instanceof_cause(), True),
        (ActorDiedError(RayTaskError("__init__", "Traceback ...", ImportError("no module"))), False),
        (RuntimeEnvSetupError("no such directory"), False),
    ):
        found = failure(task, error, "died")
        assert isinstance(found, TaskDiedError) == is_one, error
        assert str(found).startswith("reducer 1 died: ")
    crashed = (
        "\tclass_name: StageActor\n\tpid: 7\nThe actor is dead because its worker process has died. Worker exit type: "
    )
    for text, cause in (
        (
            crashed
            + "SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of "
            "file. Some common causes include: (1) the OOM killer",
            "its process was killed, crashed or exited; if memory",
        ),
        (
            crashed + "SYSTEM_ERROR Worker exit detail: Worker exits with an exit code 3.",
            "its process exited with status 3",
        ),
        (
            "The node with node id: 5a has been marked dead because the detector has missed too many "
            "heartbeats from it. This can happen when a \t(1) raylet crashes",
            "its machine has gone silent",
        ),
        ("\tthe actor's node was terminated unexpectedly: x", "its machine, or Ray's `raylet` there, died"),
        ("another reason\nof Ray's.", "another reason of Ray's"),
    ):
        assert str(failure(task, NodeDiedError(text), "died")).startswith(f"reducer 1 died: {cause}"), text
    gone = "The node specified via NodeAffinitySchedulingStrategy doesn't exist any more"
    unscheduled = failure(task, ActorUnschedulableError(gone), "did not start")
    assert isinstance(unscheduled, TaskDiedError), "there may be other nodes"
    assert str(unscheduled) == "reducer 1 did not start: its machine, or Ray's `raylet` there, died"
    said = str(failure(task, OutOfMemoryError(memory), "died"))
    assert "Ray's memory monitor killed it, as its node is short of memory: Memory on the node (IP: 10.0.0.1)" in said
