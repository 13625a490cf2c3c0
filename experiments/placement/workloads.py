"""Part d: two jobs with measured costs over the room of nodes (task allocation paper, figures 6 and 7), what each
feature of TD adds (figure 8), and a rate that changes (figure 9).

A first run of each job on four Ray nodes, placed by Ray, measures what its tasks cost and send each other. From that
follows what each allocator keeps inside nodes; some of these placements are then run, and the bytes counted.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from dpa import Job
from dpa.errors import PlacementError
from dpa.placement import scores
from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.allocators.search import TopDownSearchAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Allocator, Cluster, Placement, TaskGraph
from dpa.placement.profile import Profile
from dpa.placement.relaxations import balanced
from dpa.report import write
from dpa.result import Report
from dpa.testing import LocalCluster
from experiments.charts import COLOURS, GRID, panels
from experiments.harness import Findings, Target, markdown_table, progress, published
from experiments.placement.baselines import BASELINES, TaskLevelAllocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NODES: Mapping[str, float] = {"a": 2.0, "b": 2.0, "c": 2.0, "d": 2.0}

ROOMS = (1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
"""Room of a node, by its share of all costs; with 4, each of four nodes would have room for everything."""
RUN_ROOMS = (1.25, 2.0)
"""Those with which placements are run."""
FEATURES_ROOM = 1.5
"""That of figure 8."""

RATES = (0.6, 0.8, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.3, 0.2)
"""Input rate in each minute of figure 9, by the highest one, for which nodes have room with a tenth to spare."""

SEEDS = 10
"""Orders of TL's pairs by chance, over which figures are means."""


@dataclass(frozen=True)
class Workload:
    """A shipped job, with as many tasks as are to be placed.

    Attributes:
        tasks: of each stage.
        ahead_of_even, ahead_of_tl: by how much more traffic TD keeps than Storm's placement and TL, at most, as
            published.
        saved: the part of all traffic that TD keeps off the network, at most, as published.
    """

    name: str
    tasks: Mapping[str, int]
    sources: Sequence[str]
    referred: str
    ahead_of_even: float
    ahead_of_tl: float
    saved: float

    def job(self, rows: int, *overrides: str) -> Job:
        """The job on so many rows of each source, without balancing, so that it sends what was measured."""
        settings = [
            *(f"stages.{stage}.parallelism={count}" for stage, count in self.tasks.items()),
            *(f"stages.{source}.read.rows={rows}" for source in self.sources),
            f"stages.{self.referred}.reference=null",
            *(f"stages.{stage}.balance={{strategy: none}}" for stage in self.tasks if stage not in self.sources),
        ]
        return Job.from_file(Path(__file__).parents[2] / "configs" / f"{self.name}.yaml", [*settings, *overrides])


WORKLOADS = (
    Workload(
        "trending",
        {"tweets": 4, "counts": 6, "partial": 4},
        sources=("tweets",),
        referred="ranking",
        ahead_of_even=0.91,
        ahead_of_tl=0.79,
        saved=0.13,
    ),
    Workload(
        "bargains",
        {"trades": 2, "quotes": 4, "averages": 4, "matched": 4, "alerts": 2},
        sources=("trades", "quotes"),
        referred="alerts",
        ahead_of_even=0.89,
        ahead_of_tl=0.31,
        saved=0.22,
    ),
)
ROWS, QUICK_ROWS = 1_000_000, 20_000
REPEATS = 3
"""Runs of each placement."""

RUN_ALLOCATORS = ("even", "task_level", "top_down")

Line = Sequence[float]
"""A figure for each room or rate; NaN where the tasks do not fit."""


