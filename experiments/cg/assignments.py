"""Figures 4, 6, 7, 8 and 11: how evenly the groupings load equal workers, and how often they hold a key."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dpa.routing.groupings.base import Grouping
from experiments.cg.schemes import EPSILON, SCHEMES, SOURCES, VIRTUAL_WORKERS, WORKERS, consistent, look
from experiments.charts import INK, panels
from experiments.harness import Findings, Target, above, at_most, below, holds, markdown_table, progress
from experiments.queues import Arrivals
from experiments.replication import Replication
from experiments.streams import HOUR, WIKIPEDIA, Stream, zipf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPONENTS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
BINS = (10, 100, 1_000, 10_000)
EPSILONS = (0.005, 0.02, 0.1, 0.5, 3.0)
SOURCE_COUNTS = (1, 5, 10, 50, 100)
FIGURE4_RECORDS = 2_000_000
FIGURE4_KEYS = 10_000
MAX_HEAD_BINS = 1_000
"""The most bins for D- and W-Choices, which look at up to all of them for one record: more would take hours."""

Found = dict[str, dict[float, tuple[float, float]]]
"""By scheme and position on the axis: imbalance, and memory."""


@dataclass(frozen=True)
class Assigned:
    """The outcome of a stream: greatest less mean load by all records; distinct keys of all bins by distinct keys."""

    imbalance: float
    memory: float


def assign(stream: Stream, bins: int, sources: list[Grouping], slots: Iterable[Arrivals]) -> Assigned:
    """Send a stream through some sources, which get its records in turn."""
    hashes, loads = stream.hashes(), np.zeros(bins, dtype=np.int64)
    replication, sent = Replication(stream.keys, bins), 0
    for arrivals in slots:
        owners = np.empty(len(arrivals.keys), dtype=np.int32)
        for number, source in enumerate(sources):
            mine = slice((number - sent) % len(sources), None, len(sources))
            owners[mine] = source.choose(hashes[arrivals.keys[mine]])
        sent += len(owners)
        loads += np.bincount(owners, minlength=bins)
        replication.note(arrivals.keys, owners)
    return Assigned(float((loads.max() - loads.mean()) / sent), replication.memory)


def figure4(options: argparse.Namespace) -> Findings:
    """Zipf keys onto virtual workers."""
    records = 50_000 if options.quick else FIGURE4_RECORDS
    exponents, bins = ((0.5, 1.5), (10, 100)) if options.quick else (EXPONENTS, BINS)
    schemes = ("KG", "PKG", "SG", "PoRC", "W-C")
    found: dict[int, Found] = {}
    for exponent in exponents:
        stream = zipf(exponent, records, FIGURE4_KEYS)
        slots = list(stream.slots(options.seed, slot_seconds=HOUR))
        for count in bins:
            for scheme in schemes:
                if count > MAX_HEAD_BINS and scheme == "W-C":
                    continue
                assigned = assign(stream, count, [SCHEMES[scheme](count, 0)], slots)
                found.setdefault(count, {}).setdefault(scheme, {})[exponent] = assigned.imbalance, assigned.memory
            progress(f"Zipf {exponent}, {count} virtual workers")
    text = (
        f"{records:,} records, Zipf-distributed over {FIGURE4_KEYS:,} keys; one source; epsilon {EPSILON}. Imbalance "
        "is the greatest less the mean load by all records; memory is how many virtual workers hold a key on average."
    )
    tables = [
        f"\n\n{count:,} virtual workers:\n\n" + _table("Zipf", found[count], [exponents[0], 1.0, exponents[-1]])
        for count in found
    ]
    targets = []
    for count, of_bins in found.items():
        targets += _orderings(of_bins, f"{count:,} bins, Zipf {exponents[-1]:g}", exponents[-1], count)
    picture = _grid(list(found.items()), "Zipf exponent", titles=[f"{count:,} virtual workers" for count in found])
    return Findings({"found": _plain(found)}, targets, text + "".join(tables), picture)


def figure6(options: argparse.Namespace) -> Findings:
    """Epsilon, between key grouping and shuffle grouping onto the virtual workers."""
    stream, slots = _wikipedia(options)
    workers, epsilons = 10, EPSILONS[::4] if options.quick else EPSILONS
    found: Found = {}
    for name in ("KG", "SG"):
        sources: list[Grouping] = [consistent(workers, inner=SCHEMES[name], source=source) for source in range(SOURCES)]
        assigned = assign(stream, workers, sources, slots())
        found[f"CG with {name}"] = dict.fromkeys(epsilons, (assigned.imbalance, assigned.memory))
        progress(f"CG with {name}: {assigned}")
    for epsilon in epsilons:
        sources = [consistent(workers, epsilon=epsilon) for _ in range(SOURCES)]
        assigned = assign(stream, workers, sources, slots())
        found.setdefault("CG", {})[epsilon] = assigned.imbalance, assigned.memory
        progress(f"CG with PoRC, epsilon {epsilon}: {assigned}")
    first, last = found["CG"][epsilons[0]], found["CG"][epsilons[-1]]
    kg, sg = found["CG with KG"][epsilons[0]], found["CG with SG"][epsilons[0]]
    targets = [
        below("imbalance at the least epsilon by that at the greatest", first[0] / last[0], 0.1),
        holds("memory falls with epsilon", first[1] > last[1]),
        holds("memory lies between those with KG and SG", kg[1] <= last[1] <= first[1] <= sg[1]),
        holds("imbalance lies between those with SG and KG", sg[0] <= first[0] <= last[0] <= kg[0]),
    ]
    text = (
        f"{_about(stream)} {SOURCES} sources, {workers} equal workers with {VIRTUAL_WORKERS} virtual workers each. "
        "PoRC onto the virtual workers, for each epsilon; beside it key grouping and shuffle grouping onto them."
        "\n\n" + _table("epsilon", found, list(epsilons))
    )
    return Findings({"found": _plain({workers: found})}, targets, text, _grid([(workers, found)], "epsilon", log=True))


def figure7(options: argparse.Namespace) -> Findings:
    """The groupings onto the virtual workers of 5 to 100 workers."""
    schemes = ("KG", "PKG", "SG", "PoRC")
    return _by_workers(
        options,
        schemes,
        lambda scheme, workers: (
            workers * VIRTUAL_WORKERS,
            [SCHEMES[scheme](workers * VIRTUAL_WORKERS, source) for source in range(SOURCES)],
        ),
        f"Bins are the virtual workers: {VIRTUAL_WORKERS} of each worker.",
    )


def figure8(options: argparse.Namespace) -> Findings:
    """The groupings, and consistent grouping, onto 5 to 100 workers."""
    schemes = ("KG", "PKG", "SG", "PoRC", "W-C", "CG", "CG, pooled")
    return _by_workers(
        options,
        schemes,
        lambda scheme, workers: (workers, [SCHEMES[scheme](workers, source) for source in range(SOURCES)]),
        f"CG has {VIRTUAL_WORKERS} virtual workers a worker; PoRC here goes onto the workers themselves.",
    )


def figure11(options: argparse.Namespace) -> Findings:
    """Consistent grouping with 1 to 100 sources."""
    stream, slots = _wikipedia(options)
    counts = SOURCE_COUNTS[:2] if options.quick else SOURCE_COUNTS
    found: Found = {}
    for workers in WORKERS[:2] if options.quick else WORKERS:
        for count in counts:
            assigned = assign(stream, workers, [consistent(workers) for _ in range(count)], slots())
            found.setdefault(f"{workers} workers", {})[count] = assigned.imbalance, assigned.memory
            progress(f"{workers} workers, {count} sources: {assigned}")
    targets = []
    for name, by_count in found.items():
        worst = max(imbalance for imbalance, _ in by_count.values())
        targets.append(below(f"{name}: imbalance whatever the sources", worst, 0.01))
        grown = by_count[counts[-1]][1] / by_count[counts[0]][1]
        targets.append(below(f"{name}: memory, most to fewest sources", grown, 2))
    text = (
        f"{_about(stream)} Consistent grouping, {VIRTUAL_WORKERS} virtual workers a worker, epsilon {EPSILON}. Sources "
        "get the records in turn and know nothing of each other."
        "\n\n" + _table("sources", found, list(counts))
    )
    return Findings({"found": _plain({0: found})}, targets, text, _grid([(0, found)], "sources", log=True))


def _by_workers(
    options: argparse.Namespace,
    schemes: tuple[str, ...],
    setup: Callable[[str, int], tuple[int, list[Grouping]]],
    note: str,
) -> Findings:
    stream, slots = _wikipedia(options)
    found: Found = {}
    counts = WORKERS[:2] if options.quick else WORKERS
    for workers in counts:
        for scheme in schemes:
            bins, sources = setup(scheme, workers)
            assigned = assign(stream, bins, sources, slots())
            found.setdefault(scheme, {})[workers] = assigned.imbalance, assigned.memory
            progress(f"{workers} workers, {scheme}: {assigned}")
    last = counts[-1]
    bins, _ = setup("KG", last)
    targets = _orderings(found, f"{last} workers", last, bins)
    if len(counts) > 2 and stream.hottest is not None:
        fine = [workers for workers in counts if stream.hottest < 2 / setup("KG", workers)[0]]
        for workers in fine:
            imbalance = found["PKG"][workers][0]
            name = f"PKG with {workers} workers, the hottest key being under 2 / n"
            targets.append(below(name, imbalance, 0.001))
    for scheme in ("CG", "CG, pooled"):
        if scheme in found:
            ratio = max(found[scheme][workers][1] / found["PoRC"][workers][1] for workers in counts)
            targets.append(at_most(f"memory of {scheme} by that of PoRC, whatever the workers", ratio, 1.1))
    text = f"{_about(stream)} {SOURCES} sources, epsilon {EPSILON}. {note}\n\n" + _table("workers", found, list(counts))
    return Findings({"found": _plain({0: found})}, targets, text, _grid([(0, found)], "workers", log=True))


def _orderings(found: Found, name: str, at: float, bins: int) -> list[Target]:
    """The orderings to expect: which groupings are even, and how often each holds a key."""
    imbalance = {scheme: of_scheme[at][0] for scheme, of_scheme in found.items() if at in of_scheme}
    memory = {scheme: of_scheme[at][1] for scheme, of_scheme in found.items() if at in of_scheme}
    order = [scheme for scheme in ("KG", "PKG", "PoRC", "SG") if scheme in memory]
    shown = " < ".join(f"{scheme} {memory[scheme]:.3g}" for scheme in sorted(order, key=lambda name: memory[name]))
    rising = all(memory[left] <= memory[right] for left, right in pairwise(order))
    return [
        Target(f"{name}: memory KG < PKG <= PoRC < SG", "in this order", shown, rising),
        at_most(f"{name}: PoRC's imbalance by epsilon / n", imbalance["PoRC"] * bins / EPSILON, 1.1),
        below(f"{name}: imbalance of SG", imbalance["SG"], 1e-4),
        above(f"{name}: KG's imbalance by PoRC's", imbalance["KG"] / imbalance["PoRC"], 10),
    ]


def _wikipedia(options: argparse.Namespace) -> tuple[Stream, Callable[[], Iterable[Arrivals]]]:
    stream = WIKIPEDIA.scaled(0.001 if options.quick else options.scale)
    if options.quick:
        stream = replace(stream, seconds=6 * HOUR)
    return stream, lambda: stream.slots(options.seed, slot_seconds=HOUR)


def _about(stream: Stream) -> str:
    hottest = f"the hottest has {stream.hottest:.2%} of the records" if stream.hottest else ""
    return f"{stream.name} stream: {stream.records:,} records, {stream.keys:,} keys, {hottest}."


def _plain(found: dict[int, Found]) -> list[dict[str, Any]]:
    return [
        {"group": group, "scheme": scheme, "at": at, "imbalance": imbalance, "memory": memory}
        for group, of_group in found.items()
        for scheme, of_scheme in of_group.items()
        for at, (imbalance, memory) in of_scheme.items()
    ]


def _table(name: str, found: Found, places: list[float]) -> str:
    head = (name, *(f"{place:g}: imbalance, memory" for place in places))
    rows = []
    for scheme, of_scheme in found.items():
        cells = [of_scheme.get(place) for place in places]
        rows.append((scheme, *("" if cell is None else f"{cell[0]:.1e}, {cell[1]:.2f}" for cell in cells)))
    return markdown_table(head, rows)


def _grid(groups: list[tuple[int, Found]], label: str, *, log: bool = False, titles: list[str] | None = None) -> Figure:
    """Imbalance above, memory below; a column for each group."""
    figure, axes = panels(max(len(groups), 1), (3.2 * len(groups) + (4.5 if len(groups) == 1 else 0.6), 6.4), rows=2)
    for column, (_, found) in enumerate(groups):
        above, below = axes[column], axes[len(groups) + column]
        for scheme, of_scheme in found.items():
            places = sorted(of_scheme)
            above.plot(places, [max(of_scheme[place][0], 1e-8) for place in places], marker=".", **look(scheme))
            below.plot(places, [of_scheme[place][1] for place in places], marker=".", **look(scheme))
        for panel in (above, below):
            panel.set_yscale("log")
            if log:
                panel.set_xscale("log")
        below.set_xlabel(label, color=INK)
        if titles:
            above.set_title(titles[column], fontsize=9, color=INK)
    axes[0].set_ylabel("imbalance", color=INK)
    axes[len(groups)].set_ylabel("memory (bins that hold a key)", color=INK)
    every_scheme = axes[0].get_legend_handles_labels()
    axes[len(groups) - 1].legend(*every_scheme, fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
