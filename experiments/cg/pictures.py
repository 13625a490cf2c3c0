"""The pictures of docs/groupings.md: where each grouping sends the keys of one small stream. `python -m
experiments.cg.pictures` draws them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpa.routing.groupings.base import CapacityRequest, Grouping, Signal
from dpa.routing.groupings.options import BY_KIND, ConsistentOptions
from dpa.routing.hashing import hash_column
from dpa.routing.ring import TokenRing
from experiments.charts import COLOURS, GRID, INK, panels
from experiments.zipf import Words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIRECTORY = Path(__file__).parents[2] / "docs" / "groupings"
REDUCERS, RECORDS, KEYS, EXPONENT = 6, 60_000, 200, 1.3
SLOW, SLOWDOWN = 5, 3.0
"""For groupings that listen, the last reducer takes three times as long."""

SLOTS = 60
NAMED = 6
"""The number of hottest keys that have a colour of their own."""


def draw(kind: str, make: Callable[[], Grouping], *, unequal: bool) -> Figure:
    """Records of each reducer, by key."""
    words = Words(0, KEYS, EXPONENT)
    ranks, hashes = words.ranks(RECORDS), hash_column(words.names)
    grouping, work = make(), np.ones(REDUCERS)
    if unequal:
        work[SLOW] = SLOWDOWN
    owners = []
    for slot, part in enumerate(np.array_split(ranks, SLOTS)):
        owners.append(grouping.choose(hashes[part]))
        for reducer, records in enumerate(np.bincount(owners[-1], minlength=REDUCERS).tolist()):
            grouping.observe(reducer, _signal(slot, records, len(part), float(work[reducer])))
    last = np.concatenate(owners[SLOTS // 2 :])
    return _bars(kind, ranks[-len(last) :], last, work)


def _signal(slot: int, records: int, all_records: int, work: float) -> Signal:
    """What a reducer would tell that could do an eighth more than its due."""
    used = records * work / all_records * (REDUCERS - 1 + 1 / SLOWDOWN) * 0.9
    request = (
        CapacityRequest.DECREASE if used > 0.95 else CapacityRequest.INCREASE if used < 0.85 else CapacityRequest.KEEP
    )
    return Signal(slot, used, request, records, 0.001 * work)


def _bars(kind: str, ranks: np.ndarray, owners: np.ndarray, work: np.ndarray) -> Figure:
    figure, [axes] = panels(size=(5.4, 2.2))
    bottom = np.zeros(REDUCERS)
    for rank in range(NAMED + 1):
        of_key = ranks == rank if rank < NAMED else ranks >= NAMED
        heights = np.bincount(owners[of_key], minlength=REDUCERS) / len(ranks)
        colour = COLOURS[rank] if rank < NAMED else GRID
        label = f"key {rank + 1}" if rank < NAMED else "the others"
        axes.bar(range(REDUCERS), heights, 0.75, bottom, color=colour, label=label, edgecolor="white", linewidth=0.5)
        bottom += heights
    due = (1 / work) / (1 / work).sum()
    axes.hlines(due, np.arange(REDUCERS) - 0.46, np.arange(REDUCERS) + 0.46, color=INK, linewidth=1.2)
    names = [f"{reducer}" if each == 1 else f"{reducer} (slow)" for reducer, each in enumerate(work)]
    axes.set_xticks(range(REDUCERS), names)
    axes.set_ylabel("share of the records", color=INK, fontsize=8)
    axes.set_ylim(0, max(0.3, bottom.max() * 1.05))
    axes.grid(visible=False, axis="x")
    axes.set_title(kind, fontsize=10, color=INK, loc="left")
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.05), reverse=True)
    return figure


def main() -> None:
    """Draw all."""
    DIRECTORY.mkdir(exist_ok=True)
    table = TokenRing(REDUCERS, 64).snapshot(0)
    for kind, made in {**BY_KIND, "consistent": lambda: ConsistentOptions(proportional=True)}.items():
        options = made()
        unequal = options.signals is not None
        figure = draw(kind, lambda options=options: options.create(table, 0), unequal=unequal)  # type: ignore[misc]
        figure.savefig(DIRECTORY / f"{kind}.png", dpi=100)
        print(DIRECTORY / f"{kind}.png")


if __name__ == "__main__":
    main()
