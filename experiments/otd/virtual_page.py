"""The result in virtual time: every method on every shape, with the paper's figures."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, below, interval, markdown_table, progress, published
from experiments.otd.methods import METHODS, OTD, OURS
from experiments.otd.virtual import CYCLES, KINDS, SHAPES, SHIFTS, Course, course

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Courses = dict[tuple[str, str, str], Course]
"""By kind, shape and method."""

PAPERS = "2 x 4"

NETWORK_DELAY, LOCAL_DELAY = 1e-3, 2e-4
"""Seconds that a record is under way between tasks on different nodes (TD_N), and on one node (TD_P): assumed."""

_QUICK_CYCLES = 70

_SETTLED, _LATE = 61, 40
"""Cycles until communication no longer falls, and in 200 s (5.3.2)."""

SEEDS = 20
"""Courses of OTD for the published effects."""


def measure(options: argparse.Namespace) -> Findings:
    """Every kind, shape and method."""
    cycles, shapes = (_QUICK_CYCLES, list(SHAPES)[:2]) if options.quick else (CYCLES, list(SHAPES))
    found: Courses = {}
    for kind, make in KINDS.items():
        for shape in shapes:
            for name, method in METHODS.items():
                shifts = SHIFTS if kind == "compute" else ()
                found[kind, shape, name] = course(make(*SHAPES[shape]), method, cycles, shifts, options.seed)
            progress(f"{kind}-bound, {shape}: done")
    papers = {kind: papers_courses(kind, range(options.seed, options.seed + SEEDS)) for kind in KINDS}
    return Findings(
        data={" / ".join(key): vars(each) for key, each in found.items()},
        targets=[*_targets(found, shapes), *published_effects(papers["compute"], papers["communication"])],
        text=_text(found, shapes, cycles),
        figure=_figure(found, shapes[-1]),
    )


def papers_courses(kind: str, seeds: Iterable[int]) -> list[Course]:
    """OTD on the paper's cluster, for as many cycles as its figures are about, once for each seed."""
    shifts = SHIFTS if kind == "compute" else ()
    return [course(KINDS[kind](*SHAPES[PAPERS]), METHODS[OTD], _SETTLED + 1, shifts, seed) for seed in seeds]


def published_effects(compute: Sequence[Course], talk: Sequence[Course]) -> list[Target]:
    """OTD's published effects (5.3.1 and 5.3.2, figures 12 and 13), each of all courses.

    A closed loop of clients, as the paper's, is faster by as much as delays are shorter.
    """
    faster = [each.rate[10] / each.rate[0] - 1 for each in compute]
    crossing = float(np.mean([each.crossing[50] for each in compute]))
    shorter = np.array([1 - delay(part) / delay(each.crossing[0]) for each in talk for part in each.crossing[_LATE:]])
    return [
        published("12a: OTD, compute-bound: throughput after 10 cycles, beyond Storm's", 0.14, interval(faster), ".1%"),
        Target(
            "12c: OTD, compute-bound: traffic between nodes after 50 cycles",
            "< 20% (published)",
            f"{crossing:.1%}",
            crossing < 0.2,
        ),
        published(
            "13a: OTD, communication-bound: throughput after 200 s, beyond Storm's",
            0.19,
            interval(1 / (1 - shorter) - 1),
            ".1%",
        ),
        published("13b: OTD, communication-bound: delay after 200 s, below Storm's", 0.14, interval(shorter), ".1%"),
    ]


def delay(crossing: float) -> float:
    """Seconds that a record is under way where so much of the traffic between bolts is between nodes (equations 1 and
    2): from a server that is a machine of its own (5.1) to the first bolt, to the second one, and back. Processing is
    left out, as it hardly counts where a job is communication-bound."""
    between = NETWORK_DELAY * crossing + LOCAL_DELAY * (1 - crossing)
    return 2 * NETWORK_DELAY + between


def settled(kind: str, of: Course) -> int | None:
    """The cycles until the published effect: mean use of processors of 77 % after shared dear tasks, or less than 6 %
    of all traffic between nodes; None: never. Until the first shift."""
    if kind == "compute":
        return of.cycles_until(lambda cycle: cycle < SHIFTS[0] and of.cpu[cycle] >= 0.77)
    return of.cycles_until(lambda cycle: of.crossing[cycle] < 0.06)


