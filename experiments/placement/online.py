"""Part f: OTD in simulation (N-Storm, 5.3): one task moves a cycle, on loads that follow from where tasks are.

Two nodes of four workers, bolts of 12 and 24 tasks. The job is a closed loop: the busiest worker limits the rate, and
all others work less in proportion. *Compute-bound*: the first bolt's tasks cost unequally, and which of them are dear
shifts. *Communication-bound*: tasks cost little, and all traffic is even, so no single first move gains anything.
Then 2 to 16 nodes of two workers, with tasks in proportion.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpa.placement.otd import Case, Measured, OnlineTaskDeployment
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, markdown_table, progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

CYCLES = 120
SHIFTS = (40, 80)
"""Cycles at which other tasks become dear."""
SCALES = (2, 4, 8, 16)
"""Numbers of nodes."""

OFFERED = 0.85
"""Processors that a compute-bound job would use at full rate, by those that there are."""
DEAR = 2.2
"""What a third of the heavy tasks cost, in that of the others; at first they share workers, as keys would have it."""


@dataclass
class Topology:
    """Tasks of two bolts on workers, round robin at first, as Storm places them.

    Attributes:
        nodes: of each worker.
        traffic: tasks x tasks, bytes/s at full rate.
        costs: of each task, processors at full rate.
        workers: of each task.
    """

    nodes: list[int]
    traffic: Floats
    costs: Floats
    workers: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.workers = [task % len(self.nodes) for task in range(len(self.costs))]

    @property
    def rate(self) -> float:
        """Of the full one, what the busiest worker lets through."""
        return min(1.0, 1.0 / self._loads().max())

    @property
    def cpu(self) -> Floats:
        """Use of each worker's processor at that rate."""
        return self.rate * self._loads()

    @property
    def crossing(self) -> float:
        """The part of all traffic that is between nodes."""
        place = np.array(self.nodes)[self.workers]
        return float(self.traffic[place[:, None] != place[None, :]].sum() / self.traffic.sum())

    def measured(self) -> Measured:
        """What a cycle would measure. A worker's queue is full where it limits the rate."""
        rate = self.rate
        queues = np.where(self._loads() >= 1 / rate - 1e-9, 1.0 if rate < 1 else 0.0, 0.0)
        return Measured(rate * self.traffic, rate * self.costs, self.cpu, queues)

    def _loads(self) -> Floats:
        return np.bincount(self.workers, self.costs, len(self.nodes))


@dataclass
class Run:
    """What cycles made of a topology: figures before each cycle, and what each did."""

    cpu: list[float] = field(default_factory=list)
    crossing: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    moves: int = 0


