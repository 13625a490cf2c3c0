"""A claim of the DPA paper without a figure (section 6.1): wall time is correlated with the skew S.

Nothing is run: the runs on Ray of the experiments `table1` and `figure3` are read from their results. `--quick` makes a
few in virtual time instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.charts import INK, panels
from experiments.harness import RESULTS, Findings, Target, main, markdown_table
from experiments.letters import COLOUR_OF, SERVICE_SECONDS, Run, simulate
from jobs.letters import WORKLOADS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCES = ("table1", "figure3")
MIN_CORRELATION = 0.9

LETTERS, EVEN = 100, 25
"""Letters of a workload, and an even share of them: M and U of the paper's equation 2."""


def measure(options: argparse.Namespace) -> Findings:
    """Read the runs and correlate."""
    if options.quick:
        chosen = ("none", "halving", "doubling")
        runs = [run for workload in WORKLOADS for name in chosen for run in simulate(workload, name, [options.seed])]
    else:
        runs = [run for name in SOURCES for run in _read(options.results or RESULTS, name)]
    kinds = {
        "all": runs,
        "without a redistribution": [run for run in runs if not run.redistributions],
        "with redistributions": [run for run in runs if run.redistributions],
        "all but wl3": [run for run in runs if run.workload != "wl3"],
    }
    correlations = {name: _correlation(some) for name, some in kinds.items()}
    overall = correlations["all"]
    slope, start = np.polyfit([run.skew for run in runs], [run.seconds for run in runs], 1)
    rows = [
        (name, len(some), f"{correlations[name]:.3f}", statistics.median(map(_idle, some)), max(map(_idle, some)))
        for name, some in kinds.items()
    ]
    return Findings(
        data={
            "virtual": options.quick,
            "correlation": correlations,
            "line": {"seconds": float(start), "seconds_a_unit_of_skew": float(slope)},
            "points": [
                {"workload": run.workload, "method": run.method, "skew": round(run.skew, 4), "seconds": run.seconds}
                for run in runs
            ],
        },
        targets=[
            Target(
                "correlation of wall time and S, all runs",
                f">= {MIN_CORRELATION:g}",
                overall,
                overall >= MIN_CORRELATION,
            )
        ],
        text='The paper says that "wall time is highly (inversely) correlated" with S and shows no figure. It is the '
        "stream's. It grows with S, so *inversely* must be a slip: the straight line through all runs is "
        f"{start:.1f} s + {slope:.1f} s x S, where {EVEN * SERVICE_SECONDS:g} s + "
        f"{(LETTERS - EVEN) * SERVICE_SECONDS:g} s x S is how long the busiest reducer works. *Beyond*: wall time less "
        "the time that the busiest reducer works. Where nothing moved, S is the whole story. Where keys moved it is "
        "not: S counts letters, not when they came, and a reducer that gets its letters late had nothing to do before. "
        "The extreme is wl3, a single key: as it is moved from one reducer to the next, each gets its share and S "
        "falls, but only one works at a time.\n\n"
        + markdown_table(("runs", "number", "correlation", "median s beyond", "most s beyond"), rows),
        figure=_figure(runs, virtual=options.quick),
    )


def _read(directory: Path, name: str) -> list[Run]:
    file = directory / f"{name}.json"
    data = json.loads(file.read_text(encoding="utf-8"))["data"]
    if not data["runs"] or data["service_seconds"] != SERVICE_SECONDS:
        sys.exit(
            f"{file} has no runs on Ray of {SERVICE_SECONDS:g} s a letter: run `python -m experiments.{name}` again"
        )
    return [Run.of(plain) for plain in data["runs"]]


def _correlation(runs: Sequence[Run]) -> float:
    """Pearson's r of wall time and S."""
    return float(np.corrcoef([run.skew for run in runs], [run.seconds for run in runs])[0, 1])


def _idle(run: Run) -> float:
    """Seconds beyond those in which the busiest reducer works: W letters, with W = U + S (M - U) by equation 2."""
    return run.seconds - SERVICE_SECONDS * (EVEN + run.skew * (LETTERS - EVEN))


def _figure(runs: Sequence[Run], *, virtual: bool) -> Figure:
    figure, (axes,) = panels(size=(9.0, 4.4))
    ends = [EVEN * SERVICE_SECONDS, LETTERS * SERVICE_SECONDS]
    axes.plot([0, 1], ends, color=INK, linewidth=1, linestyle="--", label="the busiest reducer works")
    for method, colour in COLOUR_OF.items():
        for markers, is_moved in (("o", False), ("^", True)):
            some = [run for run in runs if run.method == method and bool(run.redistributions) == is_moved]
            if some:
                label = f"{method}, keys moved" if is_moved else f"{method}, none moved"
                x, y = [run.skew for run in some], [run.seconds for run in some]
                axes.scatter(x, y, marker=markers, color=colour, s=34, alpha=0.65, label=label)
    axes.set_xlabel("skew S")
    axes.set_ylabel("virtual seconds" if virtual else "wall time of the stream, s")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


if __name__ == "__main__":
    main("walltime", argparse.ArgumentParser(description=__doc__), measure)
