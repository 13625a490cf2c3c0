"""Observers of a run: the command line's display, the log, an experiment, or several of them."""

import logging
from collections.abc import Callable
from typing import Protocol

from dpa._secrets import hidden
from dpa.protocol.wire.metrics import Snapshot
from dpa.telemetry.tracker import Redistribution, RunTracker, TrackedSnapshot

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Receives the progress of a run, in the thread that runs it. What a subclass does not define does nothing."""

    def phase(self, name: str) -> None:
        """A phase begins: `load`, `startup`, `stream`, `merge` or `reference`."""
        return None

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Statistics, a few times a second while records flow."""
        return None

    def warn(self, message: str) -> None:
        """What the user should know while the job is running."""
        return None


class Observers:
    """Several observers as one, in their order. One that raises an `Exception` is dropped, and the others are warned;
    the run continues."""

    def __init__(self, *observers: Observer) -> None:
        self._looking = observers

    def phase(self, name: str) -> None:
        self._tell(lambda observer: observer.phase(name))

    def update(self, snapshot: TrackedSnapshot) -> None:
        self._tell(lambda observer: observer.update(snapshot))

    def warn(self, message: str) -> None:
        text = hidden(message)
        self._tell(lambda observer: observer.warn(text))

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        for observer in self._looking:
            try:
                tell(observer)
            except Exception as error:
                _log.debug("an observer raised", exc_info=True)
                self._looking = tuple(other for other in self._looking if other is not observer)
                self.warn(f"{type(observer).__name__} observes no more: {error!r}")


class RunLog:
    """Logs phases, warnings, redistributions and changes of tasks, each with the job's name."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log, self._name = log, name

    def phase(self, name: str) -> None:
        self._log.info("%s: phase %s", self._name, name)

    def update(self, snapshot: TrackedSnapshot) -> None:
        for found in snapshot.news:
            if isinstance(found, Redistribution):
                text, decision = "%s: redistribution for %s %d, table version %d: %s", found.decision
                self._log.info(text, self._name, found.stage, decision.reducer, decision.version, decision.reason)
            else:
                text = found.in_words(len(snapshot[found.stage].present))
                self._log.info("%s: %s: %s", self._name, text, found.reason)

    def warn(self, message: str) -> None:
        self._log.warning("%s: %s", self._name, message)


class Followed:
    """Shows an observer the snapshots of a run of another process, one generation after the other."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._tracker = RunTracker()
        self._before: Snapshot | None = None

    def see(self, snapshot: Snapshot) -> None:
        before, self._before = self._before, snapshot
        if before is not None and before.generation != snapshot.generation:
            self._observer.warn(f"generation {snapshot.generation} of the job has begun; all numbers begin again")
            self._tracker = RunTracker()
        is_new = before is None or before.phase != snapshot.phase
        if is_new and snapshot.phase in ("startup", "stream", "merge"):
            self._observer.phase(snapshot.phase)
        self._observer.update(self._tracker.update(snapshot))
