"""Inputs that are open, on real Ray: polled while records flow, read on behind a checkpoint, and closed when asked."""

import os
import signal
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from test_recovery import pid_of
from timed_sessions import Bursts, TimedSessions

from dpa import Flow, Job, results, tumbling
from dpa.driver.control import RunningJob
from dpa.errors import TableError
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")


SESSIONS = """
SELECT user, min(time) AS began, max(time) AS ended, count(*) AS visits
FROM (
  SELECT user, time, count_if(starts) OVER (PARTITION BY user ORDER BY time) AS session
  FROM (SELECT user, time, time - lag(time) OVER (PARTITION BY user ORDER BY time) > 60 AS starts FROM visits)
)
GROUP BY user, session
"""


class Watcher(Observer):
    """Kills a source and the coordinator, each behind a checkpoint, and then has the inputs closed."""

    def __init__(self) -> None:
        self.victims = ["mapper 0", "coordinator"]
        self.answer = ""
        self.asking: threading.Thread | None = None

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.checkpoints is None or not snapshot.checkpoints.written:
            return
        if self.victims and snapshot.generation == 2 - len(self.victims):
            os.kill(pid_of("live", self.victims.pop(0), snapshot.generation), signal.SIGKILL)
        elif snapshot.generation == 2 and self.asking is None:
            assert snapshot.is_open and snapshot.rows == 0
            self.asking = threading.Thread(target=self.ask)
            self.asking.start()

    def ask(self) -> None:
        self.answer = RunningJob.find("live").finish()


def test_an_input_without_end_is_read_once_whatever_dies_and_the_job_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    watcher = Watcher()
    result = Job(
        name="live",
        input={"format": "feed", "use": "executors_for_tests:Numbers"},
        key="key",
        reducer="count",
        until={"seconds": 200},
        parallelism={"mappers": 2, "reducers": 2},
        checkpoint={"path": str(tmp_path / "checkpoints"), "every": "300ms"},
        recovery={"backoff": "100ms"},
        python_path=[str(Path(__file__).parent)],
        reference={"sql": "SELECT key, count(*) AS count FROM input GROUP BY key"},
    ).run(watcher)
    assert result.report.reference.matches
    assert "the job ends with what has come" in watcher.answer


class TimersKiller(Observer):
    """Kills a task with timers behind a checkpoint, and has the input closed once enough rows are read after that."""

    def __init__(self) -> None:
        self.killed = self.has_enough = False

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.checkpoints is None:
            return
        if self.killed:
            read = snapshot.checkpoints.read_before + snapshot.records.read
            self.has_enough = snapshot.generation == 1 and snapshot.checkpoints.written > 0 and read >= 6_000
        elif snapshot.checkpoints.written > 1:
            self.killed = True
            os.kill(pid_of("timed", "sessions 0", snapshot.generation), signal.SIGKILL)


def test_timers_of_a_stream_give_what_spark_gives_though_a_task_dies(tmp_path: Path) -> None:
    """Sessions, each given by a timer: the user's next visit comes long after, or never."""
    killer, flow = (
        TimersKiller(),
        Flow(
            "timed",
            until={"seconds": 200},
            checkpoint={"path": str(tmp_path / "checkpoints"), "every": "300ms"},
            recovery={"backoff": "100ms"},
            python_path=[str(Path(__file__).parent)],
        ),
    )
    visits = {"users": 60, "period": 100, "step": 20, "interval": 1.0}
    read = {"format": "generated", "use": "jobs.sessions:Visits", "args": visits, "rows": None, "rate": 2_000}
    rows = flow.read(read, name="visits", time={"column": "time", "unit": "s"}, parallelism=1)
    rows.key_by("user", value="time").process(
        TimedSessions(gap=60), name="sessions", parallelism=2, consistency="migrate", reference={"sql": SESSIONS}
    ).write(tmp_path / "out", publish="final")
    result = flow.run(observer=killer, closes=lambda: killer.has_enough)
    assert result.report.reference.matches and len(result.report.recoveries) == 1
    ended = results(tmp_path / "out").table
    assert len(ended) == result.table("sessions").num_rows


class Closer(Observer):
    """Has the inputs closed once three epochs are published in each of two places."""

    def __init__(self, *places: Path) -> None:
        self.places = places
        self.asking: threading.Thread | None = None

    def update(self, snapshot: TrackedSnapshot) -> None:
        if self.asking is None and all(self.epochs(place) > 2 for place in self.places):
            self.asking = threading.Thread(target=RunningJob.find("clocked").finish)
            self.asking.start()

    @staticmethod
    def epochs(place: Path) -> int:
        try:
            return results(place).epoch
        except TableError:
            return 0


def test_windows_and_timers_go_by_the_clock_and_have_each_row_once(tmp_path: Path) -> None:
    began = datetime.now(timezone.utc)
    flow = Flow("clocked", until={"seconds": 90}, python_path=[str(Path(__file__).parent)])
    read = {"format": "generated", "use": "jobs.sessions:Visits", "args": {"users": 20}, "rows": None, "rate": 400}
    rows = flow.read(read, name="visits", time={"column": "read_at", "by": "processing"}, parallelism=1)
    counts = rows.window(tumbling("1s")).key_by("user").reduce("count", name="counts", parallelism=1)
    counts.write(tmp_path / "counts", publish="final")
    bursts = rows.key_by("user").process(Bursts(), name="bursts", parallelism=1, consistency="migrate")
    bursts.write(tmp_path / "bursts", publish="final")
    closer = Closer(tmp_path / "counts", tmp_path / "bursts")
    result = flow.run(observer=closer)
    ended = datetime.now(timezone.utc)
    assert closer.asking, "windows are published while the stream goes on, and bursts, once their time has come"
    by_stage = {stage.name: stage for stage in result.report.stages}
    windows, given = (results(place).table for place in closer.places)
    read_rows = sum(task.read for task in by_stage["visits"].tasks)
    assert read_rows and not result.report.errors, "none is late"
    for table, column in ((windows, "count"), (given, "visits")):
        assert sum(table[column].to_pylist()) == read_rows, "each row is in one window, and in one burst"
    starts = windows["window_start"].to_pylist()
    assert began - timedelta(seconds=1) < min(starts) and max(starts) < ended
    assert len({*starts}) > 2 and len({*given["until"].to_pylist()}) > 2
