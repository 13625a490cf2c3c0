"""Freed memory is used again: the system need not clear pages for every block."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_CYCLES = """
import resource
import numpy as np
from dpa.runtime.actors._process import keep_freed_memory

if {keeps}:
    keep_freed_memory()

def cycle():
    arrays = [np.ones(150_000) for _ in range(16)]  # 19 MB
    return arrays[0][0]

for _ in range(3):
    cycle()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    cycle()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*, keeps: bool) -> int:
    """Pages that a process of its own has been given for arrays as large as it had freed before."""
    command = [sys.executable, "-c", _CYCLES.format(keeps=keeps)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_arrays_take_the_memory_that_arrays_before_them_have_freed() -> None:
    assert faults(keeps=True) < 100
    assert faults(keeps=False) > 10_000  # 4,700 pages, ten times
