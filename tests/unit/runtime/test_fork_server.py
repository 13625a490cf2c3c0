"""What a fork server does with who asks it, and where there is none; forks themselves are made on a real Ray."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dpa.runtime.ray_internals import _fork_server

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="workers are not forked on this system")


def streams() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


def test_a_request_that_ends_early_is_refused_and_nothing_of_it_stays_open() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        before = streams()
        with theirs:
            socket.send_fds(theirs, [b'{"arguments": '], [0, 1, 2])
        with pytest.raises(ConnectionError, match="ends early"):
            _fork_server._forked(ours)
        assert streams() < before


def test_who_sends_nothing_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fork_server, "_REQUEST_SECONDS", 0.1)
    raylet = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert raylet.stdin is not None
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as silent:
        listener.bind("\0" + f"dpa-test-{os.getpid()}")
        listener.listen()
        silent.connect(listener.getsockname())
        threading.Timer(0.3, raylet.stdin.close).start()
        descriptor = os.pidfd_open(raylet.pid)
        assert _fork_server.requested(listener, descriptor) is None
        os.close(descriptor)
    raylet.wait()


@pytest.mark.parametrize(
    "lost", ["del os.pidfd_open", "os.pidfd_open = lambda pid: os.close(-1)"], ids=["is not there", "is not allowed"]
)
def test_where_a_processs_end_cannot_be_waited_for_ray_starts_its_own_workers(lost: str) -> None:
    program = f"import os; {lost}; from dpa.runtime.ray_internals._forked_worker import SCRIPT; print(SCRIPT)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "None\n"
