"""What is logged of a run: its phases, warnings, redistributions and changes of tasks."""

from __future__ import annotations

import logging

from dpa.telemetry.tracker import Redistribution, TrackedSnapshot


class RunLog:
    """An observer that writes to a logger what happens to the job of a name."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log, self._name = log, name

    def phase(self, name: str, detail: str = "") -> None:
        """Log that a phase begins."""
        self._log.info("%s: phase %s", self._name, name)

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Log what is new."""
        for found in snapshot.news:
            if isinstance(found, Redistribution):
                text, decision = "%s: redistribution for %s %d, table version %d: %s", found.decision
                self._log.info(text, self._name, found.stage, decision.reducer, decision.version, decision.reason)
            else:
                text = found.in_words(len(snapshot[found.stage].present))
                self._log.info("%s: %s: %s", self._name, text, found.reason)

    def warn(self, message: str) -> None:
        """Log a warning."""
        self._log.warning("%s: %s", self._name, message)
