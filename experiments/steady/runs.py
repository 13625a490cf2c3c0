"""Which runs are made, and in which order: methods take turns, so that a machine that slows down slows all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from dpa.runtime.cluster import ray_session
from experiments.harness import progress
from experiments.steady import real, virtual
from experiments.steady.methods import METHODS
from experiments.steady.outcome import Outcome, Outcomes
from experiments.steady.scenarios import REAL, VIRTUAL, load_of
from experiments.steady.shared import MANY, SHARED, Shared

ACTORS = 10
"""Of the largest job."""

PIECE = 1_000_000
"""Records of a Parquet file of cheap records; there are ten different ones."""

VIRTUAL_PARTS = (virtual.CLOSED, virtual.OPEN, virtual.SHARED_CORES)
PARTS = (*VIRTUAL_PARTS, real.SLOW, real.SHARED_CORES, real.CLICKS)

_UNBALANCED, _BALANCED = "none", "adaptive"
STRATEGIES = (_UNBALANCED, "halving", "doubling", _BALANCED)


@dataclass(frozen=True)
class Sizes:
    """How long runs are.

    Attributes:
        virtual_seconds, real_seconds: of work for all reducers, of slow records.
        counted, busy: records of a run of cheap records, those that cost a reducer nothing and others.
        clicks: rows of the shipped job.
    """

    virtual_seconds: float = 15.0
    real_seconds: float = 7.0
    counted: int = 60_000_000
    busy: int = 800_000
    clicks: int = 3_000_000

    def records(self, shared: Shared) -> int:
        """Those of a scenario of cheap records."""
        return self.busy if shared.micros else self.counted


QUICK = Sizes(virtual_seconds=2.0, real_seconds=0.5, counted=200_000, busy=20_000, clicks=20_000)


@dataclass(frozen=True)
class Case:
    """A scenario with a method; `run` takes a seed."""

    part: str
    scenario: str
    method: str
    run: Callable[[int], Outcome]

    @property
    def is_judged(self) -> bool:
        """Whether targets look at it."""
        return self.method == _BALANCED or (self.part == real.SHARED_CORES and self.method == _UNBALANCED)

    @property
    def is_virtual(self) -> bool:
        """Whether it needs no Ray."""
        return self.part in VIRTUAL_PARTS


def all_cases(sizes: Sizes, seed: int, stack: ExitStack) -> Iterator[Case]:
    """All cases; `stack` closes the inputs that they share."""
    yield from _virtual(sizes)
    yield from _real(sizes, seed, stack)


def run_all(cases: Sequence[Case], seed: int, repeats: int, peers: int) -> Outcomes:
    """Run what is judged `repeats` times, and the rest `peers` times, with one seed after another from `seed` on: all
    methods of a scenario with one seed, then with the next."""
    rounds = [
        (case, number)
        for place in dict.fromkeys((case.part, case.scenario) for case in cases)
        for number in range(max(repeats, peers))
        for case in cases
        if (case.part, case.scenario) == place and number < (repeats if case.is_judged else peers)
    ]
    with nullcontext() if all(case.is_virtual for case in cases) else ray_session(None, actors=ACTORS):
        found: list[Outcome] = []
        for case, number in rounds:
            found.append(case.run(seed + number))
            progress(f"{len(found)} of {len(rounds)}: {_line(found[-1])}")
    return Outcomes(tuple(found))


def _virtual(sizes: Sizes) -> Iterator[Case]:
    for part in (virtual.CLOSED, virtual.OPEN):
        paced = part == virtual.OPEN
        for scenario in VIRTUAL:
            if paced and scenario.split is None:  # what comes all at once keeps no pace
                continue
            load = cache(partial(load_of, scenario, sizes.virtual_seconds, paced=paced))
            for method in METHODS:
                yield Case(part, scenario.name, method, partial(_simulated, load, method))
    for shared in SHARED:
        if shared.micros and not shared.crowded:
            for method in STRATEGIES:
                run = partial(virtual.simulate_shared, shared, sizes.busy, method)
                yield Case(virtual.SHARED_CORES, shared.name, method, run)


def _simulated(load: Callable[..., Any], method: str, seed: int) -> Outcome:
    return virtual.simulate(load(seed=seed), method, seed)


def _real(sizes: Sizes, seed: int, stack: ExitStack) -> Iterator[Case]:
    """On real actors one seed makes all inputs: what differs from run to run is the machine."""
    for scenario in REAL:
        load = cache(partial(load_of, scenario, sizes.real_seconds, seed, paced=False))
        for method in METHODS:
            yield Case(real.SLOW, scenario.name, method, partial(_run_slow, load, method))

    @cache
    def pieces(keys: str) -> dict[str, Any]:
        like = next(shared for shared in SHARED if shared.keys == keys)
        return stack.enter_context(real.pieces(like, sizes.counted, PIECE, seed))

    for shared in SHARED:
        for method in STRATEGIES if shared.shape == MANY else (_UNBALANCED, _BALANCED):
            yield Case(
                real.SHARED_CORES, shared.name, method, partial(_run_shared, shared, sizes, seed, method, pieces)
            )
    for method in STRATEGIES:
        overrides = [f"input.rows={sizes.clicks}", "reference=null"]
        yield Case(real.CLICKS, "clicks", method, partial(_run_clicks, method, overrides))


def _run_slow(load: Callable[[], Any], method: str, seed: int) -> Outcome:
    return real.run_slow(load(), method)


def _run_shared(
    shared: Shared, sizes: Sizes, seed: int, method: str, pieces: Callable[[str], dict[str, Any]], repeat: int
) -> Outcome:
    records = sizes.records(shared)
    source = real.in_memory(shared, records, seed) if shared.micros else pieces(shared.keys)
    return real.run_shared(shared, source, records, method)


def _run_clicks(method: str, overrides: Sequence[str], seed: int) -> Outcome:
    return real.run_clicks(method, overrides)


def _line(run: Outcome) -> str:
    """A run in a line."""
    ratio = "" if math.isnan(run.ideal) else f" ({run.ratio:.2f} of the ideal)"
    return (
        f"{run.part}, {run.scenario}, {run.method}: {run.seconds:.2f} s{ratio}, {len(run.redistributions)} "
        f"redistributions, the last at {run.last:.1f} s, {run.forwarded:.0%} forwarded, S {run.skew:.3f}, "
        f"p50 {run.p50:.2f} s, p99 {run.p99:.2f} s, {run.processor:.1f} s of processor"
    )
