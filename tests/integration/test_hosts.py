"""A job on hosts of their own, in network namespaces: its code is sent there, its bytes are seen on the hosts'
interfaces, a host that dies ends it, and nothing is left of the hosts.

All of them have this machine's files. So the driver's directory is one that only the driver sees.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from experiments.hosts import HostsError, NamespaceCluster
from experiments.hosts.__main__ import run_command

ROWS, KEYS = 200_000, 1000

CODE = """
from pathlib import Path

import numpy as np
import pyarrow as pa

from dpa import BatchMapper, Generator


class Numbers(Generator):
    def batch(self, start, rows, random):
        return pa.record_batch({"number": np.arange(start, start + rows)})


class Texts(BatchMapper):
    def __init__(self, began):
        self.began = began

    def map_batch(self, batch):
        if batch.num_rows:  # what it is asked for before there are rows is no beginning
            Path(self.began).touch()
        numbers = batch.column("number").to_numpy()
        texts = [f"{number:0100d}" for number in numbers]
        homes = [str(Path(__file__).parent)] * len(numbers)
        return pa.record_batch({"key": numbers % 1000, "text": pa.array(texts), "home": pa.array(homes)})


def last(left, right):
    return max(left, right, key=lambda value: value["text"])
"""

ALONE = 'mount -t tmpfs none "$0" && cp -r "$1/." "$0" && cd "$0" && shift && exec "$@"'
"""A script that runs a command in a directory that only this command sees."""

HOSTS = [sys.executable, "-m", "experiments.hosts"]

FAILING = """
from experiments.hosts import NamespaceCluster
with NamespaceCluster({"one": 1, "two": 1}, object_store_mb=1):
    pass
"""
"""Ray refuses so small a store."""


def job(directory: Path, rate: int | None = None) -> dict[str, object]:
    """A job with one task of each stage on each host, whose output and sign of having begun are in a directory."""
    return {
        "name": "shipped",
        "input": {"format": "generated", "use": "shipped:Numbers", "rows": ROWS, "rate": rate},
        "mapper": {"use": "shipped:Texts", "args": {"began": str(directory / "began")}},
        "key": "key",
        "reducer": "shipped:last",
        "parallelism": {"mappers": 2, "reducers": 2},
        "balance": "none",
        "output": {"path": str(directory / "out")},
        "placement": {
            "allocator": "even",
            "costs": {"mapper": 1.0, "reducer": 1.0},
            "traffic": {"mapper": {"reducer": 50.0}},
        },
        "recovery": {"attempts": 0},
        "ray": {"runtime_env": {"working_dir": "."}},
    }


def driver(cluster: NamespaceCluster, directory: Path, job: dict[str, object]) -> subprocess.Popen[str]:
    """The command that runs a job on the head, with the job file and its code where no task sees them."""
    private, source = directory / "private", directory / "source"
    private.mkdir()
    source.mkdir()
    (source / "shipped.py").write_text(CODE, encoding="utf-8")
    (source / "job.yaml").write_text(json.dumps(job), encoding="utf-8")
    options = ["job.yaml", "--address", cluster.address, "--progress", "none", "--json"]
    run = ["sh", "-c", ALONE, str(private), str(source), sys.executable, "-m", "dpa.run", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(cluster.command(*run), stdout=pipe, stderr=pipe, text=True, cwd="/")


@contextmanager
def starting(directory: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The command that starts three hosts, when it starts Ray on the first one, and the cluster's directory."""
    with subprocess.Popen(HOSTS, env={**os.environ, "TMPDIR": directory}) as process:
        while not (made := list(Path(directory).glob("dpa-hosts-*/0"))):
            assert process.poll() is None
            time.sleep(0.02)
        yield process, made[0].parent


def namespaces(cluster: Path) -> list[str]:
    """Those of a cluster, by its directory."""
    there = Path("/run/netns")
    return [each.name for each in there.iterdir() if each.name.startswith(cluster.name)] if there.exists() else []


