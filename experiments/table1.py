"""Experiment 1 of the DPA paper (section 6.3, Table 1): the skew S of five workloads with and without balancing.

Every workload runs with every method on Ray, several times. Where a run differs from the paper's or from another run, a
sweep in virtual time shows whether that cell of the table depends on a race: the speed of the mappers and the report
period decide the state of the queues when a reducer is found overloaded.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from experiments.charts import INK, panels
from experiments.harness import Findings, Target, main, markdown_table, progress
from experiments.letters import (
    COLOUR_OF,
    METHODS,
    SERVICE_SECONDS,
    UNBALANCED,
    Race,
    Run,
    known,
    one_after_another,
    sessions,
    simulate,
    spread,
)
from jobs.letters import WORKLOADS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = {
    ("wl1", "halving"): 0.08,
    ("wl1", "doubling"): 0.20,
    ("wl2", "halving"): 0.00,
    ("wl2", "doubling"): 0.08,
    ("wl3", "halving"): 1.00,
    ("wl3", "doubling"): 0.75,
    ("wl4", "halving"): 0.52,
    ("wl4", "doubling"): 0.11,
    ("wl5", "halving"): 0.20,
    ("wl5", "doubling"): 0.12,
    ("wl1", "none"): 0.00,
    ("wl1", "none, 1 token"): 1.00,
    ("wl2", "none"): 0.00,
    ("wl2", "none, 1 token"): 0.00,
    ("wl3", "none"): 1.00,
    ("wl3", "none, 1 token"): 1.00,
    ("wl4", "none"): 0.80,
    ("wl4", "none, 1 token"): 0.49,
    ("wl5", "none"): 0.20,
    ("wl5", "none, 1 token"): 0.55,
}
"""S in the paper's Table 1, by workload and method."""

IMPOSSIBLE = {("wl5", "none, 1 token"): 0.52}
"""What follows from the workload where the paper prints something else: wl5 has each letter 4 times, so that the
most that a reducer can have is a multiple of 4, which 0.55 is not made of."""

MAP_SECONDS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2)
REPORT_EVERY = (5, 10, 18, 20, 40)
"""The sweep: what a letter takes a mapper, and dequeued letters between two reports of a reducer. The paper's is 20."""

EARLIER = 18
"""The report period with which a reducer has processed 19 letters when the new table reaches it. With 20 it is 21: it
reports when the 20th is processed, and is at the next when the table comes."""

MAX_ADAPTIVE_SKEW = 0.05
MAX_WL3_SECONDS = 6.0


@dataclass(frozen=True)
class Swept:
    """The simulated runs of a workload and method that had the same race."""

    workload: str
    method: str
    race: Race
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Cell:
    """One cell of Table 1: a workload and method, what the paper has, and the runs on Ray and in virtual time."""

    workload: str
    method: str
    ray: tuple[Run, ...]
    swept: tuple[Swept, ...]

    @property
    def paper(self) -> float | None:
        """S in the paper, or None for a method that is not the paper's."""
        return PAPER.get((self.workload, self.method))

    @property
    def simulated(self) -> list[Run]:
        """The simulated runs with the paper's report period and swift mappers."""
        return [run for swept in self.swept if swept.race == Race(report_every=20) for run in swept.runs]

    @property
    def all_swept(self) -> list[Run]:
        """The simulated runs of the whole sweep."""
        return [run for swept in self.swept for run in swept.runs]

    def along(self, parameter: str) -> list[Run]:
        """The simulated runs in which only one of the two parameters of the race differs from the paper's."""
        other = {"map_seconds": "report_every", "report_every": "map_seconds"}[parameter]
        usual = getattr(Race(report_every=20), other)
        return [run for swept in self.swept if getattr(swept.race, other) == usual for run in swept.runs]

    @property
    def on_ray(self) -> bool:
        """Whether the paper's S lies within the range seen on Ray."""
        return self.paper is not None and _within(self.paper, self.ray)

    @property
    def in_sweep(self) -> bool:
        """Whether the paper's S lies within the range of the sweep."""
        return self.paper is not None and _within(self.paper, self.all_swept)

    def just_so(self, period: int) -> list[tuple[Race, list[Run]]]:
        """The races with that report period in which runs gave exactly the paper's S, and those runs."""
        found = []
        for swept in (swept for swept in self.swept if swept.race.report_every == period):
            runs = [run for run in swept.runs if round(run.skew, 2) == self.paper]
            if runs:
                found.append((swept.race, runs))
        return found


