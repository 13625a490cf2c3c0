"""Where the runs of the experiment take place: two Ray nodes, a server of S3's protocol, and places for results; and
what can be killed there.

What a job is at when something is killed is what its driver said last, or, while records flow, whether its store has
files of a checkpoint that is not complete yet.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpa import results
from dpa.checkpoints import CheckpointStore
from dpa.errors import CheckpointError
from dpa.protocol.wire.addresses import RESERVED
from dpa.sinks.reading import published
from dpa.testing import LocalCluster
from experiments import s3_server
from experiments.kafka_broker import Broker, kafka_broker

HEAD, OTHER = "one", "two"
"""The node on which drivers run, and the one that can be killed."""

PROCESSORS = 2
"""Of each node, as Ray is told."""

BUCKET = "chaos"

AWAY_SECONDS = (1.5, 90.0)
"""For how long nobody reaches the object storage when what stands before it is killed, or the broker."""

DRIVER, NODE, RAYLET, STORAGE, BROKER = "driver", "another node", "its raylet", "object storage", "broker"
"""What is killed besides processes of the job."""

NODES = (NODE, RAYLET)
"""What ends all that is on another node."""

SINKS = ("directory", "objects", "delta", "iceberg")


class World:
    """One cluster, one object storage, and a directory for all else."""

    def __init__(self, cluster: LocalCluster, directory: Path, port: int, proxy: Proxy, broker: Broker) -> None:
        self.cluster = cluster
        self.broker = broker
        self.directory = directory
        self._port = port
        self._proxy = proxy
        self._is_headless = False
        self._catalog = {
            "type": "sql",
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"file://{directory}/lake",
        }

    def uri(self, name: str) -> str:
        """Of a place in the object storage."""
        return s3_server.uri_of(self._proxy.port, f"{BUCKET}/{name}")

    def keys(self, name: str) -> list[str]:
        """What is there."""
        return s3_server.keys(self._port, BUCKET, name)

    def write(self, sink: str, name: str, publishes: str | None) -> dict[str, Any]:
        """A section `output` for a result of this name."""
        section: dict[str, Any] = {"mode": "overwrite"}
        match sink:
            case "directory":
                section |= {"path": str(self.directory / name)}
            case "objects":
                section |= {"path": self.uri(name)}
            case "delta":
                section |= {"path": str(self.directory / name), "format": "delta"}
            case "iceberg":
                section |= {"path": f"here.chaos.{_identifier(name)}", "format": "iceberg", "args": self._catalog}
        return section | ({} if publishes is None else {"publish": {"mode": publishes, "every": "300ms"}})

    def read(self, sink: str, name: str, publishes: str | None) -> pa.Table:
        """The rows that readers find there."""
        if publishes is not None:
            place = self.write(sink, name, publishes)
            format, options = ("iceberg", self._catalog) if sink == "iceberg" else (None, None)
            return results(place["path"], format=format, options=options).latest(
                "key" if publishes == "changes" else None
            )
        match sink:
            case "directory":
                return pq.read_table(self.directory / name)
            case "objects":
                return published(self.uri(name))
            case "delta":
                from deltalake import DeltaTable

                return DeltaTable(str(self.directory / name)).to_pyarrow_table()
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("here", **self._catalog).load_table(f"chaos.{_identifier(name)}").scan().to_arrow()

    def store(self, name: str, *, is_remote: bool) -> str:
        """Where a job has its checkpoints."""
        return self.uri(f"{name}-saved") if is_remote else str(self.directory / f"{name}-saved")

    def is_writing(self, name: str, *, is_remote: bool) -> bool:
        """Whether there are files of a checkpoint whose slot is not taken yet."""
        if is_remote:
            found = self.keys(f"{name}-saved")
        else:
            found = [str(path) for path in (self.directory / f"{name}-saved").rglob("*")]
        slots = [int(number) for path in found for number in re.findall(r"/chain/(\d+)\.json$", path)]
        files = [int(number) for path in found for number in re.findall(r"/files/(\d+)-", path)]
        return max(files, default=-1) > max(slots, default=-1)

    def has_checkpoint(self, place: str, without: Set[str]) -> bool:
        """Whether a job other than these can go on behind one."""
        try:
            found = [CheckpointStore.open(place).chain(job).newest() for job in self.jobs(place) - without]
        except CheckpointError:
            return False
        return any(checkpoint is not None for checkpoint in found)

    def jobs(self, place: str) -> set[str]:
        """Those that have begun to write checkpoints there."""
        try:
            return {*CheckpointStore.open(place).jobs()}
        except CheckpointError:
            return set()

    def remove(self, place: str, jobs: Set[str]) -> None:
        """Remove what these have left there, as `python -m dpa.checkpoints PATH remove JOB` does."""
        for job in jobs & self.jobs(place):
            CheckpointStore.open(place).chain(job).remove()

    def left(self, name: str) -> list[str]:
        """What a job that has ended well should not have left: files of checkpoints, what was staged, processes."""
        local = [str(path) for path in (self.directory / f"{name}-saved").rglob("*") if path.is_file()]
        staged = [path.name for path in self.directory.glob(f".{name}*")]
        until = time.monotonic() + 10
        while (processes := self.processes(name)) and time.monotonic() < until:
            time.sleep(0.1)
        return [*local, *staged, *self.keys(f"{name}-saved"), *(f"process {kind}" for kind in processes)]

    def processes(self, name: str) -> dict[str, list[int]]:
        """The numbers of a job's processes by the task, from the titles that they give themselves."""
        found = defaultdict(list)
        begin = f"ray::{name} "
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended
                title = file.read_bytes().rstrip(b"\0 ").decode(errors="replace")
                if title.startswith(begin):
                    found[title.removeprefix(begin).partition("#")[0]].append(int(file.parent.name))
        return dict(found)

    def kill_node(self) -> None:
        """End the other node with all its processes."""
        self.cluster.remove(OTHER)

    def kill_raylet(self) -> None:
        """End that of the other node alone; the node's other processes are to notice."""
        self.cluster.kill_raylet(OTHER)
        self._is_headless = True

    def kill_storage(self, seconds: float) -> None:
        """Cut all off from the object storage, for a while."""
        self._proxy.kill()
        time.sleep(seconds)
        self._proxy.start()

    def mend(self) -> None:
        """Have the other node again."""
        if self._is_headless:
            self.cluster.remove(OTHER)
            self._is_headless = False
        if OTHER not in self.cluster.nodes:
            self.cluster.add(OTHER, PROCESSORS)


