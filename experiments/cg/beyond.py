"""Ours beyond the paper: W-Choices by capacity, on unequal workers, against PoRC."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.bounded import RandomChoicesGrouping
from dpa.routing.groupings.by_capacity import WeightedWChoicesGrouping
from experiments.cg.schemes import EPSILON, WORKERS
from experiments.charts import COLOURS, INK, panels
from experiments.harness import Findings, Target, at_most, markdown_table, progress
from experiments.queues import Floats
from experiments.replication import Replication
from experiments.streams import HOUR, zipf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPONENTS = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0)
CLUSTERS = ((0, 1.0), (3, 5.0), (5, 4.0), (2, 10.0))
"""Numbers of workers of ten, and how many times as fast as the others they are."""

RECORDS, KEYS = 5_000_000, 10_000
BALANCED = 1e-4


def beyond(options: argparse.Namespace) -> Findings:
    """Every skew, cluster and number of workers."""
    records = 100_000 if options.quick else RECORDS
    exponents, workers = ((1.2,), (5, 10)) if options.quick else (EXPONENTS, WORKERS)
    rows: list[dict[str, Any]] = []
    for exponent in exponents:
        stream = zipf(exponent, records, KEYS)
        hashes = stream.hashes()
        keys = np.concatenate([slot.keys for slot in stream.slots(options.seed, slot_seconds=HOUR)])
        for count in workers:
            _, porc = _assigned(RandomChoicesGrouping(count, EPSILON), hashes, keys, np.ones(count))
            for fast, times in CLUSTERS:
                speeds = np.where(np.arange(count) < round(fast * count / 10), times, 1.0)
                speeds /= speeds.mean()
                imbalance, memory = _assigned(WeightedWChoicesGrouping(count, speeds), hashes, keys, speeds)
                rows.append(
                    {
                        "exponent": exponent,
                        "workers": count,
                        "cluster": [fast, times],
                        "imbalance": imbalance,
                        "memory": memory,
                        "porc": porc,
                    }
                )
            progress(f"Zipf {exponent:g}, {count} workers: PoRC {porc:.3f}, {rows[-1]}")
    return Findings({"runs": rows}, _targets(rows), _text(rows, records), _figure(rows))


def _assigned(grouping: Grouping, hashes: Any, keys: Any, speeds: Floats) -> tuple[float, float]:
    """Imbalance and memory of one source."""
    owners = grouping.choose(hashes[keys])
    loads = np.bincount(owners, minlength=len(speeds)) / speeds
    replication = Replication(len(hashes), len(speeds))
    replication.note(keys, owners)
    return float((loads.max() - loads.mean()) / len(keys)), replication.memory


def _targets(rows: list[dict[str, Any]]) -> list[Target]:
    worst = max(row["imbalance"] for row in rows)
    within = [row for row in rows if row["memory"] <= row["porc"]]
    held, wanted = f"{len(within)} of {len(rows)}", f"{len(rows)} of {len(rows)}"
    return [
        at_most("imbalance, the worst of all", worst, BALANCED),
        Target("cases with no more replication than PoRC", wanted, held, held == wanted),
    ]


def _text(rows: list[dict[str, Any]], records: int) -> str:
    head = (
        "Zipf",
        "workers",
        "PoRC: memory",
        *(f"{{{fast}, {times:g}}}: imbalance, memory" for fast, times in CLUSTERS),
    )
    table: dict[tuple[float, int], list[Any]] = {}
    for row in rows:
        cells = table.setdefault((row["exponent"], row["workers"]), [f"{row['porc']:.2f}"])
        cells.append(f"{row['imbalance']:.1e}, {row['memory']:.2f}")
    return (
        f"W-Choices by capacity on {records:,} records, Zipf-distributed over {KEYS:,} keys, from one source that "
        "knows the capacities: {y, z} stands for y workers of ten that are z times as fast as the others. Imbalance is "
        "the greatest less the mean of records by capacity, by all records; memory is on how many workers a key is on "
        f"average. PoRC (epsilon {EPSILON}) has equal workers.\n\n"
        + markdown_table(head, [(f"{key[0]:g}", key[1], *cells) for key, cells in table.items()])
    )


def _figure(rows: list[dict[str, Any]]) -> Figure:
    figure, [axes] = panels(size=(7.0, 3.8))
    counts = sorted({row["workers"] for row in rows})
    for place, count in enumerate(counts):
        of = [row for row in rows if row["workers"] == count]
        style = {"color": COLOURS[place], "markersize": 5}
        axes.plot([row["exponent"] for row in of], [row["memory"] for row in of], "o", fillstyle="none", **style)
        porc = sorted({(row["exponent"], row["porc"]) for row in of})
        axes.plot(*zip(*porc, strict=True), color=COLOURS[place], label=f"PoRC, {count} workers")
    axes.plot([], [], "o", color=INK, fillstyle="none", label="W-Choices by capacity")
    axes.set_yscale("log")
    axes.set_xlabel("Zipf exponent", color=INK)
    axes.set_ylabel("memory (workers that hold a key)", color=INK)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
