"""What a process does where a place outside the job does not answer: it asks again until it does, and says so."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from dpa._secrets import hidden
from dpa._util.disk import is_full
from dpa.errors import CheckpointStoreError, DpaError

T = TypeVar("T")

_ERRNOS = {
    *(errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    *(errno.EIO, errno.ENETDOWN, errno.ENETUNREACH, errno.EPIPE, errno.EREMOTEIO, errno.ESTALE, errno.ETIMEDOUT),
}
_SAID = re.compile(
    r"NETWORK_CONNECTION|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|REQUEST_TIMEOUT|INTERNAL_FAILURE|curlCode"
    r"|An error occurred \((?:5(?!01)\d\d|InternalError|ServiceUnavailable|SlowDown|RequestTimeout)\)"
    r"|HTTP (?:status )?(?:code )?5(?!01)\d\d|\b50[0234] (?:Internal|Bad|Service|Gateway)|error sending request"
    r"|[Cc]onnection (?:refused|reset|closed|aborted|error)|[Tt]imed out|[Cc]ould not connect"
    r"|Temporary failure in name resolution"
)
"""What messages of libraries say of a place that does not answer, in which their errors have no number."""

_OF_LIBRARIES = ("pyarrow", "deltalake", "_internal", "botocore", "pyiceberg")
_KINDS = {"EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError"}

_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0
_SAID_AFTER = (0.0, 10.0, 60.0, 600.0)
_SAID_EVERY = 3600.0
"""Seconds of an outage after which it is said that it lasts."""


def may_pass(error: BaseException, *, full: bool = True) -> bool:
    """Whether an error, or what it was made of, says that a place does not answer; it may when it is asked again.

    Args:
        full: whether that a disk is full counts too.
    """
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
    """How a process bears outages. Until `begin` it bears none: what is asked before a job begins is to fail at once.

    Used by any thread.

    Attributes:
        awaited: seconds that it has waited for places in all, those without outages too.
    """

    def __init__(self) -> None:
        self.awaited = 0.0
        self.end()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block that waits for a place."""
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
        """Bear outages from here on.

        Args:
            patience: most seconds of one; None: any.
            warn: is given what there is to say of one.
            is_over: waits for these seconds, or until the process is to end; whether it is.
            clock: gives seconds.
        """
        self._patience, self._warn, self._is_over, self._clock = patience, warn, is_over, clock

    def end(self) -> None:
        """Bear none any more."""
        self.begin(0.0, lambda words: None, lambda seconds: True, lambda: 0.0)

    def bear(self, action: Callable[[], T], *, what: str = "", patience: float | None = None, full: bool = True) -> T:
        """What an action returns, which is done again while it fails as a place does not answer: so doing it twice must
        be as doing it once.

        Args:
            what: is waited for, in words; by default the error says it.
            patience: most seconds, in place of the process's.
            full: whether a full disk is waited for.

        Raises:
            Exception: what the action raises, if it will not pass, the outage is too long, or the process is to end.
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
        """One that may come."""
        return Outage(self, what, self._patience if patience is None or self._patience == 0 else patience)


class Outage:
    """One outage of one place, from the first failure on."""

    def __init__(self, of: Outages, what: str, patience: float | None) -> None:
        self._of, self._what, self._patience = of, what, patience
        self._waits = _waits()
        self._due = _moments()
        self._began: float | None = None

    def lasts(self, error: object) -> bool:
        """Wait for a moment after a failure, and say that, now and then; whether to try again."""
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
        """What was asked for has come."""
        if self._began is not None:
            what = self._what or "what did not answer"
            self._of._warn(f"goes on: {what} answers again, after {self._of._clock() - self._began:.0f} s")
            self._began, self._waits, self._due = None, _waits(), _moments()


def _waits() -> Iterator[float]:
    wait = _FIRST_WAIT
    while True:
        yield wait
        wait = min(2 * wait, _LONGEST_WAIT)


def _moments() -> Iterator[float]:
    yield from _SAID_AFTER
    moment = _SAID_EVERY
    while True:
        yield moment
        moment += _SAID_EVERY


HERE = Outages()
"""How this process bears them."""
