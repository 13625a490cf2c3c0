"""Outages: which errors may pass, and how a process waits for a place that does not answer."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError, KafkaException
from output_samples import job

from dpa._util.disk import is_full, why, writing
from dpa._util.outages import Outages, may_pass
from dpa.driver.outputs import Publication
from dpa.errors import CheckpointDamagedError, CheckpointStoreError, ConfigError, JobFailedError, TableError
from dpa.execution import rows
from dpa.execution.rows import Portions
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import Target
from dpa.storage import DirectoryFiles


def raised(inner: Exception, outer: type[Exception] = TableError) -> Exception:
    """An error of ours, as it is made of another one."""
    try:
        try:
            raise inner
        except Exception as error:
            raise outer("a place: what it said") from (error if outer is ConfigError else None)
    except Exception as error:
        return error


ARROW = "When reading information for key 'x': AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7"


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), True),
        (TimeoutError("timed out"), True),
        (OSError(errno.ESTALE, "stale file handle"), True),
        (OSError(ARROW), True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), True),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), False),
        (OSError("HTTPSConnectionPool(host='x', port=443): Read timed out. (read timeout=1)"), True),
        (URLError("timed out"), True),
        (OSError("AWS Error SLOW_DOWN during PutObject operation"), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), True),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), True),
        (raised(OSError(errno.ETIMEDOUT, "timed out")), True),
        (raised(KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))), True),
        (raised(raised(ConnectionResetError("reset")), ConfigError), True),
        (raised(OSError(errno.EIO, "input/output error"), CheckpointStoreError), True),
        (PermissionError(errno.EACCES, "not allowed"), False),
        (raised(BlockingIOError(errno.EAGAIN, "another one has the lock")), False),
        (FileNotFoundError(errno.ENOENT, "no such file"), False),
        (OSError("AWS Error UNKNOWN (HTTP status 503) during PutObject operation"), True),
        (OSError("AWS Error UNKNOWN (HTTP status 501) during PutObject operation: NotImplemented"), False),
        (OSError("AWS Error ACCESS_DENIED during GetObject operation"), False),
        (KafkaException(KafkaError(KafkaError._AUTHENTICATION)), False),
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), False),
        (raised(FileNotFoundError(errno.ENOENT, "no such file")), False),
        (raised(KeyError("reset")), False),
        (CheckpointDamagedError("it is damaged"), False),
        (CheckpointStoreError("no way"), False),
        (TableError("the column says: Connection refused"), False),
        (TableError("the column says: No space left on device"), False),
        (ValueError("the column says: over capacity"), False),
        (ValueError("Connection refused"), False),
        (raised(raised(ConnectionError("inside"), ValueError)), False),
    ],
    ids=repr,
)
def test_what_does_not_answer_may_pass_and_nothing_else(error: Exception, passes: bool) -> None:
    assert may_pass(error) == passes


def test_a_full_disk_may_count_as_an_error_that_stays() -> None:
    error = raised(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert may_pass(error) and not may_pass(error, full=False)


@dataclass
class Clock:
    """Stands still but for what waits."""

    now: float = 0.0
    ends_at: float = 1e9

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self.ends_at


@pytest.fixture
def clock() -> Clock:
    return Clock()


def failing_until(clock: Clock, until: float, error: Exception) -> Callable[[], str]:
    def action() -> str:
        if clock.now < until:
            raise error
        return "done"

    return action


def begun(clock: Clock, patience: float | None = None, said: Callable[[str], object] = str) -> Outages:
    outages = Outages()
    outages.begin(patience, said, clock.wait, clock)
    return outages


def test_before_a_job_begins_nothing_is_waited_for(clock: Clock) -> None:
    with pytest.raises(ConnectionError):
        Outages().bear(failing_until(clock, 1, ConnectionError("no")), patience=1e9)
    assert clock.now == 0


def test_a_place_is_asked_until_it_answers_and_what_is_waited_for_is_said_less_and_less_often(clock: Clock) -> None:
    said: list[str] = []
    outages = begun(clock, said=said.append)
    assert outages.bear(failing_until(clock, 9_000, raised(TimeoutError("late"))), what="Kafka") == "done"
    assert said[0] == "waits: Kafka: a place: what it said"
    assert said[1] == "waits, for 11 s so far: Kafka: a place: what it said"
    assert [text.split(" s so far")[0] for text in said[2:5]] == [f"waits, for {at}" for at in (61, 601, 3601)]
    assert said[-1].startswith("continues: Kafka answers again, after 900") and len(said) == 7


@pytest.mark.parametrize(("own", "least"), [(None, 60), (7, 7)])
def test_patience_ends_and_an_input_may_have_its_own(clock: Clock, own: float | None, least: float) -> None:
    with pytest.raises(ConnectionError):
        begun(clock, 60).bear(failing_until(clock, 1e6, ConnectionError("no")), patience=own)
    assert least <= clock.now <= least + 5


def test_a_process_that_is_to_end_waits_no_longer_and_what_stays_is_raised_at_once(clock: Clock) -> None:
    outages = begun(clock)
    with pytest.raises(PermissionError):
        outages.bear(failing_until(clock, 1e6, PermissionError("no")))
    assert clock.now == 0
    clock.ends_at = 100
    with pytest.raises(ConnectionError):
        outages.bear(failing_until(clock, 1e6, ConnectionError("no")))
    assert 100 <= clock.now <= 105


@dataclass(frozen=True)
class Shaky:
    """Numbers, of which a read fails behind every few."""

    failures: list[int]
    start: int = 0
    rows: int = 20

    def after(self, rows: int) -> Shaky:
        return Shaky(self.failures, self.start + rows, self.rows - rows)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for number in range(self.start, self.start + self.rows, batch_rows):
            if self.failures and number >= self.failures[0]:
                self.failures.pop(0)
                raise raised(ConnectionResetError("reset"))
            stop = min(number + batch_rows, self.start + self.rows)
            yield pa.record_batch({"n": pa.array(range(number, stop))})


def test_a_split_is_read_on_where_it_was(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(split: Any) -> list[int]:
        portions = Portions(split)
        portions.at_once = 2
        return [n for batch in portions.batches(3) for n in batch["n"].to_pylist()]

    monkeypatch.setattr(rows, "HERE", begun(clock))
    assert read(Shaky([0, 0, 6, 7, 19])) == list(range(20))
    monkeypatch.setattr(rows, "HERE", Outages())
    with pytest.raises(TableError):
        read(Shaky([6]))


def test_a_result_whose_place_failed_is_begun_again(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "out")
    publication = Publication(job(place), ResultFiles(Target(place, "overwrite")), "output")
    failures, put = [OSError(errno.ESTALE, "stale file handle")], DirectoryFiles.put

    def shaky(files: DirectoryFiles, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return put(files, *arguments)

    monkeypatch.setattr(DirectoryFiles, "put", shaky)
    publication.outages.begin(None, lambda words: None, clock.wait, clock)
    clock.ends_at = 100
    with publication:
        assert not failures and clock.now < 100, "it does not wait for a lock that is its own"


SPARK = """An error occurred while calling o42.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.io.IOException: No space left on device
"""
RAY = "Failed to put object.\nThe local object store is full and the local disk's utilization is over capacity (95%)."


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "a/b"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"),
        RuntimeError(SPARK),
        RuntimeError(RAY),
    ],
    ids=["errno", "quota", "Arrow", "Spark", "Ray"],
)
def test_a_full_disk_is_known_and_named_first(error: Exception) -> None:
    assert is_full(error)
    assert why(error).startswith("the disk is full: ")
    assert "\n" not in why(error)


def test_other_errors_are_not_a_full_disk_and_what_cannot_be_written_fails_the_job_and_is_named(tmp_path: Path) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "a")
    assert not is_full(error)
    assert why(error) == "[Errno 13] Permission denied: 'a'"
    place = tmp_path / "none" / "such.parquet"
    with pytest.raises(JobFailedError, match=rf"No such file or directory.*, writing {place}"), writing(place):
        place.write_text("")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_arrow_says_of_a_full_device_is_known() -> None:
    full = pa.OSFile("/dev/full", mode="w")  # not its name: pyarrow removes what it could not write
    with pytest.raises(JobFailedError, match=r"^the disk is full: .*, writing a$"), writing("a"), full:
        pq.write_table(pa.table({"a": list(range(100_000))}), full)
