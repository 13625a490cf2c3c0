"""Counting by key in engines that the project does not need, each in a process of its own: duckdb, daft and bytewax.

The process is started once, and asked for every run by a line on its standard input; it answers with a line of JSON.
So runs of all systems can take turns, and start-up counts for none. The extra `peers` installs the engines.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CORES = 2
"""Threads of duckdb, and workers of bytewax; daft has as many threads as the machine has processors."""

DUCKDB, DAFT, BYTEWAX = "duckdb", "daft", "bytewax"


def why_not(peer: str) -> str | None:
    """Why a peer cannot run here; None: it can."""
    return None if importlib.util.find_spec(peer) else f"{peer} is not installed: pip install 'dpa[peers]'"


class Peer:
    """A peer that runs; `run` returns the seconds of one count, and the result with the columns `word` and `n`."""

    def __init__(self, process: subprocess.Popen[str], result: Path) -> None:
        self._process = process
        self._result = result

    def run(self) -> tuple[float, pa.Table]:
        """Count once.

        Raises:
            RuntimeError: the process has ended; why is on standard error.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of a peer has ended, with status {self._process.wait()}")
        return json.loads(answer)["seconds"], pq.read_table(self._result)


@contextmanager
def running(peer: str, path: Path, python: str = sys.executable) -> Iterator[Peer]:
    """A block with the process of a peer that counts the words of a Parquet file."""
    with TemporaryDirectory(prefix="dpa-peer-") as directory:
        result = Path(directory) / "result.parquet"
        program = "import sys; from experiments.peers import serve; serve(*sys.argv[1:])"
        command = [python, "-c", program, peer, str(path), str(result)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=Path(__file__).parents[1], **pipes)
        try:
            yield Peer(process, result)
        finally:
            process.kill()
            process.communicate()


def _duckdb(path: str) -> pa.Table:
    import duckdb

    duckdb.sql(f"SET threads = {CORES}")
    return duckdb.sql(f"SELECT word, count(*) AS n FROM '{path}' GROUP BY word").to_arrow_table()


def _daft(path: str) -> pa.Table:
    import daft

    return daft.read_parquet(path).groupby("word").agg(daft.col("word").count().alias("n")).to_arrow()


def _bytewax(path: str) -> pa.Table:
    """Records one by one, as bytewax works; each worker reads every other row group."""
    from bytewax import operators
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.testing import TestingSink, cluster_main

    class RowGroups(StatefulSourcePartition[str, int]):
        def __init__(self, first: int) -> None:
            self._file = pq.ParquetFile(path)
            self._next = first

        def next_batch(self) -> list[str]:
            if self._next >= self._file.num_row_groups:
                raise StopIteration
            words = self._file.read_row_group(self._next, columns=["word"])["word"].to_pylist()
            self._next += CORES
            return words

        def snapshot(self) -> int:
            return self._next

    class Words(FixedPartitionedSource[str, int]):
        def list_parts(self) -> list[str]:
            return [str(part) for part in range(CORES)]

        def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> RowGroups:
            return RowGroups(int(for_part) if resume_state is None else resume_state)

    counted: list[tuple[str, int]] = []
    flow = Dataflow("count")
    words = operators.input("read", flow, Words())
    operators.output("counted", operators.count_final("count", words, lambda word: word), TestingSink(counted))
    cluster_main(flow, [], 0, worker_count_per_proc=CORES)
    found, numbers = zip(*counted, strict=True)
    return pa.table({"word": pa.array(found), "n": pa.array(numbers)})


PEERS: dict[str, Callable[[str], pa.Table]] = {DUCKDB: _duckdb, DAFT: _daft, BYTEWAX: _bytewax}
"""What counts the words of a file, by the name of the package."""


def serve(peer: str, path: str, result: str) -> None:
    """Count as often as a line comes: what the process of a peer does."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what an engine prints is no answer
    for _ in sys.stdin:
        began = time.perf_counter()
        counted = PEERS[peer](path)
        seconds = time.perf_counter() - began
        pq.write_table(counted, result)
        print(json.dumps({"seconds": seconds}), file=answers, flush=True)
