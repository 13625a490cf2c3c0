"""The page of the runs in virtual time, and the picture of any runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from experiments.charts import COLOURS, INK, panels
from experiments.harness import interval, markdown_table
from experiments.redeploy.cases import CYCLES, MOVED, TUNED, Outcomes, case_of, of_cycles
from experiments.redeploy.course import Floats
from experiments.redeploy.losses import Storm
from experiments.redeploy.outcome import NONE, Case
from experiments.redeploy.schemes import LAZY, OURS, RESTART, SINGLE, STOP
from experiments.redeploy.targets import SECONDS
from experiments.redeploy.virtual import Setup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = {
    STOP: "stop the job (Storm)",
    RESTART: "restart workers (Storm*)",
    SINGLE: "single tasks (N-Storm)",
    LAZY: f"lazy kill (N-Storm+), {TUNED[0]:g}/{TUNED[1]:g} s",
    OURS: "ours",
}

_COLOUR = dict(zip((NONE, *SHOWN), ("#999999", *COLOURS), strict=False))


def page(found: Outcomes, setup: Setup, storm: Storm) -> str:
    """The text, with all tables."""
    layout = setup.layout
    return "\n\n".join(
        (
            f"A count by key on the cluster of the N-Storm paper: {layout.nodes} nodes with {layout.workers} worker "
            f"processes each, {layout.tasks} counting tasks, {setup.load:.0%} busy, for {setup.seconds} s. Every "
            f"{setup.every:g} s some of the tasks, drawn at random, move to other workers.",
            "Ours runs in virtual time: the coordinator is asked to move tasks, and the protocol moves them with their "
            "states; machines, credit and queues are those of real jobs, and every invariant is checked. A new task "
            f"takes {setup.start_seconds:g} s to start, as long as a worker process of the paper.",
            "The published schemes are a model of Storm (`experiments/redeploy/losses.py`): who stops and starts when, "
            "with the paper's durations, and what clients lose by that. Where the job or a process restarts, all "
            f"waits. Where single tasks move, a sentence of {storm.words} words is lost if one of them is sent to a "
            f"worker that does not have its task; it is sent again {storm.timeout:g} s later, Storm's default, and its "
            f"client waits. Clients have {storm.window:g} s of the rate under way: the paper does not say how much, "
            "and this is fitted to the 118 s of 16 tasks. Delays are not modelled. Clients do not catch up: the "
            "published throughputs are about what the published seconds leave.",
            "A *gap* is the longest time in which nobody worked on a moved task's keys: of ours, though they had "
            "records that waited; of a published scheme, as the task was nowhere. A second is counted if it lost at "
            "least that part of the throughput of the run in which nothing moves.",
            "## Tasks that move at a time",
            "One run; the model's is the first of its seeds.",
            _by_moved(found),
            f"## Published values\n\nMeans of {_runs(found)} runs of the model, and where 95 % of them are.",
            _published(found),
            "## Cycles",
            _by_cycles(found),
            "Agents of nodes look for a plan every `T_S`, workers every `T_W`. Measured here, a look of an agent that "
            f"writes a new part of a plan to the disk takes {1e6 * storm.polling.agent:.0f} us, one of a worker "
            f"{1e6 * storm.polling.worker:.0f} us. Storm's processes and ZooKeeper take more. In "
            "the paper the shortest cycles degrade the job for longer again, and the cost of looking is named as the "
            f"reason, without a figure. Tasks that are {setup.load:.0%} busy would have to lose {1 - setup.load:.0%} "
            f"of a processor for that: {1e3 * (1 - setup.load) * CYCLES[-1][1]:.0f} ms a look every "
            f"{CYCLES[-1][1]:g} s.",
        )
    )


def _by_moved(found: Outcomes) -> str:
    cases = [("-", NONE, Case(NONE)), ("any", SHOWN[STOP], case_of(STOP, 1))]
    schemes = [scheme for scheme in SHOWN if scheme != STOP]
    cases += [(str(moved), SHOWN[scheme], case_of(scheme, moved)) for moved in MOVED for scheme in schemes]
    return table(found, cases)


def table(found: Outcomes, cases: Iterable[tuple[str, str, Case]]) -> str:
    """A row for each of these cases that was run, with how many tasks move at a time and the name of the scheme."""
    rows = [
        (
            moved,
            name,
            run.degraded(0.6, found.usual),
            run.degraded(1.0, found.usual),
            f"{run.rate / found.usual:.1%}",
            *("" if each is None else f"{each:.3f}" for each in (run.mean_gap, run.longest_gap, run.p50, run.p99)),
        )
        for moved, name, case in cases
        if (run := found.of(case)) is not None
    ]
    lost = (">= 60 %, s", "100 %, s", "throughput")
    return markdown_table(("tasks", "scheme", *lost, "gap, mean (s)", "gap, most (s)", "p50 (s)", "p99 (s)"), rows)


def _published(found: Outcomes) -> str:
    rows = []
    for name, (case, most, whole) in SECONDS.items():
        if case in found.modelled:
            runs = found.modelled[case]
            rows.append((name, most, _spread(runs.degraded(0.6)), whole or "", _spread(runs.degraded(1.0))))
    return markdown_table(("scheme", ">= 60 %, published", "here", "100 %, published", "here"), rows)


def _spread(values: Floats) -> str:
    return "{:.0f} ({:.0f} to {:.0f})".format(values.mean(), *interval(values))


def _runs(found: Outcomes) -> int:
    return max(len(runs.rates) for runs in found.modelled.values())


def _by_cycles(found: Outcomes) -> str:
    rows = []
    for agent, worker in CYCLES:
        runs = found.modelled.get(of_cycles(agent, worker))
        if runs is not None:
            lost = (_spread(runs.degraded(level)) for level in (0.2, 0.6, 1.0))
            rows.append((f"{agent:g}/{worker:g}", *lost, f"{runs.throughput.mean():.1%}"))
    head = ("T_S/T_W, s", ">= 20 %, s", ">= 60 %, s", "100 %, s", "throughput")
    return f"N-Storm+, {MOVED[-1]} tasks at a time, means of all runs.\n\n{markdown_table(head, rows)}"


def draw(found: Outcomes, cases: Iterable[Case], moments: Sequence[float]) -> Figure:
    """A panel for the run in which nothing moves, and for each of these cases: the throughput of each second; dotted: a
    plan is published."""
    shown = [run for case in (Case(NONE), *cases) if (run := found.of(case)) is not None]
    rows = -(-len(shown) // 2)
    figure, axes = panels(2, (11.0, 2.3 * rows), rows=rows)
    for panel, run in zip(axes, shown, strict=False):
        case = run.case
        shares = [100 * rate / found.usual for rate in run.rates]
        panel.stairs(shares, range(len(shares) + 1), color=_COLOUR[case.scheme], fill=True, alpha=0.8)
        for at in moments if case.moved else ():
            panel.axvline(at, color=INK, linewidth=0.7, linestyle=":")
        moved = f", {case.moved} at a time" if case.scheme not in (NONE, STOP) else ""
        panel.set_title(f"{case.scheme}{moved}: throughput, %", loc="left", fontsize=9)
        panel.set_xlim(0, len(shares))
        panel.set_ylim(0, 150)
        panel.set_xlabel("seconds", fontsize=8)
    return figure
