"""Experiment 2 of the DPA paper (section 6.4, Figure 3): the skew S against the rounds that a reducer's load may cause.

Halving and doubling run on every workload with at most 0 to 8 rounds, on Ray and in virtual time. The points of the
paper's figure are not published; the claims of its text are checked one by one.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from experiments.charts import panels
from experiments.harness import Findings, Target, main, markdown_table, progress
from experiments.letters import COLOUR_OF, SERVICE_SECONDS, Race, Run, one_after_another, sessions, simulate
from jobs.letters import WORKLOADS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("halving", "doubling")
ROUNDS = (0, 1, 2, 4, 8)
"""What each runs with: from none to all of the paper's figure, closer where most changes."""

MAP_SECONDS, SEEDS = (0.0, 0.005, 0.05), 3
"""What a letter takes a mapper in virtual time, and the runs of each."""

VIRTUAL = {"virtual": 20, "virtual, often": 5}
"""What runs in virtual time are called, by the dequeued letters between two reports of a reducer. The paper's is 20: a
reducer with 100 letters then reports five times, which few rounds use up."""

NOTICEABLE = 0.02
"""Differences of S below this count as none: one letter more or less on the busiest reducer is 1/75 = 0.013."""

Curves = Mapping[tuple[str, str], Mapping[int, Sequence[float]]]
"""S of runs by their rounds, for each workload and method."""


def measure(options: argparse.Namespace) -> Findings:
    """Run every workload and method with every number of rounds."""
    workloads, rounds, seeds, service_seconds = list(WORKLOADS), ROUNDS, SEEDS, SERVICE_SECONDS
    if options.quick:
        workloads, rounds, seeds, service_seconds = ["wl2"], ROUNDS[:3], 1, SERVICE_SECONDS / 10
    points = list(itertools.product(workloads, METHODS, rounds))
    ray: list[Run] = []
    if not options.simulate:
        with sessions():
            ray = one_after_another(points, service_seconds=service_seconds)
    virtual: dict[str, list[Run]] = {kind: [] for kind in VIRTUAL}
    seeded = range(options.seed, options.seed + seeds)
    for workload, method, most in points:
        for (kind, period), delay in itertools.product(VIRTUAL.items(), MAP_SECONDS):
            virtual[kind] += simulate(workload, method, seeded, most, Race(delay, period))
        progress(f"{workload}, {method}, {most} rounds: in virtual time")
    curves = {kind: _curves(runs) for kind, runs in [("Ray", ray), *virtual.items()] if runs}
    return Findings(
        data={
            "service_seconds": service_seconds,
            "runs": [asdict(run) for run in ray],
            "simulated": {kind: [[*of, skews] for of, skews in curves[kind].items()] for kind in VIRTUAL},
        },
        targets=[Target("results that equal Spark's", f"{len(ray)} of {len(ray)}", f"{len(ray)} of {len(ray)}", True)]
        if ray  # a run whose result is another does not return
        else [],
        text=_text(curves, seeds, service_seconds),
        figure=_figure(curves, workloads),
    )


def _curves(runs: Sequence[Run]) -> Curves:
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for run in runs:
        found.setdefault((run.workload, run.method), {}).setdefault(run.rounds, []).append(run.skew)
    return found


def _changes(curves: Curves, workload: str, method: str) -> list[float]:
    """How the mean S changes from one round to more, the least such change, and from fewer to more, the greatest."""
    means = {rounds: statistics.mean(skews) for rounds, skews in curves[workload, method].items() if rounds}
    falls = min(mean - means[1] for mean in means.values())
    return [falls, max(means[more] - means[fewer] for fewer, more in itertools.combinations(sorted(means), 2))]


