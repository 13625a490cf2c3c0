"""Who receives the progress of a run: the command line's display, an experiment, or nobody."""

from __future__ import annotations

from typing import Protocol

from dpa.protocol.wire.metrics import Snapshot


class Observer(Protocol):
    """Receives the progress of a run, in the thread that runs it."""

    def phase(self, name: str, detail: str = "") -> None:
        """A phase begins: `load`, `startup`, `stream`, `merge` or `reference`."""

    def update(self, snapshot: Snapshot) -> None:
        """Statistics, a few times a second while records flow."""

    def warn(self, message: str) -> None:
        """What the user should know while the job is running."""


class Unobserved:
    """Ignores all of it."""

    def phase(self, name: str, detail: str = "") -> None:
        """Ignore a phase."""

    def update(self, snapshot: Snapshot) -> None:
        """Ignore statistics."""

    def warn(self, message: str) -> None:
        """Ignore a warning."""