class Proxy:
    """What stands before the object storage: `experiments.chaos.proxy`, as a process."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Let others through again, at the same port."""
        command = [sys.executable, "-m", "experiments.chaos.proxy", str(self.port), str(self._target)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """Cut all off."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()


@contextmanager
def world(directory: Path) -> Iterator[World]:
    """Start all that runs need, and end it."""
    with ExitStack() as stack:
        port = stack.enter_context(s3_server.s3_server(BUCKET))
        proxy = Proxy(port)
        stack.callback(proxy.kill)
        broker = stack.enter_context(kafka_broker())
        cluster = stack.enter_context(LocalCluster({HEAD: PROCESSORS, OTHER: PROCESSORS}))
        yield World(cluster, directory, port, proxy, broker)


@dataclass(frozen=True)
class Kill:
    """What was killed, in words, what the job was at, and when, in seconds since 1970."""

    what: str
    step: str
    at: float


def kind_of(task: str, reads: str) -> str:
    """Of which kind a task is; `reads`: the stage that reads."""
    if task in RESERVED:
        return task
    return "source task" if task.rpartition(" ")[0] == reads else "operator task"


def kill(process: int) -> None:
    """End a process, if it has not ended by itself."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _identifier(name: str) -> str:
    return name.replace("-", "_")
