"""The adaptive strategy at sizes beyond any test cluster: up to 10,000 reducers, 1,000,000 tokens and 10**8 keys.

No actors and no records here: the load of every key is known, what senders offer is computed from it as their meters
would report it, and the real planner decides on the real routing tables. In every step some of the hottest keys are
replaced by others.
"""

from __future__ import annotations

import argparse
import math
import pickle
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.balance.adaptive.demand import Demand, Expected
from dpa.balance.adaptive.rebalance import RebalanceOptions, rebalance
from dpa.measure.load import KeySample, Load
from dpa.routing.change import TableChange
from dpa.routing.hashing import hash_column
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable
from experiments.charts import COLOURS, INK, panels
from experiments.harness import Findings, Target, main, markdown_table, progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (10, 100, 1_000, 10_000)
TOKENS = 100
"""Tokens of each reducer."""

KEYS = 100_000_000
EXPONENT = 1.0
HOT = 100_000
"""So many keys are followed one by one; the rest is summed up by hash."""

NAMED = 0.025
"""A key is named that has this part of a mean reducer's load: about what a few seconds of samples find, if there are as
many senders as reducers and each looks at 16 rows between two looks."""

STEPS = 12
CHANGED = 0.1
"""Share of the thousand hottest keys that others take the place of in a step."""

TOLERANCE = 0.1
_CHUNK = 5_000_000


@dataclass(frozen=True, eq=False)
class World:
    """All keys: the tail as cumulative load by hash, the hot ones one by one.

    Attributes:
        hashes: of the tail, ascending, shape (tail,).
        cumulative: load of the tail up to each hash, shape (tail + 1,).
        loads: of the hot keys by rank, most first, shape (hot,); all keys together have load 1.
    """

    hashes: npt.NDArray[np.uint32]
    cumulative: npt.NDArray[np.float64]
    loads: npt.NDArray[np.float64]

    @staticmethod
    def make(keys: int, hot: int) -> World:
        """Zipf-distributed keys, each hashed as a job would hash it."""
        hashes = np.concatenate(
            [hash_column(pa.array(np.arange(start, min(start + _CHUNK, keys)))) for start in range(hot, keys, _CHUNK)]
        )
        loads = np.arange(1, keys + 1, dtype=np.float64) ** -EXPONENT
        loads /= loads.sum()
        order = np.argsort(hashes)
        cumulative = np.concatenate([[0.0], np.cumsum(loads[hot:][order])])
        return World(hashes[order], cumulative, loads[:hot])

    def tail_by_token(self, table: RoutingTable) -> npt.NDArray[np.float64]:
        """The tail's load of each token, shape (tokens,)."""
        ends = self.cumulative[np.searchsorted(self.hashes, table.positions)]
        by_token = np.diff(ends, prepend=0.0)
        by_token[0] += self.cumulative[-1] - ends[-1]
        return by_token


def measure(options: argparse.Namespace) -> Findings:
    """Run every size for some steps."""
    keys, hot = (1_000_000, 10_000) if options.quick else (KEYS, HOT)
    sizes, steps = (SIZES[:2], 3) if options.quick else (SIZES, STEPS)
    progress(f"hashing {keys:,} keys")
    world = World.make(keys, hot)
    found = {size: _run(world, size, steps, options.seed) for size in sizes}
    return Findings(
        data={"keys": keys, "exponent": EXPONENT, "tokens_each": TOKENS, "sizes": found},
        targets=_targets(found),
        text=_text(found, keys),
        figure=_figure(found),
    )


def _run(world: World, reducers: int, steps: int, seed: int) -> dict[str, Any]:
    """One size: in each step the hot keys change, all senders report, and the planner plans."""
    random = np.random.default_rng(seed)
    table = TokenRing(reducers, TOKENS).snapshot(0)
    base = frozenset(table.positions.tolist())
    names = np.arange(len(world.loads))
    rows = []
    for step in range(steps):
        if step:
            changed = np.flatnonzero(random.random(1_000) < CHANGED)
            names[changed] = 10**9 + step * 10_000 + changed
        hashes = hash_column(pa.array(names))
        loads = dict.fromkeys(range(reducers), Load(0, table.version, service_seconds=1.0, evidence=1e6))
        expected = _offered(world, table, names, hashes)
        began = time.perf_counter()
        demand = Demand.of(table, loads, expected)
        plan = rebalance(demand, RebalanceOptions(tolerance=TOLERANCE), base=base)
        change = TableChange.between(table, plan.table) if plan.steps else None
        ended = time.perf_counter()
        before = _worst(world, table, hashes)
        table = plan.table
        rows.append(
            {
                "decision": ended - began,
                "before": before,
                "after": _worst(world, table, hashes),
                "moved": plan.moved,
                "split": plan.split,
                "tokens": len(table.positions),
                "splits": len(table.splits),
                "widest": max((len(split.reducers) for split in table.splits.values()), default=1),
                "bytes_sent": 0 if change is None else len(pickle.dumps(change, protocol=5)),
                "bytes_table": len(pickle.dumps(table, protocol=5)),
            }
        )
        progress(
            f"{reducers:,} reducers, step {step}: {rows[-1]['decision']:.2f} s, most loaded "
            f"{rows[-1]['before']:.2f} to {rows[-1]['after']:.2f} times the mean, {rows[-1]['bytes_sent']:,} bytes "
            f"of {rows[-1]['bytes_table']:,}"
        )
    return {"steps": rows}


