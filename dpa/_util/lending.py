"""A process that one owner starts for others, and lends to one of them at a time: Spark's JVM, which a keeper
(`dpa.runtime.keeper`) lends to the drivers of jobs.

Owner and borrower speak by a socket in the owner's directory, which no other user can enter. A loan lasts as long as
its connection. A borrower that is killed gives nothing back, and then the owner ends the process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, Any

_SOCKET, _PID = "lender", "pid"

_PREFIX = "dpa-spark-"

_END_SECONDS = 5.0  # how long a process may take to end after its standard input was closed


class Lender:
    """The owner's side: keeps one process, in a directory of its own below `parent`."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._turn = threading.Lock()
        self._kept: _Kept | None = None

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Lend in this block; its end ends the process, even if that is lent."""
        with ExitStack() as stack:
            stack.callback(self._replace, None)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            with suppress(OSError), _address(self._parent) as address:  # without /proc nothing is lent
                listener.bind(address)
                listener.listen()
                threading.Thread(target=self._accept, args=(listener,), name="dpa-lender", daemon=True).start()
                stack.callback(listener.shutdown, socket.SHUT_RDWR)  # ends that thread
            yield

    def end_unused(self, seconds: float) -> None:
        if self._kept is not None and self._turn.acquire(blocking=False):
            try:
                if time.monotonic() - self._kept.since >= seconds:
                    self._replace(None)
            finally:
                self._turn.release()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._lend, args=(connection,), daemon=True).start()

    def _lend(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection, connection.makefile("rw") as words:
            asked = json.loads(words.readline())
            if not self._turn.acquire(blocking=False):
                return  # the borrower reads an end, and starts a process of its own
            try:
                kept = self._kept
                if kept is None or kept.key != asked["key"] or not kept.lives:
                    self._replace(None)  # before another one takes its memory
                    kept = self._kept = _Kept(asked["key"], self._parent)
                stays = False
                try:
                    stays = kept.is_given_back(words)
                finally:
                    if not stays:
                        self._replace(None)
            finally:
                self._turn.release()
            _tell(words, {})

    def _replace(self, kept: _Kept | None) -> None:
        if (before := self._kept) is not None:
            before.end()  # twice does no harm: the end of lending waits for one that has begun
        self._kept = kept


class _Kept:
    def __init__(self, key: str, parent: Path) -> None:
        self.key = key
        self.since = time.monotonic()
        self._directory = Path(mkdtemp(prefix=_PREFIX, dir=parent))
        self._process: subprocess.Popen[bytes] | None = None
        self._note: dict[str, Any] | None = None

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_given_back(self, words: IO[str]) -> bool:
        """Whether the borrower gives it back, after it has had the process started if there was none."""
        pid = None if self._process is None else self._process.pid
        _tell(words, {"directory": str(self._directory), "pid": pid, "note": self._note})
        for line in words:
            said = json.loads(line)
            if "note" in said:
                self._note, self.since = said["note"], time.monotonic()
                return True
            _tell(words, {"pid": self._start(**said)})
        return False

    def _start(self, command: list[str], env: dict[str, str], cwd: str, log: str) -> int:
        with Path(log).open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                stdin=subprocess.PIPE,  # whose end ends a JVM of Spark's, if this process is killed too
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        threading.Thread(target=self._process.wait, daemon=True).start()  # a borrower sees at once that it has ended
        (self._directory / _PID).write_text(str(self._process.pid))
        return self._process.pid

    def end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


class Loan:
    """The borrower's side, in place of the process that it would start itself.

    Attributes:
        directory: stays as long as the process.
        note: what the borrower before has given back with it; None: the process is yet to be started.
        pid: of the process; 0 before it is started.
    """

    def __init__(self, words: IO[str]) -> None:
        self._words = words
        told = json.loads(words.readline())
        self.directory, self.pid = Path(told["directory"]), int(told["pid"] or 0)
        self.note: dict[str, Any] | None = told["note"]

    def start(self, log: Path, command: list[str], *, env: Mapping[str, str], **_options: Any) -> Loan:
        """Have the owner start it, in this process's working directory; called as `subprocess.Popen` would be."""
        _tell(self._words, {"command": command, "env": dict(env), "cwd": str(Path.cwd()), "log": str(log)})
        self.pid = json.loads(self._words.readline())["pid"]
        return self

    def poll(self) -> int | None:
        """None while the process lives, as `subprocess.Popen.poll` says it."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return -signal.SIGKILL
        return None

    def give_back(self, note: dict[str, Any]) -> None:
        """Leave it to the next borrower; returns when that may come."""
        _tell(self._words, {"note": note})
        self._words.readline()


@contextmanager
def borrowed(parent: Path, key: str) -> Iterator[Loan | None]:
    """Borrow the process that has this key, or is yet to be started; None: there is no lender, or another has it."""
    with ExitStack() as stack:
        loan = None
        with suppress(OSError, ValueError):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            with _address(parent) as address:
                connection.connect(address)
            words = stack.enter_context(connection.makefile("rw"))
            _tell(words, {"key": key})
            loan = Loan(words)
        yield loan


def lent(parent: Path) -> int | None:
    """The number of the process that an owner keeps; None: it keeps none."""
    for file in parent.glob(f"{_PREFIX}*/{_PID}"):
        with suppress(OSError, ValueError):
            return int(file.read_text())
    return None


@contextmanager
def _address(parent: Path) -> Iterator[str]:
    """The socket's path, which must be short: the temporary directory's may be long."""
    directory = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{_SOCKET}"
    finally:
        os.close(directory)


def _tell(words: IO[str], said: Mapping[str, Any]) -> None:
    words.write(json.dumps(said) + "\n")
    words.flush()
