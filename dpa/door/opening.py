"""The driver's side of a job's door: it listens from the start, and starts the door's process when somebody comes. What
nobody looks at costs nothing.

The process inherits the listening sockets. When it dies, those who ask wait until another one has its place."""

from __future__ import annotations

import json
import re
import secrets
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from enum import Enum
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpa._secrets import hidden
from dpa._util.sharing import OWN_ENVIRONMENT
from dpa._util.streams import say
from dpa.config import DoorConfig
from dpa.door._changes import difference
from dpa.door.client import Offer, offered, this_machine
from dpa.door.view import RunView, View, view_of_report
from dpa.errors import ConfigError, ControlError, JobCancelledError
from dpa.protocol.plan import CancelJob, Request
from dpa.protocol.wire.events import CancelChange, CloseFeeds, MoveTasks, Rescale
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot
from dpa.result import Report
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import Status, TrackedSnapshot

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from dpa.door._server import main; main()"
"""Nothing is imported from the driver's working directory."""

_WAITING = 128  # callers that may wait for the process to start
_SEND_SECONDS = 5.0  # how long the process may take to read an answer before it is replaced
_AGAIN_SECONDS = 1.0  # how long after the end of a process another one may start
_MOST_FAILURES = 3  # processes in a row that end before they serve: no other one is started then

_READ_BYTES = 2**16

_SHOWN = 80  # characters of a request that is none

_FORMS = (
    'one is {"scale": {"stage": NAME, "tasks": N}}, {"move": {"stage": NAME, "tasks": [N]}}, {"cancel": {}}, '
    '{"cancel": {"stage": NAME}}, {"stop": {}} or {"finish": {}}'
)

_ANSWERS = 100  # how many of the newest answers are kept for clients that ask again
_END_SECONDS = 3.0  # how long the process, and those who wait for an answer, may take at the end of the job


class Reached(Protocol):
    """A job whose coordinator can be asked, from any thread."""

    def ask(self, request: Request) -> Answer:
        """Wait for the answer."""
        ...

    def status(self) -> tuple[Status, Snapshot] | None:
        """None if it has not begun to stream, or does not answer."""
        ...


