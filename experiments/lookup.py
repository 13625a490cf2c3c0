"""The cost of key lookups, changes of the ring and routing tables, by number of tokens.

Keys of a block are looked up together, as mappers and reducers do; single keys through the ring, as the load balancer's
`key_lookup` does. A redistribution is a change of the ring and a new table. Needs neither Ray nor Spark.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dpa.routing.ring import TokenRing
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, main, markdown_table, median_seconds, progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 4
BLOCK = 131_072
"""Keys looked up together: as many as a block has records by default, as if all were distinct."""

TOKENS = (4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_000_000)
QUICK_TOKENS = (4, 256, 16_384)
USUAL_TOKENS = 256
"""The tokens of the default ring with four reducers."""

SINGLE_KEYS = 2_000
"""Single lookups that are timed together."""


def measure(options: argparse.Namespace) -> Findings:
    """Measure rings of increasing numbers of tokens."""
    random = np.random.default_rng(options.seed)
    sizes, repeats = (QUICK_TOKENS, 3) if options.quick else (TOKENS, options.repeats)
    rows = []
    for tokens in sizes:
        rows.append(_costs(tokens, repeats, random))
        progress(", ".join(f"{name} {value if value is None else f'{value:,.4g}'}" for name, value in rows[-1].items()))
    usual = next(row for row in rows if row["tokens"] == USUAL_TOKENS)
    most = rows[-1]
    together = {row["tokens"]: row["single_us"] * 1e3 / row["block_ns_per_key"] for row in (usual, most)}
    grown = most["single_us"] / usual["single_us"]
    tokens_grown = most["tokens"] / usual["tokens"]
    seconds = (most["halving_ms"] + most["snapshot_ms"]) / 1e3
    return Findings(
        data={"nodes": NODES, "block": BLOCK, "repeats": repeats, "rows": rows},
        targets=[
            *(
                Target(
                    f"{tokens:,} tokens: keys looked up in a block in the time of a single one", ">= 5", keys, keys >= 5
                )
                for tokens, keys in together.items()
            ),
            Target(
                f"{most['tokens']:,} tokens: time of a single lookup, times that with {USUAL_TOKENS}",
                f"<= {tokens_grown**0.5:.0f}, the root of {tokens_grown:,.0f} times the tokens",
                grown,
                grown <= tokens_grown**0.5,
            ),
            Target(
                f"{most['tokens']:,} tokens: seconds of halving a node and making the table",
                "< 10",
                seconds,
                seconds < 10,
            ),
        ],
        text=_text(rows, repeats),
        figure=_figure(rows),
    )


def _costs(tokens: int, repeats: int, random: np.random.Generator) -> dict[str, Any]:
    """The costs with `tokens` tokens in all; each is a median. A node with one token cannot be halved: None."""
    each = tokens // NODES
    ring = TokenRing(NODES, each)
    table = ring.snapshot(0)
    hashes = random.integers(0, 2**32, BLOCK, dtype=np.uint32)
    keys = [f"w{number}" for number in random.integers(0, 10**9, SINGLE_KEYS)]

    def one_by_one() -> None:
        for key in keys:
            ring.key_lookup(key)

    block, _ = median_seconds(lambda: table.owners_of(hashes), repeats)
    single, _ = median_seconds(one_by_one, repeats)
    snapshot, _ = median_seconds(lambda: ring.snapshot(1), repeats)
    one_token = _alternating(repeats, lambda: ring.set_tokens(0, each + 1), lambda: ring.set_tokens(0, each))
    halving = _alternating(repeats, lambda: ring.set_tokens(0, each // 2 or 1), lambda: ring.set_tokens(0, each))
    return {
        "tokens": tokens,
        "block_ns_per_key": block / BLOCK * 1e9,
        "single_us": single / SINGLE_KEYS * 1e6,
        "one_token_us": one_token * 1e6,
        "halving_ms": halving * 1e3 if each > 1 else None,
        "snapshot_ms": snapshot * 1e3,
        "table_bytes": table.positions.nbytes + table.assigned.nbytes,
        "pickled_bytes": len(pickle.dumps(table, protocol=5)),
    }


def _alternating(repeats: int, change: Callable[[], None], restore: Callable[[], None]) -> float:
    """The median seconds of a change that is undone, untimed, after each time."""
    spent = []
    for _ in range(repeats):
        seconds, _ = median_seconds(change, 1)
        spent.append(seconds)
        restore()
    return statistics.median(spent)


def _text(rows: list[dict[str, Any]], repeats: int) -> str:
    head = (
        "tokens",
        "block: ns a key",
        "single key: us",
        "one token more: us",
        "halving a node: ms",
        "snapshot: ms",
        "table: bytes",
        "pickled: bytes",
    )
    return (
        f"Rings of {NODES} nodes with more and more tokens; medians of {repeats} repeats.\n\n"
        f"- *block*: `RoutingTable.owners_of` for {BLOCK:,} random hashes at once, by key. It is what a mapper and a "
        "reducer do, once for each distinct key of a block.\n"
        "- *single key*: `TokenRing.key_lookup`, hashing included.\n"
        "- *one token more*, *halving a node*: changes of the ring. Halving takes away half of one node's tokens, an "
        "eighth of all.\n"
        "- *snapshot*: the immutable table of the ring, made once a redistribution. *table*: what its arrays hold in "
        "memory; *pickled*: what is sent to each mapper and reducer.\n\n"
        + markdown_table(head, [["-" if value is None else value for value in row.values()] for row in rows])
    )


def _figure(rows: list[dict[str, Any]]) -> Figure:
    figure, (lookups, changes) = panels(2)
    lines = [
        (lookups, "single key (ring)", "single_us", 1e3),
        (lookups, "a key in a block (table)", "block_ns_per_key", 1),
        (changes, "snapshot", "snapshot_ms", 1),
        (changes, "halving a node", "halving_ms", 1),
        (changes, "one token more", "one_token_us", 1e-3),
    ]
    for number, (axes, name, column, unit) in enumerate(lines):
        drawn = [row for row in rows if row[column] is not None]
        tokens, values = [row["tokens"] for row in drawn], [row[column] * unit for row in drawn]
        axes.plot(tokens, values, marker="o", markersize=3.5, linewidth=1.4, color=COLOURS[number], label=name)
    for axes, title, unit in ((lookups, "Lookup", "ns a key"), (changes, "Change", "ms")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("tokens (log scale)")
        axes.set_ylabel(f"{unit} (log scale)")
        axes.set_title(title, loc="left", fontsize=10)
        axes.legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=21)
    main("lookup", parser, measure)
