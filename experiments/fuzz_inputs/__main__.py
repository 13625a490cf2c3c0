"""Run cases, many in each of some child processes, so that one that ends its process is seen: `python -m
experiments.fuzz_inputs --cases 5000 --seed 7`. A case again: `--only NUMBER`."""

from __future__ import annotations

import argparse
import sys

from experiments.fuzz_inputs.running import child, fuzzed, trace_of


def main() -> int:
    """Print how many cases there were, and the offenders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one case, in this process, with its traceback")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only is not None:
        print(trace_of(given.seed, given.only))
        return 0
    if given.child is not None:
        child(given.seed, given.child, given.cases)
        return 0
    found = fuzzed(given.seed, given.cases, print)
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(found.outcomes.items()))
    print(f"{found.cases} cases: {kinds}")
    return 1 if found.offenders else 0


if __name__ == "__main__":
    sys.exit(main())
