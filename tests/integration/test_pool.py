"""`dpa up --address`: processes that wait on a cluster for jobs of other processes, which die, or come no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from programs_for_tests import ON_A_CLUSTER
from programs_for_tests import wait_until as until
from typer.testing import CliRunner

MODULE = "import os\n\ndef look(row):\n    return {**row, 'process': os.getpid(), 'parent': os.getppid()}\n"

JOB = """
import os
import sys
import time

import dpa
import looking

waits, driver = "waits" in sys.argv, os.getpid()

def wait(row):
    if waits and os.getpid() != driver:  # which runs it on a sample
        time.sleep(600)
    return row

flow = dpa.Flow("looks", ray={"address": sys.argv[1]}, recovery={"attempts": 0})
flow.read([{"n": n} for n in range(9)]).map(looking.look).map(wait).key_by("n").agg(process="max(process)")
print(flow.run(backend="ray").table().num_rows)
"""

SIZE = 3


def test_processes_of_a_cluster_wait_for_jobs_until_none_comes(tmp_path: Path) -> None:
    program = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(program, check=False, env=ON_A_CLUSTER, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "all checked\n"), done.stderr


def main(directory: Path) -> None:
    from dpa.runtime.cluster import ray_session
    from dpa.testing import LocalCluster

    (directory / "looking.py").write_text(MODULE, encoding="utf-8")
    (directory / "job.py").write_text(JOB, encoding="utf-8")
    with LocalCluster({"head": 2, "other": 2}) as cluster, ray_session(cluster.address):
        check_jobs([sys.executable, "job.py", cluster.address], cluster.address)
        check_ends()
    print("all checked")


def check_jobs(job: list[str], address: str) -> None:
    """Jobs take processes of the pool, which starts others, and ends those of a driver that was killed."""
    from dpa.command import app
    from dpa.runtime.pool import Pool

    def dpa(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--address", address])
        return f"{result.exit_code} {result.output}"

    def is_full() -> bool:
        return (found := Pool.find()) is not None and (found.users(), found.waiting) == (0, SIZE)

    assert dpa("status").startswith("1 there is no session")
    assert dpa("up", "--size", str(SIZE)).startswith("0 the session is ready")
    assert dpa("up").startswith("0 there is a session already: ends in 30 min if unused")
    for _ in range(2):
        done = subprocess.run(job, capture_output=True, text=True, check=True)
        assert done.stdout == "9\n"
        assert "using the session that `dpa up` started" in done.stderr
        until(is_full)
    driver = subprocess.Popen([*job, "waits"], stderr=subprocess.DEVNULL)
    until(lambda: (found := Pool.find()) is not None and found.users() == 1)
    assert "the session stays: 1 process uses it" in dpa("down")
    driver.kill()
    driver.wait()
    until(is_full)
    assert dpa("down") == "0 the session has ended\n"
    assert Pool.find() is None


def check_ends() -> None:
    """A pool that no job uses ends; one of other code is of no use."""
    from dpa.runtime import pool

    unused = pool.Pool.start(1, lasts_seconds=0.5)
    assert unused.unfit() is None
    setattr(pool, "code_version", lambda: "0.0")  # noqa: B010
    assert "and this process 0.0; to replace it: dpa down; dpa up" in str(unused.unfit())
    until(lambda: pool.Pool.find() is None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