def measure(options: argparse.Namespace) -> Findings:
    """Run on Ray and in virtual time, and compare with the paper."""
    runs, seeds, service_seconds = options.runs, options.seeds, SERVICE_SECONDS
    workloads, methods, delays, periods = options.workloads, options.methods, MAP_SECONDS, REPORT_EVERY
    if options.quick:
        runs, seeds, service_seconds = 1, 2, SERVICE_SECONDS / 10
        workloads, methods, delays, periods = ["wl3"], known(("none", "adaptive")), (0.005, 0.05), (20,)
    ray: list[Run] = []
    if not options.simulate:
        with sessions():
            cells = [(workload, method, 1) for workload in workloads for method in methods]
            ray = one_after_another(cells * runs, service_seconds=service_seconds)
    cells = []
    for workload in workloads:
        for method in methods:
            seen = tuple(run for run in ray if (run.workload, run.method) == (workload, method))
            races = [Race(delay, period) for delay in delays for period in periods]
            if method in UNBALANCED.values():
                races = [Race(report_every=20)]
            cells.append(Cell(workload, method, seen, _swept(workload, method, races, options.seed, seeds)))
    return Findings(
        data={
            "service_seconds": service_seconds,
            "runs": [asdict(run) for run in ray],
            "simulated": [_cell_data(cell) for cell in cells],
        },
        targets=_targets(cells),
        text=_text(cells, runs, seeds, service_seconds),
        figure=_figure(cells),
    )


def _swept(workload: str, method: str, races: Sequence[Race], seed: int, seeds: int) -> tuple[Swept, ...]:
    progress(f"{workload}, {method}: {len(races) * seeds} runs in virtual time")
    drawn = range(seed, seed + seeds)
    return tuple(Swept(workload, method, race, tuple(simulate(workload, method, drawn, race=race))) for race in races)


def _cell_data(cell: Cell) -> dict[str, Any]:
    return {
        "workload": cell.workload,
        "method": cell.method,
        "paper": cell.paper,
        "inside_range_on_ray": cell.on_ray,
        "inside_sweep": cell.in_sweep,
        "sweep": [{**asdict(swept.race), **spread(swept.runs)} for swept in cell.swept],
    }


def _within(skew: float, runs: Sequence[Run]) -> bool:
    """Whether S lies in the range of some runs, as precisely as the paper prints it."""
    return bool(runs) and round(min(run.skew for run in runs), 2) <= skew <= round(max(run.skew for run in runs), 2)


def _best(cell: Cell) -> Sequence[Run]:
    """The runs on Ray, or the simulated ones where there are none."""
    return cell.ray or cell.simulated


def _targets(cells: Sequence[Cell]) -> list[Target]:
    static = [cell for cell in cells if cell.method in UNBALANCED.values()]
    balanced = [cell for cell in cells if cell.method in UNBALANCED]
    targets = []
    if static:
        exact = sum(all(round(run.skew, 2) == _static(cell) for run in _best(cell)) for cell in static)
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
    runs = {cell.workload: _best(cell) for cell in cells}
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


def _static(cell: Cell) -> float:
    place = cell.workload, cell.method
    return IMPOSSIBLE.get(place, PAPER[place])


