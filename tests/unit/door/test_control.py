"""How a running job is asked to change its tasks: the door of its driver, a process, and who asks it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from typer.testing import CliRunner

from dpa._util.owned import OwnedDirectory, directory_for_sockets, users_directory
from dpa.config import DoorConfig
from dpa.control import app
from dpa.door import client
from dpa.door.opening import Door
from dpa.driver.control import RunningJob
from dpa.errors import ControlError
from dpa.measure.skew import Life
from dpa.protocol.plan import CancelJob, Request
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, CloseFeeds, MoveTasks, Rescale
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot, TaskStats
from dpa.protocol.wire.nodes import BackendNode, TaskProcess
from dpa.telemetry.observers import Observer, Observers
from dpa.telemetry.tracker import Status, TrackedSnapshot
from dpa.tolerance import ErrorCount

NAME = f"word-count-{os.getpid()}"


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("dpa.runtime.cluster.is_private", lambda: True)  # it would ask Ray
    with TemporaryDirectory(prefix="dpa-test-", dir="/tmp") as made:
        monkeypatch.setattr(client, "runs_directory", lambda: Path(made))
        yield Path(made)


class Job:
    """A job that answers all requests, from the test's own process."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.asked: list[Request] = []
        self.known: tuple[Status, Snapshot] | None = None
        self._refuses = refuses

    def status(self) -> tuple[Status, Snapshot] | None:
        return self.known

    def ask(self, request: Request) -> Answer:
        self.asked.append(replace(request, request=0))
        return Answer(request.request, f"answer {len(self.asked)}", self._refuses)

    def tell(self, *queues: int) -> None:
        """It is so, on a cluster with 4 processors, on one node of which all tasks but one are."""
        nodes = [BackendNode("1f", "big", 3.0), BackendNode("2f", "small", 1.0)]
        processes = {Address("reducer", task): TaskProcess("1f", 100 + task) for task in (0, 2, 3)}
        found = snapshot(*queues)
        self.known = Status.of("word-count", found, processes, nodes), found


@contextmanager
def listening(job: Job | None = None, name: str = "word-count") -> Iterator[Door]:
    with Door(name, DoorConfig()) as door, door.reached(job or Job()):
        yield door


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    with listening(made):
        yield made


def snapshot(*queues: int) -> Snapshot:
    tasks = tuple(TaskStats("reducer", index, queue=queue) for index, queue in enumerate(queues))
    return Snapshot("stream", 3.0, 10, (StageSnapshot("reducer", "streaming", tasks, members=(0, 2, 3, 4)),))


def test_each_request_comes_to_the_job_as_it_was_meant_and_its_answer_back(job: Job) -> None:
    found, run = RunningJob.find("word-count"), CliRunner()
    assert found.scale("reducer", 4, ["node 1"]) == "answer 1"
    assert found.move("reducer", [0, 2]) == "answer 2"
    assert (found.cancel(), found.cancel("reducer")) == ("answer 3", "answer 4")
    assert (found.stop(), found.finish()) == ("answer 5", "answer 6")
    assert job.asked == [
        *(Rescale(0, "reducer", 4, ("node 1",)), MoveTasks(0, "reducer", (0, 2))),
        *(CancelJob(0), CancelChange(0, "reducer"), CancelJob(0, saves=True), CloseFeeds(0)),
    ]
    job.asked.clear()
    for words in ("cancel word-count reducer", "cancel word-count", "stop word-count"):
        assert run.invoke(app, words.split()).stdout == f"answer {len(job.asked)}\n"
    assert job.asked == [CancelChange(0, "reducer"), CancelJob(0), CancelJob(0, saves=True)]


