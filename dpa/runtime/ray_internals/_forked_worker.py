"""The script that a job's own Ray starts in place of its worker. Ray's worker imports much before it can do anything;
this one asks the node's fork server for a process that has imported all that, and ends.

The first that asks on a node leaves a socket behind and becomes the server. Where no server answers, the process
becomes the worker that Ray would have started. Nothing that takes long is imported here."""

import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path


def _is_possible() -> bool:
    """Whether this file is one, and the system says when another process has ended, as only Linux does."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return Path(__file__).is_file()


SCRIPT = __file__ if _is_possible() else None
"""What Ray starts in place of its worker; None: its own."""

WORKER_PORTS = range(20_000, 30_000)
"""A raylet takes these in turn, so that a port is used again late. If the system chooses instead, a new worker may get
the port of one that has just died: the raylet then fails to announce that a large argument has arrived, does not try
again, and that call is lost without a word."""

WORKERS = {"worker_path": SCRIPT, "min_worker_port": WORKER_PORTS[0], "max_worker_port": WORKER_PORTS[-1]}
"""Options of a Ray with such workers."""

_WAITING = 4_096  # requests that may wait for the server, which has to import first

_OF_NO_JOB = {"RAY_JOB_ID": "f" * 8}
"""A worker belongs to no job before its first call, like those that Ray starts in advance."""


def main() -> None:
    """Have the worker made that the command line describes, or become it."""
    found = find_spec("ray")
    places = found.submodule_search_locations if found else None
    assert places, "Ray has started this script"
    worker = Path(places[0], "_private", "workers", "default_worker.py")
    if not getattr(sys.flags, "safe_path", False):  # else it does not begin with the script's directory
        sys.path[0] = str(worker.parent)
    options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    made = False
    if options.get("--runtime-env-hash") == "0":  # the interpreter, and what it imports, are the server's
        with suppress(KeyError, OSError):
            sockets = Path(options["--temp-dir"], options["--session-name"], "sockets")
            made = _made_by_server(sockets / f"forks-{os.environ['RAY_RAYLET_PID']}", worker)
    if not made:
        sys.argv[0] = str(worker)
        runpy.run_path(sys.argv[0], run_name="__main__")


def _made_by_server(address: Path, worker: Path) -> bool:
    _provide(address)
    request = {
        "arguments": [str(worker), *sys.argv[1:]],
        "environment": dict(os.environ),
        "path": sys.path,
        "directory": str(Path.cwd()),
        "leads": os.getpgrp() == os.getpid(),
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(str(address))
        socket.send_fds(server, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
        return bool(server.recv(1))


def _provide(address: Path) -> None:
    """Become the server of an address that has none. Returns if it has one; else in a child, which asks the server that
    its parent becomes."""
    if address.exists():
        return
    own = address.with_name(f"{address.name}-{os.getpid()}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(own))
        try:
            listener.listen(_WAITING)
            os.link(own, address)  # nobody finds it before it listens
        except FileExistsError:
            return
        finally:
            own.unlink()
        leads = os.getpgrp() == os.getpid()
        if os.fork() == 0:
            if leads:
                os.setpgid(0, 0)
            return
        try:
            os.set_inheritable(listener.fileno(), True)
            _become_server(listener.fileno())
        finally:
            os._exit(1)  # the child is what this process was started for


def _become_server(listener: int) -> None:
    """Be the server that listens there, in an interpreter that finds the same packages."""
    flags = [flag for flag, given in (("-s", sys.flags.no_user_site), ("-S", sys.flags.no_site)) if given]
    server = Path(__file__).with_name("_fork_server.py")
    words = [sys.executable, *flags, str(server), str(listener)]
    os.execve(sys.executable, words, {**os.environ, **_OF_NO_JOB})


if __name__ == "__main__":
    main()