def _text(cells: Sequence[Cell], runs: int, seeds: int, service_seconds: float) -> str:
    parts = [
        "Table 1 of the DPA paper: five workloads of 100 letters (`configs/paper/`), 4 mappers, 4 reducers, "
        f"{service_seconds:g} s a letter, tau 0.2, a report at every 20th dequeued letter, one round. S is 0 where all "
        "reducers process as many letters, 1 where one processes all. "
        + (
            f"Each cell ran {runs} times on Ray: mean (least ... most). *s* is the mean wall time of the stream: with "
            f"{service_seconds:g} s a letter it is {25 * service_seconds:g} s at the least. "
            if any(cell.ray for cell in cells)
            else "Nothing ran on Ray. "
        )
        + f"*Virtual*: the same job in the simulator, with {Race().map_seconds:g} s a letter and mapper, "
        f"{seeds} interleavings. *Sweep*: the simulator with mappers of {_listed(MAP_SECONDS)} s a letter "
        f"and a report at every {_listed(REPORT_EVERY)} letters.",
        _static_text([cell for cell in cells if cell.method in UNBALANCED.values()]),
        _balanced_text([cell for cell in cells if cell.method in UNBALANCED]),
        _adaptive_text([cell for cell in cells if cell.method == "adaptive"]),
        _race_text([cell for cell in cells if cell.method not in UNBALANCED.values()]),
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
    verdicts = "\n".join(f"- {cell.workload}, {cell.method}: {_verdict(cell)}" for cell in cells)
    earlier = sum(bool(cell.just_so(EARLIER)) for cell in cells)
    return (
        f"## With balancing, one round\n\n{markdown_table(head, rows)}\n\n"
        f"With a report at every {EARLIER} letters, {earlier} of {len(cells)} cells come out just as printed. A "
        "reducer of dpa reports when it has processed the 20th letter, and is at the 21st when the new table comes: 21 "
        f"letters go by the old table. With a report at every {EARLIER} it is 19, which is what the paper's numbers "
        "ask for: as if its reducers report when they take the 20th letter, wait for the answer, and only then look up "
        f"whose letter it is.\n\nCell by cell; in brackets with how many of the speeds of "
        f"the mappers:\n\n{verdicts}"
    )


def _verdict(cell: Cell) -> str:
    """Where the paper's S comes out, in a sentence."""
    if cell.on_ray:
        return f"the paper's {cell.paper:.2f} is within the range on Ray, {_range(cell.ray)}."
    seen = f"Ray gave {_range(cell.ray)}, and " if cell.ray else ""
    if not cell.in_sweep:
        return f"{seen}the paper's {cell.paper:.2f} is outside the sweep too, {_range(cell.all_swept)}."
    how = f"the paper's {cell.paper:.2f} is explained by the race sweep, {_range(cell.all_swept)}"
    where = []
    for period in dict.fromkeys(swept.race.report_every or 0 for swept in cell.swept):
        found = cell.just_so(period)
        if found:
            speeds = len({swept.race.map_seconds for swept in cell.swept})
            idle = not any(run.redistributions for _, runs in found for run in runs)
            still = ", too late for any redistribution" if idle else ""
            where.append(f"{period} letters ({len(found)} of {speeds}{still})")
    if not where:
        return f"{seen}{how}, though no single run gave just that."
    return f"{seen}{how}; just that comes out with a report at every {', '.join(where)}."


def _adaptive_text(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    rows = [
        (
            cell.workload,
            _skews(cell.ray),
            _seconds(cell.ray),
            f"{statistics.mean(run.redistributions for run in _best(cell)):.1f}",
            _skews(cell.simulated),
            _range(cell.all_swept),
        )
        for cell in cells
    ]
    head = ("workload", "Ray", "s", "redistributions", "virtual", "sweep")
    return "## adaptive, which is not the paper's\n\n" + markdown_table(head, rows)


def _race_text(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    rows = [
        (
            cell.workload,
            cell.method,
            _range(cell.simulated),
            _range(cell.along("map_seconds")),
            _range([run for swept in cell.swept if swept.race.report_every == EARLIER for run in swept.runs]),
            _range(cell.along("report_every")),
            _range(cell.all_swept),
        )
        for cell in cells
    ]
    head = (
        "workload",
        "method",
        "interleaving only",
        "mapper's speed",
        f"... at every {EARLIER}",
        "report period",
        "all",
    )
    return (
        "## Which cells depend on a race\n\nThe range of S in virtual time if only the interleaving differs, if the "
        f"mappers' speed differs too (also with a report at every {EARLIER} letters), if the report period does, and "
        "if all do. With one number in the first two columns, the job decides the cell; otherwise it is a race, and "
        "the paper's number is one draw of it.\n\n" + markdown_table(head, rows)
    )


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


def _figure(cells: Sequence[Cell]) -> Figure:
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
    seen = [run.skew for run in _best(cell)]
    mean = statistics.mean(seen)
    ends = [[mean - min(seen)], [max(seen) - mean]]
    axes.errorbar([place], [mean], ends, fmt="o", markersize=5, capsize=3, color=colour, label=label)
    if cell.paper is not None:
        axes.scatter([place + step * 0.3], [cell.paper], marker="x", color=INK, s=36, zorder=3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each workload and method on Ray")
    parser.add_argument("--seeds", type=int, default=5, help="simulated runs of each race")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--methods", nargs="+", choices=known(METHODS), default=known(METHODS))
    parser.add_argument("--simulate", action="store_true", help="in virtual time only; better with --results elsewhere")
    main("table1", parser, measure)
