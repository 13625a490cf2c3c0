"""A step on real Ray that publishes twice, in two ways and formats, while its processes die; and a job that another
driver continues."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from executors_for_tests import take_time
from observers_for_tests import Killing

from dpa import Flow, results, tumbling
from dpa.errors import TableError
from dpa.sources.generated import Generator
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")

ROWS, KEYS = 20_000, 7


class Visits(Generator):
    """Rows of a key and a time, in order."""

    def batch(self, start: int, rows: int, random: Any) -> pa.RecordBatch:
        numbers = range(start, start + rows)
        times = pa.array([number * 1_000_000 for number in numbers], pa.timestamp("us"))
        return pa.record_batch({"key": pa.array([f"key {number % KEYS}" for number in numbers]), "at": times})


EXPECTED = sorted(
    (f"key {key}", start, sum(number % KEYS == key for number in range(start, start + 100)))
    for start in range(0, ROWS, 100)
    for key in range(KEYS)
)


def windows(table: pa.Table) -> list[tuple[str, int, int]]:
    starts = [round(start.timestamp()) for start in table["window_start"].to_pylist()]
    return sorted(zip(table["key"].to_pylist(), starts, table["count"].to_pylist(), strict=True))


def paced(until: str, row: dict[str, Any]) -> bool:
    """Keeps each row, slowly until a file is there."""
    take_time(0.003, until)
    return True


def visits(directory: Path) -> Flow:
    """Its input lasts for a minute, or until there is a file `go` in the directory."""
    flow = Flow(
        "visits",
        checkpoint={"path": str(directory / "saved"), "every": "300ms"},
        recovery={"backoff": "100ms"},
        limits={"batch_records": 50, "split_records": 200},
        python_path=[str(Path(__file__).parent)],
    )
    read = {"format": "generated", "use": "test_several_outputs_on_ray:Visits", "rows": ROWS}
    read_rows = flow.read({**read, "time": {"column": "at", "out_of_order": "0s"}}, parallelism=1)
    rows = read_rows.filter(partial(paced, str(directory / "go")))
    counts = rows.window(tumbling("100s")).key_by("key").reduce("count", name="counts", parallelism=2, value=[])
    counts.write(directory / "final", format="delta", publish="final")
    counts.write(directory / "so-far", publish={"mode": "table", "every": "200ms"})
    counts.write(directory / "whole")
    return flow


def require_all(directory: Path) -> None:
    assert windows(DeltaTable(str(directory / "final")).to_pyarrow_table()) == EXPECTED
    assert windows(pq.read_table(directory / "whole")) == EXPECTED
    so_far = results(directory / "so-far")
    assert windows(so_far.table) == EXPECTED and so_far.is_last


class Killer(Killing):
    """Kills a task and the coordinator, each after a checkpoint, once both outputs have been published."""

    def __init__(self, directory: Path, *victims: str) -> None:
        super().__init__("visits", *victims)
        self.directory = directory
        self.seen: set[int] = set()

    def has_published(self) -> bool:
        try:
            self.seen.add(results(self.directory / "so-far").epoch)
            return len(self.seen) > 1 and DeltaTable(str(self.directory / "final")).version() > 0
        except (TableError, TableNotFoundError):
            return False

    def update(self, snapshot: TrackedSnapshot) -> None:
        if self.victims and self.has_published() and self.kill_next(snapshot) and not self.victims:
            (self.directory / "go").touch()


def test_each_output_has_all_rows_once_whatever_dies(tmp_path: Path) -> None:
    killer = Killer(tmp_path, "counts 1", "coordinator")
    result = visits(tmp_path).run(killer)
    assert not killer.victims and len(result.report.recoveries) == 2 and len(killer.seen) > 1
    require_all(tmp_path)
    report = result.report.main
    assert report.output is not None and {report.output.rows, *(more.rows for more in report.more_outputs)} == {
        len(EXPECTED)
    }