@dataclass(frozen=True)
class Comparison:
    """The parts of a job's traffic that stay inside nodes.

    Attributes:
        graph: what was measured, the tasks of a group taken to be alike, as the paper has them.
        kept: for each allocator, at each room.
        runs: as predicted and as measured, for each allocator and room that was run.
    """

    workload: Workload
    graph: TaskGraph
    kept: Mapping[str, Line]
    runs: Mapping[tuple[str, float], tuple[float, float]]

    def ahead_of(self, other: str) -> float:
        """By how much more TD keeps than another, at the room at which that is most."""
        return max(
            ours / theirs - 1
            for ours, theirs in zip(self.kept["TD"], self.kept[other], strict=True)
            if theirs and not math.isnan(ours + theirs)
        )

    @property
    def off(self) -> float:
        """By which part of all traffic a run differs from its prediction, at most."""
        return max(abs(predicted - measured) for predicted, measured in self.runs.values())


def measure(options: argparse.Namespace) -> Findings:
    """Measure both jobs, predict, and run."""
    rows = QUICK_ROWS if options.quick else ROWS
    with LocalCluster(NODES) as cluster:
        trending, bargains = (_compared(workload, rows, options, cluster.address) for workload in WORKLOADS)
    features = features_kept(bargains.graph)
    rates = kept_over_rates(trending.graph)
    steady = min(rates["TD, placed anew"]) / max(rates["TD, placed anew"])
    fixed = min(rates["TD, placed once"]) / max(rates["TD, placed once"])
    targets = [
        target
        for each in (trending, bargains)
        for target in (
            _ahead(each, "even", "even placement", each.workload.ahead_of_even),
            _ahead(each, "TL", "TL", each.workload.ahead_of_tl),
            published(
                f"{each.workload.name}: network saved by TD, over all rooms",
                each.workload.saved,
                (float(np.nanmin(each.kept["TD"])), float(np.nanmax(each.kept["TD"]))),
                ".1%",
            ),
            Target(
                f"{each.workload.name}: a run from its prediction, at most, in points",
                "<= 10%",
                f"{each.off:.1%}",
                each.off <= 0.1,
            ),
        )
    ]
    targets.append(
        Target(
            "bargains: traffic kept by TD by significance, to that of TD by traffic",
            ">= 1",
            features["TD by significance"] / features["TD by traffic"],
            features["TD by significance"] >= features["TD by traffic"],
        )
    )
    targets.append(
        Target(
            "trending, changing rate: least traffic kept by the most, placed anew; placed once",
            "greater anew",
            f"{steady:.2f}; {fixed:.2f}",
            steady > fixed,
        )
    )
    return Findings(
        data={
            "rows": rows,
            "nodes": NODES,
            "rooms": ROOMS,
            "workloads": {each.workload.name: _plain(each) for each in (trending, bargains)},
            "features": features,
            "rates": RATES,
            "kept_over_rates": rates,
        },
        targets=targets,
        text=_text((trending, bargains), features, rates),
        figure=_figure((trending, bargains), features, rates, trending.graph.traffic),
    )


def _ahead(found: Comparison, other: str, words: str, published: float) -> Target:
    reached = found.ahead_of(other)
    return Target(
        f"{found.workload.name}: traffic kept by TD beyond {words}, at most",
        f">= {published:.0%} (published)",
        f"{reached:.0%}",
        reached >= published,
    )


def _compared(workload: Workload, rows: int, options: argparse.Namespace, address: str) -> Comparison:
    """Measure a job, predict at all rooms, and run at some."""
    with TemporaryDirectory(prefix="dpa-placement-") as directory:
        write(workload.job(rows).run(address=address).report, Path(directory))
        profile = Path(directory, "report.json")
        tasks = {name: len(costs) for name, costs in Profile.of_report(profile).costs.items()}
        graph = Profile.of_report(profile).graph(tasks, divide=False).graph
        kept = {name: [kept_at(allocators, graph, room) for room in ROOMS] for name, allocators in _predicted().items()}
        runs = {}
        for room in RUN_ROOMS:
            for name in RUN_ALLOCATORS:
                placement = f"allocator: {BASELINES.get(name, name)}, profile: {profile}, tolerance: {room}"
                job = workload.job(rows, f"placement={{{placement}, divide: false}}")
                measured = _measured(job, 1 if options.quick else REPEATS, address)
                runs[name, room] = _foreseen(job, address), measured
                progress(f"{workload.name}, room {room}, {name}: predicted and measured {runs[name, room]}")
    return Comparison(workload, graph, kept, runs)


