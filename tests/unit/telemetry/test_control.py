"""How a running job is asked to change its tasks: both sides of the directory that they share."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpa.control import app
from dpa.driver.control import RunningJob
from dpa.errors import ControlError
from dpa.protocol.plan import CancelJob, Request
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, MoveTasks, Rescale
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot, TaskStats
from dpa.protocol.wire.nodes import BackendNode, TaskProcess
from dpa.telemetry import mailbox as module
from dpa.telemetry.mailbox import Mailbox, runs_directory

SLEEP = time.sleep


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "gettempdir", lambda: str(tmp_path))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)


@pytest.fixture
def job() -> Iterator[Mailbox]:
    with Mailbox("word-count") as control:
        yield control


class Answering:
    """A job that answers all requests for a while, in a thread of its own."""

    def __init__(self, job: Mailbox, *, refuses: bool = False) -> None:
        self.asked: list[Request] = []
        self._job, self._refuses = job, refuses
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._answer)

    def _answer(self) -> None:
        while not self._over.wait(0.01):
            for request in self._job.requests():
                self.asked.append(replace(request, request=0))
                self._job.answer(Answer(request.request, f"answer {len(self.asked)}", self._refuses))

    def __enter__(self) -> Answering:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()


def snapshot(*queues: int) -> Snapshot:
    tasks = tuple(TaskStats("reducer", index, queue=queue) for index, queue in enumerate(queues))
    return Snapshot("stream", 3.0, 10, (StageSnapshot("reducer", "streaming", tasks, members=(0, 2, 3, 4)),))


def tell(job: Mailbox, *queues: int) -> None:
    """The job says how it is, of a cluster with 4 processors, on one node of which all tasks but one are."""
    nodes = [BackendNode("1f", "big", 3.0), BackendNode("2f", "small", 1.0)]
    processes = {Address("reducer", task): TaskProcess("1f", 100 + task) for task in (0, 2, 3)}
    job.tell(snapshot(*queues), processes, lambda: nodes)


def test_a_request_comes_to_the_job_and_its_answer_back(job: Mailbox) -> None:
    with Answering(job) as answering:
        found = RunningJob.find("word-count")
        assert found.scale("reducer", 4, ["node 1"]) == "answer 1"
        assert found.move("reducer", [0, 2]) == "answer 2"
    assert answering.asked == [Rescale(0, "reducer", 4, ("node 1",)), MoveTasks(0, "reducer", (0, 2))]
    assert [path.name for path in (runs_directory() / found.name).iterdir()] == ["lock"]


def test_an_answer_is_read_though_the_job_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", SLEEP)
    answers: list[str] = []
    with Mailbox("short") as job:
        found = RunningJob.find("short")
        asking = threading.Thread(target=lambda: answers.append(found.scale("reducer", 2)))
        asking.start()
        while not (asked := job.requests()):
            time.sleep(0.01)
        job.answer(Answer(asked[0].request, "done"))
    asking.join()
    assert answers == ["done"] and not (runs_directory() / found.name).exists()


def test_a_refusal_is_an_error(job: Mailbox) -> None:
    with Answering(job, refuses=True), pytest.raises(ControlError, match=r"word-count-\d+: answer 1"):
        RunningJob.find("word-count").scale("reducer", 4)


def test_what_cannot_be_read_is_refused_and_the_job_goes_on(job: Mailbox) -> None:
    directory = runs_directory() / RunningJob.find("word-count").name
    contents = [
        "{",
        "[]",
        "[" * 100_000,
        '{"kind": "Rescale", "request": 1, "stage": "s", "tasks": 1e400, "nodes": []}',
        '{"kind": "other"}',
        '{"kind": "Rescale", "depth": 3}',
    ]
    for number, content in enumerate(contents):
        (directory / f"{number}.request").write_text(content)
    assert job.requests() == []
    for number in range(len(contents)):
        answer = json.loads((directory / f"{number}.answer").read_text())
        assert answer["refused"] and "the request cannot be read" in answer["text"]


@pytest.mark.parametrize("is_read", [False, True])
def test_who_waits_learns_that_the_job_has_ended(is_read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", SLEEP)
    errors: list[str] = []

    def ask() -> None:
        try:
            found.scale("reducer", 2)
        except ControlError as error:
            errors.append(str(error))

    with Mailbox("short") as job:
        found = RunningJob.find("short")
        asking = threading.Thread(target=ask)
        asking.start()
        if is_read:
            while not job.requests():
                SLEEP(0.01)
        else:
            while not list((runs_directory() / found.name).glob("*.request")):
                SLEEP(0.01)
    asking.join()
    assert errors == [f"{found.name}: the job has ended before that"]
    with pytest.raises(ControlError, match=r"short-\d+ has ended"):
        found.scale("reducer", 2)


def test_who_is_slow_to_look_learns_what_the_job_answered_before_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the command may not look for longer than the job waits at its end."""
    has_ended = threading.Event()
    told: list[str] = []

    def sleep(seconds: float) -> None:
        if threading.current_thread() is asking:
            has_ended.wait()

    monkeypatch.setattr(module.time, "sleep", sleep)
    with Mailbox("quick") as job:
        found = RunningJob.find("quick")
        asking = threading.Thread(target=lambda: told.append(found.scale("reducer", 2)))
        asking.start()
        while not (requests := job.requests()):
            SLEEP(0.01)
        SLEEP(0.1)
        job.answer(Answer(requests[0].request, "done"))
    has_ended.set()
    asking.join()
    assert told == ["done"]
    assert not list(runs_directory().iterdir())


