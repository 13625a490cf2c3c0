"""Experiment 2 of the DPA paper (section 6.4, Figure 3): the skew S against the rounds that a reducer's load may cause.

Halving and doubling run on every workload with at most 0 to 8 rounds, on Ray and in virtual time. The points of the
paper's figure are not published; the claims of its text are checked one by one.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from experiments.charts import panels
from experiments.harness import Findings, Target, main, markdown_table, progress
from experiments.letters import COLOUR_OF, SERVICE_SECONDS, Race, Run, one_after_another, sessions, simulate, spread
from jobs.letters import WORKLOADS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("halving", "doubling")
ROUNDS = (0, 1, 2, 4, 8)
"""What each runs with: from none to all of the paper's figure, closer where most changes."""

MAP_SECONDS = (0.0, 0.005, 0.05)
"""What a letter takes a mapper in virtual time."""

VIRTUAL = {"virtual": 20, "virtual, often": 5}
"""What runs in virtual time are called, by the dequeued letters between two reports of a reducer. The paper's is 20: a
reducer with 100 letters then reports five times, which few rounds use up."""

NOTICEABLE = 0.02
"""Differences of S below this count as none: one letter more or less on the busiest reducer is 1/75 = 0.013."""


class Curves:
    """S against rounds, for each workload and method, of runs of one kind."""

    def __init__(self, kind: str, runs: Sequence[Run]) -> None:
        """`kind` names what the runs ran on."""
        self.kind = kind
        self._skews: dict[tuple[str, str], dict[int, list[float]]] = {}
        for run in runs:
            self._skews.setdefault((run.workload, run.method), {}).setdefault(run.rounds, []).append(run.skew)

    @property
    def workloads(self) -> list[str]:
        """The workloads that ran, in order."""
        return list(dict.fromkeys(workload for workload, _ in self._skews))

    def rounds(self, workload: str, method: str) -> list[int]:
        """The maximum rounds that ran, ascending."""
        return sorted(self._skews[workload, method])

    def mean(self, workload: str, method: str, rounds: int) -> float:
        """The mean S of the runs with at most `rounds` rounds."""
        return statistics.mean(self._skews[workload, method][rounds])

    def spread(self, workload: str, method: str, rounds: int) -> tuple[float, float]:
        """The least and the most S of those runs."""
        skews = self._skews[workload, method][rounds]
        return min(skews), max(skews)

    def more(self, workload: str, method: str) -> list[int]:
        """The maximum rounds above one that ran."""
        return [rounds for rounds in self.rounds(workload, method) if rounds > 1]

    def change(self, workload: str, method: str, fewer: int, more: int) -> float:
        """The increase of S from fewer rounds to more."""
        return self.mean(workload, method, more) - self.mean(workload, method, fewer)

    def best(self, workload: str, method: str) -> int:
        """The rounds above one with the least S, the fewest if several have it."""
        return min(self.more(workload, method), key=lambda rounds: round(self.mean(workload, method, rounds), 4))

    def rise(self, workload: str, method: str) -> tuple[int, int]:
        """The fewer and the more rounds, at least one, between which S rises most."""
        pairs = list(itertools.combinations([1, *self.more(workload, method)], 2))
        return max(pairs, key=lambda pair: round(self.change(workload, method, *pair), 4))

    def helped(self, workload: str, method: str) -> bool:
        """Whether more rounds than one lower S noticeably at some number of rounds."""
        return self.change(workload, method, 1, self.best(workload, method)) <= -NOTICEABLE

    def hurt(self, workload: str, method: str) -> bool:
        """Whether S rises noticeably from some number of rounds, at least one, to a greater one."""
        return self.change(workload, method, *self.rise(workload, method)) >= NOTICEABLE

    def fewer_and_more(self, workload: str, method: str, fewer: int, more: int) -> str:
        """S with fewer and with more rounds."""
        before, after = (self.mean(workload, method, rounds) for rounds in (fewer, more))
        return f"{workload} {method} {before:.2f} -> {after:.2f} (rounds {fewer} -> {more})"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper on Figure 3, whether it holds in runs of one kind, and the numbers."""

    claim: str
    kind: str
    true: bool
    numbers: str


def measure(options: argparse.Namespace) -> Findings:
    """Run every workload and method with every number of rounds."""
    workloads, rounds, seeds, service_seconds = options.workloads, options.rounds, options.seeds, SERVICE_SECONDS
    if options.quick:
        workloads, rounds, seeds, service_seconds = ["wl2"], [0, 1, 2], 1, SERVICE_SECONDS / 10
    rounds = sorted({0, 1, *rounds})  # which the claims compare with
    points = list(itertools.product(workloads, METHODS, rounds))
    ray: list[Run] = []
    if not options.simulate:
        with sessions():
            ray = one_after_another(points * options.repeats, service_seconds=service_seconds)
    virtual: dict[str, list[Run]] = {kind: [] for kind in VIRTUAL}
    seeded = range(options.seed, options.seed + seeds)
    for workload, method, most in points:
        for (kind, period), delay in itertools.product(VIRTUAL.items(), MAP_SECONDS):
            virtual[kind] += simulate(workload, method, seeded, most, Race(delay, period))
        progress(f"{workload}, {method}, {most} rounds: in virtual time")
    curves = [Curves(kind, runs) for kind, runs in [("Ray", ray), *virtual.items()] if runs]
    claims = [claim for kind in curves if rounds[-1] > 1 for claim in _claims(kind)]
    return Findings(
        data={
            "service_seconds": service_seconds,
            "runs": [asdict(run) for run in ray],
            "simulated": {kind: _spreads(runs) for kind, runs in virtual.items()},
            "claims": [asdict(claim) for claim in claims],
        },
        targets=[Target("results that equal Spark's", f"{len(ray)} of {len(ray)}", f"{len(ray)} of {len(ray)}", True)]
        if ray  # a run whose result is another does not return
        else [],
        text=_text(curves, claims, options.repeats, seeds, service_seconds),
        figure=_figure(curves, workloads),
    )


def _spreads(runs: Sequence[Run]) -> list[dict[str, Any]]:
    points: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        points.setdefault((run.workload, run.method, run.rounds), []).append(run)
    return [
        {"workload": workload, "method": method, "rounds": rounds, **spread(same)}
        for (workload, method, rounds), same in points.items()
    ]


def _claims(curves: Curves) -> list[Claim]:
    return [_helps_somewhere(curves), _never_hurts_halving(curves), _can_hurt_doubling(curves), *_recovers(curves)]


def _helps_somewhere(curves: Curves) -> Claim:
    helped, numbers = [], []
    for workload in curves.workloads:
        methods = [method for method in METHODS if curves.helped(workload, method)]
        helped.append(bool(methods))
        found = [
            curves.fewer_and_more(workload, method, 1, curves.best(workload, method)) for method in methods or METHODS
        ]
        start = max(curves.mean(workload, method, 0) for method in METHODS)
        even = " - without balancing S is 0 already: more rounds can only undo what the first did" if start == 0 else ""
        numbers.append(("helps: " if methods else "does not help: ") + ", ".join(found) + even)
    claim = "Additional rounds help at least one of the methods on every workload"
    return Claim(claim, curves.kind, all(helped), "; ".join(numbers))


def _never_hurts_halving(curves: Curves) -> Claim:
    hurt, numbers = _hurt(curves, "halving")
    return Claim("Additional rounds never hurt halving", curves.kind, not hurt, numbers)


def _can_hurt_doubling(curves: Curves) -> Claim:
    hurt, numbers = _hurt(curves, "doubling")
    return Claim("Additional rounds can hurt doubling", curves.kind, hurt, numbers)


def _hurt(curves: Curves, method: str) -> tuple[bool, str]:
    """Whether more rounds hurt a method on any workload, and where S rises most."""
    hurt = [workload for workload in curves.workloads if curves.hurt(workload, method)]
    risen = [
        workload
        for workload in curves.workloads
        if round(curves.change(workload, method, *curves.rise(workload, method)), 3) > 0
    ]
    found = [curves.fewer_and_more(workload, method, *curves.rise(workload, method)) for workload in hurt or risen]
    return bool(hurt), ("hurts: " if hurt else "does not: ") + (", ".join(found) or "S rises nowhere")


def _recovers(curves: Curves) -> list[Claim]:
    """The claim on wl1 and wl2, if they ran with two rounds."""
    held, numbers = [], []
    for workload, method in itertools.product(("wl1", "wl2"), METHODS):
        if workload not in curves.workloads or 2 not in curves.rounds(workload, method):
            continue
        none, one, two = (curves.mean(workload, method, rounds) for rounds in (0, 1, 2))
        held.append(one - none >= NOTICEABLE and two < one)
        numbers.append(f"{workload} {method} {none:.2f}, {one:.2f}, {two:.2f}")
    claim = "On wl1 and wl2 both methods bring in some skew in round 1 and recover in round 2"
    return [Claim(claim, curves.kind, all(held), f"0, 1 and 2 rounds: {'; '.join(numbers)}")] if held else []


def _text(curves: Sequence[Curves], claims: Sequence[Claim], repeats: int, seeds: int, service_seconds: float) -> str:
    rows = [
        (workload, method, kind.kind, *(_point(kind, workload, method, most) for most in kind.rounds(workload, method)))
        for workload in curves[0].workloads
        for method in METHODS
        for kind in curves
    ]
    columns = max(len(row) for row in rows)
    rows = [row + ("",) * (columns - len(row)) for row in rows]
    first = curves[0].workloads[0]
    rounds = [str(most) for most in curves[0].rounds(first, METHODS[0])]
    ray = (
        f"*Ray*: {repeats} {'run' if repeats == 1 else 'runs'} of each, {service_seconds:g} s a letter. "
        if curves[0].kind == "Ray"
        else "Nothing ran on Ray. "
    )
    return (
        "Figure 3 of the DPA paper: S against the most redistributions that one reducer's load may cause; all else as "
        f"in Table 1. {ray}*virtual*: the simulator, with mappers of {', '.join(f'{s:g}' for s in MAP_SECONDS)} s a "
        f"letter and {seeds} seeds of each. *virtual, often*: the same, but a reducer reports at every "
        f"{VIRTUAL['virtual, often']}th letter: with every 20th of 100, most rounds are never used. Means, and where "
        "runs differ, in brackets the least and the most.\n\n"
        + markdown_table(("workload", "method", "on", *rounds), rows)
        + "\n\n## What the paper says of it\n\n"
        "*Helps*: some number of rounds has a lower mean S than one round. *Hurts*: more rounds have a higher mean S "
        f"than fewer, but at least one. Differences below {NOTICEABLE:g} count as none, as one letter more or less on "
        "the busiest reducer is 0.013. A single run on Ray is one draw of a race.\n\n"
        + "\n".join(
            f"- **{name}.** "
            + " ".join(f"*{claim.kind}*: **{str(claim.true).lower()}** - {claim.numbers}." for claim in same)
            for name, same in _by_claim(claims)
        )
    )


def _by_claim(claims: Sequence[Claim]) -> list[tuple[str, list[Claim]]]:
    names = dict.fromkeys(claim.claim for claim in claims)
    return [(name, [claim for claim in claims if claim.claim == name]) for name in names]


def _point(curves: Curves, workload: str, method: str, rounds: int) -> str:
    least, most = (f"{skew:.2f}" for skew in curves.spread(workload, method, rounds))
    mean = f"{curves.mean(workload, method, rounds):.2f}"
    return mean if least == most else f"{mean} ({least} ... {most})"


def _figure(curves: Sequence[Curves], workloads: Sequence[str]) -> Figure:
    figure, made = panels(columns=3, rows=2, size=(10.0, 5.6))
    for workload, axes in zip(workloads, made, strict=False):
        for method in METHODS:
            for kind in curves:
                _draw(axes, kind, workload, method)
        axes.set_title(workload, loc="left", fontsize=10)
        axes.set_ylim(-0.04, 1.06)
        axes.set_xticks(curves[0].rounds(workload, METHODS[0]))
    for axes in made[::3]:
        axes.set_ylabel("skew S")
    for axes in made[len(workloads) :]:
        axes.set_axis_off()
    for axes in made[max(0, len(workloads) - 3) : len(workloads)]:
        axes.set_xlabel("most rounds a reducer")
    made[-1].legend(*made[0].get_legend_handles_labels(), loc="center", frameon=False, fontsize=10)
    return figure


def _draw(axes: Any, curves: Curves, workload: str, method: str) -> None:
    colour = COLOUR_OF[method]
    rounds = curves.rounds(workload, method)
    means = [curves.mean(workload, method, most) for most in rounds]
    if curves.kind == "Ray":
        axes.plot(rounds, means, color=colour, marker="o", markersize=4, linewidth=1.2, label=f"{method}, Ray")
        return
    style = "--" if curves.kind == "virtual" else ":"
    ends = [curves.spread(workload, method, most) for most in rounds]
    axes.fill_between(rounds, *zip(*ends, strict=True), color=colour, alpha=0.15, linewidth=0)
    axes.plot(rounds, means, color=colour, linewidth=1.2, linestyle=style, label=f"{method}, {curves.kind}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, nargs="+", default=list(ROUNDS), help="0 and 1 always run")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=1, help="runs of each on Ray")
    parser.add_argument("--seeds", type=int, default=3, help="simulated runs of each, for each speed of the mappers")
    parser.add_argument("--simulate", action="store_true", help="in virtual time only; better with --results elsewhere")
    main("figure3", parser, measure)
