"""The page of the runs in virtual time."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.harness import markdown_table
from experiments.redeploy.cases import CHEAP, CYCLES, DEAR, MOVED, TUNED, Outcomes, case_of, of_cycles
from experiments.redeploy.outcome import NONE, Case
from experiments.redeploy.schemes import LAZY, OURS, RESTART, SINGLE, STOP
from experiments.redeploy.virtual import Setup

PUBLISHED = {STOP: (279, 267), RESTART: (155, None), SINGLE: (20, None)}
"""Seconds of 600 that lost at least 60 %, and all, of the throughput, of 1 task at a time (5.2.1)."""

SHOWN = {
    STOP: "stop the job (Storm)",
    RESTART: "restart workers (Storm*)",
    SINGLE: "single tasks (N-Storm)",
    LAZY: f"lazy kill (N-Storm+), {TUNED[0]:g}/{TUNED[1]:g} s",
    OURS: "ours",
}


def page(found: Outcomes, setup: Setup) -> str:
    """The text, with all tables."""
    layout = setup.layout
    return "\n\n".join(
        (
            f"A count by key in virtual time, on the cluster of the N-Storm paper: {layout.nodes} nodes with "
            f"{layout.workers} worker processes each, {layout.tasks} counting tasks, {setup.load:.0%} busy, for "
            f"{setup.seconds} s. Every {setup.every:g} s some of the tasks, drawn at random, move to other workers. "
            "Machines, credit and queues are those of real jobs, and every invariant is checked.",
            "The published schemes are plans of pauses: a model of who stops and starts when, with the paper's "
            "durations (`experiments/redeploy/schemes.py`), says when a task does nothing, and the simulated job does "
            "what backpressure makes it do. Ours is no model: the coordinator is asked to move tasks, and the protocol "
            f"moves them with their states. A new task takes {setup.start_seconds:g} s to start, as long as a worker "
            "process of the paper. The model is kind to the published schemes: records that wait for a task that is "
            "away are kept, while Storm loses them and sends them again after a while.",
            "The source reads at a set pace and does not catch up: what it does not read while the job stands is lost "
            "to the throughput. The paper's job is such a closed loop too: clients wait for answers, and its published "
            "throughputs are about what the published seconds leave. So delays count from when a record was read, and "
            "a record that was not read because the job stood has none.",
            "A *gap* is the longest time in which nobody worked on a moved task's keys, though it was away or had "
            "records that waited. A second is counted if it lost at least that part of the throughput of the run in "
            "which nothing moves.",
            "## Tasks that move at a time",
            _by_moved(found),
            "The published seconds, of 1 task at a time, and those of the same schemes here:",
            _published(found),
            "## Cycles",
            _by_cycles(found),
            "Agents of nodes look for a plan every `T_S`, workers every `T_W`. In the paper the shortest cycles "
            "degrade the job for longer again, and the cost of looking is named as the reason, without a figure. Here "
            "a look costs processor time of the worker's tasks. Both costs are assumed: the higher one was chosen so "
            "that looking every 0.1 s takes more than the 30 % of a processor that these tasks leave.",
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
            *(f"{seconds:.3f}" for seconds in (run.mean_gap, run.longest_gap, run.p50, run.p99)),
        )
        for moved, name, case in cases
        if (run := found.of(case)) is not None
    ]
    lost = (">= 60 %, s", "100 %, s", "throughput")
    return markdown_table(("tasks", "scheme", *lost, "gap, mean (s)", "gap, most (s)", "p50 (s)", "p99 (s)"), rows)


def _published(found: Outcomes) -> str:
    rows = []
    for scheme, (most, whole) in PUBLISHED.items():
        run = found.of(case_of(scheme, 1))
        if run is not None:
            here = (run.degraded(0.6, found.usual), run.degraded(1.0, found.usual))
            rows.append((SHOWN[scheme], most, here[0], "" if whole is None else whole, here[1]))
    return markdown_table(("scheme", ">= 60 %, published", "here", "100 %, published", "here"), rows)


def _by_cycles(found: Outcomes) -> str:
    rows = []
    for agent, worker in CYCLES:
        for polling in (CHEAP, DEAR):
            run = found.of(of_cycles(agent, worker, polling))
            if run is not None:
                rows.append(
                    (
                        f"{agent:g}/{worker:g}",
                        f"{1000 * polling.worker:g}",
                        run.degraded(0.2, found.usual),
                        run.degraded(0.6, found.usual),
                        run.degraded(1.0, found.usual),
                        f"{run.rate / found.usual:.1%}",
                    )
                )
    head = ("T_S/T_W, s", "cost of a look, ms", ">= 20 %, s", ">= 60 %, s", "100 %, s", "throughput")
    return f"N-Storm+, {MOVED[-1]} tasks at a time.\n\n{markdown_table(head, rows)}"
