"""Throughput over time under each scheme, degraded seconds by the tasks that move, and throughput by the cycles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from experiments.charts import COLOURS, INK, panels
from experiments.harness import interval
from experiments.redeploy.cases import CYCLES, MOVED, Outcomes, case_of, of_cycles
from experiments.redeploy.outcome import NONE, Case
from experiments.redeploy.page import SHOWN
from experiments.redeploy.schemes import LAZY, STOP
from experiments.redeploy.virtual import Setup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOUR = dict(zip((NONE, *SHOWN), ("#999999", *COLOURS), strict=False))
_OVER_TIME = 4
"""Tasks that move at a time in the pictures over time."""


def draw(found: Outcomes, setup: Setup) -> Figure:
    """A panel for each scheme, and the two comparisons."""
    figure, axes = panels(2, (11.0, 9.0), rows=4)
    _over_time(axes, found, [case_of(scheme, _OVER_TIME) for scheme in SHOWN], setup.moments)
    _by_moved(axes[-2], found)
    _by_cycles(axes[-1], found)
    return figure


def draw_over_time(found: Outcomes, cases: Iterable[Case], moments: Sequence[float]) -> Figure:
    """A panel for each of these cases, after the run in which nothing moves."""
    figure, axes = panels(2, (11.0, 4.7), rows=2)
    _over_time(axes, found, cases, moments)
    return figure


def _over_time(axes: Iterable[Axes], found: Outcomes, cases: Iterable[Case], moments: Sequence[float]) -> None:
    """The throughput of each second; dotted: a plan is published."""
    for panel, case in zip(axes, (Case(NONE), *cases), strict=False):
        run = found.of(case)
        if run is None:
            continue
        shares = [100 * rate / found.usual for rate in run.rates]
        panel.stairs(shares, range(len(shares) + 1), color=_COLOUR[case.scheme], fill=True, alpha=0.8)
        for at in moments if case.moved else ():
            panel.axvline(at, color=INK, linewidth=0.7, linestyle=":")
        moved = f", {case.moved} tasks at a time" if case.scheme not in (NONE, STOP) else ""
        panel.set_title(f"{case.scheme}{moved}: throughput, %", loc="left", fontsize=9)
        panel.set_xlim(0, len(shares))
        panel.set_ylim(0, 150)
        panel.set_xlabel("seconds", fontsize=8)


def _by_moved(axes: Axes, found: Outcomes) -> None:
    """Seconds that lost most of the throughput, by the tasks that move at a time."""
    for place, scheme in enumerate(SHOWN):
        runs = [(at, run) for at, moved in enumerate(MOVED) if (run := found.of(case_of(scheme, moved))) is not None]
        heights = [run.degraded(0.6, found.usual) for _, run in runs]
        at = [position + 0.16 * (place - 2) for position, _ in runs]
        bars = axes.bar(at, heights, width=0.15, color=_COLOUR[scheme], label=scheme)
        axes.bar_label(bars, [str(height) for height in heights], fontsize=6, padding=1)
    axes.set_xticks(range(len(MOVED)), [str(moved) for moved in MOVED])
    axes.set_xlabel("tasks that move at a time", fontsize=8)
    axes.set_title("seconds that lost at least 60 % of the throughput", loc="left", fontsize=9)
    axes.legend(fontsize=7, frameon=False, ncols=3, loc="upper right")
    axes.set_ylim(0, 1.35 * max(axes.get_ylim()[1], 1.0))


def _by_cycles(axes: Axes, found: Outcomes) -> None:
    """Throughput by the length of the cycles: the mean of all runs, and where 95 % of them are."""
    runs = [
        (at, found.modelled[case]) for at, each in enumerate(CYCLES) if (case := of_cycles(*each)) in found.modelled
    ]
    means = [100 * float(each.throughput.mean()) for _, each in runs]
    bounds = [interval(100 * each.throughput) for _, each in runs]
    off = [[abs(mean - bound[side]) for mean, bound in zip(means, bounds, strict=True)] for side in (0, 1)]
    axes.errorbar([at for at, _ in runs], means, yerr=off, color=COLOURS[5], marker="o", markersize=4)
    axes.set_xticks(range(len(CYCLES)), [f"{agent:g}/{worker:g}" for agent, worker in CYCLES])
    axes.set_xlabel("T_S/T_W, seconds", fontsize=8)
    axes.set_title(f"{LAZY}, {MOVED[-1]} tasks at a time: throughput, %", loc="left", fontsize=9)
