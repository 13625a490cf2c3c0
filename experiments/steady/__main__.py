"""`python -m experiments.steady`: every scenario with every method, in virtual time and on real actors. One scenario or
method alone: `--virtual --scenario drifting --method adaptive`; one part: `--part "real, clicks"`."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from contextlib import ExitStack

from experiments.harness import RESULTS, Findings, main, markdown_table
from experiments.steady.methods import METHODS
from experiments.steady.outcome import Outcome, Outcomes
from experiments.steady.runs import PARTS, QUICK, Case, Sizes, all_cases, run_all
from experiments.steady.scenarios import REAL, VIRTUAL
from experiments.steady.shared import SHARED
from experiments.steady.targets import targets

QUICK_SCENARIOS = ("hot 60 %", "2 + 2, 20 us, even")
QUICK_METHODS = ("none", "adaptive")


def measure(options: argparse.Namespace) -> Findings:
    """Run what is asked for. A part of all runs does not replace their result."""
    if options.results is None and _is_part(options):
        options.results = RESULTS / "quick"
    sizes, repeats, peers = (QUICK, 1, 1) if options.quick else (Sizes(), options.repeats, options.peers)
    with ExitStack() as stack:
        cases = [case for case in all_cases(sizes, options.seed, stack) if _is_asked(case, options)]
        found = run_all(cases, options.seed, repeats, peers)
    return Findings(
        data={"runs": found.plain()},
        targets=[] if options.quick else targets(found),
        text=_text(found),
    )


def _is_part(options: argparse.Namespace) -> bool:
    return bool(options.virtual or options.real or options.part or options.scenario or options.method)


def _is_asked(case: Case, options: argparse.Namespace) -> bool:
    """Whether the command line asks for a case."""
    if (options.virtual and not case.is_virtual) or (options.real and case.is_virtual):
        return False
    if options.part and case.part not in options.part:
        return False
    scenarios = options.scenario or (QUICK_SCENARIOS if options.quick else None)
    methods = options.method or (QUICK_METHODS if options.quick else None)
    return (not scenarios or case.scenario in scenarios) and (not methods or case.method in methods)


def _text(found: Outcomes) -> str:
    head = (
        "scenario",
        "method",
        "time, s",
        "to the ideal",
        "redistributions",
        "the last, s",
        "forwarded",
        "S",
        "p50, s",
        "p99, s",
        "processor, s",
    )
    parts = [
        "All options are at their defaults. Medians of all runs of a scenario and method; redistributions and the "
        "moment of the last one are the most. *To the ideal*: the time by that of a fluid that is never misplaced; not "
        "known for cheap records on real actors. *Forwarded*: records passed from one reducer to another, by all "
        "records. *Processor*: seconds of all actors while the stream ran. In virtual time messages cost nothing, and "
        "so do forwarded records."
    ]
    for part in found.parts:
        runs = found.of(part)
        rows = [
            _row(scenario, method, of.runs)
            for scenario in runs.scenarios
            for method in runs.methods
            if (of := runs.of(part, scenario, method)).runs
        ]
        parts += [f"## {part[0].upper()}{part[1:]}", markdown_table(head, rows)]
    return "\n\n".join(parts)


def _row(scenario: str, method: str, runs: Sequence[Outcome]) -> tuple[str | float, ...]:
    def median(name: str) -> float:
        return float(statistics.median(getattr(run, name) for run in runs))

    return (
        scenario,
        method,
        f"{median('seconds'):.2f}",
        _or_dash(median("ratio"), ".2f"),
        max(len(run.redistributions) for run in runs),
        f"{max(run.last for run in runs):.1f}",
        f"{median('forwarded'):.1%}",
        f"{median('skew'):.3f}",
        f"{median('p50'):.2f}",
        f"{median('p99'):.2f}",
        _or_dash(median("processor"), ".1f"),
    )


def _or_dash(figure: float, form: str) -> str:
    return "-" if math.isnan(figure) else f"{figure:{form}}"


if __name__ == "__main__":
    names = list(dict.fromkeys([*(one.name for one in (*VIRTUAL, *REAL)), *(one.name for one in SHARED), "clicks"]))
    parser = argparse.ArgumentParser(prog="python -m experiments.steady", description=__doc__)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--virtual", action="store_true", help="only in virtual time")
    only.add_argument("--real", action="store_true", help="only on real actors")
    parser.add_argument("--part", action="append", choices=PARTS, metavar="NAME", help="; ".join(PARTS))
    parser.add_argument("--scenario", action="append", choices=names, metavar="NAME", help="; ".join(names))
    parser.add_argument("--method", action="append", choices=list(METHODS), help="may be given several times")
    parser.add_argument("--repeats", type=int, default=3, help="runs of what targets look at")
    parser.add_argument("--peers", type=int, default=1, help="runs of everything else")
    main("steady", parser, measure)