def test_jobs_are_found_by_their_name_if_only_one_has_it(job: Mailbox) -> None:
    with pytest.raises(ControlError, match=r"no job named 'other' runs here; running jobs: word-count-\d+"):
        RunningJob.find("other")
    with Mailbox("word-count"):
        with pytest.raises(ControlError, match="several jobs named 'word-count' run"):
            RunningJob.find("word-count")
        second = f"word-count-{os.getpid()}.2"
        assert RunningJob.find(second).name == second


def test_two_jobs_of_one_name_in_one_process_do_not_share_a_directory(job: Mailbox) -> None:
    with Mailbox("word-count"):
        names = [found.name for found in RunningJob.all()]
        assert names == [f"word-count-{os.getpid()}", f"word-count-{os.getpid()}.2"]
    assert [found.name for found in RunningJob.all()] == names[:1]


def test_directories_of_jobs_that_were_killed_are_removed_and_nothing_else(job: Mailbox) -> None:
    left, other = runs_directory() / f"killed-{os.getpid()}", runs_directory() / "notes-1"
    for directory in (left, other):
        directory.mkdir()
        (directory / "lock").write_text("")
    (left / "status.json").write_text("{}")
    (other / "mine.txt").write_text("")
    assert [found.name for found in RunningJob.all()] == [f"word-count-{os.getpid()}"]
    assert not left.exists() and (other / "mine.txt").exists()


@pytest.mark.parametrize("kind", ["link", "writable"])
def test_a_directory_that_others_can_change_is_not_used(kind: str, tmp_path: Path) -> None:
    runs = runs_directory()
    runs.rmdir()
    precious = tmp_path / "home" / "photos-1"
    precious.mkdir(parents=True)
    (precious / "lock").write_text("")
    if kind == "link":
        runs.symlink_to(tmp_path / "home")
    else:
        (tmp_path / "home").rename(runs)
        runs.chmod(0o777)
    with Mailbox("careful") as job:
        assert job.requests() == [] and RunningJob.all() == []
    assert (runs / "photos-1" / "lock").exists()


def test_a_job_that_cannot_listen_runs_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(module, "gettempdir", lambda: str(tmp_path / "file"))
    with Mailbox("deaf") as job:
        tell(job, 1)
        assert job.requests() == []


def test_the_list_shows_the_tasks_that_there_are(job: Mailbox) -> None:
    assert CliRunner().invoke(app, ["list"]).output.split()[-2:] == [RunningJob.all()[0].name, "startup"]
    tell(job, 1, 0, 2000, 0, 40)
    header, *rows = CliRunner().invoke(app, ["list"]).output.splitlines()
    assert header.split() == ["run", "phase", "stage", "tasks", "queued", "task", "node", "pid"]
    assert rows[0].split()[1:] == ["stream,", "3", "s", "reducer", "4", "2,041", "0", "big", "100"]
    assert [row.split() for row in rows[1:]] == [["2", "big", "102"], ["3", "big", "103"], ["4"]], "4 is not up yet"


def test_a_wrong_argument_is_told_by_its_name() -> None:
    for tasks, why in (("0", "greater than or equal to 1"), ("257", "less than or equal to 256")):
        refused = CliRunner().invoke(app, ["scale", "any", "reducer", tasks])
        said = " ".join(refused.output.split())
        assert refused.exit_code == 2 and f"for 'tasks': Input should be {why}" in said, said


def test_more_tasks_than_processors_are_asked_for_with_a_warning(job: Mailbox) -> None:
    tell(job, 0)
    run = CliRunner()
    with Answering(job) as answering:
        said = run.invoke(app, ["scale", "word-count", "reducer", "5"])
        assert said.exit_code == 0 and "answer 1" in said.stdout
        assert "warning: 5 tasks of reducer share the 4 processors of the cluster" in said.stderr
        assert "warning" not in run.invoke(app, ["scale", "word-count", "reducer", "4"]).output
        with pytest.warns(UserWarning, match="6 tasks of reducer share the 4 processors"):
            RunningJob.find("word-count").scale("reducer", 6)
    assert [asked.tasks for asked in answering.asked if isinstance(asked, Rescale)] == [5, 4, 6]


def test_changes_of_a_stage_are_cancelled_or_the_whole_job(job: Mailbox) -> None:
    run = CliRunner()
    with Answering(job) as answering:
        assert run.invoke(app, ["cancel", "word-count", "reducer"]).stdout == "answer 1\n"
        assert run.invoke(app, ["cancel", "word-count"]).stdout == "answer 2\n"
        assert RunningJob.find("word-count").cancel() == "answer 3"
        assert run.invoke(app, ["stop", "word-count"]).stdout == "answer 4\n"
    assert answering.asked == [CancelChange(0, "reducer"), CancelJob(0), CancelJob(0), CancelJob(0, saves=True)]


def test_a_job_with_a_ray_of_its_own_is_shown_where_it_was_started(job: Mailbox) -> None:
    done = CliRunner().invoke(app, ["attach", "word-count"])
    assert done.exit_code == 1 and "runs in a Ray of its own, and is shown where it was started" in done.stderr


def test_status_is_told_twice_a_second_at_most(job: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [time.monotonic() + 10]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    found = RunningJob.find("word-count")
    tell(job, 1)
    tell(job, 2)
    status = found.status()
    assert status is not None and status.stages[0].queued == 1
    clock[0] += 1.0
    tell(job, 3)
    status = found.status()
    assert status is not None and status.stages[0].queued == 3
