"""Tasks that are slow on purpose, for experiments and tests: user code takes longer, or shares its processor with a
busy process. In the simulator a job says how long a record takes, so this is not used there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dpa.errors import ConfigError
from dpa.protocol.plan import RunPlan, SlowTasks
from dpa.protocol.wire.addresses import Address

_BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(50_000):
        pass
"""
"""The busy process. It checks every few milliseconds that its parent lives, and ends with it."""


class Slowness:
    """What makes one reducer slow; nothing, unless the plan says so."""

    def __init__(self, plan: RunPlan, task: Address, sleep: Callable[[float], None] = time.sleep) -> None:
        """Start the busy process, if the plan names this task; called in the task's process.

        Raises:
            ConfigError: processes cannot be pinned here.
        """
        slow = plan.testing.get(task.stage, SlowTasks())
        self._factor = dict(enumerate(slow.slow_factor)).get(task.index, 1.0)  # later tasks have none
        self._sleep = sleep
        self._busy = _contend(task.index) if task.index in slow.cpu_contention else None

    def prolong(self, seconds: float) -> None:
        """Wait for as long as user code that took `seconds` would take longer."""
        if self._factor > 1:
            self._sleep((self._factor - 1) * seconds)

    def end(self) -> None:
        if self._busy is not None:
            self._busy.kill()
            self._busy.wait()


def _contend(reducer: int) -> subprocess.Popen[bytes]:
    """Pin this process to a processor, chosen by the task's number, and start a busy process there."""
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError(f"testing.cpu_contention: {sys.platform} cannot pin reducer {reducer} to a processor")
    usable = sorted(os.sched_getaffinity(0))
    processor = usable[reducer % len(usable)]
    for thread in _threads():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(thread, {processor})
    command = [sys.executable, "-I", "-S", "-c", _BUSY, str(os.getpid())]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)  # pinned as its parent is


def _threads() -> list[int]:
    """All threads of this process. Each is pinned by itself; a new one inherits it from the thread that starts it."""
    tasks = Path("/proc/self/task")
    return [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [0]
