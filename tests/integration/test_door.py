"""The door of a running job against those who do it no good, and what the job itself has of it. No Ray is needed: the
job that answers is the test's."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from programs_for_tests import PATIENCE
from typer.testing import CliRunner

from dpa.command import app
from dpa.config import DoorConfig
from dpa.door import client, opening
from dpa.door._changes import applied
from dpa.door.opening import Door
from dpa.driver.control import RunningJob
from dpa.errors import ConfigError, ControlError, JobCancelledError, JobFailedError
from dpa.protocol.plan import Request
from dpa.protocol.wire.events import Rescale
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot, TaskStats
from dpa.telemetry.tracker import RunTracker, Status


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("dpa.runtime.cluster.is_private", lambda: True)
    monkeypatch.setattr(client, "runs_directory", lambda: tmp_path)
    return tmp_path


class Job:
    """Answers requests when it may."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answers = threading.Event()
        self.answers.set()

    def status(self) -> tuple[Status, Snapshot] | None:
        return None

    def ask(self, request: Request) -> Answer:
        self.asked.append(request)
        self.answers.wait()
        return Answer(request.request, f"answer {len(self.asked)}")


@contextmanager
def opened(job: Job | None = None, name: str = "job", **config: Any) -> Iterator[Door]:
    with Door(name, DoorConfig(**config)) as door, door.reached(job or Job()):
        yield door


def asked(door: Door, path: str, *, token: str | None = None, body: Any = None, **headers: str) -> tuple[int, str]:
    """The status and text of an answer."""
    place, _, known = str(door.address).partition("/#token=")
    connection = HTTPConnection(place.removeprefix("http://"), timeout=PATIENCE)
    if token != "":
        headers["Authorization"] = f"Bearer {token or known}"
    method = "GET" if body is None else "POST"
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    found = response.status, response.read().decode()
    connection.close()
    return found


