"""The process of a node from which its workers are forked, once it has imported what they need; run as a program.

A fork has one thread, so nothing may be imported here that starts threads: Polars is not. It ends with its raylet."""

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORTED = (
    "ray._private.workers.default_worker",
    "dpa.runtime.actors.actor",
    "dpa.protocol.balancer.machine",
    "dpa.runtime.actors.coordinator",
)

_REQUEST_SECONDS = 5.0  # how long the rest of a request may take

_READ_BYTES = 2**16


def requested(listener: socket.socket, raylet: int) -> dict[str, Any] | None:
    """Fork for each request until the raylet, a descriptor, ends. The request in a fork; None in the server."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(raylet, selectors.EVENT_READ)
        while raylet not in {key.fileobj for key, _ in selector.select()}:
            with suppress(OSError), listener.accept()[0] as caller:  # who gets no answer becomes the worker itself
                caller.settimeout(_REQUEST_SECONDS)
                request = _forked(caller)
                if request is not None:
                    return request
    return None


def _forked(caller: socket.socket) -> dict[str, Any] | None:
    """Answer a request with a fork that has the caller's standard streams. Returns the request in the fork."""
    message, streams, _, _ = socket.recv_fds(caller, _READ_BYTES, 3)
    try:
        while not message.endswith(b"\n"):
            more = caller.recv(_READ_BYTES)
            if not more:
                raise ConnectionError("the request ends early")
            message += more
        if os.fork() != 0:
            return None
        try:
            for number, descriptor in enumerate(streams):
                os.dup2(descriptor, number)
            caller.send(b"1")  # from here on the caller becomes no worker itself, even if the server dies
            request: dict[str, Any] = json.loads(message)
        except BaseException:
            os._exit(1)
        return request
    finally:
        for descriptor in streams:
            os.close(descriptor)


def become(request: dict[str, Any], added: list[str]) -> None:
    """Be the requested worker: with its arguments, environment, signals and paths, after the paths that imports have
    added, and with random numbers of its own."""
    from numpy import random

    if request["leads"]:  # Ray kills the group of a worker that has ended
        os.setpgid(0, 0)
    random.seed()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.path[:] = [*added, *request["path"]]
    sys.argv[:] = request["arguments"]
    runpy.run_path(sys.argv[0], run_name="__main__")


def main(listener: socket.socket) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # NumPy starts threads as it is imported
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this file's directory
    if (root := str(Path(__file__).parents[3])) not in sys.path:
        sys.path.append(root)
    raylet, before = os.pidfd_open(int(os.environ["RAY_RAYLET_PID"])), len(sys.path)
    for name in _IMPORTED:
        import_module(name)
    for name in sys.modules["dpa.runtime.actors.actor"].IMPORTED_SOON:
        import_module(name)
    if threading.active_count() > 1:
        return  # some set-up of Python has started a thread, which a fork would lack
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a worker
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    gc.freeze()
    with listener, warnings.catch_warnings():
        # The other thread belongs to Arrow's memory allocator, which is made for forks.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        request = requested(listener, raylet)
    os.close(raylet)
    if request is not None:
        become(request, sys.path[: len(sys.path) - before])  # Ray adds its own at the beginning


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
