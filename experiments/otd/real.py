"""On real Ray nodes: three word counts that have nothing to do with each other, on three nodes. They are placed by a
profile that is wrong, as of other data: it says that the lines of one go to the counts of the next. One policy moves
their tasks while records flow.

What goes between nodes is counted by tasks, each what it sends, and is known for every look at the placement. The same
job without a policy says what it would be.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dpa import Job
from dpa.result import Report
from dpa.testing import LocalCluster
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, below, holds, markdown_table, progress
from experiments.otd.methods import METHODS, OTD, OURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES: Mapping[str, int] = {"a": 2, "b": 2, "c": 2}
BRANCHES = 3
TASKS = 3
"""Of every stage of a branch: more than fit beside another branch's."""

ROWS, QUICK_ROWS = 700_000, 100_000
"""Lines of a branch; one of the three reads twice as many."""

SECONDS = 2.0
"""A cycle."""

_PACE = 12_000
"""Lines a second of each source task: about a third of what two cores can do, as starting a task takes them too."""

_SPLIT_ROWS = 6_000
"""Lines of a split: few, so that tasks of a source run out of them at about the same time."""

_REACHED = 0.1
"""Of the most that went between nodes: so little is hardly anything."""


@dataclass(frozen=True)
class Followed:
    """One run.

    Attributes:
        at: when the placement was looked at, in seconds since the stream began.
        crossing: bytes a second between nodes since the look before.
        moves: tasks that each look moved.
        kinds: why, or why none.
        seconds: of the stream.
        words: of all branches, counted.
    """

    at: tuple[float, ...]
    crossing: tuple[float, ...]
    moves: tuple[int, ...]
    kinds: tuple[str, ...]
    seconds: float
    words: int

    @classmethod
    def of(cls, report: Report) -> Followed:
        """What a report says."""
        looks = report.placement_looks
        return cls(
            tuple(look.at for look in looks),
            tuple(look.crossing for look in looks),
            tuple(look.moves for look in looks),
            tuple(look.kind for look in looks),
            report.seconds.stream,
            report.records.processed,
        )

    @property
    def most(self) -> float:
        """The most bytes a second between nodes."""
        return max(self.crossing)

    @property
    def last(self) -> float:
        """Bytes a second between nodes in the end: the median of the last three looks."""
        return statistics.median(self.crossing[-3:])

    @property
    def left(self) -> float:
        """Of the most that went between nodes, the part that still did in the end."""
        return self.last / max(self.most, 1.0)

    @property
    def cycles(self) -> int:
        """Looks until hardly anything went between nodes; all of them where that was never so."""
        begins = self.crossing.index(self.most)
        reached = (look for look in range(begins, len(self.crossing)) if self.crossing[look] <= _REACHED * self.most)
        return next(reached, len(self.crossing))


def measure(options: argparse.Namespace) -> Findings:
    """Run the job with each method in turn."""
    rows, repeats = (QUICK_ROWS, 1) if options.quick else (ROWS, options.repeats)
    found: dict[str, list[Followed]] = {name: [] for name in METHODS}
    still: list[float] = []
    with TemporaryDirectory(prefix="dpa-otd-") as directory, LocalCluster(NODES) as cluster:
        file = Path(directory, "counts.yaml")
        file.write_text(json.dumps(job_file(rows, _PACE)), encoding="utf-8")

        def run(**placement: Any) -> Report:
            section = json.dumps({**wrong_profile(), **placement})
            settings = [f"placement={section}", f"limits.split_records={_SPLIT_ROWS}"]
            return Job.from_file(file, settings).run(address=cluster.address).report

        for _ in range(repeats):
            for name, method in METHODS.items():
                report = run(allocator=method.allocator, online=method.section(SECONDS))
                found[name].append(Followed.of(report))
                progress(f"{name}: {found[name][-1]}")
            still.append(run(allocator="even").seconds.stream)
            progress(f"nothing moves: {still[-1]:.1f} s")
    middle = {name: sorted(runs, key=lambda run: run.cycles)[len(runs) // 2] for name, runs in found.items()}
    same = len({run.words for runs in found.values() for run in runs}) == 1
    return Findings(
        data={
            "rows": rows,
            "nodes": NODES,
            "still": still,
            "runs": {n: [asdict(r) for r in of] for n, of in found.items()},
        },
        targets=[
            holds("every run counts as many words", same),
            Target(
                "ours: of the most that went between nodes, left",
                "<= 6%",
                f"{middle[OURS].left:.1%}",
                middle[OURS].left <= 0.06,
            ),
            below("ours: cycles until a tenth is left, below OTD's", middle[OURS].cycles, middle[OTD].cycles),
        ],
        text=_text(middle, still),
        figure=_figure(middle),
    )


def job_file(rows: int, pace: float | None = None) -> dict[str, Any]:
    """The job; the first branch reads `rows` lines, the last one twice as many; a task at most `pace` a second."""
    stages: dict[str, Any] = {}
    for branch in range(BRANCHES):
        read = {"format": "generated", "use": "jobs.lines:Lines", "rows": round(rows * (1 + branch / (BRANCHES - 1)))}
        stages[f"lines_{branch}"] = {"read": read, "parallelism": TASKS}
        lines = f"lines_{branch}"
        if pace is not None:
            paced = {"use": "jobs.paced:PacedSource", "args": {"rate": pace}}
            stages[f"paced_{branch}"] = {"from": lines, "map": paced}
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


def wrong_profile() -> dict[str, Any]:
    """All stages cost the same, and the lines of a branch go to the counts of the next."""
    lines, counts = ([f"{stage}_{branch}" for branch in range(BRANCHES)] for stage in ("lines", "counts"))
    traffic = {one: {counts[(branch + 1) % BRANCHES]: 50.0} for branch, one in enumerate(lines)}
    return {"costs": dict.fromkeys([*lines, *counts], 1.0), "traffic": traffic}


def _text(found: Mapping[str, Followed], still: Sequence[float]) -> str:
    rows = [
        (
            name,
            f"{run.most / 1e6:.1f}",
            f"{run.last / 1e6:.1f}",
            f"{run.left:.1%}",
            run.cycles,
            len(run.crossing),
            sum(run.moves),
            run.seconds,
        )
        for name, run in found.items()
    ]
    head = (
        "method",
        "MB/s between nodes, at most",
        "at last",
        "left",
        "cycles to a tenth",
        "of",
        "moves",
        "stream, s",
    )
    return (
        f"{BRANCHES} word counts in one job on {len(NODES)} Ray nodes, processes of one machine, placed by a wrong "
        f"profile. Looked at every {SECONDS:g} s. Without a policy the stream took {statistics.median(still):.1f} s. "
        "Of several runs the one with the median number of cycles.\n\n" + markdown_table(head, rows)
    )


def _figure(found: Mapping[str, Followed]) -> Figure:
    figure, axes = panels(2, size=(11, 3.4))
    for colour, (name, run) in zip(COLOURS, found.items(), strict=False):
        crossing = [size / 1e6 for size in run.crossing]
        axes[0].plot(run.at, crossing, color=colour, linewidth=1.4, marker="o", markersize=3, label=name)
        moved = [sum(run.moves[: look + 1]) for look in range(len(run.moves))]
        axes[1].step(run.at, moved, color=colour, linewidth=1.4, where="post")
    axes[0].set_title("MB/s between nodes", loc="left", fontsize=10)
    axes[1].set_title("tasks moved so far", loc="left", fontsize=10)
    for panel in axes:
        panel.set_xlabel("seconds since the stream began")
        panel.set_ylim(bottom=0)
    axes[0].legend(frameon=False, fontsize=8)
    return figure
