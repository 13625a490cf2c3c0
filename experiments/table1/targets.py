"""What is wanted of the cells of Table 1, and of `adaptive` on the same workloads."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.harness import Target
from experiments.letters import UNBALANCED
from experiments.table1.cells import Cell

MAX_ADAPTIVE_SKEW = 0.05
MAX_WL3_SECONDS = 6.0


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
