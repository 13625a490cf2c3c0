"""The published design of the DPA paper (`experiments.published`) as a baseline, and the ratio of dpa's speed to it.

The baseline processes a few thousand records and dpa millions of the same distribution: records a second are compared.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpa.runtime.cluster import ray_session
from experiments.charts import COLOURS, label_bars, panels
from experiments.harness import Findings, Target, main, markdown_table, progress
from experiments.throughput import DPA, run_dpa
from experiments.zipf import EXPONENT, KEYS, ROW_GROUP, Words, zipf_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS, QUICK_TASKS = 4, 2
"""Mappers, and as many reducers; four as in the paper."""

MIN_RATIO = 5_000
BASELINE = "published design"


@dataclass
class Measured:
    """One system: the records of each of its runs, and the seconds of each."""

    name: str
    records: int
    seconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Records a second, the median run's."""
        return self.records / statistics.median(self.seconds)


def measure(options: argparse.Namespace) -> Findings:
    """Run the baseline and dpa in turn."""
    repeats, tasks = (1, QUICK_TASKS) if options.quick else (options.repeats, TASKS)
    few, many = (200, 200_000) if options.quick else (options.baseline_records, options.records)
    words = Words(options.seed)
    items = words.names.take(words.ranks(few)).to_pylist()
    chosen = (BASELINE, "dpa") if options.quick else (BASELINE, *DPA)
    systems = {name: Measured(name, few if name == BASELINE else many) for name in chosen}
    forwarded = []
    with ExitStack() as stack:
        progress(f"writing {many:,} records")
        table = stack.enter_context(zipf_table(many, options.seed, min(ROW_GROUP, max(1, many // 8))))
        stack.enter_context(ray_session(None))
        from experiments.published import count  # imports Ray, which must not come before the session that sets it up

        for _ in range(repeats):
            for name, system in systems.items():
                if name == BASELINE:
                    seconds, moved = count(items, tasks)
                    forwarded.append(moved)
                else:
                    seconds, _ = run_dpa(table, tasks, DPA[name])
                system.seconds.append(seconds)
                progress(f"{name}: {system.records:,} records in {seconds:.2f} s")
    measured = list(systems.values())
    ratio = systems["dpa"].rate / systems[BASELINE].rate
    return Findings(
        data={
            "tasks": tasks,
            "systems": [
                {"system": system.name, "records": system.records, "seconds": system.seconds, "rate": system.rate}
                for system in measured
            ],
            "baseline_forwarded": forwarded,
        },
        targets=[
            Target(f"records a second, dpa to {BASELINE}", f">= {MIN_RATIO:,}", ratio, ratio >= MIN_RATIO),
        ],
        text=_text(measured, repeats, tasks),
        figure=_figure(measured),
    )


def _text(systems: list[Measured], repeats: int, tasks: int) -> str:
    baseline = next(system for system in systems if system.name == BASELINE)
    most = max(system.records for system in systems)
    rows = [
        (system.name, system.records, statistics.median(system.seconds), system.rate, system.rate / baseline.rate)
        for system in systems
    ]
    head = ("system", "records", "median s", "records/s", f"times {BASELINE}")
    return (
        f"Zipf({EXPONENT}) words over {KEYS:,} keys are counted by {tasks} mappers and {tasks} reducers on the same "
        f"Ray; medians of {repeats} runs each, in turn.\n\n"
        f"**The systems process different numbers of records** of the same distribution: {baseline.records:,} and "
        f"{most:,}, for which the baseline would take {most / baseline.rate / 3600:,.1f} hours. Rates, records a "
        "second, are compared. Start-up of actors counts for none.\n\n"
        f"- *{BASELINE}*: the paper's design, with a coordinator that hands out single items, a queue actor a reducer, "
        "an awaited `key_lookup` at the load balancer by the mapper and again by the reducer for every record, and an "
        "awaited `put` for every record; halving, one round a reducer. The reducers do nothing but count.\n"
        "- *dpa*: job defaults (halving, no combiner); the others as in the throughput experiment.\n\n"
        + markdown_table(head, rows)
    )


def _figure(systems: list[Measured]) -> Figure:
    figure, (axes,) = panels(size=(9.0, 2.8))
    rates = [system.rate for system in systems]
    colours = ["#888888" if system.name == BASELINE else COLOURS[0] for system in systems]
    bars = axes.barh([system.name for system in systems], rates, 0.6, color=colours)
    label_bars(axes, bars, [f"{rate:,.0f}" for rate in rates])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(10, max(rates) * 10)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("records a second (log scale)")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000, help="records for dpa")
    parser.add_argument("--baseline-records", type=int, default=4_000, help="records for the published design")
    parser.add_argument("--repeats", type=int, default=3)
    main("naive", parser, measure)
