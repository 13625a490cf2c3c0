"""Publishes epochs, killed before each operation of the file system in turn, and prints what a reader finds afterwards.

    python killed_epochs.py DIRECTORY

Every attempt is a process of its own. A line each, as JSON: whether it ended, what a reader found then, and what it
found once the job had gone on behind its newest checkpoint, which is that of the newest epoch that was staged whole.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
from killed_writer import kill_before

from dpa import results
from dpa.errors import TableError
from dpa.sinks import objects
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import SinkContext, Target

EPOCHS = 2


def sink_at(place: Path) -> ResultFiles:
    """As the driver of the job, or of one that resumes it, makes it."""
    sink = ResultFiles(Target(str(place)))
    sink.know(SinkContext("me", publishes="final", with_checkpoints=True))
    sink.check()
    sink.begin()
    return sink


def go_on(place: Path, checkpoint: Path) -> None:
    """Commit what the newest checkpoint names, and publish the epochs that are left."""
    named = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"epoch": 0, "staged": []}
    sink = sink_at(place)
    if named["epoch"]:
        sink.commit(named["staged"], named["epoch"], 0.0)
    for epoch in range(named["epoch"] + 1, EPOCHS + 1):
        staged = [sink.stage(pa.table({"value": [10 * epoch + task]}), task, epoch) for task in range(2)]
        beside = checkpoint.with_suffix(".new")
        beside.write_text(json.dumps({"epoch": epoch, "staged": staged}))
        beside.rename(checkpoint)
        sink.commit(staged, epoch, 0.0)
    sink.commit([], EPOCHS + 1, 0.0, is_last=True)
    sink.abort()


def found_in(place: Path) -> list[int]:
    """The values that a reader sees."""
    try:
        values: list[int] = results(place).table["value"].to_pylist()
    except TableError:
        return []
    return values


def main(root: Path) -> None:
    """Kill at the first operation, at the second, and on until an attempt ends."""
    os.fsync = lambda file: None  # that is for a loss of power, and takes time
    objects._FANOUT = 2
    number, status = 0, -1
    while status:
        number += 1
        place, checkpoint = root / str(number) / "out", root / str(number) / "checkpoint"
        place.parent.mkdir()
        child = os.fork()
        if not child:
            try:
                kill_before(number, place)
                go_on(place, checkpoint)
            finally:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL), status
        seen = found_in(place)
        go_on(place, checkpoint)
        left = sorted(path.name for path in place.iterdir() if path.suffix == ".parquet")
        named = objects.manifest_at(ResultFiles(Target(str(place)))._files)[0]
        assert named is not None and {*left} == {*(named.files or ()), *named.before}, (left, named)
        print(json.dumps([status == 0, seen, found_in(place)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
