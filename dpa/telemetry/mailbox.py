"""Requests to a running job as files, and its answers: from another process of the same user on the same machine.

Each running job has a directory below that of temporary files. The job writes its status there. Whoever asks leaves a
file with the request and waits for one with the answer. Files are complete when they have their names. No port and no
connection to the job's own Ray is needed.
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
from typing import IO, Any, NoReturn

from pydantic import TypeAdapter

from dpa._util.owned import users_directory
from dpa.errors import ControlError
from dpa.protocol.plan import CancelJob, Request
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, CloseFeeds, MoveTasks, Rescale
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import BackendNode, TaskProcess
from dpa.telemetry.tracker import Status

_STATUS, _REQUEST, _ANSWER, _LOCK = "status.json", ".request", ".answer", "lock"

_NAME = re.compile(r"[A-Za-z0-9_.-]+-\d+(\.\d+)?")
"""The directory of a job: its name, its process, and a number if that runs several of the name."""

_KINDS: dict[str, type[Request]] = {
    kind.__name__: kind for kind in (Rescale, MoveTasks, CancelChange, CancelJob, CloseFeeds)
}

_STATUS_SECONDS = 0.5
"""Between two writings of a job's status."""

_LOOK_SECONDS = 0.05
"""Between two looks for an answer, or for an unread one."""

_LOOKS = 10
"""How often a job that has ended looks for unread answers, before it leaves them there."""


def runs_directory() -> Path:
    """The directory of this user's running jobs.

    Raises:
        OSError: it cannot be made, or is another user's.
    """
    return users_directory(gettempdir())


class Mailbox:
    """The job's side: while this context is open, the job can be asked."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._directory: Path | None = None
        self._lock: IO[str] | None = None
        self._told_at = 0.0
        self._asked: dict[int, str] = {}
        self._nodes: Sequence[BackendNode] = ()

    def __enter__(self) -> Mailbox:
        """Begin to listen. A job that cannot make its directory runs, but cannot be asked."""
        with contextlib.suppress(OSError):
            runs = runs_directory()
            made = Path(mkdtemp(prefix=".", dir=runs))
            self._lock = (made / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            JobByFiles.all()  # removes what an earlier process of this number has left
            name = next(name for name in run_names(self._name) if not (runs / name).exists())
            self._directory = made.rename(runs / name)
        return self

    def __exit__(self, *raised: object) -> None:
        """Refuse what still waits, and remove the directory once all answers are read. If that takes longer, the reader
        of the last answer removes it, or the next process that looks for jobs."""
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
        """The numbers of requests without an answer."""
        return tuple(self._asked)

    def tell(
        self, snapshot: Snapshot, processes: Mapping[Address, TaskProcess], nodes: Callable[[], Sequence[BackendNode]]
    ) -> None:
        """Write the job's status, unless it was written just before. `nodes` is called if a process is on a node that
        is not known yet."""
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
        """Requests since the last call. Those that cannot be read are refused here."""
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
            except Exception as error:  # no request may end the job
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                    self._leave(path.stem, Answer(None, f"the request cannot be read: {error!r}", refused=True))
        return found

    def answer(self, answer: Answer) -> None:
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
        """The running jobs of this user on this machine, by name. Removes the directories of jobs that were killed."""
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
        # A lock and not the process's number, which another process may have by now, or another container.
        try:
            with (self._directory / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def status(self) -> Status | None:
        """None before it begins to stream."""
        try:
            return TypeAdapter(Status).validate_json((self._directory / _STATUS).read_text())
        except (OSError, ValueError):
            return None

    def follow(self, observer: object) -> NoReturn:
        why = "runs in a Ray of its own, and is shown where it was started"
        raise ControlError(f"{self.name} {why}; a job on a cluster (`--address`) can be followed from elsewhere")

    def ask(self, request: Request) -> Answer:
        """Wait for the answer to a request.

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
    """Names for a run of a job by this process; the run takes the first that is free."""
    first = f"{job}-{os.getpid()}"
    return (f"{first}.{number}" if number > 1 else first for number in itertools.count(1))


def _remove(directory: Path) -> None:
    # Foreign files in it keep the directory.
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.name in (_STATUS, _LOCK) or path.suffix in (_REQUEST, _ANSWER) or path.name.startswith("."):
                path.unlink()
        directory.rmdir()


def _write(path: Path, content: dict[str, Any]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(content))
    beside.replace(path)
