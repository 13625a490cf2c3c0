"""The rate at which each grouping chooses reducers, in records a second on one processor."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

from dpa.routing.groupings.options import BY_KIND, ConsistentOptions
from dpa.routing.hashing import hash_column
from dpa.routing.ring import TokenRing
from experiments.charts import COLOURS, INK, panels
from experiments.harness import Findings, Target, main, markdown_table, progress
from experiments.zipf import EXPONENT, Words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECORDS = 4_000_000
BLOCK = 131_072
REDUCERS = (5, 10, 100)
REPEATS = 3
WANTED = 5_000_000

FORMS = {
    **{kind: options() for kind, options in BY_KIND.items()},
    "consistent, pooled": ConsistentOptions(pooled=True),
}
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
        data={"records_per_second": found},
        targets=[Target("the slowest grouping", wanted, reached, met)],
        text=text,
        figure=_figure(found),
    )


def _rate(found: Found, name: str, reducers: int) -> float:
    """Million records a second."""
    return statistics.median(found[name][reducers]) / 1e6


def _figure(found: Found) -> Figure:
    figure, [axes] = panels(size=(9.0, 3.8))
    height = 0.8 / len(REDUCERS)
    for place, reducers in enumerate(REDUCERS):
        at = [row + (place - (len(REDUCERS) - 1) / 2) * height for row in range(len(FORMS))]
        rates = [_rate(found, name, reducers) for name in FORMS]
        axes.barh(at, rates, height * 0.92, color=COLOURS[place], label=f"{reducers} reducers")
    axes.axvline(WANTED / 1e6, color=INK, linewidth=1)
    axes.set_yticks(range(len(FORMS)), list(FORMS))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("million records a second and processor", color=INK)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


if __name__ == "__main__":
    main("groupings", argparse.ArgumentParser(description=__doc__), measure)
