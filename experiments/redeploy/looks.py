"""What a look for a plan costs: N-Storm's two looks (3.2), each done here with the least that it needs.

A node's agent asks a server for the plan, over TCP, and appends its own part to a file if that is new. A worker reads
the last record of that file. ZooKeeper and a Java process cost more.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiments.redeploy.plans import Layout
from experiments.redeploy.schemes import Durations, Polling

RECORD = 512
"""Bytes of a node's part of a plan: typically fewer (3.2)."""

ASK = 16
"""Bytes of the question for a plan."""

LOOKS, BATCHES = 200, 5
"""Looks of a batch, whose median is taken."""


@dataclass(frozen=True)
class Look:
    """What looks cost, in seconds, and the bytes that they carry. Waiting for the server and the disk is among it,
    which is more than the processor time that tasks lose.

    Attributes:
        ask: an agent's question and its answer.
        write: of a new part of a plan, until it is on the disk.
        read: a worker's.
        plan: bytes of a plan of all nodes.
    """

    ask: float
    write: float
    read: float
    plan: int

    def polling(self) -> Polling:
        """What looks cost tasks, with a new plan at every look of an agent, which is the most that there can be."""
        return Polling(agent=self.ask + self.write, worker=self.read)

    def traffic(self, layout: Layout, durations: Durations, every: float) -> tuple[float, float, float]:
        """Bytes a second of each node (figure 11): with the server, and written and read on the node, with a new plan
        so often (seconds)."""
        return (
            (ASK + self.plan) / durations.agent_cycle,
            RECORD / every,
            layout.workers * RECORD / durations.worker_cycle,
        )


def measure_looks(layout: Layout, looks: int = LOOKS) -> Look:
    """Measure each kind of look, in turn with nothing else."""
    plan = os.urandom(RECORD * layout.nodes)
    with tempfile.TemporaryDirectory(prefix="dpa-looks-") as directory:
        path = Path(directory, "store")
        with path.open("ab", buffering=0) as store:

            def write() -> None:
                store.write(plan[:RECORD])
                os.fsync(store.fileno())

            ask = _asked(plan, looks)
            return Look(ask, _median(write, looks), _median(lambda: _last_record(path), looks), len(plan))


def _asked(plan: bytes, looks: int) -> float:
    """The seconds of a question to a server that answers with a plan."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=_answer, args=(server, plan), daemon=True)
        answering.start()
        with socket.create_connection(server.getsockname()) as asking:

            def ask() -> None:
                asking.sendall(bytes(ASK))
                left = len(plan)
                while left:
                    left -= len(asking.recv(left))

            spent = _median(ask, looks)
        answering.join()
    return spent


def _answer(server: socket.socket, plan: bytes) -> None:
    """Answer every question of one connection."""
    with server.accept()[0] as connection:
        while connection.recv(ASK):
            connection.sendall(plan)


def _last_record(path: Path) -> bytes:
    with path.open("rb") as store:
        store.seek(-RECORD, os.SEEK_END)
        return store.read(RECORD)


def _median(look: Callable[[], object], looks: int) -> float:
    """Seconds of a look."""
    spent = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for _ in range(looks):
            look()
        spent.append((time.perf_counter() - began) / looks)
    return statistics.median(spent)
