"""Observers by which a job goes on until a test has seen what it needs, however fast the machine is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot


def pid_of(job: str, task: str, generation: int) -> int:
    """The process of a task, by the title that it has given itself."""
    title = f"ray::{job} {task}" + (f"#{generation}" if generation else "")
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if command.read_bytes().rstrip(b"\0 ") == title.encode():
                return int(command.parent.name)
        except OSError:  # it has ended meanwhile
            continue
    raise AssertionError(f"there is no {title!r}")


class Killing(Observer):
    """Kills processes of a job, one in each generation, when there is a checkpoint of it."""

    def __init__(self, job: str, *victims: str) -> None:
        self.job, self.victims, self.number = job, [*victims], len(victims)

    def kill_next(self, snapshot: TrackedSnapshot, least: int = 1) -> bool:
        """Whether one is killed now: there are as many checkpoints."""
        written = 0 if snapshot.checkpoints is None else snapshot.checkpoints.written
        if written < least or not self.victims or snapshot.generation != self.number - len(self.victims):
            return False
        os.kill(pid_of(self.job, self.victims.pop(0), snapshot.generation), signal.SIGKILL)
        return True


def rows_read(snapshot: TrackedSnapshot) -> int:
    """Those of all generations."""
    before = 0 if snapshot.checkpoints is None else snapshot.checkpoints.read_before
    return before + snapshot.records.read


class Awaiting(Observer):
    """Makes a file, from which on the executors of a test take no more time, once a snapshot shows what it needs."""

    def __init__(self, go: Path, has_come: Callable[[TrackedSnapshot], object]) -> None:
        self.go, self.has_come = go, has_come

    def update(self, snapshot: TrackedSnapshot) -> None:
        if not self.go.exists() and self.has_come(snapshot):
            self.go.touch()


def has_redistributed(snapshot: TrackedSnapshot) -> bool:
    """Whether a stage has another routing table, and records that had come to a task by the one before went on."""
    return snapshot.redistributions > 0 and snapshot.records.forwarded > 0