def _foreseen(job: Job, address: str) -> float:
    """The part of a job's traffic that would stay inside nodes."""
    foreseen = job.forecast(address=address).placement
    assert foreseen is not None
    return foreseen.chosen.kept


def _measured(job: Job, repeats: int, address: str) -> float:
    """The part of a job's traffic that stays inside nodes, a median of runs."""
    return 1 - statistics.median(crossed_part(job.run(address=address).report) for _ in range(repeats))


def crossed_part(report: Report) -> float:
    """The part of all bytes between tasks that crossed between nodes in a run."""
    node = {(stage.name, task.id): task.node for stage in report.stages for task in stage.tasks}
    crossed = total = 0
    for traffic in report.traffic:
        if traffic.source == traffic.target:
            continue  # forwarded records and states: not what a placement is made by
        for sender, row in enumerate(traffic.pairs):
            for receiver, size in enumerate(row):
                total += size
                crossed += size * (node[traffic.source, sender] != node[traffic.target, receiver])
    return crossed / total


def _predicted() -> dict[str, Sequence[Allocator]]:
    """Allocators by the names of figures; the figures of one that depends on chance are means over several."""
    return {
        "even": [EvenAllocator()],
        "TL": [TaskLevelAllocator()],
        "TL, by chance": [TaskLevelAllocator(seed=seed) for seed in range(SEEDS)],
        "TD": [TopDownAllocator()],
        "TD with search": [TopDownSearchAllocator()],
    }


def kept_at(allocators: Sequence[Allocator], graph: TaskGraph, room: float) -> float:
    """The part of all traffic that stays inside nodes with so much room; NaN where the tasks do not fit."""
    cluster = balanced(graph, Cluster.alike(len(NODES), graph.cost), room)
    try:
        return statistics.mean(_kept_part(allocator.allocate(graph, cluster)) for allocator in allocators)
    except PlacementError:
        return math.nan


def _kept_part(placement: Placement) -> float:
    return scores.kept_traffic(placement) / placement.graph.traffic


def features_kept(graph: TaskGraph) -> dict[str, float]:
    """What each feature of TD adds, as in figure 8."""
    versions: dict[str, Sequence[Allocator]] = {
        "even": [EvenAllocator()],
        "TL by traffic": [TaskLevelAllocator()],
        "TD by traffic": [TopDownAllocator("traffic")],
        "TD by significance": [TopDownAllocator()],
        "TD with search": [TopDownSearchAllocator()],
    }
    return {name: kept_at(allocators, graph, FEATURES_ROOM) for name, allocators in versions.items()}


def kept_over_rates(graph: TaskGraph) -> dict[str, list[float]]:
    """Bytes a second that stay inside nodes while the rate changes: placed once at the highest rate, and anew."""
    cluster = balanced(graph, Cluster.alike(len(NODES), graph.cost), min(ROOMS))
    once = {
        name: scores.kept_traffic(allocator.allocate(graph, cluster))
        for name, allocator in (("even", EvenAllocator()), ("TD", TopDownAllocator()))
    }
    anew = {rate: TopDownAllocator().allocate(graph.scaled(rate), cluster) for rate in set(RATES)}
    return {
        "even, placed once": [once["even"] * rate for rate in RATES],
        "TD, placed once": [once["TD"] * rate for rate in RATES],
        "TD, placed anew": [scores.kept_traffic(anew[rate]) for rate in RATES],
    }


