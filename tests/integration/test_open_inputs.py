"""Inputs that are open, on real Ray: polled while records flow, read on behind a checkpoint, and closed when asked."""

import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from observers_for_tests import Killing, rows_read
from timed_sessions import Bursts, TimedSessions

from dpa import Flow, results, tumbling
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


class TimersKiller(Killing):
    """Kills a task with timers behind a checkpoint, and has the input closed once enough rows are read after that."""

    has_enough = False

    def update(self, snapshot: TrackedSnapshot) -> None:
        if not self.kill_next(snapshot, least=2) and snapshot.generation == 1 and snapshot.checkpoints is not None:
            self.has_enough = snapshot.checkpoints.written > 0 and rows_read(snapshot) >= 6_000


def test_timers_of_a_stream_give_what_spark_gives_though_a_task_dies(tmp_path: Path) -> None:
    """Sessions, each given by a timer: the user's next visit comes long after, or never."""
    killer = TimersKiller("timed", "sessions 0")
    flow = Flow(
        "timed",
        until={"seconds": 200},
        checkpoint={"path": str(tmp_path / "checkpoints"), "every": "300ms"},
        recovery={"backoff": "100ms"},
        python_path=[str(Path(__file__).parent)],
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
    began, given = datetime.now(timezone.utc), list[tuple[int, pa.Table]]()
    flow = Flow("clocked", until={"seconds": 90}, python_path=[str(Path(__file__).parent)])
    read = {"format": "generated", "use": "jobs.sessions:Visits", "args": {"users": 20}, "rows": None, "rate": 400}
    rows = flow.read(read, name="visits", time={"column": "read_at", "by": "processing"}, parallelism=1)
    counts = rows.window(tumbling("1s")).key_by("user").reduce("count", name="counts", parallelism=1)
    counts.write(tmp_path / "counts", publish="final").results(lambda found, epoch: given.append((epoch, found)))
    bursts = rows.key_by("user").process(Bursts(), name="bursts", parallelism=1, consistency="migrate")
    bursts.write(tmp_path / "bursts", publish="final")
    closer = Closer(tmp_path / "counts", tmp_path / "bursts")
    result = flow.run(observer=closer)
    ended = datetime.now(timezone.utc)
    assert closer.asking, "windows are published while the stream goes on, and bursts, once their time has come"
    by_stage = {stage.name: stage for stage in result.report.stages}
    windows, bursts_given = (results(place).table for place in closer.places)
    read_rows = sum(task.read for task in by_stage["visits"].tasks)
    assert read_rows and not result.report.errors, "none is late"
    epochs = [epoch for epoch, _ in given]
    assert len(epochs) > 2 and epochs == sorted({*epochs}), "a function is given the rows of each epoch once"
    given_windows = pa.concat_tables(found for _, found in given)
    for table, column in ((windows, "count"), (given_windows, "count"), (bursts_given, "visits")):
        assert sum(table[column].to_pylist()) == read_rows, "each row is in one window, and in one burst"
    starts = windows["window_start"].to_pylist()
    assert began - timedelta(seconds=1) < min(starts) and max(starts) < ended
    assert len({*starts}) > 2 and len({*bursts_given["until"].to_pylist()}) > 2
