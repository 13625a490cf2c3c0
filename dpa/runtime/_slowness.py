"""Reducers that are slow on purpose, for experiments and tests: user code takes longer, or shares its processor with a
busy process.

The simulator has no use for either: there a job says how long a record takes.
"""

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
"""The busy process: looks every few milliseconds whether the process that started it is there, and ends with it, in
whatever way that ended."""


class Slowness:
    """What makes one reducer slow; nothing, unless the plan says so."""

    def __init__(self, plan: RunPlan, task: Address, sleep: Callable[[float], None] = time.sleep) -> None:
        """Crowd the processor of a reducer that the plan names; called in the reducer's own process.

        Raises:
            ConfigError: the plan names it, and processes cannot be pinned here.
        """
        slow = plan.testing.get(task.stage, SlowTasks())
        self._factor = dict(enumerate(slow.slow_factor)).get(task.index, 1.0)  # later tasks have none
        self._sleep = sleep
        self._busy = _contend(task.index) if task.index in slow.cpu_contention else None

    def prolong(self, seconds: float) -> None:
        """Wait for as long as user code, which took `seconds`, would take longer, slowed down."""
        if self._factor > 1:
            self._sleep((self._factor - 1) * seconds)

    def end(self) -> None:
        """End the busy process, if there is one."""
        if self._busy is not None:
            self._busy.kill()
            self._busy.wait()


def _contend(reducer: int) -> subprocess.Popen[bytes]:
    """Pin this process to one of its processors, by the reducer's number, and start a busy process there."""
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
    """All threads of this process, as each is pinned by itself, and those to come as the one that starts them."""
    tasks = Path("/proc/self/task")
    return [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [0]
