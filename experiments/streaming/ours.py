"""The jobs of dpa: windowed counts of watched files, given to a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpa import Flow, tumbling
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot
from experiments.streaming.inputs import Arrivals, Counted, EventFiles

TASKS = 2
"""Tasks that read, and as many that count."""


@dataclass
class _Ready(Observer):
    """Says when tasks take rows."""

    ready: Callable[[], None] | None

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Say so."""
        if self.ready is not None and snapshot.phase == "stream":
            self.ready()


def run_ours(
    files: EventFiles,
    directory: Path,
    *,
    publish_every: str = "1s",
    look_every: str = "1s",
    ready: Callable[[], None] | None = None,
    **sections: Any,
) -> Counted:
    """Count the rows of a directory until all were read; `ready` is called when it is watched."""
    arrivals = Arrivals()

    def note(rows: Any, epoch: int) -> None:
        arrivals.note(rows)

    flow = Flow("streaming", until={"records": files.rows}, **sections)
    watched = {
        "format": "parquet",
        "path": str(directory),
        "watch": {"every": look_every, "columns": {"key": "string", "value": "int64", "time": "timestamp[us, tz=UTC]"}},
        "time": {"column": "time", "out_of_order": 0},
    }
    rows = flow.read(watched, name="rows", parallelism=TASKS).window(tumbling(files.window_seconds))
    counts = rows.key_by("key", value="value").reduce("count", name="counts", parallelism=TASKS)
    counts.results(note, publish="final", every=publish_every)
    report = flow.run(_Ready(ready), check=False).report
    more = {
        "seconds": report.seconds.stream,
        "epochs": report.epochs.number,
        "epoch_seconds": report.epochs.seconds,
        "longest_epoch": report.epochs.longest,
        "waited_for": str(report.epochs.waited_for),
        "cpu_seconds": sum(task.cpu_seconds for stage in report.stages for task in stage.tasks),
    }
    return Counted(report.records.read / report.seconds.stream, arrivals, more)
