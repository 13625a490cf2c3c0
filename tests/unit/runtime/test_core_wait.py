"""What a process knows and does of its machine: how long a thread waits for a processor, and freed memory is kept."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import threading

import pytest

from dpa.runtime.actors._process import CoreWait

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how long a thread waits")

_BYTES = bytes(2**20)
"""Hashing so many keeps a processor busy without the interpreter."""


def _work_on(processor: int, stop: threading.Event) -> None:
    os.sched_setaffinity(0, {processor})  # of this thread alone
    while not stop.is_set():
        hashlib.sha256(_BYTES)


@linux
def test_a_thread_that_shares_its_processor_waits_for_it() -> None:
    """Two threads want the same one: whichever is measured has to wait, sooner or later."""
    processor = min(os.sched_getaffinity(0))
    stop, waited = threading.Event(), threading.Event()

    def measured() -> None:
        wait = CoreWait()
        before = wait.seconds
        os.sched_setaffinity(0, {processor})
        while wait.seconds == before:
            hashlib.sha256(_BYTES)
        waited.set()

    other = threading.Thread(target=_work_on, args=(processor, stop), daemon=True)
    one = threading.Thread(target=measured, daemon=True)
    other.start()
    one.start()
    assert waited.wait(60)
    stop.set()
    one.join()
    other.join()


@linux
def test_the_time_waited_never_decreases_and_is_0_where_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = CoreWait()
    found = [wait.seconds for _ in range(100)]
    assert found == sorted(found)
    assert found[0] >= 0.0
    monkeypatch.setattr(threading, "get_native_id", lambda: 2**40)  # there is no such thread
    assert CoreWait().seconds == 0.0


_CYCLES = """
import os, resource, time
from dpa.runtime.actors._process import keep_freed_memory

if {keeps}:
    keep_freed_memory()

os.environ["POLARS_MAX_THREADS"] = "1"
import numpy as np
import polars as pl

def cycle():
    {cycle}

for _ in range(2):
    cycle()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    cycle()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


_ARRAYS = "[np.ones(150_000) for _ in range(16)]"  # 19 MB
_SERIES = "[pl.repeat(1.0, 150_000, eager=True) for _ in range(16)]; time.sleep(0.7)"


def faults(cycle: str, *, keeps: bool) -> int:
    """Pages that a process of its own has been given for arrays as large as it had freed before."""
    # As a driver leaves the environment that has imported polars itself.
    around = os.environ | {"_RJEM_MALLOC_CONF": "dirty_decay_ms:500,muzzy_decay_ms:1000"}
    command = [sys.executable, "-c", _CYCLES.format(keeps=keeps, cycle=cycle)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=around).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
@pytest.mark.parametrize(("cycle", "most", "least"), [(_ARRAYS, 100, 10_000), (_SERIES, 1_000, 2_000)])
def test_arrays_take_the_memory_that_arrays_before_them_have_freed(cycle: str, most: int, least: int) -> None:
    """A round has 4,700 pages, and there are four; polars gives its own back by and by."""
    assert faults(cycle, keeps=True) < most
    assert faults(cycle, keeps=False) > least
