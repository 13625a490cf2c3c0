"""Writes a result, killed before each operation of the file system in turn, and prints what is there afterwards.

    python killed_writer.py DIRECTORY beside|inside [old]

Every attempt is a process of its own, with a directory of its own, in which there may be an old result. A line each, as
JSON: what the attempt was killed before (null: it ended), the value that a reader found then, and the value and the
names of files once the next run had begun there and ended without publishing anything.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpa._util.owned import OwnedDirectory
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.sink import Target

OPERATIONS = {"open", "os.link", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "fcntl.flock"}
SHARES = [pa.table({"value": pa.array([value], pa.int64())}) for value in range(3)]


def kill_before(number: int, root: Path) -> None:
    """Kill this process before its operation of that number on what lies below a directory."""
    left = [number]

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event in OPERATIONS and (event == "fcntl.flock" or str(arguments[0]).startswith(str(root))):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def write(target: Path, value: int, begun: Callable[[], None]) -> None:
    """A job of two tasks, from its first check to its end; before it begins `begun` is called."""
    sink = ResultDirectory(Target(str(target), "overwrite", mark=lambda: f"value: {value}\n"))
    begun()
    sink.check()
    sink.begin()
    try:
        staged = [sink.stage(SHARES[value], task, 0) for task in range(1 + value)]
        sink.commit(staged, 1, 0.0, is_last=True)
    finally:
        sink.abort()


def value_in(target: Path) -> int | None:
    """That of a whole result, with as many parts as it must have."""
    if not (target / "_job.yaml").exists():
        return None
    parts = sorted(path for path in target.iterdir() if path.suffix == ".parquet")
    values = {value for part in parts for value in pq.ParquetFile(part).read(use_threads=False)["value"].to_pylist()}
    assert values == {len(parts) - 1}, (values, parts)
    return len(parts) - 1


def look(target: Path) -> None:
    """The next run begins there, and ends."""
    before = value_in(target)
    sink = ResultDirectory(Target(str(target), "overwrite"))
    sink.check()
    sink.begin()
    sink.abort()
    names = sorted(str(path.relative_to(target.parent)) for path in target.parent.rglob("*") if path.is_file())
    print(json.dumps([before, value_in(target), names]))


def refuse_beside(target: Path) -> None:
    """Have every result be prepared in its directory, as if that were a mount point."""
    make = OwnedDirectory.make

    def guarded(parent: Path, prefix: str) -> OwnedDirectory:
        if parent == target.parent:
            raise OSError("Read-only file system")
        return make(parent, prefix)

    OwnedDirectory.make = guarded


def main(root: Path, how: str, old: bool) -> None:
    """Kill at the first operation, at the second, and on until an attempt ends."""
    os.fsync = lambda file: None  # that is for a loss of power, and takes time
    write(root / "old", 1, lambda: None)
    number, status = 0, -1
    while status:
        number += 1
        target = root / str(number) / "out"
        if old:
            shutil.copytree(root / "old", target)
        else:
            target.mkdir(parents=True)
        if how == "inside":
            refuse_beside(target)
        child = os.fork()
        if not child:
            try:
                write(target, 2, partial(kill_before, number, root))
            finally:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL), status
        print(json.dumps(status == 0))
        look(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], "old" in sys.argv[3:])
