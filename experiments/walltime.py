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
    still = [run for run in runs if not run.redistributions]
    moved = [run for run in runs if run.redistributions]
    overall = _correlation(runs)
    slope, start = np.polyfit([run.skew for run in runs], [run.seconds for run in runs], 1)
    return Findings(
        data={
            "runs": len(runs),
            "virtual": options.quick,
            "correlation": {"all": overall, "none moved": _correlation(still), "moved": _correlation(moved)},
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
        text=_text(runs, still, moved, virtual=options.quick, line=(float(start), float(slope))),
        figure=_figure(runs, virtual=options.quick),
    )


def busiest_seconds(run: Run) -> float:
    """The seconds that the busiest reducer works: W letters, with W = U + S (M - U) by the paper's equation 2."""
    return SERVICE_SECONDS * (EVEN + run.skew * (LETTERS - EVEN))


def _read(directory: Path, name: str) -> list[Run]:
    file = directory / f"{name}.json"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))["data"]
    except FileNotFoundError:
        sys.exit(f"{file} is missing: run `python -m experiments.{name}` first")
    if not data["runs"] or data["service_seconds"] != SERVICE_SECONDS:
        sys.exit(
            f"{file} has no runs on Ray of {SERVICE_SECONDS:g} s a letter: run `python -m experiments.{name}` again"
        )
    return [Run.of(plain) for plain in data["runs"]]


def _correlation(runs: Sequence[Run]) -> float:
    """Pearson's r of wall time and S."""
    return float(np.corrcoef([run.skew for run in runs], [run.seconds for run in runs])[0, 1])


def _text(
    runs: Sequence[Run], still: Sequence[Run], moved: Sequence[Run], *, virtual: bool, line: tuple[float, float]
) -> str:
    kinds = {
        "all": runs,
        "without a redistribution": still,
        "with redistributions": moved,
        "all but wl3": [run for run in runs if run.workload != "wl3"],
    }
    rows = [
        (
            name,
            len(some),
            f"{_correlation(some):.3f}",
            f"{statistics.median(_idle(run) for run in some):.1f}",
            f"{max(_idle(run) for run in some):.1f}",
        )
        for name, some in kinds.items()
    ]
    worst = max(moved, key=_idle)
    start, slope = line
    made = "Runs in virtual time" if virtual else f"All runs on Ray of the experiments {' and '.join(SOURCES)}"
    return (
        'The paper says that "wall time is highly (inversely) correlated" with S and shows no figure. '
        f"{made}: {len(runs)}. Wall time is the stream's. It grows with S, so *inversely* must be a slip: the straight "
        f"line through all runs is {start:.1f} s + {slope:.1f} s x S, where {EVEN * SERVICE_SECONDS:g} s + "
        f"{(LETTERS - EVEN) * SERVICE_SECONDS:g} s x S is how long the busiest reducer works.\n\n"
        + markdown_table(("runs", "number", "correlation", "median s beyond", "most s beyond"), rows)
        + "\n\n*Beyond*: wall time less the time that the busiest reducer works. Where nothing moved, S is the whole "
        "story. Where keys moved it is not: S counts letters, not when they came, and a reducer that gets its letters "
        "late had nothing to do before. The extreme is wl3, a single key: as it is moved from one reducer to the next, "
        "each gets its share and S falls, but only one works at a time. The furthest is "
        f"{worst.workload} with {worst.method} and {worst.rounds} {'round' if worst.rounds == 1 else 'rounds'}: S is "
        f"{worst.skew:.2f}, and it took {worst.seconds:.1f} s, not {busiest_seconds(worst):.1f} s."
    )


def _idle(run: Run) -> float:
    return run.seconds - busiest_seconds(run)


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
    parser = argparse.ArgumentParser(description=__doc__)
    main("walltime", parser, measure)
