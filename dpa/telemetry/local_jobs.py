"""Jobs with a Ray of their own, asked from another process of the same user on the same machine.

Each has a socket in a directory that only the user can enter, below that of temporary files. What comes there is passed
on as to a job on a cluster; whoever asks needs no Ray.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from dpa._util.owned import directory_for_sockets
from dpa.errors import ControlError

if TYPE_CHECKING:
    from dpa.protocol.plan import Request
    from dpa.protocol.wire.instructions import Answer
    from dpa.telemetry.tracker import Status

_NAME = re.compile(r"[A-Za-z0-9_.-]+-\d+(\.\d+)?")
"""A run: its job's name, its process, and a number if that runs several of the name."""

_PATIENCE_SECONDS = 5
"""How long a caller may take to send its request, or to read the answer."""

_STATUS_SECONDS = 6.0
"""How long to wait for a status, which a coordinator gives within 5 seconds; a stopped job gives none."""

_BUSY_SECONDS = 0.1
"""How long callers wait to be let in while too many files are open."""

_CALLERS = 16
"""Callers that may wait to be let in."""


Answering: TypeAlias = Callable[["Request | None"], "Status | Answer | None"]
"""Answers a request; None asks for the status."""


def runs_directory() -> Path:
    """The directory of this user's running jobs. OSError if it cannot be made, or is another user's."""
    return directory_for_sockets(gettempdir())


class Door:
    """The job's side: from `open` to the end of this context the job can be asked. Requests have to be answered by
    then."""

    def __init__(self) -> None:
        self._listener: Listener | None = None
        self._callers: list[threading.Thread] = []
        self._is_closing = False

    def __enter__(self) -> Door:
        return self

    def open(self, name: str, answering: Answering) -> None:
        """A job that cannot make its socket runs, but cannot be asked."""
        with suppress(OSError):
            runs = runs_directory()
            # The paths of sockets are short, and a run's name may be long, so that is a link.
            path, self._link = runs / f".{uuid.uuid4().hex[:8]}", runs / name
            self._listener = Listener(str(path), backlog=_CALLERS)
            self._accepting = threading.Thread(target=self._accept, args=(answering,), name="dpa-door", daemon=True)
            self._accepting.start()
            self._link.symlink_to(path)

    def __exit__(self, *raised: object) -> None:
        if self._listener is None:
            return
        self._is_closing = True
        with suppress(OSError):  # who has removed the files lets nobody in any more
            self._link.unlink(missing_ok=True)
            Client(self._listener.address).close()  # wakes `accept`
            self._accepting.join()
        for caller in self._callers:
            caller.join()
        with suppress(OSError):
            self._listener.close()

    def _accept(self, answering: Answering) -> None:
        assert self._listener is not None
        while not self._is_closing:
            try:
                connection = self._listener.accept()
            except OSError:  # too many files are open, or the socket is closed
                time.sleep(_BUSY_SECONDS)
                continue
            caller = threading.Thread(target=_answer, args=(connection, answering), name="dpa-caller", daemon=True)
            caller.start()
            self._callers = [*(thread for thread in self._callers if thread.is_alive()), caller]


def _answer(connection: Connection, answering: Answering) -> None:
    with connection, suppress(OSError, EOFError):  # EOFError: the caller only looked whether the job lives
        _limit(connection)
        try:
            connection.send(answering(connection.recv()))
        except (OSError, EOFError):
            raise
        except Exception as error:  # no request may end the job
            connection.send(error if isinstance(error, ControlError) else ControlError(f"it cannot answer: {error!r}"))


def _limit(connection: Connection) -> None:
    """Let a caller that stops within a message fail with an OSError: the end of the job waits for its thread."""
    patience = struct.pack("ll", _PATIENCE_SECONDS, 0)
    with socket.socket(fileno=os.dup(connection.fileno())) as own:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            own.setsockopt(socket.SOL_SOCKET, option, patience)


class LocalJob:
    """The asking side.

    Attributes:
        name: the job's name, with the number of its process.
    """

    def __init__(self, link: Path) -> None:
        self.name = link.name
        self._link = link

    @staticmethod
    def all() -> list[LocalJob]:
        """The running jobs of this user on this machine, by name. Removes what jobs left that were killed."""
        with suppress(OSError):
            links = [path for path in runs_directory().iterdir() if _NAME.fullmatch(path.name) and path.is_symlink()]
            return [job for job in map(LocalJob, sorted(links)) if job._lives()]
        return []

    def _lives(self) -> bool:
        try:
            Client(str(self._link.readlink())).close()
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(OSError):
                self._link.readlink().unlink(missing_ok=True)
                self._link.unlink()
            return False
        except OSError:
            return False
        return True

    def status(self) -> Status | None:
        """None before it begins to stream, or if it has ended or does not answer."""
        with suppress(ControlError):
            found: Status | None = self._asked(None, _STATUS_SECONDS)
            return found
        return None

    def follow(self, observer: object) -> NoReturn:
        why = "runs on its own Ray, and its progress is shown where it was started"
        raise ControlError(f"{self.name} {why}; a job on a cluster (`--address`) can be followed from elsewhere")

    def ask(self, request: Request) -> Answer:
        """Wait for the answer to a request. ControlError if the job has ended."""
        found: Answer = self._asked(request)
        return found

    def _asked(self, request: Request | None, seconds: float | None = None) -> Any:
        try:
            with Client(str(self._link.readlink())) as connection:
                connection.send(request)
                if not connection.poll(seconds):
                    raise ControlError(f"{self.name} does not answer")
                found = connection.recv()
        except OSError:
            raise ControlError(f"{self.name} has ended") from None
        except EOFError:
            raise ControlError(f"{self.name} ended before it had answered") from None
        if isinstance(found, ControlError):
            raise found
        return found