def _targets(found: Courses, shapes: list[str]) -> list[Target]:
    compute, talk = (found[kind, PAPERS, OTD] for kind in KINDS)
    targets = [
        Target("OTD, compute-bound: mean use of processors after 10 cycles", ">= 77%", *_share(compute.cpu[10], 0.77)),
        Target(
            "OTD, communication-bound: traffic between nodes after 61 cycles",
            "< 6%",
            f"{talk.crossing[61]:.1%}",
            talk.crossing[61] < 0.06,
        ),
    ]
    for kind in KINDS:
        theirs, ours = (_until_settled(kind, [found[kind, shape, name] for shape in shapes]) for name in (OTD, OURS))
        name = f"ours, {kind}-bound: cycles until the published effect, all shapes together, below OTD's"
        targets.append(below(name, ours, theirs))
    return targets


def _until_settled(kind: str, courses: list[Course]) -> int:
    """The cycles until the published effect, added up; all cycles where it is not reached."""
    return sum(len(each.cpu) if (cycles := settled(kind, each)) is None else cycles for each in courses)


def _share(reached: float, wanted: float) -> tuple[str, bool]:
    return f"{reached:.1%}", reached >= wanted


def _cycles(count: int | None) -> str:
    return "never" if count is None else str(count)


def _text(found: Courses, shapes: list[str], cycles: int) -> str:
    head = (
        "",
        "method",
        "cpu, at first to at last",
        "between nodes",
        "rate",
        "moves",
        "cycles with moves",
        "cycles until the published effect",
    )
    rows = [
        (
            f"{kind}-bound, {shape}",
            name,
            *(f"{100 * of[0]:.0f} to {100 * of[-1]:.0f} %" for of in (each.cpu, each.crossing, each.rate)),
            sum(each.moves),
            sum(map(bool, each.moves)),
            _cycles(settled(kind, each)),
        )
        for kind in KINDS
        for shape in shapes
        for name in METHODS
        for each in [found[kind, shape, name]]
    ]
    return "\n\n".join(
        [
            f"{cycles} cycles of a job in a closed loop, in virtual time; at first tasks are dealt to nodes in turn. "
            "*2 x 4*: two nodes of four processors. *cpu*: mean use of all processors at the rate that the busiest "
            "node lets through; *between nodes*: of all traffic. Compute-bound, other tasks become dear at cycles "
            + " and ".join(map(str, SHIFTS))
            + ". The published effects: compute-bound, mean use of processors of 77 %, within 10 cycles; "
            "communication-bound, less than 6 % of the traffic between nodes, after 61.",
            f"Throughput and delay of communication-bound jobs (figure 13) follow from the traffic between nodes, with "
            f"{1e3 * NETWORK_DELAY:g} ms from node to node and {1e3 * LOCAL_DELAY:g} ms inside, which are assumed.",
            markdown_table(head, rows),
        ]
    )


def _figure(found: Courses, largest: str) -> Figure:
    figure, axes = panels(4, size=(15, 3.4))
    drawn: list[tuple[Any, str, str, str, str]] = [
        (axes[0], "compute", largest, "rate", f"compute-bound, {largest}: rate, %"),
        (axes[2], "communication", PAPERS, "crossing", f"communication-bound, {PAPERS}: between nodes, %"),
        (axes[3], "communication", largest, "crossing", f"communication-bound, {largest}: between nodes, %"),
    ]
    for panel, kind, shape, what, title in drawn:
        for colour, name in zip(COLOURS, METHODS, strict=False):
            values = 100 * np.array(getattr(found[kind, shape, name], what))
            panel.plot(values, color=colour, linewidth=1.4, label=name)
        panel.set_title(title, loc="left", fontsize=9)
        panel.set_xlabel("cycle")
        panel.set_ylim(0, 105)
    axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    for colour, name in zip(COLOURS, METHODS, strict=False):
        axes[1].plot(np.cumsum(found["compute", largest, name].moves), color=colour, linewidth=1.4)
    axes[1].set_title(f"compute-bound, {largest}: tasks moved so far", loc="left", fontsize=9)
    axes[1].set_xlabel("cycle")
    return figure
