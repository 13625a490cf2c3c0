"""The error of a simulated run that went wrong."""

from __future__ import annotations

from collections.abc import Sequence

from dpa.errors import DpaError


class InvariantViolationError(DpaError):
    """A simulated run broke an invariant: says which, and carries the events that led there."""

    def __init__(self, message: str, history: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.history = history
