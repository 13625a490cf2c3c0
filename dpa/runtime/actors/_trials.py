"""Tries what a task is to process, in a process forked from one that runs no user code itself and has no threads.

A task's own process has threads, of Ray and of libraries, whose locks a fork would leave behind held. The fork server
of a job's own Ray does not serve here: a cluster has none, it knows no plan, and it does not wait for what it forks."""

import os
import pickle
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from dpa._util.lazy_pandas import import_pandas_late
from dpa.execution.emission import Emission
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.rows import OneBatch
from dpa.execution.trials import Work
from dpa.protocol.task.user_code import StageTask
from dpa.protocol.wire.addresses import Address
from dpa.runtime.packed_plan import PackedPlan, pickled

_OF_MEMORY = 0.5
"""The part of the memory that is available which a trial may take: Ray's monitor would kill the task for more."""


class Trials:
    """Tries work of one task; the process that forks is started with the first, and ends with this one."""

    def __init__(self, packed: PackedPlan, address: Address) -> None:
        self._begin = (packed, address)
        self._server: subprocess.Popen[bytes] | None = None
        self._asked: Connection

    def __call__(self, work: Work) -> str | None:
        """How the process died that tried the work; None if it did not."""
        if self._server is None:
            self._start()
        self._asked.send_bytes(pickled(work))
        return self._asked.recv_bytes().decode() or None

    def _start(self) -> None:
        self._asked, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-c", f"from dpa.runtime.actors._trials import serve; serve({theirs.fileno()})"]
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=2,  # what user code prints
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        self._asked.send_bytes(pickled(self._begin))

    def close(self) -> None:
        if self._server is not None:
            self._asked.close()
            self._server.wait()
            self._server = None


def serve(descriptor: int) -> None:
    """Try work from a connection, and answer how the process died, until the connection ends."""
    import_pandas_late()
    with Connection(descriptor) as asked:
        packed, address = pickle.loads(asked.recv_bytes())
        task = packed.unpack().tasks[address.stage]
        with suppress(EOFError, ConnectionError):
            while True:
                asked.send_bytes(_tried(task, address, asked.recv_bytes()).encode())


def _tried(task: StageTask, address: Address, work: bytes) -> str:
    """How a fork died that tried this; empty if it did not."""
    reading, writing = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            _limit()
        writing.send_bytes(_tried_here(task, address, work).encode())
        os._exit(0)
    said: str | None = None
    with reading:
        writing.close()
        with suppress(EOFError):  # it died before it was done
            said = reading.recv_bytes().decode()
    _, status = os.waitpid(child, 0)
    if said is not None:
        return said
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"it exits with status {code}"


def _tried_here(task: StageTask, address: Address, work: bytes) -> str:
    """Whether there was too little memory; what else user code raises, the task sees for itself."""
    memory = "it takes more memory than there is"
    try:
        found: Work = pickle.loads(work)
        if isinstance(found, tuple):
            assert not isinstance(task, Emission)
            ReduceTask(task, address.index).process_in_trial(found)
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
