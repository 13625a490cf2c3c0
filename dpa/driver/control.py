"""How a running job is asked to change its tasks, from another process of the same user on the same machine.

A directory for each running job, below that of temporary files: the job says there how it is, and whoever asks leaves a
file with the request and waits for one with the answer. Files are complete when they have their names. So it needs no
port, and no connection to a cluster.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import IO, Any

from dpa.errors import ControlError
from dpa.protocol.events import MoveTasks, Rescale, TaskRequest
from dpa.protocol.instructions import Answer
from dpa.protocol.metrics import Snapshot

_STATUS, _REQUEST, _ANSWER, _LOCK = "status.json", ".request", ".answer", "lock"

_NAME = re.compile(r"[A-Za-z0-9_.-]+-\d+(\.\d+)?")
"""The directory of a job: its name, its process, and a number if that runs several of the name."""

_STATUS_SECONDS = 0.5
"""How often a job says how it is."""

_LOOK_SECONDS = 0.05
"""How often who waits for an answer looks for it."""

_LOOKS = 10
"""For so many looks a job that has ended leaves its answers where they are."""


def runs_directory() -> Path:
    """Where running jobs of this user have their directories."""
    return Path(gettempdir()) / f"dpa-{os.getuid() if hasattr(os, 'getuid') else os.getlogin()}"


class Control:
    """The job's side: a context, while which the job can be asked."""

    def __init__(self, name: str) -> None:
        """Of a job of this name."""
        self._name = name
        self._directory: Path | None = None
        self._lock: IO[str] | None = None
        self._told_at = 0.0
        self._asked: dict[int, str] = {}

    def __enter__(self) -> Control:
        """Begin to listen; a job that cannot is not asked, and goes on."""
        with contextlib.suppress(OSError):
            runs = runs_directory()
            runs.mkdir(mode=0o700, exist_ok=True)
            if not _is_own(runs):
                return self  # nobody else may ask
            made = Path(mkdtemp(prefix=".", dir=runs))
            self._lock = (made / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            RunningJob.all()  # removes what is left of a process that had this number before
            first = f"{self._name}-{os.getpid()}"
            names = (f"{first}.{number}" if number > 1 else first for number in itertools.count(1))
            directory = next(runs / name for name in names if not (runs / name).exists())
            self._directory = made.rename(directory)
        return self

    def __exit__(self, *raised: object) -> None:
        """Listen no more: who still waits learns that the job has ended. Answers are left there until they are read,
        for a moment."""
        if self._directory is not None:
            for _ in range(_LOOKS):
                if not any(self._directory.glob(f"*{_ANSWER}")):
                    break
                time.sleep(_LOOK_SECONDS)
            _remove(self._directory)
        if self._lock is not None:
            self._lock.close()

    def tell(self, snapshot: Snapshot) -> None:
        """Say how the job is."""
        now = time.monotonic()
        if self._directory is None or now - self._told_at < _STATUS_SECONDS:
            return
        self._told_at = now
        stages = [
            Stage(stage.name, stage.phase, stage.present, sum(task.queue for task in stage.tasks))
            for stage in snapshot.stages
        ]
        status = Status(self._name, os.getpid(), snapshot.phase, snapshot.at, tuple(stages))
        with contextlib.suppress(OSError):
            _write(self._directory / _STATUS, asdict(status))

    def requests(self) -> list[TaskRequest]:
        """What the job has been asked since this was last called. What cannot be read is answered here."""
        if self._directory is None:
            return []
        found = []
        for path in sorted(self._directory.glob(f"*{_REQUEST}")):
            number = len(self._asked) + 1
            self._asked[number] = path.stem
            try:
                asked = json.loads(path.read_text())
                path.unlink()
                found.append(_request(number, asked))
            except (OSError, ValueError, TypeError, KeyError) as error:
                path.unlink(missing_ok=True)
                self.answer(Answer(number, f"the request cannot be read: {error!r}", refused=True))
        return found

    def answer(self, answer: Answer) -> None:
        """Tell who asked."""
        if self._directory is not None and answer.request is not None:
            with contextlib.suppress(OSError):
                content = {"text": answer.text, "refused": answer.refused}
                _write(self._directory / f"{self._asked[answer.request]}{_ANSWER}", content)


@dataclass(frozen=True)
class Stage:
    """A stage of a running job: its tasks by number, and the records in their queues."""

    name: str
    phase: str
    tasks: tuple[int, ...]
    queued: int


@dataclass(frozen=True)
class Status:
    """How a running job is; `at`: seconds since its stream began."""

    job: str
    pid: int
    phase: str
    at: float
    stages: tuple[Stage, ...]


class RunningJob:
    """The asking side.

    Attributes:
        name: by which it can be found: that of the job, with the number of its process.
    """

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self._directory = directory

    @staticmethod
    def all() -> list[RunningJob]:
        """The running jobs of this user on this machine, by name. Directories of jobs that were killed are removed."""
        found = []
        with contextlib.suppress(OSError):
            runs = runs_directory()
            places = sorted(runs.iterdir()) if _is_own(runs) else []
            for directory in places:
                job = RunningJob(directory)
                if _NAME.fullmatch(directory.name) is None or not directory.is_dir():
                    continue
                if job.is_alive:
                    found.append(job)
                else:
                    _remove(directory)
        return found

    @staticmethod
    def find(name: str) -> RunningJob:
        """The running job of a name: its own, or that of the job where only one such job runs.

        Raises:
            ControlError: there is none, or there are several.
        """
        jobs = RunningJob.all()
        found = [job for job in jobs if name in (job.name, job.name.rpartition("-")[0])]
        if len(found) == 1:
            return found[0]
        there = ", ".join(job.name for job in found or jobs) or "none"
        what = f"several jobs named {name!r} run" if found else f"no job named {name!r} runs here"
        raise ControlError(f"{what}; running jobs: {there}")

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
            told: dict[str, Any] = json.loads((self._directory / _STATUS).read_text())
        except (OSError, ValueError):
            return None
        stages = tuple(Stage(**{**stage, "tasks": tuple(stage["tasks"])}) for stage in told.pop("stages"))
        return Status(**told, stages=stages)

    def scale(self, stage: str, tasks: int, nodes: Sequence[str] = (), wait: Callable[[], None] | None = None) -> str:
        """Have a stage have so many tasks; new ones on these nodes in turn, if they are given. Returns what has been
        done, in a sentence, when it is.

        Raises:
            ControlError: the job refused, or has ended.
        """
        return self._ask({"kind": "rescale", "stage": stage, "tasks": tasks, "nodes": list(nodes)}, wait)

    def move(
        self, stage: str, tasks: Sequence[int], nodes: Sequence[str] = (), wait: Callable[[], None] | None = None
    ) -> str:
        """Have new tasks take the places of these, on these nodes in turn. Returns what has been done, when it is.

        Raises:
            ControlError: the job refused, or has ended.
        """
        return self._ask({"kind": "move", "stage": stage, "tasks": list(tasks), "nodes": list(nodes)}, wait)

    def _ask(self, request: dict[str, Any], wait: Callable[[], None] | None) -> str:
        number = f"{time.time_ns():020d}-{os.getpid()}"
        answer = self._directory / f"{number}{_ANSWER}"
        try:
            _write(self._directory / f"{number}{_REQUEST}", request)
            while not answer.exists():
                if not self._directory.exists() or not self.is_alive:
                    raise ControlError(f"{self.name} ended before it had answered")
                if wait is not None:
                    wait()
                time.sleep(_LOOK_SECONDS)
            told = json.loads(answer.read_text())
            answer.unlink(missing_ok=True)
        except OSError:
            raise ControlError(f"{self.name} has ended") from None
        if told["refused"]:
            raise ControlError(f"{self.name}: {told['text']}")
        return str(told["text"])


def _is_own(directory: Path) -> bool:
    """Whether it is a directory, no link, that belongs to this user and that no other can write."""
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _remove(directory: Path) -> None:
    """Remove the directory of a job, if there is nothing else in it."""
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.name in (_STATUS, _LOCK) or path.suffix in (_REQUEST, _ANSWER) or path.name.startswith("."):
                path.unlink()
        directory.rmdir()


def _request(number: int, asked: Mapping[str, Any]) -> TaskRequest:
    """The request that a file holds.

    Raises:
        KeyError, ValueError, TypeError: it holds none.
    """
    stage, nodes = str(asked["stage"]), tuple(map(str, asked["nodes"]))
    if asked["kind"] == "rescale":
        return Rescale(number, stage, int(asked["tasks"]), nodes)
    if asked["kind"] == "move":
        return MoveTasks(number, stage, tuple(map(int, asked["tasks"])), nodes)
    raise ValueError(f"there is no request of kind {asked['kind']!r}")


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a file that is complete once it has its name."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(content))
    beside.replace(path)
