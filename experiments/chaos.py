"""Real jobs on Ray of which random processes are killed (SIGKILL) at random moments, several times a run: a source
task, an operator task, the load balancer, or the coordinator. A word count with a hot key, of an
input that ends and of one that does not, and a graph with two results, each with and without checkpoints; every result
is held against the exact one.

A kill may come while the job recovers from the one before. The time of a recovery is from the kill until the driver
hears that records flow again: it has the time until Ray notices, new processes, and the back-off.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa import Feed, Flow, Job, Page, batch_mapper
from dpa.aggregates import Count, Sum
from dpa.errors import JobFailedError
from dpa.executors import FunctionReducer
from dpa.protocol.wire.addresses import RESERVED
from dpa.result import Result
from dpa.runtime.cluster import ray_session
from dpa.sources.splits import MemorySplit
from dpa.telemetry.observers import Unobserved
from experiments.harness import Findings, Target, at_most, main, markdown_table, progress

RECORD_SECONDS = 0.0002
"""Time that an operator task takes for a record, so that a run lasts long enough to be killed in."""

HOT, KEYS = 0.5, 2_000
"""Share of the records that have one key, and the number of keys."""

SOURCES, OPERATORS = 2, 3
"""Tasks of a stage that reads, and of one that processes."""

PHASES = ("the next generation had begun", "its tasks had their states", "records flowed")
"""Of a recovery, as the report has them."""

BACKOFF = "100ms"
MAX_SECONDS = 3.0
"""From a death until records flow again, as wanted."""

Rows = dict[Any, int]
"""Of a result: a number by key."""

Outcome = tuple[Result, list[Rows], list[Rows]]
"""Of a run: what it gave back, its results, and the exact ones."""


class SlowSum(FunctionReducer):
    """Adds, and takes its time."""

    def __init__(self) -> None:
        super().__init__(_add)

    def reduce(self, state: Any, value: Any) -> Any:
        """Add a value, after a while."""
        time.sleep(RECORD_SECONDS)
        return super().reduce(state, value)


def _add(left: int, right: int) -> int:
    return left + right


@batch_mapper
def by_length(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Counts with the length of their word."""
    return pa.record_batch({"length": pc.utf8_length(counts.column("key")), "count": counts.column("value")})


@batch_mapper
def by_end(words: pa.RecordBatch) -> pa.RecordBatch:
    """Words by their last letter."""
    return pa.record_batch({"end": pc.utf8_slice_codeunits(words.column("key"), -1, 2**31 - 1)})


@dataclass
class Chaos(Unobserved):
    """Kills processes of one job, once its stream has begun for the first time.

    Attributes:
        job: its name, which no other has.
        seed: of the run.
        sources: the names of its stages that read.
        draw: of who is killed when.
        kills: how many.
        mean_seconds: from one to the next, on average.
        killed: the kind of each, and when, in seconds since the epoch.
        flowed: when records flowed again, in the same seconds.
    """

    job: str
    seed: int
    sources: tuple[str, ...]
    draw: random.Random
    kills: int
    mean_seconds: float
    killed: list[tuple[str, float]] = field(default_factory=list)
    flowed: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="chaos", daemon=True)

    def phase(self, name: str, detail: str = "") -> None:
        """Begin with the stream."""
        if name == "stream" and self._thread.ident is None:
            self._thread.start()

    def warn(self, message: str) -> None:
        """Note when records flow again."""
        if message.startswith("records flow again"):
            self.flowed.append(time.time())

    def end(self) -> None:
        """Kill nobody any more."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def recoveries(self) -> list[float]:
        """Seconds of each recovery, from the first kill in it."""
        found, since = [], 0.0
        for at in self.flowed:
            kills = [when for _, when in self.killed if since < when < at]
            found += [at - kills[0]] if kills else []
            since = at
        return found

    def _work(self) -> None:
        for _ in range(self.kills):
            if self._ended.wait(self.draw.expovariate(1 / self.mean_seconds)):
                return
            while not (found := self._processes()) and not self._ended.wait(0.05):
                pass
            if not found:
                return
            kind = self.draw.choice(sorted(found))
            self.killed.append((kind, time.time()))
            with suppress(ProcessLookupError):  # it has ended by itself meanwhile
                os.kill(self.draw.choice(sorted(found[kind])), signal.SIGKILL)

    def _processes(self) -> Mapping[str, list[int]]:
        """The numbers of the job's processes, by their kind, from the titles that they give themselves."""
        found = defaultdict(list)
        begin = f"ray::{self.job} "
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended
                title = file.read_bytes().rstrip(b"\0 ").decode(errors="replace")
                if title.startswith(begin):
                    found[self.kind(title.removeprefix(begin).partition("#")[0])].append(int(file.parent.name))
        return found

    def kind(self, task: str) -> str:
        """Of which kind a task of this name is."""
        if task in RESERVED:
            return task
        return "source task" if task.rpartition(" ")[0] in self.sources else "operator task"


