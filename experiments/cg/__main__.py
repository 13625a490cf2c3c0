"""`python -m experiments.cg --figure N`: one figure of the consistent-grouping paper."""

from __future__ import annotations

import argparse

from experiments.cg import assignments, engine, timelines
from experiments.harness import main

FIGURES = {
    "4": assignments.figure4,
    "6": assignments.figure6,
    "7": assignments.figure7,
    "8": assignments.figure8,
    "9": timelines.figure9,
    "10": timelines.figure10,
    "11": assignments.figure11,
    "12": timelines.figure12,
    "13": timelines.figure13,
    "14": engine.figure14,
    "15": engine.figure15,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.cg", description=__doc__)
    parser.add_argument("--figure", required=True, choices=list(FIGURES), help="its number in the paper")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the streams' records and keys to use")
    chosen = parser.parse_known_args()[0].figure
    main(f"cg_{chosen}", parser, FIGURES[chosen], command=f"python -m experiments.cg --figure {chosen}")
