"""Tasks of a job on Ray that come, go and move while records flow, asked for from outside."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from executors_for_tests import RunningSum, SlowSum, SlowToCome, wait_for
from typer.testing import CliRunner

from dpa import Flow
from dpa.control import app
from dpa.driver.control import RunningJob
from dpa.errors import ControlError
from dpa.protocol.wire.nodes import BackendNode
from dpa.result import Result
from dpa.runtime.cluster import alive_nodes

pytestmark = pytest.mark.usefixtures("ray")


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests run jobs meanwhile."""
    monkeypatch.setattr("dpa.door.client.runs_directory", lambda: tmp_path)


ROWS, KEYS, SECONDS = 8_000, 40, 0.02


def own_jobs() -> list[RunningJob]:
    """Those of this process: other tests run jobs on the machine at the same time."""
    return [job for job in RunningJob.all() if job.name.endswith(f"-{os.getpid()}")]


class Running:
    """A flow that runs in a thread of its own, until the block's end."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self.pages: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._found: list[Result | BaseException] = []

    def _run(self) -> None:
        try:
            self._found.append(self._flow.run(page=self.pages.append))
        except BaseException as error:
            self._found.append(error)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.join()

    def job(self) -> RunningJob:
        """It, once records flow."""
        while self._thread.is_alive():
            for job in own_jobs():
                status = job.status()
                if status is not None and status.job == self._flow.name and status.phase == "stream":
                    return job
            time.sleep(0.05)
        pytest.fail(f"the job has ended: {self._found}")

    def result(self) -> Result:
        """Its result, when it has ended."""
        self._thread.join()
        [found] = self._found
        assert isinstance(found, Result), found
        return found


def tasks_of(job: RunningJob, stage: str, expected: tuple[int, ...]) -> bool:
    """Whether the job says within a while that these are the tasks of a stage."""
    for _ in range(1_200):
        status = job.status()
        if status is not None and expected == next(found.tasks for found in status.stages if found.name == stage):
            return True
        time.sleep(0.05)
    return False


def flow_of(name: str, reducer: SlowSum | RunningSum, **limits: float) -> Flow:
    """Sums by key: one a key of a reducer, and of a process as far as they are at each record."""
    table = pa.table({"key": [number * number % KEYS for number in range(ROWS)], "value": range(ROWS)})
    flow = Flow(
        name,
        limits={"split_records": 1_000, "batch_records": 20, "in_flight_records": 200, "quantum_records": 20, **limits},
    )
    keyed = flow.read(table, parallelism=1).key_by("key")
    if isinstance(reducer, SlowSum):
        keyed.reduce(reducer, name="sums", parallelism=2)
    else:
        keyed.process(reducer, name="sums", parallelism=2, consistency="migrate")
    return flow


def expected(consistency: str) -> list[dict[str, Any]]:
    so_far: Counter[int] = Counter()
    rows = []
    for value in range(ROWS):
        key = value * value % KEYS
        so_far[key] += value
        rows.append({"key": key, "value": value, "so_far": so_far[key]})
    return rows if consistency == "migrate" else [{"key": key, "value": so_far[key]} for key in sorted(so_far)]


def change(job: RunningJob) -> None:
    """Have tasks of the sums come, move and go."""
    assert "sums has 4 tasks (2, 3 came), after" in job.scale("sums", 4)
    assert tasks_of(job, "sums", (0, 1, 2, 3))
    assert "sums has 4 tasks (0 is 4 now, 3 is 5 now), after" in job.move("sums", [0, 3])
    assert "sums has 2 tasks (" in job.scale("sums", 2)
    assert tasks_of(job, "sums", (1, 2))
    assert "sums has 2 tasks (2 is 6 now), after" in job.move("sums", [2]), "also after others have ended"


def assert_changed(result: Result, consistency: str) -> None:
    order = "value" if consistency == "migrate" else "key"
    assert sorted(result.table().to_pylist(), key=lambda row: row[order]) == expected(consistency)
    stage = result.report["sums"]
    assert [(step.started, step.stopped) for step in stage.changes] == [
        ((2, 3), ()),
        ((4, 5), (0, 3)),
        ((), (4, 5)),
        ((6,), (2,)),
    ]
    assert sum(task.processed for task in stage.tasks) == ROWS
    assert any(task.processed for task in stage.tasks[2:]), "a busy machine may move one before it has any records"
    assert not own_jobs()


def test_tasks_whose_states_migrate_come_move_and_go_while_records_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpa.runtime.launch.relays_for", lambda tasks: 2)
    enough = tmp_path / "enough"
    with Running(flow_of("changing", RunningSum(SECONDS, str(enough)))) as running:
        change(running.job())
        enough.touch()
    assert_changed(running.result(), "migrate")


def test_tasks_come_move_and_go_while_records_flow_and_the_command_changes_those_of_a_source_and_says_why_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, nodes, enough = CliRunner(), alive_nodes(), tmp_path / "enough"
    gone = replace(nodes[0], name="gone", id=nodes[0].id[::-1])

    def listed(**without: set[str]) -> list[BackendNode]:
        """With one more for requests; who looks after the machines of the job sees those that there are."""
        return alive_nodes(**without) if without else [*nodes, gone]

    monkeypatch.setattr("dpa.runtime._machines.alive_nodes", listed)
    assert "no job runs here" in run.invoke(app, ["list"]).output
    with Running(flow_of("by-hand", SlowSum(SECONDS, str(enough)), split_records=ROWS)) as running:
        job = running.job()
        listed = run.invoke(app, ["list"])
        assert listed.exit_code == 0 and job.name in listed.output
        assert running.pages == [run.invoke(app, ["ui", "by-hand"]).stdout.strip()]
        page, _, token = running.pages[0].partition("#token=")
        view: dict[str, Any] = {"stages": {}}
        while not view["stages"]:  # the driver has no snapshot yet
            view = json.load(urlopen(Request(f"{page}view", headers={"Authorization": f"Bearer {token}"})))
        assert [*view["stages"]] == ["read", "sums"] and view["job"]["name"] == "by-hand"
        assert nodes[0].name[:8] in listed.output
        status = job.status()
        assert status is not None
        for stage in status.stages:
            for task, process in zip(stage.tasks, stage.processes, strict=True):
                assert str(process.pid) in listed.output
                title = Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\0 ")
                assert title == f"ray::by-hand {stage.name} {task}", "as `ps` shows it"
                assert Path(f"/proc/{process.pid}/comm").read_text() == f"{stage.name} {task}\n", "as `top` does"
        assert "read has 2 tasks (1 came)" in run.invoke(app, ["scale", "by-hand", "read", "2"]).output
        moved = run.invoke(app, ["move", job.name, "read", "0"])
        assert moved.exit_code == 0 and "read has 2 tasks (0 is 2 now), after" in moved.output
        change(job)
        same = run.invoke(app, ["scale", "by-hand", "sums", "2"])
        assert same.exit_code == 0 and "sums has 2 tasks already" in same.output
        for arguments, why in {
            ("scale", "by-hand", "sum", "2"): "there is no stage 'sum'; the stages are read, sums",
            ("move", "by-hand", "sums", "7"): "sums has no task 7; it has 1, 6",
            ("move", "by-hand", "sums", "1", "--node", "nowhere"): "there is no node 'nowhere'; the nodes are",
            ("move", "by-hand", "sums", "1", "--node", "gone"): "nothing was changed: sums 7 did not start",
            ("scale", "other", "sums", "2"): "no job named 'other' runs here; running jobs: by-hand",
        }.items():
            refused = run.invoke(app, list(arguments))
            assert refused.exit_code == 1 and why in " ".join(refused.output.split()), refused.output
        enough.touch()
    result = running.result()
    assert_changed(result, "merge")
    read = [task.read for task in result.report["read"].tasks]
    assert sum(read) == ROWS and 0 < read[0] < ROWS and 0 < max(read[1:]) < ROWS, "one split, of which two read a part"
    with pytest.raises(ControlError, match="has ended"):
        job.scale("sums", 3)


class Asking:
    """A request in a thread of its own, until the block's end."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self.answer = ""
        self._ask = ask
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.answer = self._ask()
        except ControlError as error:
            self.answer = str(error)

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.join()


