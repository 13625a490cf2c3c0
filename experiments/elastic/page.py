"""The page of the runs in virtual time, and the picture of any runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.charts import COLOURS, INK, panels
from experiments.elastic.loads import HELD_OUT, LOADS, Load
from experiments.elastic.outcome import Outcome, tasks_at
from experiments.elastic.virtual import METHODS, OPTIONS, OURS, QUEUES, SERVICE_SECONDS, START_SECONDS
from experiments.harness import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEAD = ("load", "turns", "queues", "method", "changes", "undone", "late (s)", "longest (s)", "tasks, mean")


def page(found: Sequence[Outcome]) -> str:
    """The text, with its tables."""
    return "\n\n".join(
        (
            f"One source reads records when they are due, and catches up where it was held back; reducers count them "
            f"by key, {1000 * SERVICE_SECONDS:g} ms a record. To start tasks takes {START_SECONDS:g} s. Machines, "
            "credit, queues and balancing are those of real jobs, in virtual time. With short queues (`queue_seconds` "
            "0.5, the default) what cannot be processed waits at the source, where nobody sees it; with long ones in "
            "queues.",
            f"A load is in tasks that it keeps busy all the time; the ideal number keeps them busy for "
            f"{OPTIONS.target:.0%} at most. A *turn* is a rise or a fall that begins; a change is *undone* if the next "
            "one goes back without a turn between. A record is *late* more than a second after it was due; *longest* "
            "is the longest time without a break in which there were such. Tasks that start count in the mean. What "
            "comes from several seeds is the worst of them, of the mean the mean. Loads that are *drawn* are held out: "
            "the policy was not made by them.",
            markdown_table(_HEAD, list(_rows(found))),
            "## Changes of ours\n\nThe first seed.",
            markdown_table(("load", "queues", "at (s)", "tasks", "why"), list(_changes(found))),
        )
    )


def _rows(found: Sequence[Outcome]) -> Iterator[tuple[object, ...]]:
    for load in (*LOADS, *HELD_OUT):
        for queues in QUEUES:
            for method in METHODS:
                runs = [run for run in found if (run.load, run.queues, run.method) == (load.name, queues, method)]
                if runs:
                    mean = statistics.fmean(run.task_seconds for run in runs) / load.seconds
                    most = (max(values) for values in zip(*map(_counted, runs), strict=True))
                    yield (load.name, len(load.turns), queues, method, *most, f"{mean:.1f}")


def _counted(run: Outcome) -> tuple[float, ...]:
    return len(run.changes), run.undone, round(run.late, 1), round(run.longest, 1)


def _changes(found: Sequence[Outcome]) -> Iterator[tuple[object, ...]]:
    for run in found:
        if run.method == OURS and run.seed == 0:
            for change in run.changes:
                yield (run.load, run.queues, f"{change.at:.1f}", change.tasks, change.reason)


def draw(loads: Sequence[Load], shown: Mapping[str, Outcome]) -> Figure:
    """A panel for each load; `shown`: the run of each, by its name."""
    figure, axes = panels(2, (11.0, 2.6 * (-(-len(loads) // 2))), rows=-(-len(loads) // 2))
    for panel, load in zip(axes, loads, strict=False):
        at = np.arange(0.0, load.seconds, 0.1)
        panel.fill_between(at, load.tasks(at), color="#dddddd", label="load")
        numbers = [tasks_at(load, shown[load.name].changes, moment) for moment in at]
        panel.plot(at, numbers, color=COLOURS[2], linewidth=1.2, label="tasks")
        panel.set_title(load.name, loc="left", fontsize=9)
        panel.set_xlabel("seconds", fontsize=8, color=INK)
        panel.set_ylim(bottom=0)
    for unused in axes[len(loads) :]:
        unused.set_axis_off()
    axes[0].legend(fontsize=7, frameon=False, loc="upper right")
    axes[0].set_ylabel("tasks", fontsize=8, color=INK)
    return figure
