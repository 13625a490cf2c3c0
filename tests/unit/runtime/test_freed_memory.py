"""Freed memory is used again: the system need not clear pages for every block."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

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