def commands() -> Iterator[str]:
    """Those of all processes."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            yield process.read_text(errors="replace")


@pytest.fixture(autouse=True, scope="module")
def possible() -> None:
    if problem := NamespaceCluster.lacking():
        pytest.skip(problem)


def begun(stack: ExitStack) -> NamespaceCluster:
    """A cluster, begun anew where the machine is too busy for Ray, whose nodes give up after half a minute."""
    for is_last in (False, False, True):
        try:
            return stack.enter_context(NamespaceCluster({"one": 1, "two": 1}, mbit=200))
        except HostsError as error:
            if is_last or "timed out during startup" not in str(error):
                raise
    raise AssertionError


@pytest.fixture(scope="module")
def cluster() -> Iterator[NamespaceCluster]:
    with ExitStack() as stack:
        cluster = begun(stack)
        directory = cluster.directory
        assert sorted(namespaces(directory)) == [f"{directory.name}-{each}" for each in ("one", "switch", "two")]
        yield cluster
    assert namespaces(directory) == []
    assert not directory.exists()
    assert [command for command in commands() if str(directory) in command] == []


def test_hosts_reach_each_other_at_the_rate_that_is_asked_for(cluster: NamespaceCluster) -> None:
    with cluster.entered("two"):
        server = socket.create_server(("", 0))
    with server, cluster.entered("one"), socket.create_connection(("10.77.0.2", server.getsockname()[1])):
        accepted, address = server.accept()
        accepted.close()
        assert address[0] == cluster.address.split(":")[0]
        [queue] = json.loads(subprocess.check_output(["tc", "-j", "qdisc", "show", "dev", "eth0"]))
        assert (queue["kind"], queue["options"]["rate"]) == ("tbf", 200e6 / 8)


def test_a_command_runs_on_the_head_where_it_finds_the_cluster_and_its_status_is_returned(
    cluster: NamespaceCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import os, socket, sys; host, port = os.environ['RAY_ADDRESS'].split(':'); "
    code += "print(socket.create_connection((host, int(port))).getsockname()[0]); sys.exit(7)"
    assert run_command(cluster, [sys.executable, "-c", code]) == 7
    said = capfd.readouterr()
    assert said.out == "10.77.0.1\n"
    assert said.err.startswith("a Ray on 10.77.0.1:6379; running ")
    assert run_command(cluster, ["sh", "-c", "kill -TERM $$"]) == 128 + signal.SIGTERM


def test_a_job_runs_on_hosts_that_have_not_its_code_and_interfaces_carry_what_its_tasks_count(
    cluster: NamespaceCluster, tmp_path: Path
) -> None:
    before = cluster.traffic()
    said, errors = driver(cluster, tmp_path, job(tmp_path)).communicate(timeout=120)
    assert said, errors
    report = json.loads(said)
    after = cluster.traffic()

    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {row["key"]: int(row["text"]) for row in rows} == {key: ROWS - KEYS + key for key in range(KEYS)}
    homes = {Path(row["home"]).relative_to(cluster.directory).parts[0] for row in rows}
    assert homes <= {"0", "1"}, "the code was found in the directory of a host's Ray"

    nodes = {stage["name"]: [task["node"] for task in stage["tasks"]] for stage in report["stages"]}
    assert len(set(nodes["mapper"])) == len(set(nodes["reducer"])) == 2
    counted = sum(
        size
        for traffic in report["traffic"]
        for sender, row in zip(nodes[traffic["source"]], traffic["pairs"], strict=True)
        for receiver, size in zip(nodes[traffic["target"]], row, strict=True)
        if sender != receiver
    )
    carried = sum((after[host] - before[host]).sent for host in after)
    assert 10e6 < counted <= carried <= 1.5 * counted
    assert carried == pytest.approx(sum((after[host] - before[host]).received for host in after), rel=0.1)


def test_a_host_that_dies_ends_the_job_with_an_error_that_names_a_task(
    cluster: NamespaceCluster, tmp_path: Path
) -> None:
    with driver(cluster, tmp_path, job(tmp_path, rate=1000)) as running:
        while not (tmp_path / "began").exists():
            assert running.poll() is None, running.communicate()
            time.sleep(0.05)
        cluster.remove("two")
        said, errors = running.communicate(timeout=120)
    assert running.returncode == 1, errors
    assert re.match(r"(mapper|reducer) \d on two died: ", json.loads(said)["error"])
    assert not (tmp_path / "out").exists()


def test_a_start_that_fails_says_why_and_leaves_nothing_of_it_or_of_a_cluster_whose_process_was_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="h-") as directory:
        with starting(directory) as (killed, left):
            killed.kill()
        assert len(namespaces(left)) == 4
        command = [sys.executable, "-c", FAILING]
        done = subprocess.run(
            command, env={**os.environ, "TMPDIR": directory}, capture_output=True, text=True, check=False, timeout=60
        )
        assert "HostsError: Ray did not start on host one: ValueError: Attempting to cap" in done.stderr
        assert namespaces(left) == []
        assert list(Path(directory).iterdir()) == []


def test_a_start_that_is_interrupted_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="h-") as directory:
        with starting(directory) as (interrupted, left):
            interrupted.send_signal(signal.SIGINT)
        assert interrupted.returncode == 130
        assert namespaces(left) == []
        assert list(Path(directory).iterdir()) == []
