"""Tables that Spark stages while they are read: file by file, exactly once, and to the end or its failure."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from observers_for_tests import Awaiting
from test_recovery import pid_of

from dpa import Job
from dpa.errors import JobFailedError, TableError
from dpa.sources.feed import Page, table_of
from dpa.sources.files import FileTable
from dpa.sources.micro_batches import MicroBatches
from dpa.spark import Kept, Source, _stage, input_table
from dpa.spark._stage import is_never_repeated
from dpa.telemetry.observers import Unobserved
from dpa.telemetry.tracker import TrackedSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS, ROWS = 8, 4_000


def slow(seconds: float) -> str:
    """A query of eight parts, of which two at a time take so long."""
    millis = f"CASE WHEN id % {ROWS // PARTS} = 0 THEN {round(seconds * 1000)}L ELSE 0L END"
    sleeps = f"coalesce(reflect('java.lang.Thread', 'sleep', {millis}), 'null') = 'null'"
    return f"SELECT id, id % 7 AS key FROM range(0, {ROWS}, 1, {PARTS}) WHERE {sleeps}"


def gated(spark: SparkSession, gate: Path, ok: str = "true") -> str:
    """A query of eight parts, of which the latter half waits for a file."""

    def may_pass(number: int) -> bool:
        until = time.monotonic() + 200
        while number >= ROWS // 2 and not gate.exists() and time.monotonic() < until:
            time.sleep(0.05)
        return True

    spark.udf.register("may_pass", may_pass, "boolean")
    where = f"may_pass(id) AND assert_true({ok}) IS NULL"
    return f"SELECT id, id % 7 AS key FROM range(0, {ROWS}, 1, {PARTS}) WHERE {where}"


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are handed over from the first one on."""
    monkeypatch.setattr(_stage, "WHOLE_SECONDS", 0.0)


def pages(feed: MicroBatches, position: Any = None) -> Iterator[Page]:
    """All pages behind a position."""
    until = time.monotonic() + 60
    while True:
        page = feed.poll(100, position)
        yield page
        if page.position is None:
            return
        position = page.position
        if not page.splits:
            assert time.monotonic() < until
            time.sleep(0.05)


def ids(found: list[Page]) -> list[int]:
    return [number for page in found if page.splits for number in table_of(page.splits)["id"].to_pylist()]


@pytest.mark.usefixtures("_at_once")
def test_each_file_is_read_as_soon_as_spark_has_committed_it(spark: SparkSession, tmp_path: Path) -> None:
    kept, gate = Kept(str(tmp_path / "kept"), False), tmp_path / "gate"
    source = Source("sql", query=gated(spark, gate))
    with input_table(lambda: spark, source, split_rows=100, kept=kept, early=True) as feed:
        assert isinstance(feed, MicroBatches) and feed.schema.names == ["id", "key"]
        first = feed.poll(100)
        assert first.splits and not kept.is_complete
        gate.touch()
        rest = [*pages(feed, first.position)]
        read = ids([first, *rest])
        assert sorted(read) == [*range(ROWS)]
        assert ids([*pages(pickle.loads(pickle.dumps(feed)))]) == read  # again, in the same order
    assert kept.is_complete
    with input_table(pytest.fail, Source("sql", query="none"), kept=Kept(kept.place, True), early=True) as resumed:
        assert isinstance(resumed, MicroBatches) and ids([*pages(resumed, first.position)]) == ids(rest)


@pytest.mark.usefixtures("_at_once")
def test_what_spark_fails_of_is_said_and_what_is_left_early_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    kept, gate = Kept(str(tmp_path / "kept"), False), tmp_path / "gate"
    source = Source("sql", query=gated(spark, gate, f"id < {ROWS - 100}"))
    message = r"^staging the query in .*: '\(id < 3900\)' is not true!"
    with input_table(lambda: spark, source, kept=kept, early=True) as feed:
        assert isinstance(feed, MicroBatches)
        gate.touch()
        with pytest.raises(TableError, match=message):
            ids([*pages(feed)])
    assert not Path(kept.place).exists()
    staging = tmp_path / "staging"
    with input_table(lambda: spark, Source("sql", query=slow(1.0)), stage_dir=str(staging), early=True) as feed:
        assert isinstance(feed, MicroBatches)
    assert not [*staging.iterdir()]
    (tmp_path / "kept" / "_batches").mkdir(parents=True)
    (tmp_path / "kept" / "_batches" / "0000000000").write_text('["part-00000.parquet"]')
    with pytest.raises(TableError, match="is not complete"):
        Kept(kept.place, True).staged()


def test_what_is_staged_soon_is_read_as_a_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stage, "WHOLE_SECONDS", 120.0)  # also on a busy machine
    with input_table(lambda: spark, Source("sql", query=slow(0.0)), stage_dir=str(tmp_path), early=True) as table:
        assert isinstance(table, FileTable) and table.rows == ROWS


def test_a_spark_that_may_repeat_a_task_hands_nothing_over_early() -> None:
    assert all(map(is_never_repeated, ("local", "local[*]", "local[4]")))
    assert not any(map(is_never_repeated, ("local[4,3]", "spark://host:7077", "local-cluster[2,1,1024]", "yarn", "")))


class Killer(Unobserved):
    """Kills a source and the coordinator, each behind a checkpoint, and lets Spark go on then."""

    def __init__(self, gate: Path) -> None:
        self.victims, self.gate = ["mapper 0", "coordinator"], gate

    def update(self, snapshot: TrackedSnapshot) -> None:
        assert not snapshot.is_open
        if snapshot.checkpoints is None or not snapshot.checkpoints.written:
            return
        if snapshot.generation == 2 - len(self.victims):
            if self.victims:
                assert not self.gate.exists()
                os.kill(pid_of("staged", self.victims.pop(0), snapshot.generation), signal.SIGKILL)
            else:
                self.gate.touch()


@pytest.mark.usefixtures("ray", "_at_once")
def test_a_job_reads_each_row_once_while_spark_stages_and_processes_die(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    killer = Killer(gate)
    job = {
        "name": "staged",
        "input": {"format": "sql", "query": gated(spark, gate)},
        "key": "key",
        "reducer": "count",
        "parallelism": {"mappers": 2, "reducers": 2},
        "checkpoint": {"path": str(tmp_path / "checkpoints"), "every": "200ms"},
        "recovery": {"backoff": "100ms"},
        "reference": {"sql": "SELECT key, count(*) AS count FROM input GROUP BY key", "baseline": False},
    }
    result = Job(**job).run(killer)
    assert result.report.status == "ok", result.report.error
    assert result.report.reference.matches and gate.exists()
    assert sum(result.table()["count"].to_pylist()) == ROWS

    gate.unlink()
    failing = {"format": "sql", "query": gated(spark, gate, f"id < {ROWS - 100}")}
    with pytest.raises(JobFailedError, match=r"staging the query in .*is not true"):
        Job(**{**job, "input": failing}).run(Awaiting(gate, lambda snapshot: True))
    assert not [*(tmp_path / "checkpoints").glob("*/*")], "nothing can be resumed of what Spark has not staged"
