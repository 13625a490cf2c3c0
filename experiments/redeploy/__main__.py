"""`python -m experiments.redeploy`: tasks are moved every minute, by the schemes of the N-Storm paper in a model of
Storm, and by ours in virtual time. With `--ray`: on real actors, scaled down."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from experiments.harness import Findings, main
from experiments.redeploy import real
from experiments.redeploy.cases import SEEDS, all_cases, case_of, run_all
from experiments.redeploy.looks import LOOKS, measure_looks
from experiments.redeploy.losses import Storm
from experiments.redeploy.page import SHOWN, draw, page
from experiments.redeploy.plans import Layout
from experiments.redeploy.targets import targets
from experiments.redeploy.virtual import Setup

OVER_TIME = 4
"""Tasks that move at a time in the picture."""

QUICK = Setup(seconds=40, first=12.0, every=20.0, layout=Layout(2, 2, 8))


def measure(options: argparse.Namespace) -> Findings:
    """What a look costs, then all cases."""
    setup = QUICK if options.quick else Setup()
    look = measure_looks(setup.layout, 20 if options.quick else LOOKS)
    storm = Storm(load=setup.load, polling=look)
    cases = list(all_cases((4,), ()) if options.quick else all_cases())
    seeds = range(options.seed, options.seed + (2 if options.quick else SEEDS))
    found = run_all(cases, setup, storm, seeds, 1 if options.quick else os.cpu_count())
    return Findings(
        data={
            "usual": found.usual,
            "look": asdict(look),
            "runs": [run.plain(found.usual) for run in found.runs],
            "modelled": [runs.plain() for runs in found.modelled.values()],
        },
        targets=[] if options.quick else list(targets(found)),
        text=page(found, setup, storm),
        figure=draw(found, [case_of(scheme, OVER_TIME) for scheme in SHOWN], setup.moments),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.redeploy", description=__doc__)
    parser.add_argument("--ray", action="store_true", help="on real actors")
    if parser.parse_known_args()[0].ray:
        main("redeploy_ray", parser, real.measure, command="python -m experiments.redeploy --ray")
    else:
        main("redeploy", parser, measure)
