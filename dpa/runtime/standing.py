"""The Ray that `dpa up` keeps between commands, as the processes that use it find it.

The keeper (`keeper.py`) has a directory in its user's own one, which no other user can enter. The directory says where
Ray is, and its lock says that the keeper lives. Each process that uses Ray has a locked directory in there, so the
keeper knows when none does, even after one was killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dpa._util.disk import write_file
from dpa._util.lending import Loan, borrowed, lent
from dpa._util.owned import OwnedDirectory, UntrustedError, read_trusted, sweep, users_directory
from dpa._util.streams import chosen_level, say
from dpa._util.version import code_version
from dpa.errors import JobFailedError
from dpa.runtime._surroundings import Surroundings

PREFIX = "session-"
"""How the name of a keeper's directory begins."""

SWITCH = "DPA_SESSION"
"""The environment variable that keeps a process from using such a Ray, if it is `none`."""

TOKEN = "RAY_AUTH_TOKEN"

_END_SECONDS, _WAIT_SECONDS = 30.0, 0.05  # how long a keeper may take to end, and how often to look

_OFFER, _USE = "offer.json", "use-"


def made_with() -> dict[str, str]:
    """What a process must share with those of the Ray that it uses."""
    return {"dpa": code_version(), "Python": sys.version.split()[0], "the environment": sys.prefix}


@dataclass(frozen=True)
class Standing:
    """A Ray, as its keeper offers it.

    Attributes:
        directory: the keeper's.
        address: of Ray, with a port.
        token: lets processes in.
        pid: of the keeper.
        lasts_seconds: how long Ray stays unused.
        object_store_mb: size of Ray's object store, in MiB.
        made_with: as the function of this name returns.
        variables: names of those in the keeper's environment.
    """

    directory: str
    address: str
    token: str = field(repr=False)
    pid: int
    lasts_seconds: float
    object_store_mb: int
    made_with: dict[str, str]
    variables: list[str]

    @staticmethod
    def find() -> Standing | None:
        """The one of this user, if its keeper lives. Removes directories of keepers that were killed. OSError if the
        user's directory is not to be trusted."""
        for directory in sweep(users_directory(), PREFIX):
            with suppress(OSError, UntrustedError, ValueError, TypeError):  # its keeper starts, ends, or is older
                return Standing(**json.loads(read_trusted(directory / _OFFER)))
        return None

    def offer(self) -> None:
        write_file(self._offer, json.dumps(asdict(self)), mode=0o600)

    def withdraw(self, *, is_used_too: bool = False) -> bool:
        """Offer Ray no more, if it is not used, or even then; whether that is done."""
        self._offer.unlink()
        if is_used_too or not self.users():  # a process that comes now finds no offer
            return True
        self.offer()
        return False

    @property
    def _offer(self) -> Path:
        return Path(self.directory, _OFFER)

    def users(self) -> int:
        return len(sweep(Path(self.directory), _USE))

    def left_seconds(self) -> float:
        """How long it stays if no process uses it."""
        return self.lasts_seconds - self.unused_seconds()

    def __str__(self) -> str:
        """In words."""
        spark = "" if self.jvm is None else f", Spark in process {self.jvm}"
        return f"process {self.pid}, Ray at {self.address}{spark}"

    def end(self) -> None:
        """Have the keeper end, and wait for it. JobFailedError if it stays."""
        until = time.monotonic() + _END_SECONDS
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        while self.lives:
            if time.monotonic() > until:
                raise JobFailedError(f"the session does not end; its process is {self.pid}")
            time.sleep(_WAIT_SECONDS)

    def unused_seconds(self) -> float:
        """How long no process has used it; 0 while one does."""
        return 0.0 if self.users() else max(0.0, time.time() - Path(self.directory).stat().st_mtime)

    @contextmanager
    def used(self) -> Iterator[bool]:
        """A block in which the keeper does not end for want of use; False: it has just ended."""
        try:
            mine = OwnedDirectory.make(Path(self.directory), _USE)
        except OSError:
            yield False
            return
        try:
            yield self._offer.exists()
        finally:
            with suppress(OSError):
                mine.remove_directory()
            mine.release()

    @property
    def jvm(self) -> int | None:
        """The number of the process that Spark runs in; None: no job has used it."""
        return lent(Path(self.directory))

    def unfit(self, object_store_mb: int = 0) -> str | None:
        """Why this process cannot use it; None: it can."""
        for name, own in made_with().items():
            if (its := self.made_with.get(name)) != own:
                return f"it has {name} {its}, and this process {own}; to replace it: dpa down; dpa up"
        if chosen_level() is not None:
            return "logs of tasks come only from a Ray of the job's own"
        if object_store_mb > self.object_store_mb:
            return f"ray.object_store_mb is {object_store_mb}, and its object store has {self.object_store_mb}"
        if "ray" in sys.modules and os.environ.get(TOKEN) != self.token:
            return "this process has imported Ray before, with another token"
        return None

    @property
    def lives(self) -> bool:
        return Path(self.directory) in sweep(Path(self.directory).parent, PREFIX)

    @property
    def is_offered(self) -> bool:
        return self._offer.exists() and self.lives

    def given(self) -> Surroundings:
        """What processes of this Ray have that a job does not want: all that the keeper's environment has."""
        return Surroundings(dict.fromkeys(self.variables), "", ())

    def require_alive(self) -> None:
        """JobFailedError if the keeper has ended, and Ray with it."""
        if not self.is_offered:
            raise JobFailedError("the session that `dpa up` started has ended, and Ray with it: run the job again")


def let_in(object_store_mb: int) -> bool:
    """Set the token of a keeper's Ray that fits, before this process imports Ray; whether there is one."""
    standing = _found()
    if standing is None or standing.unfit(object_store_mb) is not None:
        return False
    os.environ.update({"RAY_AUTH_MODE": "token", TOKEN: standing.token})
    return True


@contextmanager
def usable(object_store_mb: int) -> Iterator[Standing | None]:
    """A block in which this process may use a keeper's Ray; None: there is none, or the user reads why it is unfit."""
    standing = _found()
    if standing is not None and (why := standing.unfit(object_store_mb)) is not None:
        say(f"the session that `dpa up` started is not used: {why}")
        standing = None
    if standing is None:
        yield None
        return
    with standing.used() as is_there:
        if is_there:
            say("using the session that `dpa up` started")
        yield standing if is_there else None


@contextmanager
def lent_jvm(key: str) -> Iterator[Loan | None]:
    """A block in which this process has the JVM of a keeper that fits, as `borrowed` gives it."""
    standing = _found()
    if standing is None or standing.unfit() is not None:
        yield None
        return
    with standing.used() as is_there, borrowed(Path(standing.directory), key) if is_there else nullcontext() as loan:
        yield loan


def _found() -> Standing | None:
    if os.environ.get(SWITCH) != "none":
        with suppress(OSError):
            return Standing.find()
    return None
