"""How a process survives a storage or broker that does not answer: it retries until there is an answer, and reports
it."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, count, repeat
from typing import Any, TypeVar

from dpa._secrets import hidden
from dpa._util.disk import is_full
from dpa.errors import CheckpointStoreError, DpaError

T = TypeVar("T")

_ERRNOS = {
    *(errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    *(errno.EIO, errno.ENETDOWN, errno.ENETUNREACH, errno.EPIPE, errno.EREMOTEIO, errno.ESTALE, errno.ETIMEDOUT),
}
_SAID = re.compile(  # messages by which libraries report an outage, where their errors have no number
    r"NETWORK_CONNECTION|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|REQUEST_TIMEOUT|INTERNAL_FAILURE|curlCode"
    r"|An error occurred \((?:5(?!01)\d\d|InternalError|ServiceUnavailable|SlowDown|RequestTimeout)\)"
    r"|HTTP (?:status )?(?:code )?5(?!01)\d\d|\b50[0234] (?:Internal|Bad|Service|Gateway)|error sending request"
    r"|[Cc]onnection (?:refused|reset|closed|aborted|error)|[Tt]imed out|[Cc]ould not connect"
    r"|Temporary failure in name resolution"
)

_OF_LIBRARIES = ("pyarrow", "deltalake", "_internal", "botocore", "pyiceberg")
_KINDS = {"EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError"}

_WAITS, _LONGEST_WAIT = (0.2, 0.4, 0.8, 1.6, 3.2), 5.0  # seconds from one try to the next

_SAID_AFTER = (0.0, 10.0, 60.0, 600.0)
_SAID_EVERY = 3600.0  # when to report a lasting outage, in seconds since it began


def may_pass(error: BaseException, *, full: bool = True) -> bool:
    """Whether an error, or its cause, is an outage that a retry may outlast; `full`: whether a full disk counts too."""
    inner: BaseException | None = error
    while inner is not None and not _passes(inner, full):
        # What user code has handled before it raised is none of its reasons.
        inner = inner.__cause__ or inner.__context__ if isinstance(inner, DpaError) else None
    return inner is not None


def _passes(error: BaseException, full: bool) -> bool:
    is_of_library = isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _OF_LIBRARIES
    if is_of_library and is_full(error):
        return full
    if isinstance(error, CheckpointStoreError) and getattr(error, "cause", error).may_pass:  # Ray wraps it
        return True
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _ERRNOS or bool(_SAID.search(str(error)))
    inner: Any = error.args[0] if error.args else None
    if type(error).__name__ == "KafkaException" and hasattr(inner, "retriable"):
        return bool(inner.retriable() or inner.name() in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"))
    return is_of_library and (type(error).__name__ in _KINDS or bool(_SAID.search(str(error))))


class Outages:
    """How a process bears outages. Until `begin` it bears none: what fails before a job begins must fail at once.
    Thread-safe. `awaited` is the total of seconds spent waiting for places, with or without an outage."""

    def __init__(self) -> None:
        self.awaited = 0.0
        self.end()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            self.awaited += self._clock() - began

    def begin(
        self,
        patience: float | None,
        warn: Callable[[str], None],
        is_over: Callable[[float], bool],
        clock: Callable[[], float],
    ) -> None:
        """Bear outages from now on.

        Args:
            patience: the longest outage, in seconds; None: any.
            warn: receives each report.
            is_over: waits for some seconds, or until the process must end; returns whether it must.
        """
        self._patience, self._warn, self._is_over, self._clock = patience, warn, is_over, clock

    def end(self) -> None:
        self.begin(0.0, lambda words: None, lambda seconds: True, lambda: 0.0)

    def bear(self, action: Callable[[], T], *, what: str = "", patience: float | None = None, full: bool = True) -> T:
        """Run an idempotent action, and retry while it fails by an outage. Raises the action's error if it is no
        outage, lasts too long, or the process must end.

        Args:
            what: the place in words; by default the error names it.
            patience: seconds, instead of the process's.
            full: whether to wait for a full disk too.
        """
        outage = self.outage(what, patience)
        while True:
            try:
                result = action()
            except Exception as error:
                if not may_pass(error, full=full) or not outage.lasts(error):
                    raise
            else:
                outage.ends()
                return result

    def outage(self, what: str = "", patience: float | None = None) -> Outage:
        return Outage(self, what, self._patience if patience is None or self._patience == 0 else patience)


class Outage:
    """One outage of one place, from the first failure on."""

    def __init__(self, of: Outages, what: str, patience: float | None) -> None:
        self._of, self._what, self._patience = of, what, patience
        self._waits = _waits()
        self._due = _moments()
        self._began: float | None = None

    def lasts(self, error: object) -> bool:
        """After a failure, report it when due, and wait; returns whether to retry."""
        now = self._of._clock()
        if self._began is None:
            self._began, self._say_at = now, now + next(self._due)
        past = now - self._began
        if self._patience is not None and past >= self._patience:
            return False
        if now >= self._say_at:
            self._say_at = self._began + next(self._due)
            since = f", for {past:.0f} s so far" if past >= 1 else ""
            about = f"{self._what}: {error}" if self._what else f"{error}"
            self._of._warn(f"waits{since}: {hidden(about)}")
        with self._of.waiting():
            return not self._of._is_over(next(self._waits))

    def ends(self) -> None:
        if self._began is not None:
            what = self._what or "what did not answer"
            self._of._warn(f"continues: {what} answers again, after {self._of._clock() - self._began:.0f} s")
            self._began, self._waits, self._due = None, _waits(), _moments()


def _waits() -> Iterator[float]:
    return chain(_WAITS, repeat(_LONGEST_WAIT))


def _moments() -> Iterator[float]:
    return chain(_SAID_AFTER, count(_SAID_EVERY, _SAID_EVERY))


HERE = Outages()
