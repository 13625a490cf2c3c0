"""What a look for a plan costs: N-Storm's two looks (3.2), each done here with the least that it needs.

A node's agent asks a server for the plan, over TCP, and appends its own part to a file. A worker reads the last record
of that file. ZooKeeper and a Java process cost more.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from experiments.redeploy.plans import Layout
from experiments.redeploy.schemes import Polling

RECORD = 512
"""Bytes of a node's part of a plan: typically fewer (3.2)."""

LOOKS, BATCHES = 200, 5
"""Looks of a batch, whose median is taken."""


def measure_looks(layout: Layout, looks: int = LOOKS) -> Polling:
    """The seconds of a look of an agent that finds a new plan, the most that there can be, and of a worker. Waiting for
    the server and the disk is among them, which is more than the processor time that tasks lose."""
    plan = os.urandom(RECORD * layout.nodes)
    with (
        tempfile.TemporaryDirectory(prefix="dpa-looks-") as directory,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        path = Path(directory, "store")
        answering = threading.Thread(target=_answer, args=(server, plan), daemon=True)
        answering.start()
        with path.open("ab", buffering=0) as store, socket.create_connection(server.getsockname()) as asking:

            def agent() -> None:
                asking.sendall(b"?")
                left = len(plan)
                while left:
                    left -= len(asking.recv(left))
                store.write(plan[:RECORD])
                os.fsync(store.fileno())

            def worker() -> None:
                with path.open("rb") as file:
                    file.seek(-RECORD, os.SEEK_END)
                    file.read(RECORD)

            found = Polling(_median(agent, looks), _median(worker, looks))
        answering.join()
    return found


def _answer(server: socket.socket, plan: bytes) -> None:
    """Answer every question of one connection."""
    with server.accept()[0] as connection:
        while connection.recv(1):
            connection.sendall(plan)


def _median(look: Callable[[], None], looks: int) -> float:
    """Seconds of a look."""
    spent = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for _ in range(looks):
            look()
        spent.append((time.perf_counter() - began) / looks)
    return statistics.median(spent)