@dataclass(frozen=True)
class Run:
    """What became of one run; `phases` has of each recovery the kind of what died, and the seconds from when that was
    noticed until the next generation had begun, was restored, and processed records."""

    topology: str
    checkpoints: bool
    seconds: float
    is_exact: bool
    error: str
    kills: list[str]
    recoveries: list[float]
    rows_again: int
    began_again: int
    phases: list[tuple[str, float | None, float | None, float | None]]


def words(rows: int, seed: int) -> pa.Table:
    """Words, half of which are one, with a 1 each."""
    draw = np.random.default_rng(seed)
    ranks = np.where(draw.random(rows) < HOT, 0, draw.integers(1, KEYS, rows))
    return pa.table({"key": [f"w{rank}" for rank in ranks.tolist()], "value": np.ones(rows, np.int64)})


def count_words(table: pa.Table, name: str, options: dict[str, Any], chaos: Chaos) -> Outcome:
    """Count the words."""
    result = Job(
        name=name,
        input=table,
        reducer=SlowSum(),
        parallelism={"mappers": SOURCES, "reducers": OPERATORS},
        **options,
    ).run(chaos)
    return result, [_rows(result.table())], [_counted(table["key"].to_pylist())]


class EndlessWords(Feed):
    """Words that come a thousand at a time, and then no more, though there might."""

    is_open = True

    def __init__(self, rows: int, seed: int) -> None:
        self._table = words(rows, seed)

    @property
    def schema(self) -> pa.Schema:
        """Those of the words."""
        return self._table.schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        """The next thousand."""
        start = position or 0
        rows = self._table.slice(start, 1_000)
        return Page([MemorySplit(rows)] if rows.num_rows else [], start + rows.num_rows)


def count_without_end(table: pa.Table, name: str, options: dict[str, Any], chaos: Chaos) -> Outcome:
    """Count the words as they come, until all have."""
    given = {"rows": table.num_rows, "seed": chaos.seed}
    result = Job(
        name=name,
        input={"format": "feed", "use": "experiments.chaos:EndlessWords", "args": given},
        reducer=SlowSum(),
        parallelism={"mappers": SOURCES, "reducers": OPERATORS},
        until={"records": table.num_rows},
        **options,
    ).run(chaos)
    return result, [_rows(result.table())], [_counted(table["key"].to_pylist())]


def two_results(table: pa.Table, name: str, options: dict[str, Any], chaos: Chaos) -> Outcome:
    """Count the words, sum the counts by length, and count last letters."""
    flow = Flow(name, **options)
    read = flow.read(table, name="words", parallelism=SOURCES)
    counts = read.key_by("key", value="value").reduce(SlowSum(), name="counts", parallelism=OPERATORS)
    counts.map(by_length).key_by("length").reduce(Sum("count"), name="lengths", parallelism=2)
    read.map(by_end).key_by("end").reduce(Count(), name="ends", parallelism=2)
    result = flow.run(chaos)
    keys = table["key"].to_pylist()
    exact = [_counted(map(len, keys)), _counted(key[-1] for key in keys)]
    return result, [_rows(result.table(step)) for step in ("lengths", "ends")], exact


TOPOLOGIES: dict[str, tuple[Callable[..., Outcome], tuple[str, ...]]] = {
    "word count": (count_words, ("mapper",)),
    "graph with two results": (two_results, ("words",)),
    "stream without end": (count_without_end, ("mapper",)),
}
"""How to run each, and its stages that read."""


def measure(options: argparse.Namespace) -> Findings:
    """Run all jobs in turn, with and without checkpoints."""
    runs, rows = (4, 20_000) if options.quick else (options.runs, options.rows)
    found: list[Run] = []
    ways = [(topology, checkpoints) for checkpoints in (True, False) for topology in TOPOLOGIES]
    with ray_session(None, actors=2), TemporaryDirectory(prefix="dpa-chaos-") as directory:
        for number in range(runs):
            topology, checkpoints = ways[number % len(ways)]
            found.append(_run(topology, Path(directory), options.seed + number, rows, checkpoints=checkpoints))
            progress(f"{number + 1} of {runs}: {found[-1]}")
        left = [path.name for path in Path(directory).rglob("*") if path.is_file()]
    exact = sum(run.is_exact for run in found)
    seconds = sorted(seconds for run in found for seconds in run.recoveries)
    p99 = float(np.quantile(seconds, 0.99)) if seconds else float("nan")
    median = statistics.median(seconds) if seconds else float("nan")
    return Findings(
        data={"rows": rows, "runs": [vars(run) for run in found], "recovery": {"median": median, "p99": p99}},
        targets=[
            Target("results that are exact", f"{runs} of {runs}", f"{exact} of {runs}", exact == runs),
            Target("files of checkpoints that are left", "0", len(left), not left),
            at_most("seconds from a kill until records flow again, median", median, MAX_SECONDS),
            at_most("seconds from a kill until records flow again, p99", p99, MAX_SECONDS),
        ],
        text=_text(found, rows, seconds),
    )


