"""Requests to a running job as files, and its answers: from another process of the same user on the same machine.

A directory for each running job, below that of temporary files: the job says there how it is, and whoever asks leaves a
file with the request and waits for one with the answer. Files are complete when they have their names. So it needs no
port, and no connection to the job's own Ray.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import IO, Any

from pydantic import TypeAdapter

from dpa._util.owned import users_directory
from dpa.errors import ControlError
from dpa.protocol.plan import CancelJob, Request
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, CloseFeeds, MoveTasks, Rescale
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import BackendNode, TaskProcess
from dpa.telemetry.status import Status

_STATUS, _REQUEST, _ANSWER, _LOCK = "status.json", ".request", ".answer", "lock"

_NAME = re.compile(r"[A-Za-z0-9_.-]+-\d+(\.\d+)?")
"""The directory of a job: its name, its process, and a number if that runs several of the name."""

_KINDS: dict[str, type[Request]] = {
    kind.__name__: kind for kind in (Rescale, MoveTasks, CancelChange, CancelJob, CloseFeeds)
}

_STATUS_SECONDS = 0.5
"""How often a job says how it is."""

_LOOK_SECONDS = 0.05
"""How often who waits for an answer looks for it."""

_LOOKS = 10
"""How often a job that has ended looks whether its answers have been read, before it leaves them."""


def runs_directory() -> Path:
    """Where running jobs of this user have their directories.

    Raises:
        OSError: it cannot be made, or is another user's.
    """
    return users_directory(gettempdir())


class Mailbox:
    """The job's side: a context, while which the job can be asked."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._directory: Path | None = None
        self._lock: IO[str] | None = None
        self._told_at = 0.0
        self._asked: dict[int, str] = {}
        self._nodes: Sequence[BackendNode] = ()

    def __enter__(self) -> Mailbox:
        """Begin to listen; a job that cannot is not asked, and goes on."""
        with contextlib.suppress(OSError):
            runs = runs_directory()
            made = Path(mkdtemp(prefix=".", dir=runs))
            self._lock = (made / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            JobByFiles.all()  # removes what is left of a process that had this number before
            name = next(name for name in run_names(self._name) if not (runs / name).exists())
            self._directory = made.rename(runs / name)
        return self

    def __exit__(self, *raised: object) -> None:
        """Listen no more: who still waits gets the answer that the job has ended. Answers stay until they are read: the
        directory is removed now if they are at once, else by who reads the last one, or looks for jobs later."""
        if self._directory is not None:
            self.requests()
            for number in self.waiting:
                self.answer(Answer(number, "the job has ended before that", refused=True))
            for _ in range(_LOOKS):
                if not any(self._directory.glob(f"*{_ANSWER}")):
                    _remove(self._directory)
                    break
                time.sleep(_LOOK_SECONDS)
        if self._lock is not None:
            self._lock.close()

    @property
    def waiting(self) -> tuple[int, ...]:
        """The numbers of the requests that are not answered yet."""
        return tuple(self._asked)

    def tell(
        self, snapshot: Snapshot, processes: Mapping[Address, TaskProcess], nodes: Callable[[], Sequence[BackendNode]]
    ) -> None:
        """Say how the job is."""
        now = time.monotonic()
        if self._directory is None or now - self._told_at < _STATUS_SECONDS:
            return
        self._told_at = now
        known = {node.id for node in self._nodes}
        if not self._nodes or not all(process.node in known for process in processes.values()):
            self._nodes = nodes()
        with contextlib.suppress(OSError):
            _write(self._directory / _STATUS, asdict(Status.of(self._name, snapshot, processes, self._nodes)))

    def requests(self) -> list[Request]:
        """What the job has been asked since this was last called. What cannot be read is answered here."""
        if self._directory is None:
            return []
        found = []
        for path in sorted(self._directory.glob(f"*{_REQUEST}")):
            try:
                asked = json.loads(path.read_text())
                path.unlink()
                request = TypeAdapter(_KINDS[asked.pop("kind")]).validate_python(asked)
                assert request.request is not None
                self._asked[request.request] = path.stem
                found.append(request)
            except Exception as error:  # whatever is asked, the job goes on
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                    self._leave(path.stem, Answer(None, f"the request cannot be read: {error!r}", refused=True))
        return found

    def answer(self, answer: Answer) -> None:
        """Leave an answer for who asked."""
        if answer.request in self._asked:
            with contextlib.suppress(OSError):
                self._leave(self._asked[answer.request], answer)
                del self._asked[answer.request]

    def _leave(self, request: str, answer: Answer) -> None:
        assert self._directory is not None
        _write(self._directory / f"{request}{_ANSWER}", asdict(answer))


class JobByFiles:
    """The asking side.

    Attributes:
        name: the job's name, with the number of its process.
    """

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self._directory = directory

    @staticmethod
    def all() -> list[JobByFiles]:
        """The running jobs of this user on this machine, by name. Directories of jobs that were killed are removed."""
        found = []
        with contextlib.suppress(OSError):
            for directory in sorted(runs_directory().iterdir()):
                job = JobByFiles(directory)
                if _NAME.fullmatch(directory.name) is None or not directory.is_dir():
                    continue
                if job.is_alive:
                    found.append(job)
                else:
                    _remove(directory)
        return found

    @property
    def is_alive(self) -> bool:
        """Whether it runs: it holds a lock, whatever its process is, and wherever that runs."""
        try:
            with (self._directory / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def status(self) -> Status | None:
        """How it is; None if it has not begun to stream."""
        try:
            return TypeAdapter(Status).validate_json((self._directory / _STATUS).read_text())
        except (OSError, ValueError):
            return None

    def ask(self, request: Request) -> Answer:
        """The answer to a request, when there is one.

        Raises:
            ControlError: the job has ended.
        """
        stem = f"{time.time_ns():020d}-{os.getpid()}"
        answer = self._directory / f"{stem}{_ANSWER}"
        try:
            _write(self._directory / f"{stem}{_REQUEST}", {"kind": type(request).__name__, **asdict(request)})
            while not answer.exists():
                if not self.is_alive and not answer.exists():  # a job that ends answers first
                    raise ControlError(f"{self.name} ended before it had answered")
                time.sleep(_LOOK_SECONDS)
            told = Answer(**json.loads(answer.read_text()))
            answer.unlink(missing_ok=True)
            if not self.is_alive and not any(self._directory.glob(f"*{_ANSWER}")):
                _remove(self._directory)
        except OSError:
            raise ControlError(f"{self.name} has ended") from None
        return told


def run_names(job: str) -> Iterator[str]:
    """Names for a run of a job by this process, of which the first that is free is taken."""
    first = f"{job}-{os.getpid()}"
    return (f"{first}.{number}" if number > 1 else first for number in itertools.count(1))


def _remove(directory: Path) -> None:
    """Remove the directory of a job, if there is nothing else in it."""
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.name in (_STATUS, _LOCK) or path.suffix in (_REQUEST, _ANSWER) or path.name.startswith("."):
                path.unlink()
        directory.rmdir()


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a file that is complete once it has its name."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(content))
    beside.replace(path)
