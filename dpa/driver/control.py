"""How a running job is asked to change its tasks, or to end, from another process of the same user on the same machine.

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
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import IO, Any

from dpa.errors import ControlError
from dpa.protocol.plan import CancelJob
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, MoveTasks, Rescale, TaskRequest
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import BackendNode, TaskProcess
from dpa.routing.members import MOST_TASKS

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
        self._numbers = itertools.count(1)
        self._asked: dict[int, str] = {}
        self._nodes: Sequence[BackendNode] = ()

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
        """Listen no more: who still waits is told that the job has ended. Answers are left there until they are read,
        for a moment."""
        if self._directory is not None:
            self.requests()
            for number in list(self._asked):
                self.answer(Answer(number, "the job has ended before that", refused=True))
            for _ in range(_LOOKS):
                if not any(self._directory.glob(f"*{_ANSWER}")):
                    break
                time.sleep(_LOOK_SECONDS)
            _remove(self._directory)
        if self._lock is not None:
            self._lock.close()

    def tell(
        self, snapshot: Snapshot, processes: Mapping[Address, TaskProcess], nodes: Callable[[], Sequence[BackendNode]]
    ) -> None:
        """Say how the job is."""
        now = time.monotonic()
        if self._directory is None or now - self._told_at < _STATUS_SECONDS:
            return
        self._told_at = now
        names = {node.id: node.name for node in self._nodes}
        if not self._nodes or not all(process.node in names for process in processes.values()):
            self._nodes = nodes()
            names = {node.id: node.name for node in self._nodes}

        def process_of(stage: str, task: int) -> Process:
            found = processes.get(Address(stage, task))
            return Process() if found is None else Process(names.get(found.node, found.node), found.pid)

        stages = [
            Stage(
                stage.name,
                stage.phase,
                stage.present,
                sum(task.queue for task in stage.tasks),
                tuple(process_of(stage.name, task) for task in stage.present),
            )
            for stage in snapshot.stages
        ]
        processors = sum(node.processors for node in self._nodes)
        status = Status(self._name, os.getpid(), snapshot.phase, snapshot.at, tuple(stages), processors)
        with contextlib.suppress(OSError):
            _write(self._directory / _STATUS, asdict(status))

    def requests(self) -> list[TaskRequest | CancelChange | CancelJob]:
        """What the job has been asked since this was last called. What cannot be read is answered here."""
        if self._directory is None:
            return []
        found = []
        for path in sorted(self._directory.glob(f"*{_REQUEST}")):
            number = next(self._numbers)
            self._asked[number] = path.stem
            try:
                asked = json.loads(path.read_text())
                path.unlink()
                found.append(_request(number, asked))
            except Exception as error:  # whatever is asked, the job goes on
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                self.answer(Answer(number, f"the request cannot be read: {error!r}", refused=True))
        return found

    def answer(self, answer: Answer) -> None:
        """Tell who asked."""
        if self._directory is not None and answer.request is not None and answer.request in self._asked:
            with contextlib.suppress(OSError):
                content = {"text": answer.text, "refused": answer.refused}
                _write(self._directory / f"{self._asked[answer.request]}{_ANSWER}", content)
                del self._asked[answer.request]


@dataclass(frozen=True)
class Process:
    """The process of a task: the name of its node, and its number there; empty and None where a task is not up."""

    node: str = ""
    pid: int | None = None


@dataclass(frozen=True)
class Stage:
    """A stage of a running job: its tasks by number, the records in their queues, and the processes of these tasks."""

    name: str
    phase: str
    tasks: tuple[int, ...]
    queued: int
    processes: tuple[Process, ...]


@dataclass(frozen=True)
class Status:
    """How a running job is; `at`: seconds since its stream began; `processors`: of all nodes of the cluster."""

    job: str
    pid: int
    phase: str
    at: float
    stages: tuple[Stage, ...]
    processors: float


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
        stages = (
            Stage(
                **{
                    **stage,
                    "tasks": tuple(stage["tasks"]),
                    "processes": tuple(Process(**process) for process in stage["processes"]),
                }
            )
            for stage in told.pop("stages")
        )
        return Status(**told, stages=tuple(stages))

    def scale(
        self,
        stage: str,
        tasks: int,
        nodes: Sequence[str] = (),
        wait: Callable[[], None] | None = None,
        warn: Callable[[str], None] = warnings.warn,
    ) -> str:
        """Have a stage have `tasks` tasks, 256 at most; new ones on these nodes in turn, if they are given. Returns
        what has been done, in a sentence, when it is. `warn` receives that the cluster has fewer processors.

        Raises:
            ControlError: the job refused, or has ended.
        """
        status = self.status()
        if status is not None and 0 < status.processors < tasks <= MOST_TASKS:
            warn(f"{tasks} tasks of {stage} share the {status.processors:g} processors of the cluster")
        return self._ask({"kind": "rescale", "stage": stage, "tasks": tasks, "nodes": list(nodes)}, wait)

    def move(
        self, stage: str, tasks: Sequence[int], nodes: Sequence[str] = (), wait: Callable[[], None] | None = None
    ) -> str:
        """Have new tasks take the places of these, on these nodes in turn. Returns what has been done, when it is.

        Raises:
            ControlError: the job refused, or has ended.
        """
        return self._ask({"kind": "move", "stage": stage, "tasks": list(tasks), "nodes": list(nodes)}, wait)

    def cancel(self, stage: str | None = None, wait: Callable[[], None] | None = None) -> str:
        """Make no change of a stage's tasks that waits, or whose new tasks are not up yet; without a stage, end the
        whole job, which publishes nothing. Returns what has been done.

        Raises:
            ControlError: there is no such change, it is too late, or the job has ended.
        """
        return self._ask({"kind": "cancel", "stage": stage}, wait)

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


def _request(number: int, asked: Mapping[str, Any]) -> TaskRequest | CancelChange | CancelJob:
    """The request that a file holds.

    Raises:
        KeyError, ValueError, TypeError: it holds none.
    """
    if asked["kind"] == "cancel":
        return CancelJob(number) if asked["stage"] is None else CancelChange(number, str(asked["stage"]))
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
