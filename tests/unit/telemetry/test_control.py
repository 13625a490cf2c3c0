"""How a running job is asked to change its tasks: both sides of its socket."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from typer.testing import CliRunner

from dpa._util.owned import directory_for_sockets, users_directory
from dpa.control import app
from dpa.driver.control import RunningJob
from dpa.errors import ControlError
from dpa.protocol.plan import CancelJob, Request
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, MoveTasks, Rescale
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot, TaskStats
from dpa.protocol.wire.nodes import BackendNode, TaskProcess
from dpa.telemetry import local_jobs as module
from dpa.telemetry.local_jobs import Door, LocalJob
from dpa.telemetry.tracker import Status

NAME = f"word-count-{os.getpid()}"


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with TemporaryDirectory(prefix="dpa-test-", dir="/tmp") as made:
        monkeypatch.setattr(module, "runs_directory", lambda: Path(made))
        yield Path(made)


class Job:
    """A job that answers all requests, from the test's own process."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.asked: list[Request] = []
        self.known: Status | None = None
        self._refuses = refuses

    def answer(self, request: Request | None) -> Status | Answer | None:
        if request is None:
            return self.known
        self.asked.append(replace(request, request=0))
        return Answer(request.request, f"answer {len(self.asked)}", self._refuses)

    def tell(self, *queues: int) -> None:
        """It is so, on a cluster with 4 processors, on one node of which all tasks but one are."""
        nodes = [BackendNode("1f", "big", 3.0), BackendNode("2f", "small", 1.0)]
        processes = {Address("reducer", task): TaskProcess("1f", 100 + task) for task in (0, 2, 3)}
        self.known = Status.of("word-count", snapshot(*queues), processes, nodes)


@contextmanager
def listening(name: str = NAME, answers: Callable[[Any], Any] | None = None) -> Iterator[None]:
    with Door() as door:
        door.open(name, answers or Job().answer)
        yield


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    with listening(answers=made.answer):
        yield made


def snapshot(*queues: int) -> Snapshot:
    tasks = tuple(TaskStats("reducer", index, queue=queue) for index, queue in enumerate(queues))
    return Snapshot("stream", 3.0, 10, (StageSnapshot("reducer", "streaming", tasks, members=(0, 2, 3, 4)),))


def test_a_request_comes_to_the_job_and_its_answer_back(job: Job) -> None:
    found = RunningJob.find("word-count")
    assert found.scale("reducer", 4, ["node 1"]) == "answer 1"
    assert found.move("reducer", [0, 2]) == "answer 2"
    assert job.asked == [Rescale(0, "reducer", 4, ("node 1",)), MoveTasks(0, "reducer", (0, 2))]


def test_an_answer_is_read_though_the_job_ends_at_once() -> None:
    answers: list[str] = []
    is_asked, goes_on = threading.Event(), threading.Event()

    def answer(request: Request | None) -> Answer | None:
        if request is None:
            return None
        is_asked.set()
        goes_on.wait()
        return Answer(request.request, "done")

    with listening(answers=answer):
        found = RunningJob.find("word-count")
        asking = threading.Thread(target=lambda: answers.append(found.scale("reducer", 2)))
        asking.start()
        is_asked.wait()
        threading.Timer(0.05, goes_on.set).start()
    asking.join()
    assert answers == ["done"]


def test_one_request_waits_while_others_are_answered() -> None:
    goes_on = threading.Event()

    def answer(request: Request | None) -> Answer | None:
        if isinstance(request, Rescale):
            goes_on.wait()
        elif isinstance(request, CancelChange):
            goes_on.set()
        return None if request is None else Answer(request.request, type(request).__name__)

    with listening(answers=answer):
        found = RunningJob.find("word-count")
        asking = threading.Thread(target=lambda: found.scale("reducer", 2))
        asking.start()
        assert found.cancel("reducer") == "CancelChange"
        asking.join()


