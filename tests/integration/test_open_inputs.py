"""An input that is open, on real Ray: windows, timers and epochs go by the clock until it is closed."""

import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from executors_for_tests import Bursts

from dpa import Flow, results, tumbling
from dpa.driver.control import RunningJob
from dpa.errors import TableError
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")


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