class Door(Observer):
    """A block in which a job can be looked at; observes the job.

    Attributes:
        address: of the page, with its token; None: there is no page.
    """

    def __init__(self, job: str, config: DoorConfig) -> None:
        self.address: str | None = None
        self._job, self._config = job, config
        self._token, self._certificate = token_and_certificate(config)
        self._view, self._looking = RunView({"name": job, "backend": "ray"}, time.time()), threading.Lock()
        self._last: View | None = None
        self._reached: Reached | None = None
        self._answers: OrderedDict[str, Future[Answer]] = OrderedDict()
        self._listeners: list[socket.socket] = []
        self._offering = ExitStack()
        self._over, self._ends = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="dpa-door", daemon=True)

    def __enter__(self) -> Door:
        try:
            self._listen()
        except OSError as error:
            say(f"warning: `dpa control` cannot ask this job, and it has no page: {error}")
        else:
            self._thread.start()
            self._offering.enter_context(offered(self._job, self._offer))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._offering.close()
        if error is not None:
            document = self._document()
            is_cancelled = isinstance(error, JobCancelledError | KeyboardInterrupt)
            known = {"status": "cancelled" if is_cancelled else "failed", "error": hidden(str(error))}
            self._last = {**document, "phase": "failed", "job": {**document["job"], **known}}
        self._ends.shutdown(socket.SHUT_RDWR)  # closing it would not do where user code has forked this process
        self._ends.close()
        if self._thread.is_alive():
            self._thread.join()
        for opened in (*self._listeners, self._over):
            opened.close()

    def ended(self, report: Report) -> None:
        self._last = view_of_report(report)

    @contextmanager
    def reached(self, job: Reached) -> Iterator[None]:
        """A block in which the job can be asked, and, on a cluster, others find its door there. Ray is connected."""
        if self.address is None:
            yield
            return
        from dpa.runtime.cluster import is_private

        self._reached = job
        try:
            if is_private():
                yield
            else:
                from dpa.door.notes import noted  # which imports Ray

                self._offering.close()
                with noted(self._job, self._offer):
                    yield
        finally:
            self._reached = None
            self._offering.close()

    def phase(self, name: str) -> None:
        with self._looking:
            self._view.phase(name)

    def update(self, snapshot: TrackedSnapshot) -> None:
        with self._looking:
            self._view.update(snapshot)

    def warn(self, message: str) -> None:
        with self._looking:
            self._view.warn(message)

    def _document(self) -> View:
        with self._looking:
            return self._last or self._view.document

    def _listen(self) -> None:
        config, pair = self._config, self._certificate
        if pair is not None or config.host not in ("127.0.0.1", "localhost"):
            self._listeners.append(_listening("127.0.0.1", 0))  # for requests from this machine
        self._listeners.append(_listening(config.host, config.port))
        host = socket.gethostname() if config.host in ("0.0.0.0", "::") else config.host
        kind, port = "http" if pair is None else "https", self._listeners[-1].getsockname()[1]
        page = f"{kind}://{f'[{host}]' if ':' in host else host}:{port}/"
        self._offer = Offer(self._job, self._listeners[0].getsockname()[1], self._token, this_machine(), page)
        self.address = self._offer.address

    def _run(self) -> None:
        """Have a process serve from when somebody asks until the job ends."""
        failures = 0
        while self._over not in wait([self._over, *self._listeners]):
            try:
                failures = 0 if self._serve() else failures + 1
            except OSError:  # too many files or processes, perhaps for a moment
                pass
            except Exception as error:  # those who ask would wait until the job ends
                say(f"warning: the door of this job failed: {error!r}")
                failures += 1
            if failures == _MOST_FAILURES:
                say("warning: `dpa control` cannot ask this job, and it has no page: their process does not start")
                for listener in self._listeners:
                    listener.close()
                return
            wait([self._over], _AGAIN_SECONDS)

    def _serve(self) -> bool:
        """Have one process serve until it, or the job, ends; whether it has begun to."""
        ours, inherited = socket.socketpair()
        with ours:
            with inherited:
                process = self._start(inherited)
            served = _Served(ours, self._over, self._document, self._answer)
            served.run()
            with suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return served.has_begun

    def _start(self, inherited: socket.socket) -> subprocess.Popen[bytes]:
        sockets = [each.fileno() for each in (inherited, *self._listeners)]
        with OWN_ENVIRONMENT:
            return subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(Path(__file__).parents[2]), *map(str, sockets)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=sockets,
                start_new_session=True,  # no signal of a terminal is for it
            )

    def _answer(self, what: str, *given: Any) -> Any:
        """What the job says; None if it cannot say it now."""
        if what == "hello":
            return {"token": self._token, "certificate": self._certificate}
        if what == "control":
            answer = self._asked(*given)
            return {"refused": answer.refused, "text": answer.text}
        said = None
        with suppress(Exception):  # Ray has died, or the job ends just now
            said = None if (job := self._reached) is None else job.status()
        if said is None:
            return None
        status, snapshot = said
        return asdict(status if what == "status" else replace(snapshot, use={}))

    def _asked(self, asked: Any) -> Answer:
        """The answer to a request. A client whose door has died asks again, with the `id` of before: then it is the
        same answer."""
        number = secrets.randbits(62)
        try:
            request = _request(asked, number)
        except ControlError as error:
            return Answer(None, str(error), refused=True)
        if (job := self._reached) is None:
            return Answer(number, "the job starts or ends, and cannot be asked now", refused=True)
        mine: Future[Answer] = Future()
        future = self._answers.setdefault(json.dumps(asked), mine) if "id" in asked else mine
        if future is mine:
            if len(self._answers) > _ANSWERS:
                self._answers.popitem(last=False)
            try:
                future.set_result(job.ask(request))
            except Exception as error:  # no request may end the job
                future.set_result(Answer(number, f"it cannot answer: {error!r}", refused=True))
        return future.result()


