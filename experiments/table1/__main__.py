"""`python -m experiments.table1`: five workloads with and without balancing, beside Table 1 of the DPA paper.

Every workload runs with every method on Ray, several times. Where a run differs from the paper's or from another run, a
sweep in virtual time shows whether that cell of the table depends on a race: the speed of the mappers and the report
period decide the state of the queues when a reducer is found overloaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from experiments.harness import Findings, main, progress
from experiments.letters import METHODS, SERVICE_SECONDS, UNBALANCED, Race, Run, one_after_another, sessions, simulate
from experiments.table1.cells import MAP_SECONDS, REPORT_EVERY, Cell, Swept
from experiments.table1.page import draw, targets_of, text_of
from jobs.letters import WORKLOADS

RUNS, SEEDS = 2, 5
"""On Ray of what is balanced, and simulated runs of each race."""


def measure(options: argparse.Namespace) -> Findings:
    """Run on Ray and in virtual time, and compare with the paper."""
    runs, seeds, service_seconds = RUNS, SEEDS, SERVICE_SECONDS
    workloads, methods, delays, periods = list(WORKLOADS), list(METHODS), MAP_SECONDS, REPORT_EVERY
    if options.quick:
        runs, seeds, service_seconds = 1, 2, SERVICE_SECONDS / 10
        workloads, methods, delays, periods = ["wl3"], ["none", "adaptive"], (0.005, 0.05), (20,)
    ray: list[Run] = []
    if not options.simulate:
        with sessions():
            cells = [(workload, method, 1) for workload in workloads for method in methods]
            racing = [cell for cell in cells if cell[1] not in UNBALANCED.values()]
            ray = one_after_another(cells + racing * (runs - 1), service_seconds=service_seconds)
    cells = []
    for workload in workloads:
        for method in methods:
            seen = tuple(run for run in ray if (run.workload, run.method) == (workload, method))
            races = [Race(delay, period) for delay in delays for period in periods]
            if method in UNBALANCED.values():
                races = [Race(report_every=20)]
            cells.append(Cell(workload, method, seen, _swept(workload, method, races, options.seed, seeds)))
    return Findings(
        data={
            "service_seconds": service_seconds,
            "runs": [asdict(run) for run in ray],
            "simulated": [cell.plain() for cell in cells],
        },
        targets=targets_of(cells),
        text=text_of(cells, runs, seeds, service_seconds),
        figure=draw(cells),
    )


def _swept(workload: str, method: str, races: Sequence[Race], seed: int, seeds: int) -> tuple[Swept, ...]:
    progress(f"{workload}, {method}: {len(races) * seeds} runs in virtual time")
    drawn = range(seed, seed + seeds)
    return tuple(Swept(workload, method, race, tuple(simulate(workload, method, drawn, race=race))) for race in races)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulate", action="store_true", help="in virtual time only; better with --results elsewhere")
    main("table1", parser, measure)
