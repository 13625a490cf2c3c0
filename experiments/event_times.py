"""A picture of time in a stream: when rows happened and when they came, the watermark, and which window was published
by which epoch.

It is drawn from a run on Ray, of rows that a clock makes. Most come soon after they happened; a few so late that their
window has been published.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa import Flow, tumbling
from dpa.protocol.wire.metrics import StageSnapshot
from dpa.sources.generated import GeneratedTable
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot
from experiments.charts import COLOURS, INK, panels
from experiments.harness import Findings, holds, main, markdown_table
from jobs.delayed import BEGAN, RATE, Delayed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINDOW, OUT_OF_ORDER, EVERY = 5.0, 2.0, 1.0
"""Seconds of a window, by which rows may be late, and from one epoch to the next."""


@dataclass
class Watch(Observer):
    """What is seen of a run.

    Attributes:
        watermarks: seconds of the stream, and of event time since the first row came.
        epochs: seconds of the stream at which one was published, and rows of each window by its start.
    """

    watermarks: list[tuple[float, float]] = field(default_factory=list)
    epochs: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    _began: float = math.inf

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Note how far event time is."""
        if snapshot.phase == "stream" and snapshot.at > 0:
            self._began = min(self._began, time.perf_counter() - snapshot.at)
            reached = _counts(snapshot).event_time
            if reached is not None and reached.watermark is not None:
                self.watermarks.append((snapshot.at, reached.watermark / 1e6 - BEGAN))

    def published(self, rows: pa.Table, epoch: int) -> None:
        """Note what an epoch has published."""
        windows = Counter[int]()
        for row in rows.to_pylist():
            windows[int(row["window_start"].timestamp()) - BEGAN] += row["count"]
        self.epochs.append((time.perf_counter() - self._began, dict(windows)))


def _counts(snapshot: TrackedSnapshot) -> StageSnapshot:
    return next(stage for stage in snapshot.stages if stage.name == "counts")


def measure(options: argparse.Namespace) -> Findings:
    """Run the stream, and compare what was published with the rows that came."""
    seconds = 8.0 if options.quick else 30.0
    watch = Watch()
    flow = Flow("event_times", seed=options.seed, until={"seconds": seconds})
    source = {"format": "generated", "use": "jobs.delayed:Delayed", "rows": None, "rate": RATE}
    visits = flow.read(source, name="visits", time={"column": "time", "out_of_order": OUT_OF_ORDER}, parallelism=1)
    counts = visits.window(tumbling(WINDOW)).key_by("page").reduce("count", name="counts", parallelism=2)
    counts.results(watch.published, publish="final", every=EVERY)
    report = flow.run(watch, check=False).report
    rows = report.records.read
    [block] = GeneratedTable(Delayed(), rows, options.seed).splits(rows)[0].batches(rows)
    happened = np.asarray(block.column("time").cast(pa.int64())) / 1e6 - BEGAN
    late = sum(found.records for found in report.errors)
    windows = sorted(start for _, published in watch.epochs for start in published)
    published = sum(count for _, of_epoch in watch.epochs for count in of_epoch.values())
    data = {
        "rows": rows,
        "late": late,
        "windows": len(windows),
        "came": (np.arange(rows) / RATE).tolist(),
        "happened": happened.tolist(),
        "watermarks": watch.watermarks,
        "epochs": [(at, sorted(of_epoch.items())) for at, of_epoch in watch.epochs],
    }
    closed = [at - _passed(watch.watermarks, start + WINDOW) for at, of_epoch in watch.epochs for start in of_epoch]
    waited = [seconds for seconds in closed if math.isfinite(seconds)]
    table = [
        (f"{at:.1f}", ", ".join(f"{start} s: {count}" for start, count in sorted(of_epoch.items())))
        for at, of_epoch in watch.epochs
        if of_epoch
    ]
    return Findings(
        data=data,
        targets=[
            holds("each window is published once", len(set(windows)) == len(windows)),
            holds("each row is in a published window or late", published + late == rows),
        ],
        text=f"{rows} rows, {late} of them late. From the watermark's passing of a window's end until the window was "
        f"published: {np.median(waited):.2f} s in the median.\n\n"
        + markdown_table(("at, s", "rows of the windows from"), table),
        figure=_figure(happened, watch, seconds),
    )


def _passed(watermarks: list[tuple[float, float]], end: float) -> float:
    """When the watermark was first seen behind `end`."""
    return next((at for at, reached in watermarks if reached >= end), math.inf)


def _figure(happened: npt.NDArray[np.float64], watch: Watch, seconds: float) -> Figure:
    figure, [axes] = panels(size=(9.0, 5.4))
    came = np.arange(len(happened)) / RATE
    closed_at = {start: at for at, of_epoch in watch.epochs for start in of_epoch}
    for start in sorted(closed_at):
        at = min(closed_at[start], seconds + 1)
        first = start == min(closed_at)
        label = "a window, until it is published" if first else None
        axes.fill_between([start, at], start, start + WINDOW, color=COLOURS[0], alpha=0.12, linewidth=0, label=label)
        axes.plot([at, at], [start, start + WINDOW], color=COLOURS[0], linewidth=2)
    ends = np.floor(happened / WINDOW) * WINDOW
    is_late = np.array(
        [closed_at.get(start, math.inf) < at for start, at in zip(ends.tolist(), came.tolist(), strict=True)]
    )
    axes.scatter(came[~is_late], happened[~is_late], s=9, color=INK, label="a row", zorder=3)
    axes.scatter(came[is_late], happened[is_late], s=22, color=COLOURS[3], marker="x", label="a late row", zorder=3)
    times, reached = np.array(watch.watermarks).T
    axes.step(times, reached, where="post", color=COLOURS[1], linewidth=1.5, label="the watermark")
    for number, (at, _) in enumerate(watch.epochs):
        axes.axvline(at, color=INK, linewidth=0.4, alpha=0.5, label="an epoch is published" if not number else None)
    axes.set_xlabel("seconds of the stream")
    axes.set_ylabel("event time, seconds")
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    return figure


if __name__ == "__main__":
    main("event_times", argparse.ArgumentParser(description=__doc__), measure)
