"""What is written about Table 1: its cells beside the paper's, and which of them depend on a race."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.harness import markdown_table
from experiments.letters import UNBALANCED, Race, Run
from experiments.table1.cells import IMPOSSIBLE, MAP_SECONDS, REPORT_EVERY, Cell


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
