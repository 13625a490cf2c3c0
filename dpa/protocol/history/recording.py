"""A task's last events, recorded and as a file: a copy of its machine, and the events after that.

The file is a pickle, which runs code when it is read, so a file that another user may have written is refused. It needs
the dpa that wrote it, but neither Ray, Spark nor the user's modules."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import json
import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from dpa._util.owned import UntrustedError, read_trusted
from dpa._util.version import code_version
from dpa.balance.decision import Decision
from dpa.errors import RecordingError
from dpa.measure.load import KeySample, Load, Offered
from dpa.protocol.history.lean import has_lean_form, lean_event, lean_part, outline, rows_of
from dpa.protocol.machine import Machine
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event
from dpa.protocol.wire.instructions import Instruction, Send
from dpa.protocol.wire.metrics import LoadSample, TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.routing.change import TableChange
from dpa.routing.table import RoutingTable

_FORMAT = "dpa-events-3"

MAX_EVENTS = 1_000  # events of a segment

MAX_ROWS = 1_000_000
"""Records in the events of a segment. Their keys are kept, and 4 bytes for each."""

_SHARED = frozenset({Decision, Load, LoadSample, Offered, RoutingTable, KeySample, TableChange, TaskStats, TaskUse})
"""Immutable types, which a copy of a machine shares with it."""

Outcome = tuple[Instruction, ...] | str
"""The outcome of an event: outlines of the instructions, or the error."""


class Handled(NamedTuple):
    """An event as it was recorded."""

    now: float
    event: Event
    outcome: Outcome


def outcome_of(instructions: Iterable[Instruction]) -> Outcome:
    return tuple([outline(instruction) for instruction in instructions])


def raised(error: Exception) -> Outcome:
    return f"{type(error).__name__}: {error}"


class Replayed(NamedTuple):
    """An event that was handled again. `number`: of the event, from 1."""

    number: int
    handled: Handled
    outcome: Outcome
    machine: Machine

    @property
    def agrees(self) -> bool:
        return repr(self.outcome) == repr(self.handled.outcome)


@dataclass
class Segment:
    """A machine at some moment, and the events that it handled after that. `pickled`: the machine, with references to
    what it shares with the original."""

    pickled: bytes
    shared: list[object]
    events: list[Handled] = field(default_factory=list)

    @staticmethod
    def begin(machine: Machine) -> Segment:
        """O(size of the machine): values of queued records are not copied."""
        file = io.BytesIO()
        copier = _Copier(file)
        copier.dump(machine)
        return Segment(file.getvalue(), copier.shared)

    def machine(self) -> Machine:
        reader = _Reader(io.BytesIO(self.pickled))
        reader.shared = self.shared
        machine: Machine = reader.load()
        return machine


@dataclass(frozen=True)
class Recording:
    """The last events of a task.

    Attributes:
        segments: one or two, the older one first.
        first: number of the first event, from 1.
        error: what ended the task, or None.
    """

    task: Address
    segments: tuple[Segment, ...]
    first: int = 1
    error: str | None = None

    @property
    def events(self) -> list[Handled]:
        return [handled for segment in self.segments for handled in segment.events]

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1

    def replay(self) -> Iterator[Replayed]:
        """Replay the events on copies of the machine, in order, each segment up to its first disagreement."""
        numbers = itertools.count(self.first)
        for segment in self.segments:
            machine = segment.machine()
            for handled in segment.events:
                try:
                    outcome = outcome_of(machine.handle(handled.event, handled.now))
                except Exception as error:
                    outcome = raised(error)
                yield Replayed(next(numbers), handled, outcome, machine)

    @property
    def file_name(self) -> str:
        return f"{quote(self.task.stage.replace(' ', '-'), safe='')}-{self.task.index}.events"

    def to_bytes(self) -> bytes:
        """The content of the task's file: a line with the format, a line of JSON for readers, and a pickle."""
        pickled = pickle.dumps(self, protocol=5)
        header = {"task": str(self.task), "dpa": code_version(), "events": len(self.events), "sha256": _digest(pickled)}
        return f"{_FORMAT}\n{json.dumps(header)}\n".encode() + pickled

    @staticmethod
    def read(path: Path) -> Recording:
        """The recording in a file. Raises RecordingError if the file cannot be read, is none of dpa's, was written by
        another version, is not what was written, or may be another user's."""
        try:
            form, _, rest = read_trusted(path.resolve()).partition(b"\n")
        except OSError as error:
            raise RecordingError(f"{path}: {error.strerror}") from None
        except UntrustedError as error:
            right = "reading events can run any code, so dpa reads only files that no other user can write"
            raise RecordingError(f"{path} {error}; {right}") from None
        if form != _FORMAT.encode():
            is_other = form.startswith(_FORMAT[:-1].encode())
            what = "the events of another version of dpa, which can replay them" if is_other else "no events of a task"
            raise RecordingError(f"{path}: {what}: its first line is not {_FORMAT}")
        header, _, pickled = rest.partition(b"\n")
        try:
            stated = json.loads(header)
            version, digest = stated["dpa"], stated["sha256"]
        except (ValueError, TypeError, KeyError):
            raise RecordingError(f"{path}: its second line, which says what is in it, is damaged") from None
        if version != (here := code_version()):
            raise RecordingError(f"{path}: written by dpa {version}; this is dpa {here}, which may act differently")
        if digest != _digest(pickled):
            raise RecordingError(f"{path}: damaged: its checksum does not fit")
        try:
            recording: Recording = pickle.loads(pickled)
        except Exception as error:  # a damaged pickle may raise anything
            raise RecordingError(f"{path}: cannot be read: {type(error).__name__}: {error}") from None
        return recording


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@cache
def _stays_outside(kind: type) -> bool:
    return kind in _SHARED or has_lean_form(kind)