def slow_to_start(tmp_path: Path, **limits: float) -> tuple[Flow, Path, Path]:
    """A flow, the file while which its tasks do not come up, and the one that ends its delays."""
    slow, enough = tmp_path / "slow", tmp_path / "enough"
    return flow_of("slow-start", SlowToCome(SECONDS, str(enough), str(slow)), **limits), slow, enough


def cancelled(job: RunningJob) -> str:
    """The answer to a request for another task that is cancelled, unless its time is over before a busy machine does
    so."""
    with Asking(lambda: job.scale("sums", 3, warn=print)) as asking:
        while not asking.answer:
            try:
                assert job.cancel("sums") == "the change of sums is cancelled"
                break
            except ControlError:  # the request is on its way
                time.sleep(0.05)
    return asking.answer


def test_a_start_is_given_up_when_it_takes_too_long_or_is_cancelled(tmp_path: Path) -> None:
    flow, slow, enough = slow_to_start(tmp_path, start_seconds=3.0)
    with Running(flow) as running:
        job = running.job()
        slow.touch()
        answers = (cancelled(job) for _ in range(10))
        answer = next(answer for answer in answers if "did not start within 3 s" not in answer)
        assert "nothing was changed: it was cancelled" in answer
        with pytest.raises(ControlError, match=r"sums 2 did not start within 3 s, as limits.start_seconds says"):
            job.scale("sums", 3, warn=print)
        enough.touch()
    assert_unchanged(running.result())


def test_a_start_that_takes_too_long_keeps_no_job_from_its_end(tmp_path: Path) -> None:
    flow, slow, enough = slow_to_start(tmp_path, start_seconds=300.0)
    with Running(flow) as running:
        job = running.job()
        slow.touch()
        with Asking(lambda: job.scale("sums", 3, warn=print)) as asking:
            wait_for(str(tmp_path / "waits"))
            enough.touch()
        assert asking.answer == f"{job.name}: nothing was changed: sums has processed all its records"
    assert_unchanged(running.result())


def assert_unchanged(result: Result) -> None:
    assert sorted(result.table().to_pylist(), key=lambda row: row["key"]) == expected("merge")
    assert not result.report["sums"].changes