def processes(driver: int = os.getpid()) -> list[int]:
    """Those of doors that a process has started."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            status = (command.parent / "stat").read_text().rpartition(")")[2].split()
            if b"dpa.door._server" in command.read_bytes() and int(status[1]) == driver and status[0] != "Z":
                found.append(int(command.parent.name))
        except OSError:
            continue
    return found


def events(door: Door) -> Iterator[tuple[str, Any]]:
    """Those of a page."""
    place, _, token = str(door.address).partition("/#token=")
    connection = HTTPConnection(place.removeprefix("http://"), timeout=PATIENCE)
    connection.request("GET", "/events", headers={"Authorization": f"Bearer {token}"})
    response, event = connection.getresponse(), ""
    while line := response.readline().decode().strip("\n"):
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        else:
            yield event, json.loads(line.removeprefix("data: "))
            response.readline()


def snapshot(*queues: int, at: float = 1.0) -> Snapshot:
    tasks = tuple(TaskStats("sums", index, queue=queue) for index, queue in enumerate(queues))
    return Snapshot("stream", at, 10, (StageSnapshot("sums", "streaming", tasks),))


def test_a_job_that_nobody_looks_at_has_no_process_and_one_that_is_looked_at_has_one() -> None:
    with opened() as door:
        door.update(RunTracker().update(snapshot(1)))
        assert not processes()
        assert json.loads(asked(door, "/view")[1])["stages"]["sums"]["queue"] == 1
        [process] = processes()
        assert asked(door, "/view")[0] == 200 and processes() == [process]
    assert not processes()


def test_only_who_has_the_token_learns_anything_or_changes_anything() -> None:
    job = Job()
    with opened(job) as door:
        scale = {"scale": {"stage": "sums", "tasks": 2}}
        for token in ("", "x", "\xff" * 20):
            for path in ("/view", "/events", "/status", "/snapshot", "/metrics"):
                assert asked(door, path, token=token)[0] == 401, path
            assert asked(door, "/control", token=token, body=scale)[0] == 401
        known = str(door.address).partition("token=")[2]
        for path in ("/view", "/events", "/status"):
            assert asked(door, f"{path}?token={known}", token="")[0] == 401, "an address is seen by others"
            assert asked(door, path, token="", Cookie=f"token={known}")[0] == 401, "other ports get cookies"
        assert not job.asked
        assert asked(door, "/view")[0] == 200
        status, page = asked(door, "/", token="")
        assert status == 200 and "<html" in page and known not in page and "job" not in page.lower()


def test_a_name_of_another_host_that_leads_here_is_refused() -> None:
    with opened() as door:
        for host in (
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "localhost.evil.example:1",
            "localhost:abc",
        ):
            assert asked(door, "/view", Host=host)[0] == 421
        for host in ("localhost", "localhost:1", "127.0.0.1:99", "[::1]:5"):
            assert asked(door, "/view", Host=host)[0] == 200, "through a tunnel"


NO_REQUESTS: list[Any] = [
    {"scale": {"stage": "sums"}},
    {"scale": {"stage": "sums", "tasks": "2"}},
    {"scale": {"stage": "sums", "tasks": True}},
    {"move": {"stage": "sums", "tasks": []}},
    {"scale": {"stage": "sums", "tasks": 2, "nodes": "one"}},
    {"move": {"stage": "sums", "tasks": ["1"]}},
    {"cancel": {"stage": 3}},
    {"stop": {"now": True}},
    {"explode": {}},
    ["stop"],
    "NoneType",
]


def test_what_is_no_request_is_refused_and_the_job_goes_on() -> None:
    job = Job()
    with opened(job) as door:
        for body in NO_REQUESTS:
            status, said = asked(door, "/control", body=body)
            assert status == 200 and json.loads(said)["refused"] and not job.asked, body
            assert "is no request" in said or "is a list of names" in said
        assert json.loads(asked(door, "/control", body={"cancel": {}})[1]) == {"refused": False, "text": "answer 1"}


def test_bytes_that_are_no_http_and_requests_that_are_too_long_change_nothing() -> None:
    with opened() as door:
        port = int(str(door.address).split(":")[2].partition("/")[0])
        for sent in (b"\0" * 100, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000, b"POST /control HTTP/1.1\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as stranger:
                stranger.sendall(sent)
        assert asked(door, "/control", body={"scale": "x" * 100_000})[0] == 413
        assert asked(door, "/view")[0] == 200


def test_a_page_gets_the_whole_view_then_what_has_changed_and_how_it_ended() -> None:
    seen: list[tuple[str, Any]] = []
    tracker = RunTracker()
    with pytest.raises(JobCancelledError), opened() as door:
        door.update(tracker.update(snapshot(1)))
        stream = events(door)
        seen.append(next(stream))
        door.update(tracker.update(snapshot(1, at=2.0)))
        seen.append(next(stream))
        raise JobCancelledError("cancelled")
    seen += stream
    assert [event for event, _ in seen] == ["view", "patch", "patch", "end"]
    assert "edges" not in seen[1][1]
    view: Any = {}
    for _, patch in seen:
        view = applied(view, patch)
    assert view["at"] == 2.0 and view["stages"]["sums"]["queue"] == 1
    assert view["job"]["status"] == "cancelled" and view["job"]["error"] == "cancelled"


def test_a_client_that_never_reads_keeps_nobody_waiting() -> None:
    with opened() as door:
        tracker = RunTracker()
        place, _, token = str(door.address).removeprefix("http://").partition("/#token=")
        with socket.create_connection(tuple(place.split(":"))) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
            head = f"Host: {place}\r\nAuthorization: Bearer {token}\r\n\r\n"
            deaf.sendall(f"GET /events HTTP/1.1\r\n{head}".encode())
            stream = events(door)
            for number in range(1, 6):
                door.update(tracker.update(snapshot(*range(number * 300), at=float(number))))
                event, _ = next(stream)
                assert event == ("view" if number == 1 else "patch")


def test_a_hundred_requests_at_once_are_answered() -> None:
    job, found = Job(), list[tuple[int, str]]()
    job.answers.clear()
    with opened(job) as door:
        body = {"scale": {"stage": "sums", "tasks": 2}}
        asking = [threading.Thread(target=lambda: found.append(asked(door, "/control", body=body))) for _ in range(100)]
        for each in asking:
            each.start()
        while len(job.asked) < 100:
            time.sleep(0.01)
        assert asked(door, "/view")[0] == 200
        job.answers.set()
        for each in asking:
            each.join()
    assert [status for status, _ in found] == [200] * 100
    assert len({request.request for request in job.asked}) == 100


def test_a_door_that_is_killed_is_replaced_and_a_request_is_done_once() -> None:
    job, answers = Job(), list[str]()
    job.answers.clear()
    with opened(job) as door:
        asking = threading.Thread(target=lambda: answers.append(RunningJob.find("job").scale("sums", 2)))
        asking.start()
        while not job.asked:
            time.sleep(0.01)
        address = door.address
        [process] = processes()
        os.kill(process, signal.SIGKILL)
        while processes() in ([], [process]):
            time.sleep(0.01)
        job.answers.set()
        asking.join()
        assert answers == ["answer 1"] and [type(request) for request in job.asked] == [Rescale]
        assert door.address == address and asked(door, "/view")[0] == 200


def test_the_same_request_with_the_same_id_is_done_once_and_any_other_is_another_one() -> None:
    job = Job()
    with opened(job) as door:

        def done(**body: Any) -> str:
            return str(json.loads(asked(door, "/control", body=body)[1])["text"])

        assert done(id=1, stop={}) == done(id=1, stop={}) == "answer 1"
        assert [done(id=1, cancel={}), done(id=2, stop={}), done(stop={}), done(stop={})] == [
            f"answer {number}" for number in (2, 3, 4, 5)
        ]
        for number in range(2 * opening._ANSWERS):
            done(id=f"x{number}", stop={})
        assert len(door._answers) == opening._ANSWERS
    assert len({request.request for request in job.asked}) == len(job.asked)


def test_who_asks_a_door_that_never_opens_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "_PROGRAM", "raise SystemExit")
    with opened(), pytest.raises(ControlError, match="job"):
        RunningJob.find("job").scale("sums", 2)
    assert capsys.readouterr().err.count("their process does not start") == 1


def test_a_view_that_fails_ends_no_door(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with opened() as door:
        with monkeypatch.context() as broken:
            broken.setattr(door, "_document", {}.__getitem__)  # a TypeError
            with suppress(OSError, HTTPException):
                asked(door, "/view")
        assert asked(door, "/view")[0] == 200
    assert capsys.readouterr().err.count("the door of this job failed: TypeError") == 1


def test_a_door_that_is_stopped_keeps_the_job_from_nothing() -> None:
    with opened() as door:
        assert asked(door, "/view")[0] == 200
        [process] = processes()
        os.kill(process, signal.SIGSTOP)
        door.update(RunTracker().update(snapshot(1)))
    assert not processes()


def test_a_job_that_cannot_tell_its_status_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    class Dead(Job):
        def status(self) -> tuple[Status, Snapshot] | None:
            raise JobFailedError("Ray has died")

    with opened(Dead()) as door:
        assert asked(door, "/status") == (200, "null") and RunningJob.find("job").status() is None
    assert "Traceback" not in capfd.readouterr().err


def test_a_process_that_the_driver_has_forked_does_not_keep_the_job_from_its_end() -> None:
    forked = 0
    try:
        with opened() as door:
            assert asked(door, "/view")[0] == 200
            if not (forked := os.fork()):
                signal.pause()
            [process] = processes()
        assert not Path(f"/proc/{process}").exists()
    finally:
        os.kill(forked, signal.SIGKILL)
        os.waitpid(forked, 0)


def test_a_driver_that_is_killed_leaves_no_process_and_no_offer(runs: Path) -> None:
    program = f"""