class Recorder:
    """Hands events to a machine, and records them until the task fails.

    `handle` is the only way into a machine, so a copy of it and the events since then are enough to replay its run. Two
    segments are kept: when a third begins, the oldest is dropped. So at least one whole segment is kept, in bounded
    memory.
    """

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
        except Exception as error:  # a task continues without a recording
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


class _Copier(pickle.Pickler):
    """Pickles a machine; shared objects stay outside, and values, states and splits are left out."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.shared: list[object] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, thing: Any) -> int | None:
        """The position in `shared` of an object's lean form; None to pickle the object itself."""
        kind: type = type(thing)
        if not _stays_outside(kind):
            return None
        number = self._numbers.get(id(thing))
        if number is None:
            number = self._numbers[id(thing)] = len(self.shared)
            self.shared.append(thing if kind in _SHARED else lean_part(thing))
        return number


class _Reader(pickle.Unpickler):
    shared: list[object]

    def persistent_load(self, number: Any) -> object:
        return self.shared[number]


def in_words(thing: Event | Instruction) -> str:
    """A message with its number and its sender or receiver; anything else by name and fields."""
    match thing:
        case Envelope():
            return f"<- {thing.sender} #{thing.seq}: {_fields(thing.message)}"
        case Send(envelope):
            return f"-> {envelope.receiver} #{envelope.seq}: {_fields(envelope.message)}"
    return _fields(thing)


def _fields(thing: Any) -> str:
    """The `repr` of a dataclass, with large fields by kind and size."""
    shown = [field.name for field in dataclasses.fields(thing) if field.repr]
    return f"{type(thing).__name__}({', '.join(f'{name}={_short(getattr(thing, name))}' for name in shown)})"


def _short(value: Any) -> str:
    rows = getattr(value, "rows", None)
    if rows is not None:
        return f"<{rows} records>"
    if isinstance(value, tuple) and value and all(hasattr(each, "rows") for each in value):
        return f"({', '.join(map(_short, value))})"
    if hasattr(value, "version") and hasattr(value, "positions"):
        return f"<table {value.version}>"
    text = str(value) if isinstance(value, Address) else " ".join(repr(value).split())
    return text if len(text) <= 120 else f"<{type(value).__name__}>"
