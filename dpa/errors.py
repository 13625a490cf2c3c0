"""The exceptions of dpa. Each message states the fault, its place, and a correct value."""

import os
from collections.abc import Mapping
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from dpa._secrets import hidden

T = TypeVar("T")


class DpaError(Exception):
    """Base of every error that dpa raises on purpose. Its text, which has all three, hides secrets.

    Attributes:
        message: what is wrong.
        key: the key path of the job file that it is about; None: it is about no single key.
        place: where that key was written, such as `job.yaml:12`; None: nowhere, or it is not known.
        exit_status: of the command line.
    """

    exit_status = 1

    def __init__(self, message: str = "", key: str | None = None, place: str | None = None) -> None:
        super().__init__(": ".join(filter(None, (place, key, message))))
        self.message, self.key, self.place = message, key, place

    def __str__(self) -> str:
        return hidden(super().__str__())


class ConfigError(DpaError):
    """A job file, an override or an argument is wrong. Raised before any actor or Spark job starts."""

    exit_status = 2


class TableError(DpaError):
    """An input, sample or output table cannot be read or written as requested."""


class PlaceTakenError(TableError):
    """Another process writes to this place. A retry may succeed once it has ended."""


class SparkLostError(TableError):
    """Spark's JVM has ended or no longer answers."""


class ExecutorError(DpaError):
    """User code failed or broke its contract: names the executor, the record's key and the original traceback."""


class KeyTypeError(ExecutorError):
    """A key has an unsupported type, or a job mixes two types of keys."""


class BalanceError(DpaError):
    """The balancer cannot do what was asked, such as relieve a reducer that does not exist."""


class ControlError(DpaError):
    """A running job cannot be reached, or refuses to change its tasks."""


class LateRecordError(DpaError):
    """A record came after its window was closed. Such records are counted and do not fail the job."""


class NoTimeError(DpaError):
    """A record has no time, so it is in no window. Such records are counted and do not fail the job."""


class PlacementError(DpaError):
    """Tasks cannot be placed: a graph, a cluster or a plan is inconsistent, or resources are missing."""

    exit_status = 2


class ProtocolError(DpaError):
    """An invariant of the protocol (docs/design.md, invariants) would have been broken: a bug in dpa, not in a job."""


class JobFailedError(DpaError):
    """The job ended without a result: user code failed, an actor died, or it was interrupted.

    Attributes:
        events: for each task that still answered, the content of its file of events
            (`dpa.protocol.history.recording`), by the file's name.
    """

    def __init__(self, message: str, events: Mapping[str, bytes] | None = None) -> None:
        super().__init__(message)
        self.events = dict(events or {})


class JobCancelledError(DpaError):
    """The job was cancelled by `dpa control cancel`, or `RunningJob.cancel`: nothing more is published."""

    exit_status = 130


class RecordingError(DpaError):
    """A file of events cannot be read: it is damaged, of another version, or no such file."""

    exit_status = 2


class CheckpointError(DpaError):
    """A checkpoint cannot be written, found, read or trusted."""


class CheckpointDamagedError(CheckpointError):
    """A manifest, or a file that it names, is missing or has changed since it was written."""


class CheckpointStoreError(CheckpointError):
    """The store of checkpoints failed to do what it was asked.

    Attributes:
        may_pass: whether a process of the job has found that it does not answer, or is full.
    """

    may_pass = False


class ClaimLostError(CheckpointError):
    """Another coordinator has taken over the job. This one writes no more checkpoints, and stops."""


class ReferenceMismatchError(DpaError):
    """The result differs from the Spark reference."""

    exit_status = 3


def traced_from_caller(public: T) -> T:
    """Decorate a class or function that users call: a traceback of its errors ends at the line that made the call.

    Frames of dpa would only hide that line. All are kept for `ProtocolError` and other bugs, and with `DPA_LOG=debug`.
    """
    made: Any = public
    if isinstance(public, type):
        for name, member in [*vars(public).items()]:
            if name == "__init__" or not name.startswith("_"):
                setattr(public, name, traced_from_caller(member))
    elif isinstance(public, property | classmethod):
        inner: Any = public.fget if isinstance(public, property) else public.__func__
        made = type(public)(traced_from_caller(inner))
    elif isinstance(public, FunctionType):
        made = _traced(public)
    return made  # type: ignore[no-any-return]


def _traced(function: FunctionType) -> Any:
    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        __tracebackhide__ = True  # pytest then leaves out this frame too
        try:
            return function(*given, **named)
        except DpaError as error:
            if isinstance(error, ProtocolError) or os.environ.get("DPA_LOG") == "debug":
                raise
            raise error.with_traceback(None)  # noqa: B904  (it is the same error)

    return called
