"""Observers by which a job goes on until a test has seen what it needs, however fast the machine is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot


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
