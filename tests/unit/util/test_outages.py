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
import pytest
from confluent_kafka import KafkaError, KafkaException
from output_samples import job

from dpa._util.outages import Outages, may_pass
from dpa.driver.outputs import Publication
from dpa.errors import CheckpointDamagedError, CheckpointStoreError, ConfigError, TableError
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


def test_before_a_job_begins_nothing_is_waited_for(clock: Clock) -> None:
    with pytest.raises(ConnectionError):
        Outages().bear(failing_until(clock, 1, ConnectionError("no")), patience=1e9)
    assert clock.now == 0


def test_a_place_is_asked_until_it_answers_and_what_is_waited_for_is_said_less_and_less_often(clock: Clock) -> None:
    said: list[str] = []
    outages = Outages()
    outages.begin(None, said.append, clock.wait, clock)
    assert outages.bear(failing_until(clock, 9_000, raised(TimeoutError("late"))), what="Kafka") == "done"
    assert said[0] == "waits: Kafka: a place: what it said"
    assert said[1] == "waits, for 11 s so far: Kafka: a place: what it said"
    assert [text.split(" so far")[0] for text in said[2:5]] == [
        "waits, for 61 s",
        "waits, for 601 s",
        "waits, for 3601 s",
    ]
    assert said[-1].startswith("continues: Kafka answers again, after 900") and len(said) == 7


@pytest.mark.parametrize(("own", "least"), [(None, 60), (7, 7)])
def test_patience_ends_and_an_input_may_have_its_own(clock: Clock, own: float | None, least: float) -> None:
    outages = Outages()
    outages.begin(60, lambda words: None, clock.wait, clock)
    with pytest.raises(ConnectionError):
        outages.bear(failing_until(clock, 1e6, ConnectionError("no")), patience=own)
    assert least <= clock.now <= least + 5


def test_a_process_that_is_to_end_waits_no_longer_and_what_stays_is_raised_at_once(clock: Clock) -> None:
    outages = Outages()
    outages.begin(None, lambda words: None, clock.wait, clock)
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


def read(split: Any) -> list[int]:
    portions = Portions(split)
    portions.at_once = 2
    return [n for batch in portions.batches(3) for n in batch["n"].to_pylist()]


def test_a_split_is_read_on_where_it_was(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    outages = Outages()
    outages.begin(None, lambda words: None, clock.wait, clock)
    monkeypatch.setattr(rows, "HERE", outages)
    assert read(Shaky([0, 0, 6, 7, 19])) == list(range(20))
    monkeypatch.setattr(rows, "HERE", Outages())
    with pytest.raises(TableError):
        read(Shaky([6]))


def test_a_result_is_begun_again_whose_place_has_failed_in_the_middle(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "out")
    begun = Publication(job(place), ResultFiles(Target(place, "overwrite")), "output")
    failures, put = [OSError(errno.ESTALE, "stale file handle")], DirectoryFiles.put

    def shaky(files: DirectoryFiles, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return put(files, *arguments)

    monkeypatch.setattr(DirectoryFiles, "put", shaky)
    begun.outages.begin(None, lambda words: None, clock.wait, clock)
    clock.ends_at = 100
    with begun:
        assert not failures and clock.now < 100, "it does not wait for a lock that is its own"
