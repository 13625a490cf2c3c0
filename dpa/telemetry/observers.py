"""Who looks at a run while it goes on: the command line's display, the log, an experiment, several, or nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from dpa._secrets import hidden
from dpa.telemetry.tracker import TrackedSnapshot

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Receives the progress of a run, in the thread that runs it."""

    def phase(self, name: str, detail: str = "") -> None:
        """A phase begins: `load`, `startup`, `stream`, `merge` or `reference`."""

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Statistics, a few times a second while records flow."""

    def warn(self, message: str) -> None:
        """What the user should know while the job is running."""


class Unobserved:
    """Ignores all of it."""

    def phase(self, name: str, detail: str = "") -> None:
        """Ignore a phase."""

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Ignore statistics."""

    def warn(self, message: str) -> None:
        """Ignore a warning."""


class Observers:
    """Several observers as one, in their order. One that raises an `Exception` looks no more, of which the others are
    warned; the run goes on."""

    def __init__(self, *observers: Observer) -> None:
        self._looking = observers

    def phase(self, name: str, detail: str = "") -> None:
        """Announce a phase to all."""
        self._tell(lambda observer: observer.phase(name, detail))

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Give statistics to all."""
        self._tell(lambda observer: observer.update(snapshot))

    def warn(self, message: str) -> None:
        """Warn all, without secrets."""
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
