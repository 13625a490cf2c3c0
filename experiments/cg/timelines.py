"""Figures 9, 10, 12 and 13: queues, latency and utilisation over a day, on equal and unequal workers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings.base import Grouping
from experiments.cg.schemes import SCHEMES, SOURCES, VIRTUAL_WORKERS, Make, consistent, delegation, look
from experiments.charts import COLOURS, INK, panels
from experiments.harness import Findings, Target, above, at_most, below, markdown_table, progress
from experiments.queues import Floats, QueueHistory, QueueSetup, simulate
from experiments.streams import HOUR, SLOT_SECONDS, WIKIPEDIA, Stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS = 10
MEAN_UTILISATION = 0.8
"""Of workers that get work by their capacity, over the whole day; at its busiest hour 15 % more."""

UNEQUAL = ((0, 3, 5.0),)
CHANGING = ((0, 3, 5.0), (6, 5, 4.0), (12, 2, 10.0))
"""Records of 22 million from which on a cluster holds; machines of ten that are faster; by which factor."""

VIRTUAL = (5, 10, 50, 100, 1_000)
BALANCED = 0.05
SETTLING_SLOTS = 3


def figure9(options: argparse.Namespace) -> Findings:
    """Equal workers: KG and CG."""
    found, stream = _run_all(options, ("KG", "CG"), ((0, 0, 1.0),))
    late = {scheme: _late(history) for scheme, history in found.items()}
    targets = [
        above("longest queue at the end, KG to CG", late["KG"]["queue"] / late["CG"]["queue"], 100),
        below("CG: utilisation, greatest less mean, at the end", late["CG"]["gap"], BALANCED),
    ]
    return _findings(found, stream, targets, "Equal workers.")


def figure10(options: argparse.Namespace) -> Findings:
    """Unequal workers, {3, 5}: KG, SG, CG and what later work has."""
    found, stream = _run_all(options, ("KG", "SG", "CG", "CG, proportional", "CG, ours", "weighted W-C"), UNEQUAL)
    late = {scheme: _late(history) for scheme, history in found.items()}
    worst = min(late["KG"]["queue"], late["SG"]["queue"])
    targets = [
        above("longest queue at the end, shorter of KG and SG to CG", worst / late["CG"]["queue"], 100),
        *(
            below(f"{scheme}: utilisation, greatest less mean, at the end", late[scheme]["gap"], BALANCED)
            for scheme in ("CG", "CG, proportional", "CG, ours", "weighted W-C")
        ),
    ]
    return _findings(found, stream, targets, "Workers {3, 5}: three of ten are five times as fast.")


def figure12(options: argparse.Namespace) -> Findings:
    """The number of virtual workers, {3, 5}."""
    counts = VIRTUAL[1:3] if options.quick else VIRTUAL
    makes: dict[str, Make] = {
        f"{count} a worker": (lambda bins, source, count=count: consistent(bins, virtual_workers=count))  # type: ignore[misc]
        for count in counts
    }
    found, stream = _run_all(options, makes, UNEQUAL)
    slots = {scheme: _settled(history) for scheme, history in found.items()}
    late = {scheme: _late(history) for scheme, history in found.items()}
    targets = []
    if not options.quick:
        fewest, most, best = f"{VIRTUAL[0]} a worker", f"{VIRTUAL[-1]} a worker", f"{VIRTUAL_WORKERS} a worker"
        gaps = [late[scheme]["gap"] for scheme in (fewest, best)]
        targets = [
            above(f"utilisation, greatest less mean, {fewest} to {best}", gaps[0] / gaps[1], 1),
            above(f"slots to settle, {most} to {best}", slots[most] / slots[best], 1),
        ]
    note = "Workers {3, 5}; consistent grouping with more and fewer virtual workers. Slots until utilisations lie "
    note += f"within {BALANCED} of their mean for the first time (of {len(found[next(iter(found))].ends):,}): "
    note += ", ".join(f"{scheme}: {count}" for scheme, count in slots.items()) + "."
    return _findings(found, stream, targets, note)


def figure13(options: argparse.Namespace) -> Findings:
    """Capacities that change twice."""
    found, stream = _run_all(options, ("KG", "SG", "CG", "CG, proportional", "CG, ours", "weighted W-C"), CHANGING)
    targets = []
    for scheme in ("CG, proportional", "CG, ours", "weighted W-C"):
        spent = recovery(found[scheme])
        name = f"{scheme}: slots until the imbalance is under {BALANCED} after a change"
        targets.append(at_most(name, max(spent), SETTLING_SLOTS))
        spent = recovery(found[scheme], utilisation=True)
        name = f"{scheme}: the same of utilisation, greatest less mean"
        targets.append(at_most(name, max(spent), SETTLING_SLOTS))
    late = {scheme: _late(history) for scheme, history in found.items()}
    worst = min(late["KG"]["queue"], late["SG"]["queue"])
    targets.append(above("longest queue at the end, shorter of KG and SG to CG", worst / late["CG"]["queue"], 1))
    note = (
        "Workers {3, 5}, {5, 4} from 6 of 22 million records on, and {2, 10} from 12 million on; the capacities of all "
    )
    note += "add up to the same."
    return _findings(found, stream, targets, note)


def capacities(machines: int, times: float, total: float) -> Floats:
    """Records a second of ten workers, `machines` of which are faster than the others by a factor; `total` in all."""
    each = np.where(np.arange(WORKERS) < machines, times, 1.0)
    found: Floats = each / each.sum() * total
    return found


def imbalances(history: QueueHistory) -> Floats:
    """In each slot: greatest less mean of records by capacity, by the records of the slot; capacities have mean 1."""
    rates = np.array(history.capacities)
    loads = np.array(history.arrived) / (rates / rates.mean(axis=1, keepdims=True))
    found: Floats = (loads.max(axis=1) - loads.mean(axis=1)) / np.array(history.arrived).sum(axis=1)
    return found


def recovery(history: QueueHistory, *, utilisation: bool = False) -> list[int]:
    """How many slots after each change of capacities, the first one being the start, the imbalance is under
    `BALANCED` again: 1 if the slot with the change is; more slots than there were if it never is."""
    gaps = _gaps(history) if utilisation else imbalances(history)
    rates = np.array(history.capacities)
    changes = [0, *(np.flatnonzero(np.any(rates[1:] != rates[:-1], axis=1)) + 1).tolist()]
    ends = [*changes[1:], len(gaps)]
    spent = []
    for start, end in zip(changes, ends, strict=True):
        under = np.flatnonzero(gaps[start:end] < BALANCED)
        spent.append(int(under[0]) + 1 if len(under) else end - start + 1)
    return spent


def _run_all(
    options: argparse.Namespace,
    schemes: tuple[str, ...] | dict[str, Make],
    machines: tuple[tuple[int, int, float], ...],
) -> tuple[dict[str, QueueHistory], Stream]:
    stream = WIKIPEDIA.scaled(0.002 if options.quick else options.scale)
    slot_seconds = HOUR if options.quick else SLOT_SECONDS
    total = stream.records / stream.seconds / MEAN_UTILISATION
    steps = tuple(
        (round(millions / 22 * stream.records), capacities(count, times, total)) for millions, count, times in machines
    )
    makes = schemes if isinstance(schemes, dict) else {name: SCHEMES[name] for name in schemes}
    found = {}
    for name, make in makes.items():

        def source(number: int, make: Make = make) -> Grouping:
            return make(WORKERS, number)

        setup = QueueSetup(stream.hashes(), source, SOURCES, steps, delegation(slot_seconds), seed=options.seed)
        found[name] = simulate(setup, stream.slots(options.seed, slot_seconds))
        progress(f"{name}: {_late(found[name])}")
    return found, stream


def _gaps(history: QueueHistory) -> Floats:
    """Greatest less mean utilisation, in each slot."""
    used = history.utilisations
    found: Floats = used.max(axis=1) - used.mean(axis=1)
    return found


def _settled(history: QueueHistory) -> int:
    return recovery(history, utilisation=True)[0]


def _late(history: QueueHistory) -> dict[str, float]:
    """The last quarter of the run: longest queue, mean gap of utilisations, mean latency."""
    quarter = len(history.ends) * 3 // 4
    served = np.array(history.served)[quarter:]
    waited = np.nan_to_num(np.array(history.latencies)[quarter:]) * served
    return {
        "queue": float(np.array(history.queues)[quarter:].max()),
        "gap": float(_gaps(history)[quarter:].mean()),
        "latency": float(waited.sum() / served.sum()),
    }


def _findings(found: dict[str, QueueHistory], stream: Stream, targets: list[Target], note: str) -> Findings:
    head = ("grouping", "longest queue", "utilisation gap", "p50, s", "p99, s", "max, s", "done", "memory", "moved")
    rows = []
    for scheme, history in found.items():
        late = _late(history)
        quantiles = [f"{history.latency_quantile(share):.3g}" for share in (0.5, 0.99)]
        done = np.array(history.served).sum() / history.records
        rows.append(
            (
                scheme,
                late["queue"],
                f"{late['gap']:.3f}",
                *quantiles,
                f"{history.longest:.3g}",
                f"{done:.1%}",
                f"{history.memory[-1]:.2f}",
                history.moved[-1],
            )
        )
    text = (
        f"{stream.name} stream: {stream.records:,} records in 24 hours, {stream.keys:,} keys, "
        f"the hottest has {stream.hottest:.2%}; {SOURCES} sources, {WORKERS} workers whose capacities add up to "
        f"1 / {MEAN_UTILISATION:g} of the mean rate, slots of a minute. {note} Longest queue and gap (greatest less "
        "mean utilisation) are those of the last quarter of the day, latencies those of all records that were done, "
        "moved the virtual workers (or slots) that all sources together moved.\n\n" + markdown_table(head, rows)
    )
    data = {scheme: _thinned(history) for scheme, history in found.items()}
    return Findings({"runs": data}, targets, text, _picture(found))


def _thinned(history: QueueHistory, points: int = 96) -> dict[str, Any]:
    at = np.unique(np.linspace(0, len(history.ends) - 1, points).astype(int))
    queues = np.array(history.queues)
    return {
        "seconds": np.array(history.ends)[at].tolist(),
        "longest_queue": queues.max(axis=1)[at].tolist(),
        "shortest_queue": queues.min(axis=1)[at].tolist(),
        "gap": np.round(_gaps(history)[at], 4).tolist(),
        "memory": np.round(np.array(history.memory)[at], 4).tolist(),
        "imbalance": history.imbalance,
        "latency": {str(share): history.latency_quantile(share) for share in (0.5, 0.95, 0.99)},
        "longest_latency": history.longest,
    }


def _picture(found: dict[str, QueueHistory]) -> Figure:
    figure, axes = panels(3, size=(13.0, 3.8))
    colours = dict(zip(found, COLOURS, strict=False))
    for scheme, history in found.items():
        hours = np.array(history.ends) / HOUR
        known = look(scheme)
        style = known if scheme in SCHEMES else {"color": colours[scheme], "label": scheme}
        queues = np.array(history.queues)
        axes[0].plot(hours, np.maximum(queues.max(axis=1) - queues.min(axis=1), 1), linewidth=1, **style)
        axes[1].plot(hours, _smooth(_spread_of_latency(history)), linewidth=1, **style)
        axes[2].plot(hours, _smooth(_gaps(history)), linewidth=1, **style)
    for panel, label in zip(
        axes,
        ("queue, longest less shortest", "latency, worst less best worker, s", "utilisation, greatest less mean"),
        strict=True,
    ):
        panel.set_xlabel("hours", color=INK)
        panel.set_ylabel(label, color=INK)
    axes[0].set_yscale("log")
    axes[1].set_yscale("log")
    axes[2].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _spread_of_latency(history: QueueHistory) -> Floats:
    by_worker = np.array(history.latencies)
    known = ~np.isnan(by_worker).all(axis=1)
    spread = np.full(len(by_worker), np.nan)
    spread[known] = np.nanmax(by_worker[known], axis=1) - np.nanmin(by_worker[known], axis=1)
    found: Floats = np.maximum(spread, 1e-4)
    return found


def _smooth(values: npt.NDArray[np.float64], width: int = 10) -> Floats:
    """The mean of each ten slots about, so that a line is a line."""
    if len(values) < 4 * width:
        return values
    found: Floats = np.convolve(values, np.ones(width) / width, mode="same")
    found[: width // 2], found[-width // 2 :] = values[: width // 2], values[-width // 2 :]
    return found