def test_a_refusal_is_an_error() -> None:
    with listening(answers=Job(refuses=True).answer), pytest.raises(ControlError, match=rf"{NAME}: answer 1"):
        RunningJob.find("word-count").scale("reducer", 4)


def test_what_cannot_be_read_is_refused_and_the_job_goes_on(job: Job, runs: Path) -> None:
    for content in (b"{", b"\x80\x05cno.such.module\nName\n."):
        with Client(str((runs / NAME).readlink())) as connection:
            connection.send_bytes(content)
            assert isinstance(refused := connection.recv(), ControlError) and "cannot answer" in str(refused)
    assert RunningJob.find("word-count").cancel() == "answer 1"


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\x10ab"], ids=repr)
def test_a_job_ends_though_a_caller_stops_within_its_request(
    sent: bytes, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 1)
    with socket.socket(socket.AF_UNIX) as caller:
        with listening():
            caller.connect(str((runs / NAME).readlink()))
            caller.sendall(sent)
        assert caller.recv(1) == b"", "the job has left it"


def test_a_job_ends_though_a_caller_does_not_read_its_answer(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 1)
    is_long = listening(answers=lambda request: Answer(1, "long" * 1_000_000))
    with socket.socket(socket.AF_UNIX) as caller, is_long:
        caller.connect(str((runs / NAME).readlink()))
        Connection(os.dup(caller.fileno())).send(CancelJob(1))


def test_who_waits_learns_that_the_job_has_ended(runs: Path) -> None:
    with Listener(str(runs / ".killed")) as listener:
        (runs / NAME).symlink_to(runs / ".killed")
        errors: list[str] = []

        def ask() -> None:
            try:
                LocalJob(runs / NAME).ask(CancelJob(1))
            except ControlError as error:
                errors.append(str(error))

        asking = threading.Thread(target=ask)
        asking.start()
        with listener.accept() as connection:
            connection.recv()
        asking.join()
    assert errors == [f"{NAME} ended before it had answered"]
    with pytest.raises(ControlError, match=f"{NAME} has ended"):
        LocalJob(runs / NAME).ask(CancelJob(1))


def test_jobs_are_listed_though_one_is_stopped(job: Job, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STATUS_SECONDS", 0.1)
    with Listener(str(runs / ".stopped"), backlog=4):
        (runs / "stopped-1").symlink_to(runs / ".stopped")
        listed = CliRunner().invoke(app, ["list"]).output
        assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["stopped-1", "startup"], [NAME, "startup"]]


def test_jobs_are_found_by_their_name_if_only_one_has_it(job: Job) -> None:
    with pytest.raises(ControlError, match=rf"no job named 'other' runs here; running jobs: {NAME}"):
        RunningJob.find("other")
    with listening(f"{NAME}.2"):
        assert [found.name for found in RunningJob.all()] == [NAME, f"{NAME}.2"]
        with pytest.raises(ControlError, match="several jobs named 'word-count' run"):
            RunningJob.find("word-count")
        assert RunningJob.find(f"{NAME}.2").name == f"{NAME}.2"
    assert [found.name for found in RunningJob.all()] == [NAME]


def test_the_name_of_a_run_may_be_long(job: Job) -> None:
    name = f"{'long' * 50}-1"
    with listening(name):
        assert RunningJob.find(name).cancel() == "answer 1"


def test_what_killed_jobs_left_is_removed_and_nothing_else(job: Job, runs: Path) -> None:
    Listener(str(runs / ".dead"))._listener._socket.close()  # type: ignore[attr-defined]
    (runs / "killed-1").symlink_to(runs / ".dead")
    (runs / "notes-1").mkdir()
    (runs / "gone-1").symlink_to(runs / ".gone")
    assert [found.name for found in RunningJob.all()] == [NAME]
    assert sorted(path.name for path in runs.iterdir() if not path.name.startswith(".")) == ["notes-1", NAME]
    assert not (runs / ".dead").exists()


