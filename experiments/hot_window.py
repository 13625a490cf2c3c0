"""A hot key inside an open window, in virtual time: a stream in which each window has another key with 60 % of its
records, with every strategy and without balancing.

Records come at a fixed rate, and each takes the same time in the reducer; the hot key alone is more than one reducer
can do, and all records together are less than all of them can. So what is behind when all have come is imbalance and
the cost of balancing. Windows are closed while the stream goes on, and their counts compared with those of the input.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpa import Flow, tumbling
from dpa.aggregates import Count
from dpa.execution.block import Block
from dpa.measure.skew import skew
from dpa.windows.options import END
from experiments.charts import COLOURS, INK, label_bars, panels
from experiments.harness import Findings, Target, above, at_most, below, holds, main, markdown_table, progress
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob
from experiments.steady.virtual import plan_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REDUCERS, MAPPERS = 4, 2
SERVICE_SECONDS = 0.002
LOAD = 0.6
"""Records that come, to those that all reducers can do."""

HOT_SHARE = 0.6
KEYS = 10_000
WINDOW_SECONDS, WINDOWS, QUICK_WINDOWS = 6.0, 10, 1
IN_FLIGHT = 500
REPORT_SECONDS = 0.25
_BY_QUEUES = {"check_seconds": REPORT_SECONDS, "report_every": 100, "report_seconds": REPORT_SECONDS, "min_queue": 50}
STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {},
    "halving": _BY_QUEUES,
    "doubling": _BY_QUEUES,
    "adaptive": {"check_seconds": REPORT_SECONDS, "measure_seconds": REPORT_SECONDS},
}

BEHIND = 0.05
"""Of the seconds in which the records come, for which `adaptive` may still be at work afterwards."""

RATE = LOAD * REDUCERS / SERVICE_SECONDS
"""Records a second."""


class _ByWindow:
    """How many records of each window each reducer has processed: the two functions of a simulated job that give their
    work and its time are called one after the other."""

    def __init__(self) -> None:
        self._block: Block | None = None
        self._processed: dict[datetime, list[int]] = {}

    def work_of(self, stage: str, block: Block) -> float:
        """Records."""
        self._block = block
        return block.rows

    def service_seconds(self, stage: str, index: int) -> float:
        """Of a record."""
        block, self._block = self._block, None
        if block is not None:
            for end, records in zip(block.keys.field(END).to_pylist(), block.counts().tolist(), strict=True):
                self._processed.setdefault(end, [0] * REDUCERS)[index] += records
        return SERVICE_SECONDS

    def skews(self) -> list[float]:
        """S of each window."""
        return [skew(self._processed[end]) for end in sorted(self._processed)]


def stream(windows: int, seed: int) -> pa.Table:
    """Records in the order of their time: `time`, and `key`, of which each window has another that is hot."""
    random = np.random.default_rng(seed)
    seconds = np.arange(round(windows * WINDOW_SECONDS * RATE)) / RATE
    hot = (seconds // WINDOW_SECONDS).astype(np.int64)
    is_hot, cold = random.random(len(seconds)) < HOT_SHARE, random.integers(0, KEYS, len(seconds))
    names = [f"hot {hot[row]}" if is_hot[row] else f"w{cold[row]}" for row in range(len(seconds))]
    return pa.table({"time": pa.array((seconds * 1_000_000).astype(np.int64), pa.timestamp("us", "UTC")), "key": names})


def measure(options: argparse.Namespace) -> Findings:
    """Run the stream with each strategy."""
    windows = QUICK_WINDOWS if options.quick else options.windows
    records, found = stream(windows, options.seed), {}
    for strategy in STRATEGIES:
        found[strategy] = run = _run(strategy, records, options.seed)
        progress(f"{strategy}: S {run['skew']:.2f}, {run['behind']:.2f} s behind")
    return Findings(
        data={"rate": RATE, "windows": windows, "runs": found},
        targets=_targets(found, windows),
        text=_text(found, windows),
        figure=_figure(found),
    )


def _run(strategy: str, records: pa.Table, seed: int) -> dict[str, Any]:
    """One run; `seed` is the scheduler's too."""
    flow = Flow(
        "hot_window",
        limits={"batch_records": 50, "in_flight_records": IN_FLIGHT, "quantum_seconds": 0.05, "split_records": 250},
    )
    read = flow.read(records, name="records", time={"column": "time", "out_of_order": "1s"}, parallelism=MAPPERS)
    read.window(tumbling(WINDOW_SECONDS)).key_by("key", value=[]).reduce(
        Count(), name="counts", parallelism=REDUCERS, balance={"strategy": strategy, **STRATEGIES[strategy]}
    )
    plan, by_window = plan_of(flow.job()), _ByWindow()
    job = SimulatedJob(
        plan.graph,
        plan.tasks,
        step_seconds=lambda stage: MAPPERS / RATE,
        service_seconds=by_window.service_seconds,
        work_of=by_window.work_of,
        ticks=None,
    )
    cluster = SimulatedCluster(job, seed)
    run = cluster.run()
    began, ended = cluster.coordinator.started_at, cluster.coordinator.stream_ended_at
    stage, closed = run.snapshot["counts"], cluster.coordinator.stages["counts"].time.closed
    assert began is not None and ended is not None and stage.latency is not None
    return {
        "seconds": ended - began,
        "behind": max(0.0, ended - began - records.num_rows / RATE),
        "skews": by_window.skews(),
        "skew": statistics.mean(by_window.skews()),
        "p50": stage.latency.quantile(0.5),
        "p99": stage.latency.quantile(0.99),
        "closed": 0 if closed is None else int(closed // (WINDOW_SECONDS * 1_000_000)),
        "exact": _counts([share.table for share in run.shares["counts"]]) == _expected(records),
        "redistributions": stage.version,
    }


def _counts(shares: list[pa.Table]) -> dict[tuple[str, int], int]:
    table = pa.concat_tables([share for share in shares if share.num_rows])
    ends = table[END].cast(pa.int64()).to_pylist()
    return dict(zip(zip(table["key"].to_pylist(), ends, strict=True), table["count"].to_pylist(), strict=True))


def _expected(records: pa.Table) -> Counter[tuple[str, int]]:
    size = round(WINDOW_SECONDS * 1_000_000)
    times = records["time"].cast(pa.int64()).to_numpy()
    return Counter(zip(records["key"].to_pylist(), (times // size * size + size).tolist(), strict=True))


def _targets(found: dict[str, dict[str, Any]], windows: int) -> list[Target]:
    adaptive, none = found["adaptive"], found["none"]
    return [
        holds("every window has its records, with every strategy", all(run["exact"] for run in found.values())),
        above("windows closed while the stream goes on, adaptive", adaptive["closed"], windows - 2),
        at_most(
            "seconds behind the input, to its own, adaptive", adaptive["behind"] / (windows * WINDOW_SECONDS), BEHIND
        ),
        below("seconds behind the input, adaptive to none", adaptive["behind"] / none["behind"], 0.2),
        below("S of a window, mean, adaptive to none", adaptive["skew"] / none["skew"], 0.5),
    ]


def _text(found: dict[str, dict[str, Any]], windows: int) -> str:
    columns = (
        "strategy",
        "mean S of a window",
        "seconds behind the input",
        "median latency, s",
        "p99 latency, s",
        "tables",
        "exact",
    )
    rows = [
        (
            strategy,
            f"{run['skew']:.2f}",
            f"{run['behind']:.2f}",
            f"{run['p50']:.2f}",
            f"{run['p99']:.2f}",
            run["redistributions"],
            "yes" if run["exact"] else "no",
        )
        for strategy, run in found.items()
    ]
    return (
        f"{RATE:,.0f} records a second in {windows} windows of {WINDOW_SECONDS:g} s, each with another key of "
        f"{HOT_SHARE:.0%}; {REDUCERS} reducers, each of which does {1 / SERVICE_SECONDS:,.0f} a second. Virtual "
        "time.\n\n" + markdown_table(columns, rows)
    )


def _figure(found: dict[str, dict[str, Any]]) -> Figure:
    figure, axes = panels(3, (9.0, 2.8))
    what = {"skew": "skew S of a window, mean", "behind": "seconds behind the input", "p99": "p99 latency (s)"}
    for panel, (name, title) in zip(axes, what.items(), strict=True):
        values = [run[name] for run in found.values()]
        bars = panel.barh(range(len(found)), values, color=COLOURS[: len(found)])
        label_bars(panel, bars, [f"{value:.2f}" for value in values])
        panel.set_yticks(range(len(found)), list(found) if panel is axes[0] else [""] * len(found))
        panel.set_xlim(0, 1.25 * max(*values, 0.01))
        panel.invert_yaxis()
        panel.set_title(title, fontsize=10, color=INK)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=WINDOWS, help="how many windows the stream has")
    main("hot_window", parser, measure)
