"""Figures 14 and 15: the groupings on real actors, equal ones, and with two of eight that are slower.

Each record takes its time in the reducer, which sleeps, so eight reducers share two processors as eight machines would.
Throughput is measured with as many records in flight as credits allow; latency with sources that keep a pace below what
all reducers together can do, and credits that never hold them up, so that no wait is left out.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpa.job import Job
from dpa.result import Report
from dpa.runtime.cluster import ray_session
from experiments.cg.schemes import look
from experiments.charts import INK, panels
from experiments.harness import Findings, Target, above, at_most, markdown_table, progress
from experiments.streams import TWITTER
from jobs.paced import PacedCounts, PacedSource

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REDUCERS, MAPPERS = 8, 2
SLOWDOWN = 1 / 0.3
"""A quarter of the reducers are left 30 % of their speed."""

SERVICE_SECONDS = (0.0001, 0.001)
SECONDS = 5.0
"""How long a run takes if all reducers are busy all the time."""

PACE = 0.7
"""Of what all reducers together can do, in the runs for latency."""

BATCH_SECONDS = 0.03
"""A source that keeps a pace hands on so much at a time, which every latency includes."""

HEADLINE = 3.44
SIGNALS: dict[str, Any] = {"slot_seconds": 0.25}
CONSISTENT: dict[str, Any] = {"kind": "consistent", "virtual_workers": 10, **SIGNALS}
GROUPINGS: dict[str, dict[str, Any]] = {
    "KG": {"kind": "key"},
    "PKG": {"kind": "partial_key"},
    "SG": {"kind": "shuffle"},
    "PoRC": {"kind": "random_choices"},
    "CG": CONSISTENT,
    "CG, proportional": {**CONSISTENT, "proportional": True},
    "CG, ours": {**CONSISTENT, "proportional": True, "pooled": True},
    "weighted W-C": {"kind": "weighted_w_choices", **SIGNALS},
    "ring, adaptive": {"kind": "ring"},
}


def figure14(options: argparse.Namespace) -> Findings:
    """Equal reducers."""
    return _measured(options, slowed=0)


def figure15(options: argparse.Namespace) -> Findings:
    """Two of eight reducers are slower."""
    return _measured(options, slowed=1 / 4)


def _measured(options: argparse.Namespace, slowed: float) -> Findings:
    """With this share of the reducers slowed."""
    services, seconds, groupings, reducers = SERVICE_SECONDS, SECONDS, GROUPINGS, REDUCERS
    if options.quick:
        services, seconds, groupings, reducers = (0.001,), 1.0, {"CG": GROUPINGS["CG"]}, 3
    slow = round(slowed * reducers)
    slowdown = (1.0,) * (reducers - slow) + (SLOWDOWN,) * slow
    speed = sum(1 / factor for factor in slowdown)
    saturated: dict[str, list[dict[str, Any]]] = {name: [] for name in groupings}
    paced: dict[str, dict[str, Any]] = {}
    with ray_session(None, actors=reducers + MAPPERS + 2):
        for service in services:
            keys = _keys(round(seconds * speed / service), options.seed)
            for name, grouping in groupings.items():
                report = _run(keys, grouping, service, slowdown)
                saturated[name].append({"service": service, **_facts(report)})
                progress(f"{name}, {service * 1000:g} ms: {report.records_per_second:,.0f} records/s")
        service = services[-1]
        rate = PACE * speed / service
        keys = _keys(round(seconds * rate), options.seed)
        for name, grouping in groupings.items():
            paced[name] = _facts(_run(keys, grouping, service, slowdown, rate=rate))
            progress(f"{name} at {rate:,.0f} records/s: {paced[name]['latency']}")
    return Findings(
        data={"saturated": saturated, "paced": paced, "slowdown": slowdown},
        targets=[] if options.quick else _targets(saturated, paced, unequal=slow > 0),
        text=_text(saturated, paced, slowdown, service),
        figure=_figure(saturated, paced),
    )


def _keys(records: int, seed: int) -> pa.Array:
    """The keys of a Twitter-like stream scaled to this number of records, with keys scaled alike."""
    stream = TWITTER.scaled(records / TWITTER.records)
    found = np.concatenate([slot.keys for slot in stream.slots(seed, slot_seconds=stream.seconds)])
    return pa.array(found).cast(pa.string())


def _run(
    keys: pa.Array, grouping: dict[str, Any], service: float, slowdown: tuple[float, ...], rate: float | None = None
) -> Report:
    """One run on real actors; with a `rate` the sources keep it."""
    batch = max(8, round(BATCH_SECONDS * rate / MAPPERS)) if rate else max(16, round(0.1 / service))
    job = Job(
        input=pa.table({"key": keys}),
        mapper=PacedSource(rate / MAPPERS) if rate else None,
        key="key",
        value=None if rate else [],
        reducer=PacedCounts(service),
        grouping=grouping,
        parallelism={"mappers": MAPPERS, "reducers": len(slowdown)},
        testing={"slow_factor": list(slowdown)},
        balance={"check_seconds": 0.25, "min_delay": 0.05} if grouping["kind"] == "ring" else {},
        limits={
            "batch_records": batch,
            "in_flight_records": max(batch, len(keys)) if rate else 8 * batch,
            **({"queue_seconds": None} if rate else {}),  # at a given pace queues have no bound, as the paper's
            "quantum_seconds": 0.02,
            "split_records": max(batch, len(keys) // (20 * MAPPERS)),
        },
    )
    result = job.run()
    _check(result.table(), keys)
    return result.report


def _check(found: pa.Table, keys: pa.Array) -> None:
    """Every key was counted as often as it came."""
    counts = keys.value_counts()
    expected = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
    assert dict(zip(found["key"].to_pylist(), found["count"].to_pylist(), strict=True)) == expected


def _facts(report: Report) -> dict[str, Any]:
    latency = report.main.latency
    assert latency is not None
    return {
        "throughput": report.records_per_second,
        "latency": {name: getattr(latency, name) for name in ("mean", "p50", "p95", "p99", "max")},
        "memory": report.main.grouping.replication,
        "moved": report.main.grouping.moved,
        "shares": [round(reducer.share, 4) for reducer in report.main.tasks],
    }


def _targets(
    saturated: dict[str, list[dict[str, Any]]], paced: dict[str, dict[str, Any]], *, unequal: bool
) -> list[Target]:
    targets = []
    for name in ("CG", "CG, ours"):
        memory = paced[name]["memory"] / paced["PoRC"]["memory"]
        targets.append(at_most(f"memory of {name} by that of PoRC", memory, 1.1))
    if not unequal:
        return targets
    ratio = paced["KG"]["latency"]["mean"] / paced["CG"]["latency"]["mean"]
    targets.append(Target("mean latency at the same pace, KG to CG", f">= {HEADLINE}", ratio, ratio >= HEADLINE))
    for place, facts in enumerate(saturated["CG"]):
        best = max(saturated[name][place]["throughput"] for name in ("KG", "PKG", "SG"))
        name = f"throughput at {facts['service'] * 1000:g} ms, CG to the best of KG, PKG and SG"
        targets.append(above(name, facts["throughput"] / best, 1))
    return targets


def _text(
    saturated: dict[str, list[dict[str, Any]]],
    paced: dict[str, dict[str, Any]],
    slowdown: tuple[float, ...],
    service: float,
) -> str:
    speed, slow = sum(1 / factor for factor in slowdown), sum(factor > 1 for factor in slowdown)
    services = [facts["service"] for facts in next(iter(saturated.values()))]
    head = ("records/s by grouping", *(f"{each * 1000:g} ms a record" for each in services))
    ideal = ("(all busy all the time)", *(f"{speed / each:,.0f}" for each in services))
    rows = [ideal, *((name, *(f"{one['throughput']:,.0f}" for one in of)) for name, of in saturated.items())]
    quantiles = ("mean", "p50", "p95", "p99", "max")
    seconds = [
        (name, *(f"{facts['latency'][which]:.3g}" for which in quantiles), f"{facts['memory']:.2f}", facts["moved"])
        for name, facts in paced.items()
    ]
    cluster = f"{slow} of them at 30 % of their speed" if slow else "all equal"
    return (
        f"Twitter-like stream, the hottest key has {TWITTER.hottest:.2%}; {MAPPERS} mappers, {len(slowdown)} reducers, "
        f"{cluster}. Throughput of {SECONDS:g} s of work, the time that groupings take to learn included:\n\n"
        + markdown_table(head, rows)
        + f"\n\nLatency in seconds, at {PACE:.0%} of what all reducers can do, {service * 1000:g} ms a record, from "
        "the first record on; memory is on how many reducers a key was on average, moved the virtual workers or slots "
        "that both mappers moved:\n\n" + markdown_table(("grouping", *quantiles, "memory", "moved"), seconds)
    )


def _figure(saturated: dict[str, list[dict[str, Any]]], paced: dict[str, dict[str, Any]]) -> Figure:
    figure, [left, right] = panels(2, size=(12.0, 3.8))
    for name, of in saturated.items():
        left.plot([one["service"] * 1000 for one in of], [one["throughput"] for one in of], marker=".", **look(name))
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("ms a record", color=INK)
    left.set_ylabel("records/s", color=INK)
    names = list(paced)
    for which, marker in (("p50", "o"), ("mean", "D"), ("p99", "s"), ("max", "x")):
        right.plot(
            [paced[name]["latency"][which] for name in names],
            range(len(names)),
            marker,
            color=INK,
            markersize=5,
            label=which,
            fillstyle="none",
        )
    right.set_yticks(range(len(names)), names)
    right.invert_yaxis()
    right.set_xscale("log")
    right.set_xlabel("latency, s", color=INK)
    right.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    left.legend(fontsize=8, frameon=False)
    return figure