def _offered(
    world: World, table: RoutingTable, names: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint32]
) -> Expected:
    """What senders offer: the hot keys one by one, the hottest by name, and the tail by token."""
    inside = table.positions - np.uint32(1)  # the last hash before each token: its own
    tail = KeySample(inside, world.tail_by_token(table), KEYS)
    order = np.argsort(hashes)
    hot = KeySample(hashes[order], world.loads[order], KEYS)
    named = np.flatnonzero(world.loads >= NAMED / table.reducers)
    return Expected(
        1.0, KeySample.union([tail, hot]), dict(zip(hashes[named].tolist(), names[named].tolist(), strict=True))
    )


def _worst(world: World, table: RoutingTable, hashes: npt.NDArray[np.uint32]) -> float:
    """The load of the most loaded reducer, in units of the mean, with every key where the table sends it."""
    by_token = world.tail_by_token(table) + np.bincount(table.tokens_of(hashes), world.loads, len(table.positions))
    owners = table.sole_owners
    single = owners >= 0
    loads = np.bincount(owners[single], by_token[single], table.reducers)
    for token, split in table.splits.items():
        np.add.at(loads, list(split.reducers), by_token[token] * np.array(split.weights))
    return float(loads.max() * table.reducers)


def _later(found: dict[str, Any], what: str) -> float:
    """The median over all steps but the first, which starts from a ring without knowledge of loads."""
    return statistics.median(row[what] for row in found["steps"][1:])


def _targets(found: dict[int, dict[str, Any]]) -> list[Target]:
    sizes = sorted(found)
    least, most = sizes[0] * TOKENS, sizes[-1] * TOKENS
    allowed = most * math.log(most) / (least * math.log(least))
    grown = _later(found[sizes[-1]], "decision") / _later(found[sizes[0]], "decision")
    name = f"decision time, {most:,} to {least:,} tokens"
    targets = [Target(name, f"<= {allowed:,.0f} (T log T)", grown, grown <= allowed)]
    largest = found[sizes[-1]]
    worst = max(row["after"] for row in largest["steps"])
    name = f"most loaded of {sizes[-1]:,} reducers after a step, to the mean"
    targets.append(Target(name, f"<= {1 + 2 * TOLERANCE}", worst, worst <= 1 + 2 * TOLERANCE))
    share = _later(largest, "bytes_sent") / _later(largest, "bytes_table")
    targets.append(Target("bytes of a difference to those of the table", "< 0.1", share, share < 0.1))
    return targets


def _text(found: dict[int, dict[str, Any]], keys: int) -> str:
    head = ("reducers", "tokens", "decision, s", "sent, kB", "table, kB", "moved", "widest split")
    rows = []
    for size, of_size in found.items():
        last = of_size["steps"][-1]
        sent, whole = _later(of_size, "bytes_sent") / 1000, _later(of_size, "bytes_table") / 1000
        moved = f"{_later(of_size, 'moved') + _later(of_size, 'split'):.2%}"
        rows.append((size, last["tokens"], _later(of_size, "decision"), sent, whole, moved, last["widest"]))
    return (
        f"{keys:,} keys, Zipf {EXPONENT:g}, hashed as a job hashes them; in each step a tenth of the thousand hottest "
        "keys are replaced. A decision is everything between the reports and the difference that is sent. Medians over "
        "all steps but the first.\n\n" + markdown_table(head, rows)
    )


def _figure(found: dict[int, dict[str, Any]]) -> Figure:
    figure, [left, middle, right] = panels(3, size=(12.0, 3.6))
    sizes = sorted(found)
    tokens = [size * TOKENS for size in sizes]
    decision = [_later(found[size], "decision") for size in sizes]
    bound = [decision[0] * count * math.log(count) / (tokens[0] * math.log(tokens[0])) for count in tokens]
    left.loglog(tokens, bound, color=INK, linewidth=1, linestyle="--", label="T log T")
    left.loglog(tokens, decision, marker="o", color=COLOURS[0], label="decision")
    left.set_xlabel("tokens", color=INK)
    left.set_ylabel("seconds", color=INK)
    left.legend(fontsize=8, frameon=False)
    middle.loglog(tokens, [_later(found[size], "bytes_table") for size in sizes], marker="o", color=COLOURS[1])
    middle.loglog(tokens, [_later(found[size], "bytes_sent") for size in sizes], marker="o", color=COLOURS[0])
    middle.set_xlabel("tokens", color=INK)
    middle.set_ylabel("bytes sent to each task", color=INK)
    middle.legend(["whole table", "difference"], fontsize=8, frameon=False)
    for place, size in enumerate(sizes):
        steps = found[size]["steps"]
        at = [step + shift for step in range(len(steps)) for shift in (0.0, 0.5)]
        loads = [row[when] for row in steps for when in ("before", "after")]
        right.plot(at, loads, color=COLOURS[place % len(COLOURS)], label=f"{size:,} reducers")
    right.axhline(1 + TOLERANCE, color=INK, linewidth=1, linestyle="--")
    right.set_yscale("log")
    right.set_xlabel("step", color=INK)
    right.set_ylabel("most loaded, mean = 1", color=INK)
    right.legend(fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    main("scale", argparse.ArgumentParser(description=__doc__), measure)