import threading
from pathlib import Path
from dpa.config import DoorConfig
from dpa.door import client
from dpa.door.opening import Door
from dpa.runtime import cluster
cluster.is_private = lambda: True
client.runs_directory = lambda: Path({str(runs)!r})
class Job:
    def ask(self, request): threading.Event().wait()
    def status(self): return None
with Door("killed", DoorConfig()) as door, door.reached(Job()):
    print(flush=True)
    threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        found, said = RunningJob.find("killed"), list[str]()

        def ask() -> None:
            try:
                found.stop()
            except Exception as error:
                said.append(str(error))

        asking = threading.Thread(target=ask)
        asking.start()
        while not (children := processes(driver.pid)):
            time.sleep(0.01)
        driver.kill()
    asking.join()
    assert said in ([f"{found.name} ended before it had answered"], [f"{found.name} has ended"])
    while any(Path(f"/proc/{child}").exists() for child in children):
        time.sleep(0.01)
    assert RunningJob.all() == [] and not list(runs.iterdir())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "::1"])
def test_a_door_on_any_loopback_address_needs_no_certificate(host: str) -> None:
    with opened(host=host) as door:
        place = str(door.address).partition("/#")[0].removeprefix("http://")
        assert asked(door, "/view", Host=place)[0] == 200 and RunningJob.find("job").cancel() == "answer 1"


def test_a_job_that_loads_is_listed_and_cannot_be_asked_yet() -> None:
    with Door("job", DoorConfig()) as door:
        assert CliRunner().invoke(app, ["control", "list"]).output.endswith("no answer yet\n")
        with pytest.raises(ControlError, match="the job starts or ends, and cannot be asked now"):
            RunningJob.find("job").cancel()
        with door.reached(Job()):
            assert RunningJob.find("job").cancel() == "answer 1"
        assert RunningJob.all() == []


def test_no_command_line_shows_the_token(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}.part; mv {seen}.part {seen}\n')
    browser.chmod(0o700)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setattr("webbrowser._tryorder", None)
    with opened() as door:
        assert CliRunner().invoke(app, ["control", "ui", "job"]).output == f"{door.address}\n"
        while not seen.exists():
            time.sleep(0.01)
        file = Path(seen.read_text().strip().removeprefix("file://"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert f"url={door.address}" in file.read_text()


def test_a_port_that_is_taken_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with opened(port=port) as door:
            assert f"door.port: 127.0.0.1:{port} cannot be used" in capsys.readouterr().err
            assert asked(door, "/view")[0] == 200


def test_a_door_to_other_machines_has_tls_and_one_for_this_machine_too(tmp_path: Path) -> None:
    pair = {"certificate": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subject = ["-addext", "subjectAltName=DNS:localhost", "-keyout", pair["key"], "-out", pair["certificate"]]
    subprocess.run([*make, *subject], check=True, capture_output=True)
    with opened(host="0.0.0.0", **pair) as door:
        assert str(door.address).startswith(f"https://{socket.gethostname()}:")
        assert RunningJob.find("job").cancel() == "answer 1"
        port, _, token = str(door.address).split(":")[2].partition("/#token=")
        context = ssl.create_default_context(cafile=pair["certificate"])
        connection = HTTPSConnection("localhost", int(port), context=context, timeout=PATIENCE)
        connection.request("GET", "/view", headers={"Authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 200
    with pytest.raises(ConfigError, match=r"door.certificate: .* are no certificate and its key in PEM"):
        opened(host="0.0.0.0", certificate=pair["key"], key=pair["key"]).__enter__()
