"""Programs in processes of their own, and waiting for what they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

ON_A_CLUSTER = {**os.environ, "RAY_AUTH_MODE": "token"}
"""The environment of programs that share a cluster: this process may have imported Ray already, with another token."""

PATIENCE = 300.0
"""Seconds after which a test says that what it waits for never comes. What is not to end by itself lasts longer."""


def python_path() -> str:
    """By which programs import what tests do, and the modules beside them."""
    return os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])


def begun(program: str, directory: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """Begin a program of Python."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": python_path(), "DPA_PROGRESS": "none", **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(program: subprocess.Popen[str], *, is_quiet: bool = True) -> Any:
    """The JSON that is the last line that a program prints, once it has ended well."""
    output, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0 and not (is_quiet and errors), errors
    return json.loads(output.splitlines()[-1])


def wait_until(is_so: Callable[[], T], pause: float = 0.05) -> T:
    """What is so, or true, once it is, as it must be after some time."""
    until = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < until, is_so
        time.sleep(pause)
    return found


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()
