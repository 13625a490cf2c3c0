"""What all experiments share: the command line, the stamp, and the files that a result is written to.

A result names its command, commit, seed, configuration and machine, and for each target the wanted and the reached
value. Timings are compared within one run, as ratios of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.driver.inputs import Inputs, lazy_session
from dpa.driver.summary import versions
from dpa.protocol.graph import REDUCER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpa.job import Job
    from dpa.protocol.plan import RunPlan
    from dpa.runtime.launch import Launched
    from experiments.simulation.job import SimulatedRun

RESULTS = Path(__file__).parent / "results"

_ABOUT_RESULTS = ("experiments/results", "experiments/report/findings.yaml", "docs/results.md")
"""What is written of results: a change there changes none that is being measured."""


@dataclass(frozen=True)
class Target:
    """A target of an experiment: `wanted` in words, `reached` as measured, and whether it is `met`."""

    name: str
    wanted: str
    reached: float | int | str
    met: bool


def at_most(name: str, reached: float, bound: float) -> Target:
    """The target that `reached` is at most `bound`."""
    return Target(name, f"<= {bound:g}", reached, reached <= bound)


def below(name: str, reached: float, bound: float) -> Target:
    """The target that `reached` is below `bound`."""
    return Target(name, f"< {bound:g}", reached, reached < bound)


def above(name: str, reached: float, bound: float) -> Target:
    """The target that `reached` is above `bound`."""
    return Target(name, f"> {bound:g}", reached, reached > bound)


def holds(name: str, reached: bool) -> Target:
    """The target that a statement holds."""
    return Target(name, "yes", "yes" if reached else "no", reached)


def interval(values: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float]:
    """Where 95 % of these values lie."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def published(name: str, value: float, measured: tuple[float, float], spec: str = ".3g") -> Target:
    """The target that a published value is within the interval that was measured; `spec` says how to show both."""
    low, high = measured
    wanted, reached = f"{value:{spec}} (published) within", f"{low:{spec}} to {high:{spec}}"
    return Target(name, wanted, reached, low <= value <= high)


@dataclass
class Findings:
    """The findings of an experiment: plain data, targets, the text of its report, and a picture."""

    data: dict[str, Any]
    targets: list[Target] = field(default_factory=list)
    text: str = ""
    figure: Figure | None = None


def main(
    name: str,
    arguments: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], Findings],
    *,
    command: str | None = None,
) -> None:
    """Parse the command line, measure, and write the result under a name. `--quick` runs write to a directory of their
    own. `command` makes the result again; by default it follows from the name."""
    arguments.add_argument("--quick", action="store_true", help="a short run that shows the experiment works")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--results", type=Path, default=None, help="where to write; experiments/results by default")
    options = arguments.parse_args()
    os.environ.setdefault("DPA_BACKEND", "ray")  # what is measured is Ray, however small the input
    began = time.time()
    findings = measure(options)
    directory = options.results or (RESULTS / "quick" if options.quick else RESULTS)
    configuration = {key: value for key, value in vars(options).items() if key != "results"}
    stamped = stamp(command or f"python -m experiments.{name}", configuration, time.time() - began)
    _write(name, findings, stamped, directory)
    for target in findings.targets:
        print(
            "met    " if target.met else "NOT MET",
            f"{target.name}: wanted {target.wanted}, reached {shown(target.reached)}",
        )


def stamp(command: str, configuration: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The origin of a result, and the command that makes it again."""
    return {
        "command": command,
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--", ":/", *(f":(top,exclude){path}" for path in _ABOUT_RESULTS))),
        "seed": configuration.get("seed"),
        "configuration": configuration,
        "machine": {"cpus": os.cpu_count(), "memory_gib": _memory_gib(), "cpu": _cpu(), "system": platform.system()},
        "versions": versions(),
        "seconds": round(seconds, 1),
    }


def progress(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(shown(cell) for cell in row) + " |" for row in rows)])


def _write(name: str, findings: Findings, stamped: dict[str, Any], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    document = {"stamp": stamped, "data": findings.data, "targets": [asdict(target) for target in findings.targets]}
    (directory / f"{name}.json").write_text(json.dumps(document, indent=1, default=_plain) + "\n", encoding="utf-8")
    targets = [(t.name, t.wanted, t.reached, "yes" if t.met else "no") for t in findings.targets]
    picture = f"\n![{name}]({name}.png)\n" if findings.figure is not None else ""
    made = f"Commit {stamped['commit'][:12]}{' (with changes)' if stamped['dirty'] else ''}, seed {stamped['seed']}, "
    made += f"{stamped['machine']['cpus']} CPUs ({stamped['machine']['cpu']}), {stamped['seconds']} s. "
    made += f"Make it again: `{stamped['command']}`."
    table = markdown_table(("target", "wanted", "reached", "met"), targets) if targets else ""
    (directory / f"{name}.md").write_text(
        f"# {name}\n\n{findings.text}\n\n{table}\n{picture}\n{made}\n", encoding="utf-8"
    )
    if findings.figure is not None:
        findings.figure.savefig(directory / f"{name}.png", dpi=120, bbox_inches="tight")
    progress(f"wrote {directory / name}.json, .md{' and .png' if findings.figure is not None else ''}")


def _plain(value: Any) -> Any:
    """What JSON lacks: numpy's numbers as Python's, all else as text."""
    return value.item() if isinstance(value, np.generic) else str(value)


def shown(value: Any) -> str:
    """A figure as tables show it: numbers below 1,000 in three digits, larger ones in full."""
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip() or ("unknown" if arguments[0] == "rev-parse" else "")


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def plan_of(job: Job) -> RunPlan:
    """What a backend would be given to run a job."""
    with ExitStack() as stack:
        opened = Inputs(job.spec).open(stack, lazy_session(job.config, stack))
    splits = {name: found.splits for name, found in opened.items()}
    return job.spec.plan(splits, {name: found.schema for name, found in opened.items()})


def check_counted(keys: pa.ChunkedArray, run: SimulatedRun) -> None:
    """Check that a simulated job has counted every key as often as it came.

    Raises:
        AssertionError: it has not.
    """
    shares = pa.concat_tables(share.table for share in run.shares[REDUCER] if share.table.num_rows)
    found = dict(zip(shares["key"].to_pylist(), shares["count"].to_pylist(), strict=True))
    expected = keys.combine_chunks().value_counts()
    assert found == dict(zip(expected.field("values").to_pylist(), expected.field("counts").to_pylist(), strict=True))


@contextmanager
def actors(tasks: int) -> Iterator[Launched]:
    """A block with the actors of one generation, of a job with as many tasks of stages."""
    from dpa.runtime.launch import Launched

    launched = Launched(tasks)
    try:
        yield launched
    finally:
        launched.end("the experiment is over")