def _run(topology: str, directory: Path, seed: int, rows: int, *, checkpoints: bool) -> Run:
    draw = random.Random(seed)
    name, (run, sources) = f"chaos-{os.getpid()}-{seed}", TOPOLOGIES[topology]
    chaos = Chaos(name, seed, sources, draw, kills=draw.randint(1, 3), mean_seconds=1.5)
    options: dict[str, Any] = {
        "limits": {"batch_records": 50, "in_flight_records": 400, "split_records": 1_000},
        "recovery": {"attempts": 2 * chaos.kills, "backoff": BACKOFF},
    }
    if checkpoints:
        options["checkpoint"] = {"path": str(directory / "saved"), "every": "500ms", "keep": 2}
    began, error, is_exact, again = time.time(), "", False, ()
    try:
        result, results, exact = run(words(rows, seed), name, options, chaos)
        is_exact, again = results == exact, result.report.recoveries
    except JobFailedError as failure:
        error = str(failure)
    finally:
        chaos.end()
    return Run(
        topology,
        checkpoints,
        round(time.time() - began, 1),
        is_exact,
        error,
        [kind for kind, _ in chaos.killed],
        chaos.recoveries,
        sum(recovery.rows for recovery in again),
        len(again),
        [(chaos.kind(each.task), each.begun, each.restored, each.seconds) for each in again],
    )


def _rows(table: pa.Table) -> Rows:
    key, number = table.columns
    return dict(zip(key.to_pylist(), number.to_pylist(), strict=True))


def _counted(keys: Any) -> Rows:
    return dict(Counter(keys))


def _phases(runs: list[Run]) -> list[tuple[str, ...]]:
    """The median of each phase of the recoveries, by the kind of what had died."""
    found: dict[str, list[tuple[float | None, ...]]] = defaultdict(list)
    for kind, *seconds in (each for run in runs for each in run.phases):
        found[kind].append(tuple(seconds))
    return [
        (kind, *(_median([each for each in phase if each is not None]) for phase in zip(*of, strict=True)))
        for kind, of in sorted(found.items())
    ]


def _median(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f}" if seconds else "-"


def _text(runs: list[Run], rows: int, seconds: list[float]) -> str:
    kinds = Counter(kind for run in runs for kind in run.kills)
    of_kind = [
        (
            f"{topology}, {'a checkpoint every 0.5 s' if checkpoints else 'without checkpoints'}",
            len(of),
            sum(run.is_exact for run in of),
            sum(len(run.kills) for run in of),
            sum(run.began_again for run in of),
            sum(run.rows_again for run in of),
        )
        for checkpoints in (True, False)
        for topology in TOPOLOGIES
        if (of := [run for run in runs if (run.topology, run.checkpoints) == (topology, checkpoints)])
    ]
    median = f"{statistics.median(seconds):.2f}" if seconds else "-"
    most = f"{float(np.quantile(seconds, 0.99)):.2f}" if seconds else "-"
    few = " These are few runs, on a machine that did other work too." if len(runs) < 20 else ""
    return (
        f"{len(runs)} runs of {rows:,} rows, of which {HOT:.0%} have one key; {SOURCES} source tasks, and {OPERATORS} "
        f"of the slowest stage, on two cores; `recovery.backoff` is {BACKOFF}. Processes of the run are killed with "
        f"SIGKILL from when the stream begins, 1.5 s apart on average.{few}\n\n"
        + markdown_table(("job", "runs", "exact", "kills", "begun again", "rows read again"), of_kind)
        + "\n\n"
        + markdown_table(("killed", "times"), sorted(kinds.items()))
        + "\n\n"
        + markdown_table(("median seconds from when it was noticed until", *PHASES), _phases(runs))
        + f"\n\nFrom a kill until records flow again: median {median} s, p99 {most} s, {len(seconds)} times. A kill "
        "just before the end, or while the job recovers from another, has no time of its own."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--rows", type=int, default=60_000)
    main("chaos", parser, measure)
