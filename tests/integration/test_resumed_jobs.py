"""A job on a cluster whose drivers are killed, detached, followed and stopped, as commands: it goes on behind its
newest checkpoint, with other tasks and another grouping, and the result is exact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from programs_for_tests import ON_A_CLUSTER, PATIENCE, wait_until
from typer.testing import CliRunner

from dpa import results
from dpa.checkpoints import CheckpointStore
from dpa.command import app
from dpa.errors import CheckpointError

ROWS = 30_000
KEYS = [f"key {number % 40}" for number in range(ROWS)]
VALUES = [-1 if number % 1_009 == 0 else 1 for number in range(ROWS)]

FASTER = ["--set", "limits.batch_records=1000", "--set", "limits.in_flight_records=4000"]
"""For what is left once nothing more is to happen: thousands of small batches take most of a minute."""

CLUSTER = """
import sys
from dpa.testing import LocalCluster
with LocalCluster({"one": 2}) as cluster:
    print(cluster.address, flush=True)
    sys.stdin.read()
"""
"""A cluster in a process of its own: this one may have another Ray."""


def wait_for(what: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    def is_so() -> object:
        assert process is None or process.poll() is None, process.communicate()
        return what()

    wait_until(is_so)


class Commands:
    """The commands of a user of one job on one cluster, with one token."""

    def __init__(self, directory: Path, address: str) -> None:
        self.directory, self.address = directory, address

    def start(self, *words: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            env=ON_A_CLUSTER,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess:
        started = self.start("dpa.run", "job.yaml", "--address", self.address, *words)
        return subprocess.CompletedProcess(words, *self.ended(started))

    def control(self, *words: str) -> subprocess.Popen:
        return self.start("dpa.control", "--address", self.address, *words)

    @staticmethod
    def ended(process: subprocess.Popen) -> tuple[int, str, str]:
        said, warned = process.communicate(timeout=PATIENCE)
        return process.returncode, said, warned

    def read(self) -> int:
        """Rows behind the newest checkpoint."""
        store = CheckpointStore.open(str(self.directory / "saved"))
        try:
            found = [store.chain(job).newest() for job in store.jobs()]
        except CheckpointError:  # it is being made
            return 0
        return max((checkpoint.records for checkpoint in found if checkpoint is not None), default=0)

    def newest(self) -> int:
        """The number of the newest slot."""
        store = CheckpointStore.open(str(self.directory / "saved"))
        return max((max(store.chain(job).numbers(), default=0) for job in store.jobs()), default=0)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a cluster for all tests of the file."""
    cluster = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # a machine on which Ray has not run yet
        env={**os.environ, "RAY_TMPDIR": str(tmp_path_factory.mktemp("ray"))},
    )
    try:
        assert cluster.stdout is not None
        yield cluster.stdout.readline().strip()
    finally:
        cluster.communicate(timeout=PATIENCE)


@pytest.fixture
def commands(tmp_path: Path, address: str) -> Commands:
    return Commands(tmp_path, address)


