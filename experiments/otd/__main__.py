"""`python -m experiments.otd`: placements that follow the load while a job runs.

In virtual time; with `--ray` on several Ray nodes of this machine."""

from __future__ import annotations

import argparse

from experiments.harness import Findings, main
from experiments.otd import real, virtual_page


def measure(options: argparse.Namespace) -> Findings:
    """In virtual time, or on real nodes."""
    return real.measure(options) if options.ray else virtual_page.measure(options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.otd", description=__doc__)
    parser.add_argument("--ray", action="store_true", help="on Ray nodes in processes of this machine")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each method on real nodes")
    suffix = "_ray" * parser.parse_known_args()[0].ray
    main("otd" + suffix, parser, measure, command="python -m experiments.otd" + suffix.replace("_", " --"))