def _claims(curves: Curves) -> list[tuple[str, bool, str]]:
    """Each with whether it holds, and the workloads that say so, or that do not."""
    workloads = list(dict.fromkeys(workload for workload, _ in curves))
    helped = [
        workload
        for workload in workloads
        if any(_changes(curves, workload, method)[0] <= -NOTICEABLE for method in METHODS)
    ]
    hurt = {
        method: [workload for workload in workloads if _changes(curves, workload, method)[1] >= NOTICEABLE]
        for method in METHODS
    }
    return [
        (
            "Additional rounds help at least one of the methods on every workload",
            helped == workloads,
            f"they help on {', '.join(helped) or 'none'}",
        ),
        *(
            (claim, bool(hurt[method]) == expected, f"they hurt on {', '.join(hurt[method]) or 'none'}")
            for claim, method, expected in (
                ("Additional rounds never hurt halving", "halving", False),
                ("Additional rounds can hurt doubling", "doubling", True),
            )
        ),
    ]


def _text(found: Mapping[str, Curves], seeds: int, service_seconds: float) -> str:
    ray = f"*Ray*: one run of each, {service_seconds:g} s a letter. " if "Ray" in found else "Nothing ran on Ray. "
    points, rounds = list(found["virtual"]), sorted(next(iter(found["virtual"].values())))
    rows = [
        (*point, kind, *(_range(curves[point][most]) for most in rounds))
        for point in points
        for kind, curves in found.items()
    ]
    claims = [
        (claim, kind, "yes" if holds else "no", why)
        for kind, curves in found.items()
        for claim, holds, why in _claims(curves)
    ]
    return (
        "Figure 3 of the DPA paper: S against the most redistributions that one reducer's load may cause; all else as "
        f"in Table 1. {ray}*virtual*: the simulator, with mappers of {', '.join(f'{s:g}' for s in MAP_SECONDS)} s a "
        f"letter and {seeds} seeds of each. *virtual, often*: the same, but a reducer reports at every "
        f"{VIRTUAL['virtual, often']}th letter: with every 20th of 100, most rounds are never used. Means, and where "
        "runs differ, in brackets the least and the most.\n\n"
        + markdown_table(("workload", "method", "on", *map(str, rounds)), rows)
        + "\n\nWhat the paper says of it. *Helps*: some number of rounds has a lower mean S than one round. *Hurts*: "
        "more rounds have a higher mean S than fewer, but at least one. Differences below "
        f"{NOTICEABLE:g} count as none, as one letter more or less on the busiest reducer is 0.013. A single run on "
        "Ray is one draw of a race.\n\n" + markdown_table(("claim", "on", "holds", "because"), claims)
    )


def _range(skews: Sequence[float]) -> str:
    least, most, mean = (f"{pick(skews):.2f}" for pick in (min, max, statistics.mean))
    return mean if least == most else f"{mean} ({least} ... {most})"


def _figure(found: Mapping[str, Curves], workloads: Sequence[str]) -> Figure:
    figure, made = panels(columns=3, rows=2, size=(10.0, 5.6))
    for workload, axes in zip(workloads, made, strict=False):
        for method, (kind, curves) in itertools.product(METHODS, found.items()):
            rounds, skews = zip(*sorted(curves[workload, method].items()), strict=True)
            means, style = [statistics.mean(each) for each in skews], {"Ray": "o-", "virtual": "--"}.get(kind, ":")
            axes.plot(rounds, means, style, color=COLOUR_OF[method], markersize=4, label=f"{method}, {kind}")
            if kind != "Ray":
                ends = [min(each) for each in skews], [max(each) for each in skews]
                axes.fill_between(rounds, *ends, color=COLOUR_OF[method], alpha=0.15, linewidth=0)
        axes.set_title(workload, loc="left", fontsize=10)
        axes.set_ylim(-0.04, 1.06)
        axes.set_xlabel("most rounds a reducer")
        axes.set_ylabel("skew S")
    for axes in made[len(workloads) :]:
        axes.set_axis_off()
    made[-1].legend(*made[0].get_legend_handles_labels(), loc="center", frameon=False, fontsize=10)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulate", action="store_true", help="in virtual time only; better with --results elsewhere")
    main("figure3", parser, measure)
