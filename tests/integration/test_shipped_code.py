"""A job whose code only its driver sees: Ray sends it to the nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pyarrow.parquet as pq
import pytest

from dpa.runtime.cluster import rays_directory
from dpa.testing import LocalCluster

ROWS, KEYS = 20_000, 1000

CODE = """
from pathlib import Path

import numpy as np
import pyarrow as pa

from dpa import BatchMapper, Generator


class Numbers(Generator):
    def batch(self, start, rows, random):
        return pa.record_batch({"number": np.arange(start, start + rows)})


class Texts(BatchMapper):
    def map_batch(self, batch):
        numbers = batch.column("number").to_numpy()
        texts = [f"{number:0100d}" for number in numbers]
        homes = [str(Path(__file__).parent)] * len(numbers)
        return pa.record_batch({"key": numbers % 1000, "text": pa.array(texts), "home": pa.array(homes)})


def last(left, right):
    return max(left, right, key=lambda value: value["text"])
"""

ALONE = 'mount -t tmpfs none "$0" && cp -r "$1/." "$0" && cd "$0" && shift && exec "$@"'
"""A script that runs a command in a directory that only this command sees."""


def rays_of_here() -> set[Path]:
    """The directories of the Rays that this process has started."""
    return {*Path(rays_directory()).glob(f"session_*_{os.getpid()}")}


@pytest.mark.skipif(os.geteuid() != 0 or which("unshare") is None, reason="a mount of one's own needs root and unshare")
def test_a_job_runs_on_nodes_that_have_not_its_code(tmp_path: Path) -> None:
    private, source = tmp_path / "private", tmp_path / "source"
    private.mkdir()
    source.mkdir()
    (source / "shipped.py").write_text(CODE, encoding="utf-8")
    job = {
        "name": "shipped",
        "input": {"format": "generated", "use": "shipped:Numbers", "rows": ROWS},
        "mapper": "shipped:Texts",
        "key": "key",
        "reducer": "shipped:last",
        "parallelism": {"mappers": 2, "reducers": 2},
        "balance": "none",
        "output": {"path": str(tmp_path / "out")},
        "placement": {
            "allocator": "even",
            "costs": {"mapper": 1.0, "reducer": 1.0},
            "traffic": {"mapper": {"reducer": 50.0}},
        },
        "ray": {"runtime_env": {"working_dir": "."}},
    }
    (source / "job.yaml").write_text(json.dumps(job), encoding="utf-8")
    before = rays_of_here()
    with LocalCluster({"one": 1, "two": 1}) as cluster:
        assert rays_of_here() != before
        options = ["job.yaml", "--address", cluster.address, "--progress", "none", "--json"]
        command = ["unshare", "--mount", "sh", "-c", ALONE, str(private), str(source)]
        command += [sys.executable, "-m", "dpa.run", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert rays_of_here() == before, "the cluster removes what its Ray wrote"
    assert done.stdout, done.stderr
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {row["key"]: int(row["text"]) for row in rows} == {key: ROWS - KEYS + key for key in range(KEYS)}
    assert all("working_dir" in Path(row["home"]).parent.name for row in rows), rows[0]["home"]
    for stage in json.loads(done.stdout)["stages"]:
        assert len({task["node"] for task in stage["tasks"]}) == 2
