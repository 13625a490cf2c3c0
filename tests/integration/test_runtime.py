"""Whole jobs on real Ray actors, built in Python, checked against a plain count."""

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import executors_for_tests as executors
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs_for_tests import wait_until

from dpa import Flow, Job, Mapper
from dpa.aggregates import Count
from dpa.balance.options import AdaptiveOptions
from dpa.driver import _first_tables
from dpa.errors import ConfigError, JobFailedError
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.history.recording import Recording
from dpa.protocol.plan import RunHooks
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import FailureKind, TaskDied
from dpa.protocol.wire.metrics import Snapshot
from dpa.result import Result
from dpa.routing.hashing import hash_column
from dpa.runtime.backend import RayBackend
from dpa.sources.splits import memory_splits
from dpa.testing import LocalBackend

pytestmark = pytest.mark.usefixtures("ray")


@pytest.fixture(scope="module")
def zipf() -> pa.Table:
    """60,000 records over 500 keys, the first of which has a quarter of them."""
    draw = np.random.default_rng(7)
    ranks = np.minimum(draw.zipf(1.3, 60_000), 500)
    return pa.table({"word": pa.array([f"w{rank}" for rank in ranks]), "value": pa.array(ranks)})


ONE, FEW = {"mappers": 1, "reducers": 1}, {"mappers": 1, "reducers": 2}
"""As few tasks as a test can do with: each is a process, which takes a second to start."""

SOON: dict[str, Any] = {"min_queue": 1, "check_seconds": 0.0}
BALANCE: dict[str, dict[str, Any]] = {
    "halving": {"report_every": 500, **SOON},
    "doubling": {"report_every": 500, **SOON},
    "adaptive": {"check_seconds": 0.0},
}
"""Of every strategy that acts, options with which it does so early."""


def counts(result: Result, stage: str | None = None) -> dict[str | None, int]:
    table = result.table(stage)
    return dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))


