"""What `on_error: dead_letter` costs while nothing fails: the same records through the same user code in this process,
with and without it, in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.execution.block import Block, object_array
from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of, store_of
from dpa.execution.receivers.base import Receiver
from dpa.executors import FunctionMapper, Process, Reducer
from dpa.operators import RowKind, RowOperator
from dpa.sources.splits import MemorySplit
from dpa.tolerance import Letters, Tolerance
from experiments.harness import Findings, Target, main, markdown_table, progress

BLOCK = 4_096
RECORDS, REPEATS = 100_000, 7
MOST = {"records through a mapper or a function of a record": 0.1, "values into states that are numbers": 0.1}
"""The greatest parts by which these may take longer."""

_NUMBERS, _FUNCTIONS = "reduce to a number", ("a mapper", "map and filter")


def pair(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """What most mappers do: look at a column, and yield."""
    yield record["key"], record["value"]


def plus(state: int, value: int) -> int:
    """A sum of numbers."""
    return state + value


def into(state: dict[str, int], value: int) -> dict[str, int]:
    """A state of three numbers, changed in place."""
    state["count"] += 1
    state["sum"] += value
    state["max"] = max(state["max"], value)
    return state


def both(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    """The same of two states."""
    return {
        "count": left["count"] + right["count"],
        "sum": left["sum"] + right["sum"],
        "max": max(left["max"], right["max"]),
    }


def emitting(key: str, state: dict[str, int], value: int) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """A row for each value."""
    return into(state, value), [{"key": key, "sum": state["sum"]}]


def made_of(base: type, **methods: Any) -> Any:
    """An executor with these methods."""
    static = {name: staticmethod(method) for name, method in methods.items()}
    return type("Made", (base,), static)()


def empty() -> dict[str, int]:
    """The state of no values."""
    return {"count": 0, "sum": 0, "max": 0}


NUMBER = made_of(Reducer, zero=int, reduce=plus, merge=plus)
DICT = made_of(Reducer, zero=empty, reduce=into, merge=both)
EACH = made_of(Process, zero=empty, process=emitting)


def drained(steps: Iterator[Any]) -> None:
    """Take all steps."""
    deque(steps, maxlen=0)


def cases(records: int, seed: int) -> dict[str, Callable[[Tolerance | None], Callable[[], None]]]:
    """What is measured, by name: given a tolerance, what is to be run."""
    random = np.random.default_rng(seed)
    ranks = random.zipf(1.1, records) % 10_000
    table = pa.table({"key": [f"key {rank}" for rank in ranks], "value": random.integers(0, 1_000, records)})
    distinct = table.set_column(0, "key", pa.array([f"key {number}" for number in range(records)]))
    first, keep = RowOperator(RowKind.MAP, dict), RowOperator(RowKind.FILTER, lambda record: record["value"] >= 0)
    plain = MapTask(None, "key", ("value",), receiver_of(NUMBER), False, 0, BLOCK, 1.0)

    def mapped(tolerance: Tolerance | None) -> Callable[[], None]:
        task = replace(plain, mapper=FunctionMapper(pair), values=None, tolerance=tolerance)
        return lambda: drained(task.steps(MemorySplit(table), time.perf_counter))

    def changed(tolerance: Tolerance | None) -> Callable[[], None]:
        operators = tuple(replace(operator, tolerance=tolerance) for operator in (first, keep))
        emission = Emission((plain,), operators)
        return lambda: drained(emission.steps(MemorySplit(table), time.perf_counter))

    def folded(executor: Any, rows: pa.Table) -> Callable[[Tolerance | None], Callable[[], None]]:
        def made(tolerance: Tolerance | None) -> Callable[[], None]:
            receiver: Receiver = replace(receiver_of(executor), tolerance=tolerance)
            blocks = [
                Block.of(part["key"].combine_chunks(), object_array(part["value"].to_pylist()), 0)
                for part in (rows.slice(start, BLOCK) for start in range(0, len(rows), BLOCK))
            ]

            def run() -> None:
                store = store_of(receiver)
                for block in blocks:
                    store.reduce(block)

            return run

        return made

    return {
        _FUNCTIONS[0]: mapped,
        _FUNCTIONS[1]: changed,
        _NUMBERS: folded(NUMBER, table),
        "reduce to a dict, skewed keys": folded(DICT, table),
        "reduce to a dict, distinct keys": folded(DICT, distinct),
        "reduce to a dict, copied, skewed keys": folded(DICT, table),
        "reduce to a dict, copied, distinct keys": folded(DICT, distinct),
        "process, copied, skewed keys": folded(EACH, table),
    }


def measure(options: argparse.Namespace) -> Findings:
    """Run each with and without a tolerance, in turn."""
    records, repeats = (5_000, 1) if options.quick else (RECORDS, REPEATS)
    found: dict[str, list[float]] = {}
    for name, made in cases(records, options.seed).items():
        tolerance = Tolerance("step", Letters(), merges="copied" not in name)
        runs = [made(None), made(tolerance)]
        seconds: list[list[float]] = [[], []]
        for _ in range(repeats):
            for run, spent in zip(runs, seconds, strict=True):
                began = time.process_time()
                run()
                spent.append(time.process_time() - began)
        found[name] = [min(spent) / records * 1e6 for spent in seconds]
        progress(f"{name}: {found[name][0]:.3f} and {found[name][1]:.3f} us")
    more = {name: after / before - 1 for name, (before, after) in found.items()}
    reached = (statistics.fmean(more[name] for name in _FUNCTIONS), more[_NUMBERS])
    rows = [(name, *of, f"{more[name]:.0%}") for name, of in found.items()]
    return Findings(
        data={"records": records, "microseconds": found},
        targets=[
            Target(f"time with `dead_letter` to that with `fail`: {name}", f"<= {1 + most}", 1 + part, part <= most)
            for (name, most), part in zip(MOST.items(), reached, strict=True)
        ],
        text=f"{records:,} records in blocks of {BLOCK:,}, the fastest of {repeats} runs each, in microseconds of "
        "processor time a record. *Copied* is where states cannot be merged.\n\n"
        + markdown_table(("user code", "`fail`", "`dead_letter`", "more"), rows),
    )


if __name__ == "__main__":
    main("tolerance", argparse.ArgumentParser(description=__doc__), measure)
