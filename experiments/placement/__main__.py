"""`python -m experiments.placement --part X`: one part of the evaluation of allocators."""

from __future__ import annotations

import argparse

from experiments.harness import main
from experiments.placement import elastic, objective, optimum, real, sensitivity, speed, workloads

PARTS = {
    "a": optimum.measure,
    "b": speed.measure,
    "c": sensitivity.measure,
    "d": workloads.measure,
    "e": elastic.measure,
    "g": real.measure,
    "h": objective.measure,
}
"""Distance from the optimum; allocations a second; prioritisation and task counts (task allocation paper, 7.1-7.3); two
jobs with measured costs (7.4); the elastic allocator's evaluation (V); bytes between real nodes; the one objective."""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.placement", description=__doc__)
    parser.add_argument("--part", required=True, choices=list(PARTS))
    parser.add_argument("--repeats", type=int, default=3, help="runs of each placement on real nodes")
    parser.add_argument("--hosts", action="store_true", help="part g: nodes on hosts of their own (root, Linux)")
    parser.add_argument("--mbit", type=float, default=200.0, help="rate of a host's interface, 10^6 bits per second")
    known = parser.parse_known_args()[0]
    command = f"python -m experiments.placement --part {known.part}" + " --hosts" * known.hosts
    main(f"placement_{known.part}", parser, PARTS[known.part], command=command)
