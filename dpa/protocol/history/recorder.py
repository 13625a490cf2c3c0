"""A ring buffer of a machine's last events, from which its run can be replayed.

`handle` is the only way into a machine, so a copy of it and the events since then are enough. Two segments are kept:
when a third begins, the oldest is dropped. So at least one whole segment is kept, in bounded memory.
"""

from __future__ import annotations

from collections import deque

from dpa.protocol.history.lean import lean_event, rows_of
from dpa.protocol.history.recording import Handled, Recording, Segment, outcome_of, raised
from dpa.protocol.machine import Machine
from dpa.protocol.wire.events import Event
from dpa.protocol.wire.instructions import Instruction

MAX_EVENTS = 1_000
"""Events of a segment."""

MAX_ROWS = 1_000_000
"""Records in the events of a segment. Their keys are kept, and 4 bytes for each."""


class Recorder:
    """Hands events to a machine, and records them until the task fails."""

    def __init__(self, machine: Machine, max_events: int = MAX_EVENTS, max_rows: int = MAX_ROWS) -> None:
        """A segment ends after `max_events` events, or once these have `max_rows` records."""
        self._machine = machine
        self._max_events = max_events
        self._max_rows = max_rows
        self._segments: deque[Segment] = deque(maxlen=2)
        self._dropped = 0
        self._rows = 0
        self._error: str | None = None

    def handle(self, event: Event, now: float) -> list[Instruction]:
        if self._error is not None:
            return self._machine.handle(event, now)
        try:
            events = self._current().events
            lean = lean_event(event)
        except Exception as error:  # a task goes on without a recording
            self.end(f"nothing more could be recorded: {error!r}")
            return self._machine.handle(event, now)
        self._rows += rows_of(lean)
        try:
            instructions = self._machine.handle(event, now)
        except Exception as error:
            events.append(Handled(now, lean, raised(error)))
            self.end(str(error))
            raise
        events.append(Handled(now, lean, outcome_of(instructions)))
        return instructions

    def end(self, error: str) -> None:
        self._error = self._error or error

    def recording(self) -> Recording:
        return Recording(self._machine.address, tuple(self._segments), self._dropped + 1, self._error)

    def _current(self) -> Segment:
        segments = self._segments
        if not segments or len(segments[-1].events) >= self._max_events or self._rows >= self._max_rows:
            if len(segments) == segments.maxlen:
                self._dropped += len(segments[0].events)
            segments.append(Segment.begin(self._machine))
            self._rows = 0
        return segments[-1]
