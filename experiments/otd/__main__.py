"""`python -m experiments.otd`: placements that follow the load while a job runs.

In virtual time; with `--ray` on several Ray nodes of this machine; with `--hosts` on nodes in network namespaces (root,
Linux), with interfaces of a known rate."""

from __future__ import annotations

import argparse

from experiments.harness import Findings, main
from experiments.otd import real, virtual_page


def measure(options: argparse.Namespace) -> Findings:
    """In virtual time, or on real nodes."""
    return real.measure(options) if options.ray or options.hosts else virtual_page.measure(options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.otd", description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--ray", action="store_true", help="on Ray nodes in processes of this machine")
    where.add_argument("--hosts", action="store_true", help="on Ray nodes on hosts of their own (root, Linux)")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each method on real nodes")
    parser.add_argument("--mbit", type=float, default=200.0, help="rate of a host's interface, 10^6 bits per second")
    known = parser.parse_known_args()[0]
    suffix = "_hosts" * known.hosts + "_ray" * known.ray
    main("otd" + suffix, parser, measure, command="python -m experiments.otd" + suffix.replace("_", " --"))
