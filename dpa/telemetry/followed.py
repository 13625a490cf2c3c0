"""A run that is watched from outside: snapshots of its coordinator, as its driver's observers would see them."""

from __future__ import annotations

from dpa.protocol.wire.metrics import Snapshot
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import RunTracker


class Followed:
    """Shows an observer the snapshots of a run, of all its generations."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._tracker = RunTracker()
        self._before: Snapshot | None = None

    def see(self, snapshot: Snapshot) -> None:
        """Take in a snapshot."""
        before, self._before = self._before, snapshot
        if before is not None and before.generation != snapshot.generation:
            self._observer.warn(f"generation {snapshot.generation} of the job has begun; all numbers begin again")
            self._tracker = RunTracker()
        is_new = before is None or before.phase != snapshot.phase
        if is_new and snapshot.phase in ("startup", "stream", "merge"):
            self._observer.phase(snapshot.phase)
        self._observer.update(self._tracker.update(snapshot))
