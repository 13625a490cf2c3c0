"""States larger than the memory that a task has for them: time and peak memory with a third of what they take, beside
all of them in memory.

Each case runs in a process of its own. Its memory is compared with that after a warm-up, in which the same code has
worked on few keys, so that what counts is what its states take.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.aggregates import Sum
from dpa.execution.block import Block, object_array
from dpa.execution.receivers import receiver_of, store_of
from dpa.execution.spill.bounded import BoundedStates
from dpa.execution.spill.room import Room
from dpa.execution.states import States
from dpa.executors import Process
from dpa.operators import JoinOptions
from experiments.harness import Findings, at_most, main, markdown_table, progress
from experiments.tolerance import DICT, empty, into, made_of

_BLOCK = 10_000
_WARM = 2_000
"""Keys of the warm-up."""

_EACH = 4
"""Records of a key, on average."""

_PART = 3
"""The budget is this part of what the states take."""

_SLOWER, _LARGER = 4.0, 1.2
"""Most times of the time in memory, and of the budget."""

_MIB = 2**20

_ROCKSDB = "process of dicts"


def quiet(key: int, state: dict[str, int], value: int) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Emits nothing before the end."""
    return into(state, value), []


def at_the_end(key: int, state: dict[str, int]) -> list[dict[str, Any]]:
    """A row for each key."""
    return [{"key": key, **state}]


QUIET = made_of(Process, zero=empty, process=quiet, finish=at_the_end)

VALUE = pa.schema({"value": pa.int64()})

KINDS: dict[str, tuple[Any, int]] = {
    "reducer of dicts": (DICT, 1_000_000),
    "sums of columns": (Sum("value"), 8_000_000),
    "rows of a join": (JoinOptions("inner", (("key",), ("key",)), (VALUE, VALUE)), 2_000_000),
    _ROCKSDB: (QUIET, 500_000),
}
"""What the states are of, and how many keys there are."""

_QUICK = ("sums of columns", _ROCKSDB)
"""Those of a short run."""


@dataclass(frozen=True)
class Case:
    """States of `keys` keys of a kind, in `budget` bytes of memory; None: as many as it takes."""

    kind: str
    keys: int
    seed: int
    budget: int | None = None

    def blocks(self) -> Iterator[Block]:
        """Records of random keys, of a join those of its sides in turn."""
        random, receiver = np.random.default_rng(self.seed), receiver_of(KINDS[self.kind][0])
        for number in range(max(1, _EACH * self.keys // _BLOCK)):
            numbers, keys = (random.integers(0, below, _BLOCK) for below in (1_000, self.keys))
            values = object_array(numbers.tolist()) if receiver.takes_objects else pa.record_batch({"value": numbers})
            yield Block.of(pa.array(keys), values, 0, number % 2 if receiver.has_sides else 0)

    def store(self) -> States:
        """An empty one."""
        receiver = receiver_of(KINDS[self.kind][0])
        return store_of(receiver) if self.budget is None else BoundedStates(receiver, Room(self.budget))


def anonymous() -> float:
    """MiB of memory of this process that no file can take back."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024


@contextmanager
def measured(into: dict[str, Any], name: str) -> Iterator[None]:
    """The seconds of a block, and the most memory in it."""
    ended, most = Event(), [anonymous()]

    def look() -> None:
        while not ended.wait(0.005):
            most[0] = max(most[0], anonymous())

    looks, began = Thread(target=look), perf_counter()
    looks.start()
    try:
        yield
    finally:
        into[f"{name}, s"] = perf_counter() - began
        ended.set()
        looks.join()
        into[f"{name}, MiB"] = max(most[0], anonymous())


def run(case: Case) -> dict[str, Any]:
    """Measure a case, in this process."""
    warm = replace(case, keys=min(case.keys, _WARM), budget=case.budget and 100_000)
    for of in (warm, case):
        found: dict[str, Any] = {}
        base, store = anonymous(), of.store()
        with measured(found, "reduce"):
            for block in of.blocks():
                store.reduce(block)
        found["states, MiB"] = store.nbytes / _MIB
        with measured(found, "finish"):
            found["rows"] = store.finish("key").table.num_rows
        found["spilled, MiB"] = store.spilled / _MIB if isinstance(store, BoundedStates) else 0.0
        for name in ("reduce", "finish"):
            found[f"{name}, MiB"] -= base
    return found


def apart(case: Case) -> dict[str, Any]:
    """Measure a case in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(run, (case,))
    progress(f"{case}: {found}")
    return found


def measure(options: argparse.Namespace) -> Findings:
    """Run each kind in memory, and then with a part of what it took."""
    data, rows, targets = {}, [], []
    for kind, (_, keys) in KINDS.items():
        if options.quick and kind not in _QUICK:
            continue
        case = Case(kind, max(1, keys // (100 if options.quick else 1)), options.seed)
        whole = apart(case)
        budget = int(whole["states, MiB"] * _MIB) // _PART
        spilled = apart(replace(case, budget=budget))
        assert spilled["rows"] == whole["rows"]
        seconds = [found["reduce, s"] + found["finish, s"] for found in (whole, spilled)]
        peaks = [max(found["reduce, MiB"], found["finish, MiB"]) for found in (whole, spilled)]
        data[kind] = {"keys": case.keys, "budget": budget, "in memory": whole, "spilled": spilled}
        slower, larger = seconds[1] / seconds[0], peaks[1] / (budget / _MIB)
        spent = (spilled["reduce, MiB"], spilled["finish, MiB"], spilled["spilled, MiB"])
        rows.append((kind, case.keys, whole["states, MiB"], peaks[0], budget / _MIB, *spent, *seconds, slower))
        targets.append(at_most(f"{kind}: time to that in memory", slower, _SLOWER))
        targets.append(at_most(f"{kind}: peak memory to the budget", larger, _LARGER))
    head = ("states", "keys", "they take", "peak", "budget", "peak", "of finish", "written", "s", "s spilled", "times")
    about = f"{_EACH} records a key, of random keys; a budget of a part of {_PART} of what the states take in memory. "
    about += "MiB, and seconds until all is finished."
    return Findings(data, targets, f"{about}\n\n{markdown_table(head, rows)}")


if __name__ == "__main__":
    main("spill", argparse.ArgumentParser(description=__doc__), measure)