class Waiting(Job):
    """A job that answers a change of tasks when it is cancelled, or as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.goes_on = threading.Event(), threading.Event()

    def ask(self, request: Request) -> Answer:
        if isinstance(request, Rescale):
            self.is_asked.set()
            self.goes_on.wait()
        elif isinstance(request, CancelChange):
            self.goes_on.set()
        return Answer(request.request, type(request).__name__)


def test_an_answer_is_read_though_the_job_ends_at_once() -> None:
    answers: list[str] = []
    job = Waiting()
    with listening(job):
        found = RunningJob.find("word-count")
        asking = threading.Thread(target=lambda: answers.append(found.scale("reducer", 2)))
        asking.start()
        job.is_asked.wait()
        threading.Timer(0.05, job.goes_on.set).start()
    asking.join()
    assert answers == ["Rescale"]


def test_one_request_waits_while_others_are_answered() -> None:
    job = Waiting()
    with listening(job):
        found = RunningJob.find("word-count")
        asking = threading.Thread(target=lambda: found.scale("reducer", 2))
        asking.start()
        job.is_asked.wait()
        assert found.cancel("reducer") == "CancelChange"
        asking.join()


def test_a_refusal_a_failure_and_the_end_of_a_job_are_errors_and_it_leaves_nothing(runs: Path) -> None:
    class Failing(Job):
        def ask(self, request: Request) -> Answer:
            raise RuntimeError("no")

    with listening(Job(refuses=True)), pytest.raises(ControlError, match=rf"{NAME}: answer 1"):
        RunningJob.find("word-count").scale("reducer", 4)
    with listening(Failing()), pytest.raises(ControlError, match="it cannot answer: RuntimeError"):
        RunningJob.find("word-count").cancel()
    with listening():
        found = RunningJob.find("word-count")
    with pytest.raises(ControlError, match=f"{NAME} has ended"):
        found.cancel()
    assert found.status() is None
    assert not list(runs.iterdir())


def test_jobs_are_found_by_their_name_however_long_if_only_one_has_it(job: Job) -> None:
    with pytest.raises(ControlError, match=rf"no job named 'other' runs here; running jobs: {NAME}"):
        RunningJob.find("other")
    with listening():
        assert [found.name for found in RunningJob.all()] == [NAME, f"{NAME}.2"]
        with pytest.raises(
            ControlError, match=f"several jobs named 'word-count' run; give one of these names: {NAME}, {NAME}.2"
        ):
            RunningJob.find("word-count")
        assert RunningJob.find(f"{NAME}.2").cancel() == "answer 1" and not job.asked
    assert [found.name for found in RunningJob.all()] == [NAME]
    with listening(name="long" * 100):
        assert RunningJob.find("long" * 100).cancel() == "answer 1"


def test_what_killed_jobs_left_is_removed_and_nothing_else(job: Job, runs: Path) -> None:
    killed = OwnedDirectory.make(runs, "door-", mode=0o700)
    offer = next(runs.glob("door-*/offer.json")).read_text(encoding="utf-8")
    (killed.path / "offer.json").write_text(offer.replace(NAME, "killed-1"), encoding="utf-8")
    assert sorted(found.name for found in RunningJob.all()) == ["killed-1", NAME]
    killed.release()  # as the end of its process does
    (runs / "notes-1").mkdir()
    assert [found.name for found in RunningJob.all()] == [NAME]
    assert not killed.path.exists() and (runs / "notes-1").exists()


def test_an_offer_is_for_its_user_alone_and_another_users_is_not_taken(job: Job, runs: Path) -> None:
    [offer] = runs.glob("door-*/offer.json")
    assert offer.stat().st_mode & 0o777 == 0o600 and offer.parent.stat().st_mode & 0o777 == 0o700
    offer.chmod(0o666)
    assert RunningJob.all() == []


def test_a_job_ends_though_its_directory_was_removed(runs: Path) -> None:
    with listening():
        for path in [*runs.glob("*/.lock"), *runs.glob("*/*"), *runs.iterdir()]:
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        assert RunningJob.all() == []


@pytest.mark.parametrize("kind", ["link", "writable"])
def test_a_directory_that_others_can_change_is_not_used(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = users_directory(str(tmp_path))
    runs.rmdir()
    precious = tmp_path / "home"
    precious.mkdir()
    if kind == "link":
        runs.symlink_to(precious)
    else:
        precious.rename(runs)
        runs.chmod(0o777)
    monkeypatch.setattr(client, "runs_directory", lambda: users_directory(str(tmp_path)))
    with listening():
        assert RunningJob.all() == [] and not list(runs.iterdir())


def test_users_have_one_place_also_where_paths_of_temporary_files_are_long() -> None:
    assert directory_for_sockets("/tmp") == directory_for_sockets(f"/tmp/{'long' * 30}") == users_directory("/tmp")


def test_the_list_shows_the_tasks_that_there_are(job: Job) -> None:
    shown = CliRunner().invoke(app, ["list"]).output.splitlines()[-1]
    assert shown.split(maxsplit=1) == [RunningJob.all()[0].name, "no answer yet"]
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


def test_a_job_is_shown_to_who_attaches_until_it_ends() -> None:
    made, ended = Job(), threading.Event()
    made.tell(1, 0, 2000, 0, 40)
    shown: list[str] = []

    def attach() -> None:
        shown.append(CliRunner().invoke(app, ["attach", "word-count", "--progress", "plain"]).stderr)

    attached = threading.Thread(target=attach)
    with listening(made):
        made.status = lambda: (ended.set(), made.known)[1]  # type: ignore[method-assign]
        attached.start()
        ended.wait()
    attached.join()
    assert "stream" in shown[0] and f"{NAME} has ended; its result is shown where it was started" in shown[0]


class Seen(Observer):
    """Keeps the first snapshot, and has the job end."""

    def __init__(self, ends: threading.Event) -> None:
        self.found: list[TrackedSnapshot] = []
        self._ends = ends

    def update(self, snapshot: TrackedSnapshot) -> None:
        self.found.append(snapshot)
        self._ends.set()


def test_a_snapshot_arrives_as_it_was_with_numbers_of_all_kinds() -> None:
    made, seen = Job(), Seen(threading.Event())
    made.tell(1, 0, 5)
    assert made.known is not None
    status, sent = made.known
    stage = replace(sent.stages[0], lives=(Life(np.float64(0.5), even=Fraction(1, 3)),))
    sent = replace(sent, at=np.float64(1.5), stages=(stage,), errors=(ErrorCount("sums", "ValueError", True, 2, "no"),))
    made.known = status, sent
    with listening(made):
        following = threading.Thread(target=RunningJob.find("word-count").follow, args=(seen,))
        following.start()
        seen._ends.wait()
    following.join()
    assert (seen.found[0].at, seen.found[0].errors, seen.found[0].stages[0].lives) == (1.5, sent.errors, stage.lives)


def test_a_snapshot_of_a_stranger_runs_no_code(tmp_path: Path) -> None:
    made = Job()
    made.tell(1)
    assert made.known is not None
    made.known = made.known[0], replace(snapshot(1), phase=b"cposix\nmkdir\n.", at=[tmp_path])  # type: ignore[arg-type]
    with listening(made), pytest.raises(ControlError, match="the job is of another version of dpa"):
        RunningJob.find("word-count").follow(Observers())


def test_the_command_names_the_page_and_the_way_to_another_machine(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    said = CliRunner().invoke(app, ["ui", "word-count"])
    assert said.stdout.startswith("http://127.0.0.1:") and "/#token=" in said.stdout
    port = said.stdout.partition("127.0.0.1:")[2].partition("/")[0]
    assert "ssh" not in said.stderr
    monkeypatch.setattr("dpa.driver.control.this_machine", lambda: "another")
    assert f": ssh -L {port}:127.0.0.1:{port} " in CliRunner().invoke(app, ["ui", "word-count"]).stderr
