"""Sinks of somebody else's that jobs of the tests use: apart, as `jobs` cannot be imported everywhere."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from jobs.json_lines import JsonLines


class DeadlyLines(JsonLines):
    """Kills the process of the first task that has staged its rows, once, and is out of reach when the job is then
    begun again, once."""

    def __init__(self, path: str, died: str) -> None:
        super().__init__(path)
        self.died = died

    def begin(self) -> None:
        if Path(self.died).exists():
            with suppress(FileExistsError):
                Path(f"{self.died}-away").touch(exist_ok=False)
                raise OSError("it is out of reach")
        super().begin()

    def stage(self, rows: pa.Table, task: int, epoch: int) -> str:
        part = super().stage(rows, task, epoch)
        with suppress(FileExistsError):
            Path(self.died).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return part