def measure(options: argparse.Namespace) -> Findings:
    """Both kinds on two nodes of four workers, then on more nodes."""
    cycles, scales = (70, SCALES[:2]) if options.quick else (CYCLES, SCALES)
    compute = _run(compute_bound([0] * 4 + [1] * 4, 12, 24), cycles, SHIFTS, options.seed)
    communication = _run(communication_bound([0] * 4 + [1] * 4, 12, 24), cycles)
    scaled: dict[str, dict[int, Run]] = {"compute": {}, "communication": {}}
    for nodes in scales:
        workers = [worker // 2 for worker in range(2 * nodes)]
        scaled["compute"][nodes] = _run(compute_bound(workers, 3 * nodes, 6 * nodes), cycles)
        scaled["communication"][nodes] = _run(communication_bound(workers, 3 * nodes, 6 * nodes), cycles)
        progress(f"{nodes} nodes done")
    kept = min(_mean(compute.cpu, start + 10, end) for start, end in _phases(cycles))
    reached = compute.cpu[10]
    crossing = communication.crossing[61]
    return Findings(
        data={
            "compute": vars(compute),
            "communication": vars(communication),
            "scaled": {kind: {nodes: vars(run) for nodes, run in runs.items()} for kind, runs in scaled.items()},
        },
        targets=[
            Target(
                "compute-bound: mean use of processors after 10 cycles", ">= 77%", f"{reached:.1%}", reached >= 0.77
            ),
            Target("compute-bound: the same between shifts, the least", ">= 75%", f"{kept:.1%}", kept >= 0.75),
            Target(
                "communication-bound: traffic between nodes after 61 cycles", "< 6%", f"{crossing:.1%}", crossing < 0.06
            ),
        ],
        text=_text(compute, communication, scaled, cycles),
        figure=_figure(compute, communication, scaled),
    )


def compute_bound(nodes: Sequence[int], heavy: int, light: int) -> Topology:
    """The first bolt bears nine tenths of the cost, its tasks unequally; the second one a tenth."""
    shares = np.ones(heavy)
    pairs = max(1, heavy // 6)
    shares[:pairs] = shares[len(nodes) : len(nodes) + pairs] = DEAR
    costs = np.concatenate([0.9 * shares / shares.sum(), np.full(light, 0.1 / light)])
    return Topology(list(nodes), _between(heavy, light), OFFERED * len(nodes) * costs)


def communication_bound(nodes: Sequence[int], first: int, second: int) -> Topology:
    """Every task costs so little that one node could bear all."""
    tasks = first + second
    return Topology(list(nodes), _between(first, second), np.full(tasks, 0.15 * len(nodes) / tasks))


def _run(topology: Topology, cycles: int, shifts: Sequence[int] = (), seed: int = 0) -> Run:
    """Let OTD work for some cycles; at each shift the dear tasks become others."""
    online, run = OnlineTaskDeployment(topology.nodes), Run()
    random = np.random.default_rng(seed + 1)
    for cycle in range(cycles):
        if cycle in shifts:
            heavy = len(topology.costs) // 3
            topology.costs[:heavy] = random.permutation(topology.costs[:heavy])
        run.cpu.append(float(topology.cpu.mean()))
        run.crossing.append(topology.crossing)
        run.rate.append(topology.rate)
        step = online.step(topology.workers, topology.measured())
        run.cases.append(step.case)
        if step.migration is not None:
            run.moves += 1
            topology.workers[step.migration.task] = step.migration.worker
    return run


def _between(first: int, second: int) -> Floats:
    """Every task of the first bolt sends as much to every task of the second."""
    traffic = np.zeros((first + second, first + second))
    traffic[:first, first:] = 1e6 / (first * second)
    return traffic


def _phases(cycles: int) -> list[tuple[int, int]]:
    """The cycles between shifts: from, to."""
    bounds = [0, *(shift for shift in SHIFTS if shift + 11 < cycles), cycles]
    return list(itertools.pairwise(bounds))


def _mean(values: Sequence[float], start: int, end: int) -> float:
    return float(np.mean(values[start:end]))


def _text(compute: Run, communication: Run, scaled: dict[str, dict[int, Run]], cycles: int) -> str:
    def row(name: str, run: Run) -> tuple[Any, ...]:
        cases = [f"{sum(case is each for case in run.cases)} {each.name.lower()}" for each in Case]
        figures = (f"{100 * value:.0f} %" for of in (run.cpu, run.crossing, run.rate) for value in (of[0], of[-1]))
        return name, *figures, run.moves, ", ".join(cases)

    head = (
        "",
        "cpu at first",
        "at last",
        "between nodes at first",
        "at last",
        "rate at first",
        "at last",
        "moves",
        "cycles",
    )
    rows = [row("compute-bound, 2 x 4", compute), row("communication-bound, 2 x 4", communication)]
    rows += [row(f"{kind}-bound, {nodes} x 2", run) for kind, runs in scaled.items() for nodes, run in runs.items()]
    return "\n\n".join(
        [
            f"{cycles} cycles of at most one migration. *cpu*: mean use of all workers' processors at the rate that "
            "the busiest lets through. Shifts, at cycles "
            + " and ".join(map(str, SHIFTS))
            + ", on two nodes only. The paper: compute-bound 51 % to 77 % within 10 cycles; communication-bound 50 % "
            "to below 6 % between nodes after 61.",
            markdown_table(head, rows),
        ]
    )


def _figure(compute: Run, communication: Run, scaled: dict[str, dict[int, Run]]) -> Figure:
    figure, axes = panels(3, size=(12, 3.6))
    for panel, run, title in (
        (axes[0], compute, "compute-bound, 2 nodes x 4 workers"),
        (axes[1], communication, "communication-bound, 2 nodes x 4 workers"),
    ):
        lines = (("mean use of processors", run.cpu), ("traffic between nodes", run.crossing), ("rate", run.rate))
        for colour, (name, values) in zip(COLOURS, lines, strict=False):
            panel.plot([100 * value for value in values], color=colour, linewidth=1.4, label=name)
        panel.set_title(title, loc="left", fontsize=10)
        panel.set_xlabel("cycle")
        panel.set_ylabel("%")
        panel.set_ylim(0, 105)
    axes[0].legend(frameon=False, fontsize=8)
    nodes = list(scaled["compute"])
    for colour, (name, kind, what) in zip(
        COLOURS,
        (
            ("compute: mean use of processors", "compute", "cpu"),
            ("compute: traffic between nodes", "compute", "crossing"),
            ("communication: traffic between nodes", "communication", "crossing"),
        ),
        strict=False,
    ):
        for place, style in ((0, ":"), (-1, "-")):
            values = [100 * getattr(scaled[kind][count], what)[place] for count in nodes]
            label = name if place else None
            axes[2].plot(nodes, values, style, marker="o", markersize=3.5, color=colour, label=label)
    axes[2].set_title("more nodes: at first (dotted), at last", loc="left", fontsize=10)
    axes[2].set_xlabel("nodes of 2 workers")
    axes[2].set_ylim(0, 105)
    axes[2].legend(frameon=False, fontsize=7)
    return figure
