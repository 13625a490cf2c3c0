"""Tries what a task is to process, in a process forked from one that runs no user code itself and has no threads.

A task's own process has threads, of Ray and of libraries, whose locks a fork would leave behind held.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

from dpa._util.lazy_pandas import import_pandas_late
from dpa.execution.emission import Emission
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.rows import OneBatch
from dpa.execution.trials import Work
from dpa.protocol.task.user_code import StageTask
from dpa.protocol.wire.addresses import Address
from dpa.runtime.packed_plan import PackedPlan, pickled

_LENGTH = struct.Struct("<Q")

_OF_MEMORY = 0.5
"""The part of the memory that is available which a trial may take: Ray's monitor would kill the task for more."""


class Trials:
    """Tries work of one task; the process that forks is started with the first, and ends with this one."""

    def __init__(self, packed: PackedPlan, address: Address) -> None:
        self._begin = (packed, address)
        self._server: subprocess.Popen[bytes] | None = None

    def __call__(self, work: Work) -> str | None:
        """How the process died that tried the work; None if it did not."""
        if self._server is None:
            command = [sys.executable, "-c", "from dpa.runtime._trials import serve; serve()"]
            paths = os.pathsep.join(path for path in sys.path if path)
            environment = {**os.environ, "PYTHONPATH": paths}
            pipe = subprocess.PIPE
            self._server = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment)
            self._send(pickled(self._begin))
        self._send(pickled(work))
        assert self._server.stdout is not None
        return _received(self._server.stdout).decode() or None

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()
            self._server = None

    def _send(self, content: bytes) -> None:
        assert self._server is not None and self._server.stdin is not None
        _write(self._server.stdin, content)


def serve() -> None:
    """Try work from standard input, and answer on standard output how the process died, until input ends."""
    source = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what user code prints
    import_pandas_late()
    packed, address = pickle.loads(_received(source))
    task = packed.unpack().tasks[address.stage]
    with suppress(EOFError, BrokenPipeError):
        while True:
            _write(answers, _tried(task, address, _received(source)).encode())


def _tried(task: StageTask, address: Address, work: bytes) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with suppress(OSError):
            _limit()
        said = _tried_here(task, address, work)
        os.write(writing, said.encode() or b"+")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if answer:
        return answer.removeprefix("+")
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"it exits with status {code}"


def _tried_here(task: StageTask, address: Address, work: bytes) -> str:
    """Whether there was too little memory; what else user code raises, the task sees for itself."""
    memory = "it takes more memory than there is"
    try:
        found: Work = pickle.loads(work)
        if isinstance(found, tuple):
            assert not isinstance(task, Emission)
            ReduceTask(task, address.index).tried(found)
        else:
            assert isinstance(task, Emission)
            for _ in task.steps(OneBatch(found), lambda: 0.0):
                pass
    except MemoryError:
        return memory
    except BaseException:
        return ""
    failed = None if task.letters is None else task.letters.take()
    return memory if failed is not None and any(each.error == "MemoryError" for each in failed.counts) else ""


def _limit() -> None:
    """Have this process be the first to end when memory runs short, and before it does."""
    Path("/proc/self/oom_score_adj").write_text("1000")
    lines = Path("/proc/meminfo").read_text().splitlines()
    [available] = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + int(available * _OF_MEMORY), hard))


def _write(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(_LENGTH.pack(len(content)) + content)
    pipe.flush()


def _received(pipe: IO[bytes]) -> bytes:
    """Raises EOFError where the other process has ended."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError("the other process has ended")
    return pipe.read(*_LENGTH.unpack(head))