class _Served:
    """What one process asks the driver, until it ends or the job is over.

    Attributes:
        has_begun: whether it has asked anything.
    """

    def __init__(
        self, process: socket.socket, over: socket.socket, document: Callable[[], View], answer: Callable[..., Any]
    ) -> None:
        process.settimeout(_SEND_SECONDS)
        self._process, self._over = process, over
        self._document, self._answer = document, answer
        self.has_begun = False
        self._sent: View = {}
        self._turn = threading.Lock()
        self._callers: list[threading.Thread] = []

    def run(self) -> None:
        rest = b""
        while self._over not in wait([self._process, self._over]):
            try:
                data = self._process.recv(_READ_BYTES)
            except OSError:
                return
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(*json.loads(line))
        for caller in self._callers:
            caller.join(_END_SECONDS)
        self._reply(0, self._patch())

    def _take(self, number: int, what: str, *given: Any) -> None:
        self.has_begun = True
        if what == "view":
            self._reply(number, self._patch())
            return
        # Another request may be what ends the waiting of this one.
        caller = threading.Thread(
            target=lambda: self._reply(number, self._answer(what, *given)), name="dpa-caller", daemon=True
        )
        caller.start()
        self._callers = [*(thread for thread in self._callers if thread.is_alive()), caller]

    def _patch(self) -> dict[str, Any]:
        """What the newest view has changed; the process has all before."""
        before, self._sent = self._sent, self._document()
        return difference(before, self._sent)

    def _reply(self, number: int, found: Any) -> None:
        line = json.dumps([number, found], default=_in_json).encode() + b"\n"
        try:
            with self._turn:
                self._process.sendall(line)
        except OSError:  # it has ended, or does not read
            with suppress(OSError):
                self._process.shutdown(socket.SHUT_RDWR)


def _in_json(value: Any) -> Any:
    """What JSON lacks in a snapshot: an enum, a number of numpy, a fraction."""
    if isinstance(value, Enum):
        return value.value
    return value.item() if isinstance(value, np.generic) else str(value)


def _request(asked: Any, number: int) -> Request:
    """A request of that number. ControlError says what would be one."""
    match asked:
        case {"scale": {"stage": str(stage), "tasks": int(tasks), **more}} if type(tasks) is int:
            return Rescale(number, stage, tasks, _nodes(more))
        case {"move": {"stage": str(stage), "tasks": [*tasks], **more}} if {type(task) for task in tasks} == {int}:
            return MoveTasks(number, stage, tuple(tasks), _nodes(more))
        case {"cancel": {"stage": str(stage)}}:
            return CancelChange(number, stage)
        case {"cancel": {**nothing}} if not nothing:
            return CancelJob(number)
        case {"stop": {**nothing}} if not nothing:
            return CancelJob(number, saves=True)
        case {"finish": {**nothing}} if not nothing:
            return CloseFeeds(number)
    raise ControlError(f"{json.dumps(asked)[:_SHOWN]} is no request; {_FORMS}")


def _nodes(more: Mapping[Any, Any]) -> tuple[str, ...]:
    nodes = more.get("nodes", [])
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise ControlError("`nodes` is a list of names")
    return tuple(nodes)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_WAITING)
    except OSError as error:
        if not port:
            raise
        say(f"warning: door.port: {host}:{port} cannot be used ({error.strerror}), so another port is")
        return socket.create_server((host, 0), family=family, backlog=_WAITING)


def token_and_certificate(config: DoorConfig) -> tuple[str, tuple[str, str] | None]:
    """The token, a new one if the door's has no file; and the absolute paths of the certificate and its key, if there
    are any. ConfigError if a file is not what it should be."""
    token, pair = secrets.token_urlsafe(24), None
    if (file := config.token_file) is not None:
        try:
            token = Path(file).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"door.token_file: {file} cannot be read: {error}") from None
        if not re.fullmatch(r"[\w.~-]{16,}", token):
            raise ConfigError(f"door.token_file: {file} needs 16 letters or digits, or more: `openssl rand -hex 32`")
    if config.certificate is not None and config.key is not None:
        pair = str(Path(config.certificate).absolute()), str(Path(config.key).absolute())
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*pair, password="")
        except (OSError, ValueError) as error:
            why = f"{pair[0]} and {pair[1]} are no certificate and its key in PEM, without a password: {error}"
            raise ConfigError(f"door.certificate: {why}") from None
    return token, pair
