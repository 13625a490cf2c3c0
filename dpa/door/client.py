"""The asking side of a door: who finds the doors of running jobs, and what is asked of one.

A job with a Ray of its own offers its door in the directory of its user on this machine, which no other user can enter.
A job on a cluster notes it there (`notes.py`)."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from http.client import HTTPConnection, HTTPException
from itertools import chain, count
from pathlib import Path
from tempfile import gettempdir
from threading import Lock

from dpa._util.disk import write_file
from dpa._util.owned import OwnedDirectory, UntrustedError, directory_for_sockets, read_trusted, sweep
from dpa.errors import ControlError

_PREFIX, _OFFER = "door-", "offer.json"

_TRIES, _AGAIN_SECONDS = 10, 0.2
"""How often to ask again where a door dies, and after how long: the job opens another one."""

_NETWORK = Path("/proc/self/ns/net")  # differs between containers of one machine; Linux only


@dataclass(frozen=True)
class Offer:
    """The door of a running job.

    Attributes:
        name: of the run, by which it is found: its job's name and the number of its process.
        port: on the loopback of its machine.
        token: lets processes in.
        machine: as `this_machine` says there.
        page: its address for a browser, without the token.
        node, driver: on a cluster, Ray's number of its node, and of the job's driver.
    """

    name: str
    port: int
    token: str = field(repr=False)
    machine: str
    page: str
    node: str = ""
    driver: str = ""

    @property
    def address(self) -> str:
        """Of its page, with the token in the part that browsers send to nobody."""
        return f"{self.page}#token={self.token}"

    def ask(
        self, path: str, body: bytes | None = None, seconds: float | None = None, fetched: Fetched | None = None
    ) -> bytes:
        """What the door answers; with a body it is a POST. `fetched` asks on the door's machine. ControlError if the
        job has ended or, within `seconds`, does not answer."""
        has_ended = f"{self.name} has ended"
        for _ in range(_TRIES):
            try:
                status, content = (fetched or fetch)(self.port, self.token, path, body, seconds)
            except ConnectionRefusedError:
                raise ControlError(has_ended) from None
            except TimeoutError:
                raise ControlError(f"{self.name} does not answer") from None
            except (OSError, HTTPException):  # the process of the door has died, or the job has ended
                has_ended = f"{self.name} ended before it had answered"
                time.sleep(_AGAIN_SECONDS)
                continue
            if status == 200:
                return content
            if status in (401, 503):  # another door has the port now, or this one is closing
                raise ControlError(has_ended)
            raise ControlError(f"{self.name} cannot answer: {content.decode(errors='replace').strip()}")
        raise ControlError(f"{self.name} does not answer")


Fetched = Callable[[int, str, str, "bytes | None", "float | None"], "tuple[int, bytes]"]


def fetch(port: int, token: str, path: str, body: bytes | None, seconds: float | None) -> tuple[int, bytes]:
    """The status and content of an answer of a door on this machine. OSError or HTTPException if there is none."""
    connection = HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        method = "GET" if body is None else "POST"
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def this_machine() -> str:
    """What processes share that reach the same loopback."""
    with suppress(OSError):
        return f"{socket.gethostname()}/{_NETWORK.stat().st_ino}"
    return socket.gethostname()


def runs_directory() -> Path:
    """The directory of this user's running jobs. OSError if it cannot be made, or is another user's."""
    return directory_for_sockets(gettempdir())


def names_for(job: str, taken: Iterable[str] = ()) -> Iterator[str]:
    """The names that a run of a job in this process may have, the best first."""
    first, known = f"{job}-{os.getpid()}", {*taken}
    return (name for name in chain([first], (f"{first}.{number}" for number in count(2))) if name not in known)


_naming = Lock()


@contextmanager
def offered(job: str, offer: Offer) -> Iterator[None]:
    """A block in which processes of this user find a job's door. Where no file can be written the job runs, but cannot
    be asked."""
    directory = None
    with suppress(OSError), _naming:
        name = next(names_for(job, (found.name for found in offers())))
        directory = OwnedDirectory.make(runs_directory(), _PREFIX, mode=0o700)
        write_file(directory.path / _OFFER, json.dumps(asdict(replace(offer, name=name))), mode=0o600)
    try:
        yield
    finally:
        if directory is not None:
            with suppress(OSError):
                directory.remove_directory()
            directory.release()


def offers() -> list[Offer]:
    """The doors of the running jobs of this user on this machine, by name. Removes what jobs left that were killed."""
    found = []
    with suppress(OSError):
        for directory in sweep(runs_directory(), _PREFIX):
            with suppress(OSError, UntrustedError, ValueError, TypeError):  # it begins, ends, or is of another version
                found.append(Offer(**json.loads(read_trusted(directory / _OFFER))))
    return sorted(found, key=lambda offer: offer.name)
