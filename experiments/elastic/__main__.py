"""`python -m experiments.elastic`: stages whose number of tasks follows their work, under loads that change, beside a
number that stays. In virtual time; with `--ray` on real actors."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from experiments.elastic import real
from experiments.elastic.loads import HELD_OUT, LOADS, STEP
from experiments.elastic.page import draw, page
from experiments.elastic.targets import targets
from experiments.elastic.virtual import OURS, SHORT, cases, run_all
from experiments.harness import Findings, main

SEEDS = 2
"""Of what is elastic."""


def measure(options: argparse.Namespace) -> Findings:
    """All loads in virtual time."""
    loads = (STEP,) if options.quick else (*LOADS, *HELD_OUT)
    found = run_all(cases(1 if options.quick else SEEDS, loads), 1 if options.quick else os.cpu_count())
    first = [run for run in found if run.seed == 0 and run.queues == SHORT and run.method == OURS]
    return Findings(
        data={"runs": [asdict(run) for run in found]},
        targets=[] if options.quick else list(targets(found)),
        text=page(found),
        figure=draw(loads, {run.load: run for run in first}),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.elastic", description=__doc__)
    parser.add_argument("--ray", action="store_true", help="on real actors")
    if parser.parse_known_args()[0].ray:
        main("elastic_ray", parser, real.measure, command="python -m experiments.elastic --ray")
    else:
        main("elastic", parser, measure)
