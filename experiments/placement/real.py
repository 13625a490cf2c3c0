"""Part g: bytes between real Ray nodes, beside what was predicted.

Three word counts, which have nothing to do with each other, are one job on a Ray of three nodes in processes of one
machine; one of them reads twice as much as another. A first run, placed by Ray, is the profile of all others. What
crosses between nodes is the sum over pairs of tasks on different ones, each task counting what it sends. With `--hosts`
the nodes are hosts in network namespaces, and what their interfaces carry is a second count, by the kernel.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dpa import Job
from dpa.report import write
from dpa.result import Report
from dpa.testing import LocalCluster
from experiments.charts import COLOURS, label_bars, panels
from experiments.harness import Findings, Target, markdown_table, progress
from experiments.hosts import NamespaceCluster
from experiments.placement.baselines import BASELINES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES: Mapping[str, int] = {"a": 2, "b": 2, "c": 2}
BRANCHES = 3
TASKS = 3
"""Of every stage of a branch: more than fit beside another branch's."""
ALLOCATORS = ("even", "top_down", "greedy_matching_improved", "pairwise")
_NOTHING = 1e-9
"""A part below which nothing is to cross: what rounding leaves of all that is kept."""

ROWS, QUICK_ROWS = 300_000, 10_000
"""Lines of a branch."""


@dataclass(frozen=True)
class Crossing:
    """The bytes of one run.

    Attributes:
        predicted: part of all bytes between tasks that was to cross between nodes.
        crossed: part that did.
        bytes: that crossed, as tasks count them.
        carried: bytes that the hosts' interfaces sent from before the job until after it; None of nodes without one.
        seconds: of the stream.
    """

    predicted: float
    crossed: float
    bytes: int
    carried: int | None
    seconds: float


def measure(options: argparse.Namespace) -> Findings:
    """Run the job with each allocator in turn."""
    rows, repeats = (QUICK_ROWS, 1) if options.quick else (ROWS, options.repeats)
    found: dict[str, list[Crossing]] = {name: [] for name in ALLOCATORS}
    with TemporaryDirectory(prefix="dpa-placement-") as directory, nodes(options) as cluster:
        file = Path(directory, "counts.yaml")
        file.write_text(json.dumps(job_file(rows)), encoding="utf-8")
        write(Job.from_file(file).run(address=cluster.address).report, Path(directory))
        for _ in range(repeats):
            for name in ALLOCATORS:
                job = Job.from_file(
                    file, [f"placement={{allocator: {BASELINES.get(name, name)}, profile: report.json}}"]
                )
                foreseen = job.forecast(address=cluster.address).placement
                assert foreseen is not None
                before = _carried(cluster)
                report = job.run(address=cluster.address).report
                carried = None if before is None else (_carried(cluster) or 0) - before
                found[name].append(
                    Crossing(1 - foreseen.chosen.kept, *crossed_part(report), carried, report.seconds.stream)
                )
                progress(f"{name}: {found[name][-1]}")
    medians = {name: statistics.median(each.bytes for each in runs) for name, runs in found.items()}
    off = {name: _off(runs) for name, runs in found.items()}
    less = 1 - medians["top_down"] / medians["even"]
    worst = max(off.values())
    return Findings(
        data={
            "rows": rows,
            "nodes": NODES,
            "runs": {name: [vars(run) for run in runs] for name, runs in found.items()},
        },
        targets=[
            Target("bytes between nodes, TD below even", ">= 30%", f"{less:.1%}", less >= 0.3),
            Target("bytes between nodes, farthest from what was predicted", "<= 10%", f"{worst:.1%}", worst <= 0.1),
            *_checked_by_interfaces(found),
        ],
        text=_text(found, medians, off, where(options)),
        figure=_figure(found),
    )


def job_file(rows: int, pace: float | None = None) -> dict[str, Any]:
    """The job; the first branch reads `rows` lines, the last one twice as many; each task no more than `pace` a
    second."""
    stages: dict[str, Any] = {}
    for branch in range(BRANCHES):
        read = {"format": "generated", "use": "jobs.lines:Lines", "rows": round(rows * (1 + branch / (BRANCHES - 1)))}
        stages[f"lines_{branch}"] = {"read": read, "parallelism": TASKS}
        lines = f"lines_{branch}"
        if pace is not None:
            stages[f"paced_{branch}"] = {
                "from": lines,
                "map": {"use": "jobs.paced:PacedSource", "args": {"rate": pace}},
            }
            lines = f"paced_{branch}"
        stages[f"words_{branch}"] = {"from": lines, "flat_map": "jobs.wordcount:words"}
        stages[f"counts_{branch}"] = {
            "from": f"words_{branch}",
            "key_by": "word",
            "reduce": "count",
            "combiner": False,
            "parallelism": TASKS,
            "balance": "none",
        }
    return {"name": "counts", "python_path": [str(Path(__file__).parents[2])], "stages": stages}