def test_a_job_goes_on_whatever_ends_its_drivers(tmp_path: Path, commands: Commands) -> None:
    (tmp_path / "job.yaml").write_text(
        json.dumps(
            {
                "name": "lasting",
                "input": {"format": "parquet", "path": "in.parquet"},
                "reducer": {
                    "use": "executors_for_tests:SlowSumOfGood",
                    "args": {"seconds": 0.008, "until": str(tmp_path / "go")},
                },
                "python_path": [str(Path(__file__).parent)],
                "parallelism": {"mappers": 2, "reducers": 2},
                "limits": {"batch_records": 50, "in_flight_records": 100, "split_records": 1_000},
                "checkpoint": {"path": "saved", "every": "300ms", "keep": 2},
                "on_error": "dead_letter",
                "dead_letters": "dead",
                "output": {"path": "out"},
            }
        )
    )
    pq.write_table(pa.table({"key": KEYS, "value": VALUES}), tmp_path / "in.parquet", row_group_size=1_000)
    # a driver that is killed
    driver = commands.start("dpa.run", "job.yaml", "--address", commands.address)
    wait_for(commands.read, driver)
    os.kill(driver.pid, signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL
    killed_at = commands.read()

    # goes on detached, with other tasks and another grouping, and is followed by who goes again
    other = ["--set", "parallelism.reducers=3", "--set", "grouping.kind=key", "--set", "balance.strategy=none"]
    detached = commands.run(*other, "--resume", "saved", "--detach")
    assert detached.returncode == 0, detached.stderr
    name, _, _ = detached.stdout.partition(" runs on ")
    attached, other_one = (commands.control("attach", who, "--progress", "plain") for who in (name, "lasting"))
    wait_for(lambda: commands.read() > killed_at)
    for each in (attached, other_one):
        wait_for(lambda each=each: "stream" in each.stderr.readline())
    os.kill(attached.pid, signal.SIGINT)
    status, _, shown = commands.ended(attached)
    assert status == 130 and f"{name} keeps running" in shown

    # is stopped behind a last checkpoint, which who follows it learns
    status, said, refused = commands.ended(commands.control("stop", "lasting"))
    assert (status, said) == (0, "the job ends, and publishes nothing more\n"), refused
    status, said, _ = commands.ended(other_one)
    assert status == 130 and "--resume" in said
    stopped_at = commands.read()
    assert stopped_at > killed_at

    # and goes on with the command that it named
    (tmp_path / "go").touch()
    last = commands.run("--set", "parallelism.reducers=1", "--resume", "saved", "--json", *FASTER)
    assert last.returncode == 0, last.stderr
    report = json.loads(last.stdout)
    assert [(each["task"], each["rows"]) for each in report["recoveries"]] == [("driver", None)]
    assert report["records"]["read"] == ROWS - stopped_at
    found = dict(zip(*pq.read_table(tmp_path / "out").to_pydict().values(), strict=True))
    dead = Counter(key for key, value in zip(KEYS, VALUES, strict=True) if value < 0)
    assert found == Counter(KEYS) - dead
    letters = pq.read_table(tmp_path / "dead")
    assert Counter(map(json.loads, letters["key"].to_pylist())) == dead
    assert len(letters["generation"].unique()) > 1
    assert not [*(tmp_path / "saved").iterdir()]


PAGE = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text(encoding="utf-8")
PROCEDURE = [line.split() for line in PAGE.partition("## Going back")[2].split("```")[1].strip().splitlines()]
"""The commands of the page that go back, in their order."""

BEHIND = """
import time
from pathlib import Path


def slow(row):
    if not Path("GO").exists():
        time.sleep(0.0005)
    return row


def same(row):
    return row
"""


def test_checkpoints_are_put_back_only_with_what_was_published_since(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"files": {"path": "files"}, "table": {"path": "table", "format": "delta"}}
    places["lines"] = {"path": "lines", "format": "json", "compression": "gzip"}
    places["parts"] = {"path": "parts", "format": "delta"}
    tenth = Field("tenth", PrimitiveType("long"), metadata={"delta.generationExpression": "number % 10"})
    columns = Schema([Field("number", PrimitiveType("integer")), tenth])
    DeltaTable.create(tmp_path / "parts", columns, partition_by=["tenth"])
    (tmp_path / "behind.py").write_text(BEHIND.replace("GO", str(tmp_path / "go")))
    (tmp_path / "job.yaml").write_text(
        json.dumps(
            {
                "name": "behind",
                "stages": {
                    "rows": {"read": {"format": "parquet", "path": "in.parquet"}},
                    "slow": {"from": "rows", "map": "behind:slow", "parallelism": 2},
                    **{
                        name: {"from": "slow", "map": "behind:same", "write": {**place, "publish": "final"}}
                        for name, place in places.items()
                    },
                },
                "limits": {"batch_records": 50, "in_flight_records": 100, "split_records": 1_000},
                "checkpoint": {"path": "saved", "every": "200ms", "keep": 100},
            }
        )
    )
    numbers = [*range(ROWS)]
    pq.write_table(pa.table({"number": numbers}), tmp_path / "in.parquet", row_group_size=1_000)

    def killed(*words: str) -> None:
        """A driver that is killed once it has made some checkpoints."""
        driver, before = commands.start("dpa.run", "job.yaml", "--address", commands.address, *words), commands.newest()
        wait_for(lambda: commands.newest() > before + 4, driver)
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()

    def found(name: str) -> list[int]:
        return sorted(results(tmp_path / name).table["number"].to_pylist())

    killed()
    killed("--resume", "saved")
    [job] = CheckpointStore.open(str(tmp_path / "saved")).jobs()
    for _ in range(2):
        (tmp_path / "saved" / job / "chain" / f"{commands.newest():010d}.json").unlink()

    before: dict[str, int] = {}
    while before != (now := {name: len(found(name)) for name in places}):  # what a killed driver has left may end
        before, refused = now, commands.run("--resume", "saved")
    assert refused.returncode == 2, refused
    number = commands.newest()
    while CheckpointStore.open(str(tmp_path / "saved")).chain(job).slot(number).is_claim:
        number -= 1
    for part in ("has epoch", "and the newest is checkpoint", f"back-to {job} {number}"):
        assert part in refused.stderr.replace("\n", " "), refused.stderr
    assert PROCEDURE[-1] == ["dpa", "run", "job.yaml", "--resume", "saved"]
    monkeypatch.chdir(tmp_path)
    for _, *words in PROCEDURE[:-1]:
        given = {"JOB": job, "NUMBER": str(number)}
        done = CliRunner().invoke(app, [given.get(word, word) for word in words])
        assert done.exit_code == 0, done.output
    assert done.output.count("taken back") == len(places)
    assert all(len(found(name)) < before[name] for name in places)

    (tmp_path / "go").touch()
    last = commands.run("--resume", "saved", *FASTER)
    assert last.returncode == 0, last.stderr
    assert all(found(name) == numbers for name in places)
    parts = results(tmp_path / "parts").table
    assert parts["tenth"].to_pylist() == [number % 10 for number in parts["number"].to_pylist()]