def test_a_job_that_has_ended_leaves_nothing(runs: Path) -> None:
    with listening():
        assert RunningJob.all()
    assert not list(runs.iterdir())


def test_a_job_ends_though_its_socket_was_removed(runs: Path) -> None:
    with listening():
        for path in runs.iterdir():
            path.unlink()


@pytest.mark.parametrize("kind", ["link", "writable"])
def test_a_directory_that_others_can_change_is_not_used(kind: str, tmp_path: Path) -> None:
    runs = users_directory(str(tmp_path))
    runs.rmdir()
    precious = tmp_path / "home"
    precious.mkdir()
    if kind == "link":
        runs.symlink_to(precious)
    else:
        precious.rename(runs)
        runs.chmod(0o777)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "runs_directory", lambda: users_directory(str(tmp_path)))
        with listening("careful-1"):
            assert RunningJob.all() == [] and not list(runs.iterdir())


def test_sockets_have_short_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert directory_for_sockets("/tmp") == directory_for_sockets(f"/tmp/{'long' * 30}") == users_directory("/tmp")


def test_the_list_shows_the_tasks_that_there_are(job: Job) -> None:
    assert CliRunner().invoke(app, ["list"]).output.split()[-2:] == [RunningJob.all()[0].name, "startup"]
    job.tell(1, 0, 2000, 0, 40)
    header, *rows = CliRunner().invoke(app, ["list"]).output.splitlines()
    assert header.split() == ["run", "phase", "stage", "tasks", "queued", "task", "node", "pid"]
    assert rows[0].split()[1:] == ["stream,", "3", "s", "reducer", "4", "2,041", "0", "big", "100"]
    assert [row.split() for row in rows[1:]] == [["2", "big", "102"], ["3", "big", "103"], ["4"]], "4 is not up yet"


def test_a_wrong_argument_is_told_by_its_name() -> None:
    for tasks, why in (("0", "greater than or equal to 1"), ("257", "less than or equal to 256")):
        refused = CliRunner().invoke(app, ["scale", "any", "reducer", tasks])
        said = " ".join(refused.output.split())
        assert refused.exit_code == 2 and f"for 'tasks': Input should be {why}" in said, said


def test_more_tasks_than_processors_are_asked_for_with_a_warning(job: Job) -> None:
    job.tell(0)
    run = CliRunner()
    said = run.invoke(app, ["scale", "word-count", "reducer", "5"])
    assert said.exit_code == 0 and "answer 1" in said.stdout
    assert "warning: 5 tasks of reducer share the 4 processors of the cluster" in said.stderr
    assert "warning" not in run.invoke(app, ["scale", "word-count", "reducer", "4"]).output
    with pytest.warns(UserWarning, match="6 tasks of reducer share the 4 processors"):
        RunningJob.find("word-count").scale("reducer", 6)
    assert [asked.tasks for asked in job.asked if isinstance(asked, Rescale)] == [5, 4, 6]


def test_changes_of_a_stage_are_cancelled_or_the_whole_job(job: Job) -> None:
    run = CliRunner()
    assert run.invoke(app, ["cancel", "word-count", "reducer"]).stdout == "answer 1\n"
    assert run.invoke(app, ["cancel", "word-count"]).stdout == "answer 2\n"
    assert RunningJob.find("word-count").cancel() == "answer 3"
    assert run.invoke(app, ["stop", "word-count"]).stdout == "answer 4\n"
    assert job.asked == [CancelChange(0, "reducer"), CancelJob(0), CancelJob(0), CancelJob(0, saves=True)]


def test_a_job_with_a_ray_of_its_own_is_shown_where_it_was_started(job: Job) -> None:
    done = CliRunner().invoke(app, ["attach", "word-count"])
    assert done.exit_code == 1 and "runs on its own Ray, and its progress is shown where it was started" in done.stderr
