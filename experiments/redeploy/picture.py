"""Throughput over time under each scheme, degraded seconds by the tasks that move, and throughput by the cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.charts import COLOURS, panels
from experiments.redeploy.cases import CHEAP, CYCLES, DEAR, MOVED, Outcomes, case_of, of_cycles
from experiments.redeploy.outcome import NONE, Case, Outcome
from experiments.redeploy.schemes import LAZY, OURS, RESTART, SINGLE, STOP
from experiments.redeploy.virtual import Setup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOUR = dict(zip((NONE, STOP, RESTART, SINGLE, LAZY, OURS), ("#999999", *COLOURS), strict=False))
_OVER_TIME = 4
"""Tasks that move at a time in the pictures over time."""


def draw(found: Outcomes, setup: Setup) -> Figure:
    """A panel for each scheme, and the two comparisons."""
    figure, axes = panels(2, (11.0, 9.0), rows=4)
    for scheme, panel in zip(_COLOUR, axes, strict=False):
        run = found.of(Case(NONE) if scheme == NONE else case_of(scheme, _OVER_TIME))
        if run is not None:
            _over_time(panel, run, found.usual, setup)
    _by_moved(axes[-2], found)
    _by_cycles(axes[-1], found)
    return figure


def _over_time(axes: Axes, run: Outcome, usual: float, setup: Setup) -> None:
    """The throughput of each second; dotted: a plan is published."""
    scheme = run.case.scheme
    shares = [100 * rate / usual for rate in run.rates]
    axes.stairs(shares, range(len(shares) + 1), color=_COLOUR[scheme], fill=True, alpha=0.8)
    if run.case.moved:
        for at in setup.moments:
            axes.axvline(at - setup.start_seconds, color="#333333", linewidth=0.7, linestyle=":")
    moved = f", {_OVER_TIME} tasks at a time" if scheme not in (NONE, STOP) else ""
    axes.set_title(f"{scheme}{moved}: throughput, %", loc="left", fontsize=9)
    axes.set_xlim(0, len(shares))
    axes.set_ylim(0, 150)
    axes.set_xlabel("seconds", fontsize=8)


def _by_moved(axes: Axes, found: Outcomes) -> None:
    """Seconds that lost most of the throughput, by the tasks that move at a time."""
    schemes = [scheme for scheme in _COLOUR if scheme != NONE]
    for place, scheme in enumerate(schemes):
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
    """Throughput by the length of the cycles, if a look for a plan is cheap and if it is dear."""
    for colour, polling in zip(COLOURS[5:], (CHEAP, DEAR), strict=False):
        runs = [(at, run) for at, cycles in enumerate(CYCLES) if (run := found.of(of_cycles(*cycles, polling)))]
        label = f"a look costs {1000 * polling.worker:g} ms"
        shares = [100 * run.rate / found.usual for _, run in runs]
        axes.plot([at for at, _ in runs], shares, color=colour, marker="o", markersize=4, label=label)
    axes.set_xticks(range(len(CYCLES)), [f"{agent:g}/{worker:g}" for agent, worker in CYCLES])
    axes.set_xlabel("T_S/T_W, seconds", fontsize=8)
    axes.set_title(f"{LAZY}, {MOVED[-1]} tasks at a time: throughput, %", loc="left", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