def test_a_count_is_exact_whatever_the_strategy_and_with_or_without_a_combiner(zipf: pa.Table) -> None:
    """One source feeds a stage of each strategy: they share its tasks, and what starts with a job."""
    limits = {"batch_records": 1_000, "in_flight_records": 4_000, "split_records": 7_000}
    flow, expected = Flow(limits=limits), Counter(zipf["word"].to_pylist())
    rows = flow.read(zipf, parallelism=2)
    for strategy, options in BALANCE.items():
        balance, combiner = {"strategy": strategy, **options}, strategy == "adaptive"
        rows.key_by("word").reduce(Count(), name=strategy, balance=balance, combiner=combiner, parallelism=2)
    result = flow.run()
    report = result.report
    assert report.records.read == zipf.num_rows
    assert report.records.emitted == report.records.processed
    [hottest] = expected.most_common(1)
    for strategy in BALANCE:
        stage = report[strategy]
        assert counts(result, strategy) == expected
        assert report.taken_in(strategy) == stage.records.processed == sum(task.processed for task in stage.tasks)
        assert (stage.records.processed < zipf.num_rows) == (strategy == "adaptive")  # by its combiner
        latency = stage.latency
        assert latency is not None
        assert 0 < latency.p50 <= latency.p95 <= latency.p99 <= latency.max <= report.seconds.stream
        assert len(stage.redistributions) == stage.decision_counts.get("applied", 0)
        assert (stage.hot_keys[0].key, stage.hot_keys[0].records) == hottest


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job waits for its sample, though the machine is busy."""
    monkeypatch.setattr(_first_tables.with_first_tables, "__defaults__", (60.0,))


@pytest.mark.usefixtures("_patient")
def test_a_hot_key_of_a_sample_is_split_over_all_reducers_from_the_beginning_and_counted_once() -> None:
    keys = ["hot" if number % 5 else f"cold {number % 7}" for number in range(2_000)]
    result = Job(
        input=pa.table({"key": keys}),
        key="key",
        value=[],
        reducer=executors.SlowCount(0.0, ""),
        parallelism={"mappers": 1, "reducers": 3},
        balance={"strategy": "adaptive", "first_table": "sample"},
        limits={"batch_records": 20, "in_flight_records": 500, "split_records": 100},
    ).run()
    report = result.report
    assert dict(zip(*result.table().to_pydict().values(), strict=True)) == Counter(keys)
    assert report.main.first_table == "from a sample of 2,000 rows, 1 hot key split"
    assert report.main.skew.dpa < report.main.skew.static / 2
    assert report.main.hot_keys[0].key == "hot"


def _on_two_reducers(of_reducer_0: Any, of_reducer_1: Any, output: Path) -> Job:
    """A job of functions that no module has, whose reducers give one key each, with these results."""
    table = AdaptiveOptions().ring(2).snapshot(0)
    owned = {int(table.owners_of(hash_column(pa.array([key])))[0]): key for key in "abcdefgh"}
    found = {owned[0]: of_reducer_0, owned[1]: of_reducer_1}

    def given(record: dict[str, str]) -> list[tuple[str, Any]]:
        return [(record["value"], found[record["value"]])]

    return Job(
        input=list(found), mapper=given, reducer=lambda left, right: left, parallelism=FEW, output={"path": str(output)}
    )


def test_the_parts_of_a_result_have_one_schema_or_the_job_fails_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=r"int64 for key '\w' and string for key '\w'"):
        _on_two_reducers(1, "one", tmp_path / "out").run(backend=LocalBackend())
    assert list(tmp_path.iterdir()) == []
    result = _on_two_reducers({"n": None, "of": []}, {"n": 7, "of": [1]}, tmp_path / "out").run()
    parts = [pq.read_schema(path) for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert len(parts) == 2 and parts[0] == parts[1] == result.table().schema
    assert result.table().schema.types[1:] == [pa.int64(), pa.list_(pa.int64())]


def test_an_executor_that_exits_fails_the_job_and_is_named() -> None:
    given = [{"key": "k", "value": number} for number in (1, 13, 13)]
    job = Job(input=given, reducer=executors.exit_on_thirteen, parallelism=ONE)
    with pytest.raises(JobFailedError, match=r"exit_on_thirteen.reduce failed on key 'k': SystemExit: bye"):
        job.run()


def test_a_value_that_cannot_be_unpickled_fails_the_job_instead_of_being_lost() -> None:
    with pytest.raises(JobFailedError, match="this value cannot come back"):
        Job(input=[1, 2, 3], mapper=executors.one_way, reducer=executors.add, parallelism=ONE).run()


def test_a_task_that_does_not_come_back_says_what_it_is_at_and_goes_on_saying_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning before, that tasks are too many, is for others than these two."""
    monkeypatch.setattr("dpa.runtime.backend._CROWD", 0.01)
    crowds = []
    mapper_goes_on, reducer_goes_on = tmp_path / "mapper", tmp_path / "reducer"

    def dawdle(record: dict[str, int]) -> list[tuple[str, int]]:
        executors.wait_for(str(mapper_goes_on))
        return [("slow", record["value"])]

    given = pa.table({"value": [1]})
    job = Job(input=given, mapper=dawdle, reducer=executors.Waiting(str(reducer_goes_on)), key="word", parallelism=ONE)
    at_mapper, at_reducer = [], []

    def warn(warning: str) -> None:
        if warning.startswith("coordinator "):  # tasks may start slowly
            return
        if "share" in warning:
            crowds.append(warning)
            return
        said = at_reducer if mapper_goes_on.exists() and warning.startswith("reducer ") else at_mapper
        said.append(re.sub(r" for \d+ s", "", warning))
        mapper_goes_on.touch()
        if len(at_reducer) == 2:
            reducer_goes_on.touch()

    plan = replace(job.spec.plan({MAPPER: tuple(memory_splits(given, 1))}, {MAPPER: given.schema}), stuck_seconds=1.0)
    with RayBackend().prepared(2) as tasks:
        tasks.run(plan, RunHooks(warn=warn))
    [crowd] = crowds
    assert re.match(r"2 tasks, each a process of its own, share \d+ processors: give steps fewer, ", crowd)
    [said] = set(at_mapper)  # on a busy machine perhaps twice
    assert said.startswith("mapper 0 has been at one step; it is in ")
    assert said.endswith("dawdle.map, on record {'value': 1}")
    assert len(at_reducer) >= 2 and len(set(at_reducer)) == 1
    where = r"reducer \d has been at one step; it is in executors_for_tests.add.reduce, on key 'slow'"
    assert re.fullmatch(where, at_reducer[0])


