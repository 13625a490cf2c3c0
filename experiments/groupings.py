"""The rate at which each grouping chooses reducers, in records a second on one processor."""

from __future__ import annotations

import argparse
import statistics
import time

from dpa.routing.groupings.options import BY_KIND, ConsistentOptions
from dpa.routing.hashing import hash_column
from dpa.routing.ring import TokenRing
from experiments.harness import Findings, Target, main, markdown_table, progress
from experiments.zipf import EXPONENT, Words

RECORDS = 4_000_000
BLOCK = 131_072
REDUCERS = (5, 10, 100)
REPEATS = 3
WANTED = 5_000_000

FORMS = {**{kind: options() for kind, options in BY_KIND.items()}, "consistent, pooled": ConsistentOptions(pooled=True)}
"""What is measured, by name."""

Found = dict[str, dict[int, list[float]]]
"""Records a second of each run, by grouping and number of reducers."""


def measure(options: argparse.Namespace) -> Findings:
    """Time every grouping with every number of reducers, block by block as a mapper has them."""
    records, repeats = (40_000, 1) if options.quick else (RECORDS, REPEATS)
    words = Words(options.seed)
    hashes, codes = hash_column(words.names), words.ranks(records)
    found: Found = {name: {} for name in FORMS}
    for reducers in REDUCERS:
        table = TokenRing(reducers, 64).snapshot(0)
        for _ in range(repeats):
            for name, form in FORMS.items():
                grouping = form.create(table, 0)
                spent = 0.0
                for start in range(0, records, BLOCK):
                    block = codes[start : start + BLOCK]
                    began = time.perf_counter()
                    grouping.choose(hashes.take(block))
                    spent += time.perf_counter() - began
                found[name].setdefault(reducers, []).append(records / spent)
        progress(f"{reducers} reducers: " + ", ".join(f"{name} {_rate(found, name, reducers):.1f}" for name in FORMS))
    slowest = min((_rate(found, name, reducers), name, reducers) for name in FORMS for reducers in REDUCERS)
    wanted, met = f">= {WANTED / 1e6:g} M records/s", slowest[0] * 1e6 >= WANTED
    reached = f"{slowest[0]:.1f} M records/s ({slowest[1]}, {slowest[2]} reducers)"
    text = (
        f"Million records a second and processor, of {records:,} records of Zipf {EXPONENT:g} over "
        f"{len(words.names):,} keys in blocks of {BLOCK:,}; medians of {repeats}. Looking up the hash of each record's "
        "key is included, "
        "hashing the keys (once a block each) and cutting the block are not.\n\n"
    )
    rows = [(name, *(f"{_rate(found, name, reducers):.1f}" for reducers in REDUCERS)) for name in FORMS]
    text += markdown_table(("grouping", *(f"{reducers} reducers" for reducers in REDUCERS)), rows)
    return Findings(
        data={"records_per_second": found}, targets=[Target("the slowest grouping", wanted, reached, met)], text=text
    )


def _rate(found: Found, name: str, reducers: int) -> float:
    """Million records a second."""
    return statistics.median(found[name][reducers]) / 1e6


if __name__ == "__main__":
    main("groupings", argparse.ArgumentParser(description=__doc__), measure)