def crossed_part(report: Report) -> tuple[float, int]:
    """What crossed between nodes in a run: the part of all bytes between tasks, and bytes."""
    node = {(stage.name, task.id): task.node for stage in report.stages for task in stage.tasks}
    crossed = total = 0
    for traffic in report.traffic:
        if traffic.source == traffic.target:
            continue  # forwarded records and states: not what a placement is made by
        for sender, row in enumerate(traffic.pairs):
            for receiver, size in enumerate(row):
                total += size
                crossed += size * (node[traffic.source, sender] != node[traffic.target, receiver])
    return crossed / total, crossed


@contextmanager
def nodes(options: argparse.Namespace) -> Iterator[LocalCluster | NamespaceCluster]:
    """The nodes; this process can run jobs on them in the block."""
    if options.hosts:
        with NamespaceCluster(NODES, mbit=options.mbit) as hosts, hosts.entered():
            yield hosts
    else:
        with LocalCluster(NODES) as cluster:
            yield cluster


def _carried(cluster: LocalCluster | NamespaceCluster) -> int | None:
    """What the interfaces of all nodes have sent so far."""
    if isinstance(cluster, LocalCluster):
        return None
    return sum(interface.sent for interface in cluster.traffic().values())


def _checked_by_interfaces(found: Mapping[str, Sequence[Crossing]]) -> list[Target]:
    """The target that interfaces carried what tasks counted, and little more: headers. What Ray itself says, which is
    megabytes while so many actors start, is in both of the placements whose difference is looked at."""
    more, less = found["even"], found["top_down"]
    carried = [[run.carried for run in runs if run.carried is not None] for runs in (more, less)]
    counted = [[run.bytes for run in runs] for runs in (more, less)]
    if not all(carried):
        return []
    beyond = _difference(*carried) / _difference(*counted) - 1
    name = "bytes on interfaces beyond those that tasks counted, even less TD"
    return [Target(name, "0% to 15%", f"{beyond:.1%}", 0 <= beyond <= 0.15)]


def _difference(more: Sequence[int], less: Sequence[int]) -> float:
    return statistics.median(more) - statistics.median(less)


def _off(runs: Sequence[Crossing]) -> float:
    """By which part of it the prediction is missed; of all bytes, where nothing was to cross."""
    crossed, predicted = statistics.median(run.crossed for run in runs), runs[0].predicted
    return abs(crossed - predicted) / (predicted if predicted > _NOTHING else 1.0)


def where(options: argparse.Namespace) -> str:
    """What the nodes are, in words."""
    if options.hosts:
        return f"hosts in network namespaces of one machine, with interfaces of {options.mbit:g} Mbit/s"
    return "processes of one machine"


def _text(
    found: Mapping[str, Sequence[Crossing]], medians: Mapping[str, float], off: Mapping[str, float], where: str
) -> str:
    carried = {name: [run.carried for run in runs if run.carried is not None] for name, runs in found.items()}
    rows = [
        (
            name,
            f"{runs[0].predicted:.1%}",
            f"{statistics.median(run.crossed for run in runs):.1%}",
            f"{off[name]:.1%}",
            f"{medians[name] / 1e6:.1f}",
            f"{statistics.median(carried[name]) / 1e6:.1f}" if carried[name] else "",
            statistics.median(run.seconds for run in runs),
        )
        for name, runs in found.items()
    ]
    head = ("allocator", "predicted to cross", "crossed", "off by", "MB between nodes", "MB on interfaces", "stream, s")
    return (
        f"{BRANCHES} word counts in one job on {len(NODES)} Ray nodes of 2 declared processors each, {where}: bytes of "
        "all messages between tasks of different stages, as their tasks count them, by whether their nodes differ; and "
        "all that interfaces of hosts sent, if there are any. Medians.\n\n" + markdown_table(head, rows)
    )


def _figure(found: Mapping[str, Sequence[Crossing]]) -> Figure:
    figure, [axes] = panels(size=(6.5, 2.8))
    names = list(found)
    places = range(len(names))
    for shift, colour, label, shares in (
        (-0.2, COLOURS[4], "predicted", [100 * found[name][0].predicted for name in names]),
        (0.2, COLOURS[0], "measured", [100 * statistics.median(run.crossed for run in found[name]) for name in names]),
    ):
        bars = axes.barh([place + shift for place in places], shares, height=0.36, color=colour, label=label)
        label_bars(axes, bars, [f"{share:.0f}" for share in shares])
    axes.set_yticks(list(places), names)
    axes.invert_yaxis()
    axes.set_xlabel("bytes between tasks that cross between nodes, %")
    axes.legend(frameon=False, fontsize=8)
    return figure
