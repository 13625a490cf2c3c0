"""A job whose checkpoints lie in `formats/NUMBER`, as each format was written. `python tests/saved_formats.py NUMBER`
runs it, interrupts it behind a few checkpoints, and leaves the newest one there: for a new format, with the new code.

It has what checkpoints hold: Python states and states in columns, rows of a join, windows, timers, dead letters, and an
input that is read in part.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpa
from dpa.checkpoints import CheckpointStore, Manifest
from dpa.errors import CheckpointError
from dpa.sources.generated import Generator

FORMATS = Path(__file__).with_name("formats")

ROWS = 3_000
FEW = 60
"""Of a second input, which lasts as long."""

KEYS = 7
BAD = 601
"""A reducer fails on each of so many rows."""

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_BETWEEN = timedelta(milliseconds=10)


class Numbers(Generator):
    """Rows of a key, their number and a time, in order."""

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        numbers = np.arange(start, start + rows)
        micros = int(_START.timestamp() * 1e6) + numbers * (_BETWEEN // timedelta(microseconds=1))
        return pa.record_batch(
            {
                "key": pa.array([f"key {number % KEYS}" for number in numbers.tolist()]),
                "number": pa.array(numbers, pa.int64()),
                "time": pa.array(micros, pa.timestamp("us", "UTC")),
            }
        )


class Longest(dpa.Reducer[dict[str, int], dict[str, Any]]):
    """The greatest number, the number of records and their sum."""

    def zero(self) -> dict[str, int]:
        return {"greatest": -1, "records": 0, "sum": 0}

    def reduce(self, state: dict[str, int], value: Mapping[str, Any]) -> dict[str, int]:
        number = value["number"]
        if number % BAD == BAD - 1:
            raise ValueError("a bad number")
        return {
            "greatest": max(state["greatest"], number),
            "records": state["records"] + 1,
            "sum": state["sum"] + number,
        }

    def merge(self, left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
        both = {name: left[name] + right[name] for name in ("records", "sum")}
        return {"greatest": max(left["greatest"], right["greatest"]), **both}

    def finish(self, state: dict[str, int]) -> dict[str, Any]:
        return state


class Lasts(dpa.Process[tuple[int, datetime] | None, Mapping[str, Any]]):
    """The last number of each key, a long while after it."""

    def zero(self) -> None:
        return None

    def process(self, key: Any, state: Any, value: Mapping[str, Any]) -> tuple[Any, Sequence[dict[str, Any]]]:
        return (value["number"], value["time"]), ()

    def timer(self, key: Any, state: Any) -> datetime | None:
        return None if state is None else state[1] + timedelta(hours=1)

    def on_time(self, key: Any, state: Any, time: datetime) -> tuple[None, Sequence[dict[str, Any]]]:
        return None, [{"key": key, "last": state[0]}]


def job(directory: Path) -> dict[str, Any]:
    """The job; its results, dead letters and checkpoints go below a directory."""

    def kept(name: str) -> dict[str, Any]:
        return {"parallelism": 2, "write": str(directory / name)}

    read = {"format": "generated", "use": "saved_formats:Numbers", "rows": ROWS}
    return {
        "name": "formats",
        "python_path": [str(Path(__file__).parent)],
        "stages": {
            "rows": {
                "read": {**read, "rate": 1_000, "time": {"column": "time", "out_of_order": "0s"}},
                "parallelism": 1,
            },
            "few": {"read": {**read, "rows": FEW, "rate": 1_000 * FEW // ROWS}, "parallelism": 1},
            "others": {"read": {**read, "rows": KEYS}, "parallelism": 1},
            "longest": {"from": "rows", "key_by": "key", "reduce": "saved_formats:Longest", **kept("longest")},
            "windows": {"from": "rows", "window": "3s"},
            "counts": {"from": "windows", "key_by": "key", "reduce": "count", **kept("counts")},
            "lasts": {"from": "rows", "key_by": "key", "process": "saved_formats:Lasts", **kept("lasts")},
            "joined": {"from": "few", "key_by": "key", "join": {"with": "others"}, **kept("joined")},
        },
        "limits": {"split_records": 500, "batch_records": 50},
        "checkpoint": {"path": str(directory / "saved"), "every": "300ms", "keep": 1},
        "on_error": "dead_letter",
        "dead_letters": str(directory / "dead"),
    }


def expected() -> dict[str, list[dict[str, Any]]]:
    """The rows of each result, sorted."""
    good = [number for number in range(ROWS) if number % BAD != BAD - 1]
    window = timedelta(seconds=3)
    counts = Counter((f"key {number % KEYS}", _START + number * _BETWEEN // window * window) for number in range(ROWS))
    longest, lasts, joined = [], [], []
    for place in range(KEYS):
        key, own = f"key {place}", [number for number in good if number % KEYS == place]
        longest.append({"key": key, "greatest": max(own), "records": len(own), "sum": sum(own)})
        lasts.append({"key": key, "last": max(range(place, ROWS, KEYS))})
        joined += [{"key": key, "number": number, "number_right": place} for number in range(place, FEW, KEYS)]
    return {
        "longest": longest,
        "counts": [{"key": key, "window_start": at, "count": number} for (key, at), number in sorted(counts.items())],
        "lasts": lasts,
        "joined": joined,
    }


def newest(saved: Path) -> int:
    """The rows behind the newest checkpoint; 0 before there is one."""
    store = CheckpointStore.open(str(saved))
    try:
        found = [store.chain(each).newest() for each in store.jobs()]
    except CheckpointError:  # it is being made
        return 0
    return max((checkpoint.records for checkpoint in found if checkpoint is not None), default=0)


def copied(number: int, to: Path) -> tuple[CheckpointStore, str, Manifest]:
    """The checkpoint of a format in a store of its own, which its owner alone can read and write."""
    shutil.copytree(FORMATS / f"{number}", to)
    for path in to.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    store = CheckpointStore.open(str(to))
    [name] = store.jobs()
    checkpoint = store.chain(name).newest()
    assert checkpoint is not None
    return store, name, checkpoint


def run(file: Path, *words: str) -> subprocess.Popen[bytes]:
    """The job of a file as a command."""
    command = [sys.executable, "-m", "dpa.run", str(file), "--progress", "none", *words]
    return subprocess.Popen(command, start_new_session=True)


def make(place: Path) -> None:
    """Leave the newest checkpoint of a job that was interrupted at a place."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "job.json").write_text(json.dumps(job(directory)))
        running = run(directory / "job.json")
        while newest(directory / "saved") < ROWS // 2:
            if running.poll() is not None:
                raise RuntimeError("the job ended before it had a checkpoint of half its rows")
            time.sleep(0.05)
        os.kill(running.pid, signal.SIGINT)
        running.wait()
        _keep_newest(directory / "saved")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(directory / "saved", place)


def _keep_newest(saved: Path) -> None:
    """Leave the newest slot, and what it needs."""
    [job] = saved.iterdir()
    *older, newest_slot = sorted((job / "chain").iterdir())
    text = newest_slot.read_text()
    for file in (*older, *(each for each in (job / "files").iterdir() if each.name not in text)):
        file.unlink()


if __name__ == "__main__":
    make(FORMATS / sys.argv[1])
