"""`python -m experiments.placement --part X`: one part of the evaluation of allocators."""

from __future__ import annotations

import argparse

from experiments.harness import main
from experiments.placement import elastic, optimum, sensitivity, speed, workloads

PARTS = {
    "a": optimum.measure,
    "b": speed.measure,
    "c": sensitivity.measure,
    "d": workloads.measure,
    "e": elastic.measure,
}
"""Distance from the optimum; allocations a second; prioritisation and task counts (task allocation paper, 7.1-7.3); two
jobs with measured costs (7.4); the elastic allocator's evaluation (V)."""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.placement", description=__doc__)
    parser.add_argument("--part", required=True, choices=list(PARTS))
    part = parser.parse_known_args()[0].part
    main(f"placement_{part}", parser, PARTS[part], command=f"python -m experiments.placement --part {part}")