def _plain(found: Comparison) -> dict[str, Any]:
    return {
        "groups": {group.name: {"tasks": group.tasks, "cost": group.cost} for group in found.graph.groups},
        "edges": [[edge.upstream, edge.downstream, edge.traffic] for edge in found.graph.edges],
        "kept": found.kept,
        "runs": [[name, room, *parts] for (name, room), parts in found.runs.items()],
    }


def _text(found: Sequence[Comparison], features: Mapping[str, float], rates: Mapping[str, Line]) -> str:
    parts = []
    for each in found:
        head = (f"{each.workload.name}: a node's room", *map(str, ROOMS))
        parts += [
            markdown_table(head, [(name, *map(_percent, line)) for name, line in each.kept.items()]),
            markdown_table(
                ("run with", "room", "predicted", "measured"),
                [(name, room, *map(_percent, parts)) for (name, room), parts in each.runs.items()],
            ),
        ]
    return "\n\n".join(
        [
            f"Traffic that stays on the same of {len(NODES)} nodes, by all traffic. A node's room is given by its "
            "share of all costs; where it is 1, tasks would have to divide evenly. Costs and traffic are measured in a "
            "run of the job on Ray.",
            *parts,
            f"bargains, room {FEATURES_ROOM}: what each feature adds (figure 8).",
            markdown_table((*features,), [tuple(map(_percent, features.values()))]),
            "trending: MB/s kept while the rate changes (figure 9), predicted.",
            markdown_table(
                ("rate", *map(str, RATES)),
                [(name, *(f"{kept / 1e6:.2f}" for kept in line)) for name, line in rates.items()],
            ),
        ]
    )


def _percent(part: float) -> str:
    return "-" if math.isnan(part) else f"{part:.1%}"


def _figure(
    found: Sequence[Comparison], features: Mapping[str, float], rates: Mapping[str, Line], traffic: float
) -> Figure:
    figure, [*sweeps, bars, over_time] = panels(2, size=(9.0, 6.6), rows=2)
    for axes, each in zip(sweeps, found, strict=True):
        _draw_sweep(axes, each)
    drawn = bars.barh(list(features), [100 * kept for kept in features.values()], height=0.6, color=COLOURS[0])
    bars.bar_label(drawn, [f"{100 * kept:.0f}" for kept in features.values()], padding=4, fontsize=8)
    bars.invert_yaxis()
    bars.set_xlabel(f"bargains: traffic kept, % (room {FEATURES_ROOM})")
    minutes = range(len(RATES))
    over_time.step(minutes, [traffic * rate / 1e6 for rate in RATES], where="mid", color=GRID, label="all traffic")
    for colour, (name, line) in zip(COLOURS, rates.items(), strict=False):
        over_time.step(minutes, [kept / 1e6 for kept in line], where="mid", color=colour, label=name)
    over_time.set_ylim(bottom=0)
    over_time.set_xlabel("trending: minutes, while the rate changes")
    over_time.set_ylabel("traffic kept (MB/s)")
    over_time.legend(frameon=False, fontsize=8)
    return figure


def _draw_sweep(axes: Axes, found: Comparison) -> None:
    """What is kept at each room: predicted (lines), and as run (crosses)."""
    drawn_as = {"even": "even", "TL": "task_level", "TD": "top_down"}
    for colour, (name, line) in zip(COLOURS, found.kept.items(), strict=False):
        axes.plot(ROOMS, [100 * kept for kept in line], marker="o", markersize=3.5, color=colour, label=name)
        measured = {room: 100 * part for (of, room), (_, part) in found.runs.items() if of == drawn_as.get(name)}
        axes.plot(list(measured), list(measured.values()), "x", markersize=8, color=colour)
    axes.set_ylim(0, 102)
    axes.set_xlabel(f"{found.workload.name}: a node's room, by its share of all costs")
    axes.set_ylabel("traffic kept, % (crosses: as run)")
    axes.legend(frameon=False, fontsize=8)
