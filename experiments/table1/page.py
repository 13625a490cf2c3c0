"""What is written, drawn and wanted of Table 1: its cells beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.charts import INK, panels
from experiments.harness import Target, markdown_table
from experiments.letters import COLOUR_OF, METHODS, UNBALANCED, Race, Run
from experiments.table1.cells import IMPOSSIBLE, MAP_SECONDS, REPORT_EVERY, Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ADAPTIVE_SKEW = 0.05
MAX_WL3_SECONDS = 6.0


def text_of(cells: Sequence[Cell], runs: int, seeds: int, service_seconds: float) -> str:
    """All that is written, in Markdown."""
    parts = [
        "Table 1 of the DPA paper: five workloads of 100 letters (`configs/paper/`), 4 mappers, 4 reducers, "
        f"{service_seconds:g} s a letter, tau 0.2, a report at every 20th dequeued letter, one round. S is 0 where all "
        "reducers process as many letters, 1 where one processes all. "
        + (
            f"Each cell ran {runs} times on Ray, and once where nothing is balanced, which is no race: mean (least ... "
            f"most). *s* is the mean wall time of the stream: with {service_seconds:g} s a letter it is "
            f"{25 * service_seconds:g} s at the least. "
            if any(cell.ray for cell in cells)
            else "Nothing ran on Ray. "
        )
        + f"*Virtual*: the same job in the simulator, with {Race().map_seconds:g} s a letter and mapper, "
        f"{seeds} interleavings. *Sweep*: the simulator with mappers of {_listed(MAP_SECONDS)} s a letter "
        f"and a report at every {_listed(REPORT_EVERY)} letters.",
        _static_text([cell for cell in cells if cell.method in UNBALANCED.values()]),
        _balanced_text([cell for cell in cells if cell.method in UNBALANCED]),
        _adaptive_text([cell for cell in cells if cell.method == "adaptive"]),
    ]
    return "\n\n".join(part for part in parts if part)


def _static_text(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    rings = {"none": "halving's", "none, 1 token": "doubling's"}
    rows = [
        (
            cell.workload,
            rings[cell.method],
            f"{cell.paper:.2f}",
            _skews(cell.ray),
            _seconds(cell.ray),
            _skews(cell.simulated),
        )
        for cell in cells
    ]
    note = ""
    if any((cell.workload, cell.method) in IMPOSSIBLE for cell in cells):
        note = (
            "\n\nOn wl5 and doubling's ring the paper prints 0.55, which its workload cannot give: each letter comes 4 "
            "times, so the most that a reducer has is a multiple of 4, and 0.55 would take 66 letters. With 64 "
            "letters S is 0.52."
        )
    return (
        "## Without balancing\n\n" + markdown_table(("workload", "ring", "paper", "Ray", "s", "virtual"), rows) + note
    )


def _balanced_text(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    rows = [
        (
            cell.workload,
            cell.method,
            f"{cell.paper:.2f}",
            _skews(cell.ray),
            _seconds(cell.ray),
            _skews(cell.simulated),
            _range(cell.all_swept),
            "Ray" if cell.on_ray else "sweep" if cell.in_sweep else "neither",
        )
        for cell in cells
    ]
    head = ("workload", "method", "paper", "Ray", "s", "virtual", "sweep", "the paper's S is within")
    return (
        f"## With balancing, one round\n\n{markdown_table(head, rows)}\n\n"
        "*Virtual* differs by the interleaving alone, *sweep* by the speed of the mappers and the report period too. "
        "Where these are one number, the job decides the cell; otherwise it is a race, and the paper's number is one "
        "draw of it."
    )


def _adaptive_text(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    rows = [
        (
            cell.workload,
            _skews(cell.ray),
            _seconds(cell.ray),
            f"{statistics.mean(run.redistributions for run in cell.best):.1f}",
            _skews(cell.simulated),
            _range(cell.all_swept),
        )
        for cell in cells
    ]
    head = ("workload", "Ray", "s", "redistributions", "virtual", "sweep")
    return "## adaptive, which is not the paper's\n\n" + markdown_table(head, rows)


def _skews(runs: Sequence[Run]) -> str:
    return f"{statistics.mean(run.skew for run in runs):.2f} ({_range(runs)})" if runs else "-"


def _range(runs: Sequence[Run]) -> str:
    if not runs:
        return "-"
    least, most = (f"{pick(run.skew for run in runs):.2f}" for pick in (min, max))
    return least if least == most else f"{least} ... {most}"


def _seconds(runs: Sequence[Run]) -> str:
    return f"{statistics.mean(run.seconds for run in runs):.1f}" if runs else "-"


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers[:-1]) + f" and {numbers[-1]:g}"


def targets_of(cells: Sequence[Cell]) -> list[Target]:
    """What is wanted of those cells that there are."""
    static = [cell for cell in cells if cell.method in UNBALANCED.values()]
    balanced = [cell for cell in cells if cell.method in UNBALANCED]
    targets = []
    if static:
        exact = sum(all(round(run.skew, 2) == cell.static for run in cell.best) for cell in static)
        wanted = f"{len(static)} of {len(static)}"
        targets.append(
            Target("static S as the paper has it", wanted, f"{exact} of {len(static)}", exact == len(static))
        )
    if balanced:
        reproduced = sum(cell.on_ray or cell.in_sweep for cell in balanced)
        wanted = f"{len(balanced)} of {len(balanced)}"
        name = "cells of Table 1 within the range on Ray or in the race sweep"
        targets.append(Target(name, wanted, f"{reproduced} of {len(balanced)}", reproduced == len(balanced)))
    ray = [run for cell in cells for run in cell.ray]
    if ray:  # a run whose result is another does not return
        targets.append(
            Target("results that equal Spark's", f"{len(ray)} of {len(ray)}", f"{len(ray)} of {len(ray)}", True)
        )
    return targets + _adaptive_targets([cell for cell in cells if cell.method == "adaptive"])


def _adaptive_targets(cells: Sequence[Cell]) -> list[Target]:
    if not cells:
        return []
    runs = {cell.workload: cell.best for cell in cells}
    skew = max(run.skew for found in runs.values() for run in found)
    acts = {name: statistics.mean(run.redistributions for run in found) for name, found in runs.items()}
    mean = statistics.mean(acts.values())
    most = f"<= {MAX_ADAPTIVE_SKEW:g}"
    targets = [
        Target(f"adaptive: S, the worst run of {len(runs)} workloads", most, skew, skew <= MAX_ADAPTIVE_SKEW),
        Target("adaptive: redistributions a workload, on average", "<= 1", mean, mean <= 1),
    ]
    if "wl2" in runs:
        targets.append(Target("adaptive: redistributions of wl2", "0", acts["wl2"], acts["wl2"] == 0))
    if "wl3" in runs:
        seconds = max(run.seconds for run in runs["wl3"])
        wanted = f"<= {MAX_WL3_SECONDS:g}"
        targets.append(Target("adaptive: seconds of wl3, the slowest run", wanted, seconds, seconds <= MAX_WL3_SECONDS))
    return targets


def draw(cells: Sequence[Cell]) -> Figure:
    """Dots for the runs on Ray, bars for the sweep, crosses for the paper."""
    figure, (axes,) = panels(size=(10.0, 4.2))
    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    methods = [name for name in METHODS if any(cell.method == name for cell in cells)]
    step = 0.8 / len(methods)
    for index, method in enumerate(methods):
        for cell in (cell for cell in cells if cell.method == method):
            place = workloads.index(cell.workload) + (index - (len(methods) - 1) / 2) * step
            first = cell.workload == workloads[0]
            _draw(axes, cell, place, step, COLOUR_OF[method], label=method if first else None)
    for place in range(1, len(workloads)):
        axes.axvline(place - 0.5, color="#eeeeee", linewidth=1)
    axes.scatter([], [], marker="x", color=INK, s=36, label="the paper")
    axes.plot([], [], color="#888888", linewidth=7, alpha=0.35, label="race sweep, virtual")
    axes.set_xticks(range(len(workloads)), workloads)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(-0.04, 1.06)
    axes.set_ylabel(
        "skew S (dots: mean and range on Ray)" if any(cell.ray for cell in cells) else "skew S (dots: virtual)"
    )
    figure.legend(loc="outside upper center", ncols=len(methods) + 2, frameon=False, fontsize=9)
    return figure


def _draw(axes: Any, cell: Cell, place: float, step: float, colour: str, label: str | None) -> None:
    swept = [run.skew for run in cell.all_swept]
    axes.plot([place, place], [min(swept), max(swept)], color=colour, linewidth=7, alpha=0.3, solid_capstyle="butt")
    seen = [run.skew for run in cell.best]
    mean = statistics.mean(seen)
    ends = [[mean - min(seen)], [max(seen) - mean]]
    axes.errorbar([place], [mean], ends, fmt="o", markersize=5, capsize=3, color=colour, label=label)
    if cell.paper is not None:
        axes.scatter([place + step * 0.3], [cell.paper], marker="x", color=INK, s=36, zorder=3)