@pytest.mark.usefixtures("_patient")
def test_what_a_sample_does_to_user_code_does_not_reach_the_tasks() -> None:
    class Once(Mapper):
        """Is sent by value, so with what its class holds."""

        seen: ClassVar[set[int]] = set()

        def map(self, record: dict[str, int]) -> Iterator[tuple[int, int]]:
            if record["value"] not in self.seen:
                self.seen.add(record["value"])
                yield record["value"], 1

    given = pa.table({"value": range(2_000)})
    result = Job(
        input=given, mapper=Once(), reducer="count", key="value", parallelism={"mappers": 1, "reducers": 2}
    ).run()
    assert result.report["reducer"].first_table.startswith("from a sample")
    assert result.table().num_rows == 2_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)  # Spark may have a file open still


@pytest.mark.usefixtures("spark")
def test_a_full_disk_is_the_first_thing_that_is_said(small_disk: Path, tmp_path: Path) -> None:
    numbers = np.random.default_rng(7).integers(0, 2**62, 100_000)
    job = Job(
        input=pa.table({"word": numbers}),
        key="word",
        reducer="count",
        parallelism=ONE,
        output={"path": str(small_disk / "out")},
    )
    with pytest.raises(JobFailedError, match=r"\Areducer \d: the disk is full: .*, at .*/part-0000\d.parquet"):
        job.run()
    assert list(small_disk.iterdir()) == []
    (tmp_path / "in.csv").write_text("\n".join(["word", *map(str, numbers), ""]))
    staged = Job(
        input={"format": "csv", "path": str(tmp_path / "in.csv"), "options": {"header": "true"}},
        key="word",
        reducer="count",
        spark={"stage_dir": str(small_disk)},
    )
    with pytest.raises(ConfigError, match=r"input: staging csv files at .*: the disk is full: "):
        staged.run()
    assert list(small_disk.iterdir()) == []


def test_an_actor_that_dies_each_time_fails_the_job_and_is_named_and_what_ray_says_of_it_is_only_logged(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = [{"key": "k", "value": number} for number in (1, 13, 13)]
    job = Job(input=given, reducer=executors.die_on_thirteen, parallelism=ONE, recovery={"attempts": 1, "backoff": 0})
    with pytest.raises(JobFailedError, match=r"^reducer 0 died: .*; so it was in each of 2 generations$") as failed:
        job.run()
    (tmp_path / "events").write_bytes(failed.value.events["coordinator-0.events"])
    events = [handled.event for handled in Recording.read(tmp_path / "events").events]
    died = [(event.address, event.kind) for event in events if isinstance(event, TaskDied)]
    assert died == [(Address(REDUCER, 0), FailureKind.DIED)]
    wait_until(lambda: "Ray: A worker died" in caplog.text)
    assert "raylet" not in "".join(capsys.readouterr())


def test_a_task_that_dies_before_its_result_is_fetched_is_named(tmp_path: Path) -> None:
    def noting(left: int, right: int) -> int:
        (tmp_path / "pid").write_text(str(os.getpid()))
        return left + right

    def kill(snapshot: Snapshot) -> None:
        if snapshot.phase == "done":
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    given = pa.table({"key": ["k", "k", "k"], "value": [1, 2, 3]})
    job = Job(input=given, reducer=noting, parallelism=ONE, recovery={"attempts": 0})
    plan = job.spec.plan({MAPPER: tuple(memory_splits(given, 3))}, {MAPPER: given.schema})
    died = r"^reducer 0 died before its result was fetched: "
    with RayBackend().prepared(2) as tasks, pytest.raises(JobFailedError, match=died):
        tasks.run(plan, RunHooks(kill, pytest.fail))


def test_a_job_on_another_ray_than_the_one_that_is_in_use_is_refused() -> None:
    job = Job(input=pa.table({"word": ["a"]}), key="word", reducer="count")
    with pytest.raises(
        ConfigError, match=r"ray.address: a job of this process is running on .*in a process of its own"
    ):
        job.run(address="10.0.0.1:6379")
