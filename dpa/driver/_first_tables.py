"""The first routing tables of a run, planned from a sample of its inputs while its tasks start.

The sample goes through the job's own mappers and operators, in copies of their own and a thread of this process, up to
the first stage that keeps states. The sample does not show what a reducer or a join would emit: its groups and pairs
differ from those of the whole input. So later stages begin with the ring, as does every stage whose mapper fails on the
sample, or takes too long for it."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dpa.balance.adaptive.rebalance import FirstTable
from dpa.driver._graph_walk import Walk
from dpa.driver.inputs import OpenedInput
from dpa.driver.spec import JobSpec
from dpa.execution.block import Block
from dpa.execution.combining import FEW_RECORDS
from dpa.logical.compilation import Compilation
from dpa.measure.load import KeySample
from dpa.protocol.graph import Graph, Stage
from dpa.result.text import PLAIN_RING
from dpa.routing.keys import Key, to_python
from dpa.runtime.packed_plan import copied

SECONDS = 0.3
"""How long a start may wait for the sample: what passes before the tasks can start is no waiting."""

_PLANNING_SECONDS = 1.0
"""How long in all where user code is done: what is left is a few milliseconds of work, for which a busy machine
may have no processor."""

_LOOK_SECONDS = 0.02  # how often to look whether a sample is complete, or they can
_ROWS = 20_000  # rows of each input that are sampled at most, approximately
_READING, _MAPPING = 0.3, 0.7  # parts of the time after which no more is read, and no more is mapped

_FIRST_ROWS, _MORE = 20, 4
"""Rows that are mapped after the very first one, and how many times as many have been after each further turn."""

_PRECISE = 0.1  # a sample is too small if the standard error of an even share is more than this part of it
_NAMED = 0.002  # a key with this part of a block's records is named


@dataclass(frozen=True)
class Planned:
    """The first table of a stage, or None; and in a few words how the stage started, and why."""

    words: str
    table: FirstTable | None = None


def plans(stage: Stage) -> bool:
    return stage.tasks > 1 and stage.grouping.is_ring and stage.balance.plans_first_table


def with_first_tables(
    graph: Graph,
    spec: JobSpec,
    opened: Mapping[str, OpenedInput],
    is_ready: Callable[[], bool],
    seconds: float = SECONDS,
) -> tuple[Graph, dict[str, str]]:
    """The graph with first tables planned from a sample of these inputs, and by stage, in words, what came of it. Once
    `is_ready` says that tasks could start, the sample has `seconds`; user code that takes longer is left to itself
    until its next return, or for the quarter of a second after which it hands over records."""
    wanted = [stage.name for stage in graph.in_order if plans(stage)]
    if not wanted:
        return graph, {}
    sampling = _Sampling(spec, opened, seconds, is_ready)
    thread = threading.Thread(target=sampling.run, args=(frozenset(wanted),), name="dpa-sample", daemon=True)
    thread.start()
    while thread.is_alive() and sampling.waited() < sampling.allowed:
        thread.join(_LOOK_SECONDS)
    late = Planned(f"{PLAIN_RING}: the sample took longer than {seconds:g} s")
    found = {name: sampling.found.get(name, late) for name in wanted}
    stages = (replace(stage, first=found[stage.name].table) if stage.name in found else stage for stage in graph.stages)
    return replace(graph, stages=tuple(stages)), {name: one.words for name, one in found.items()}


class _TooLateError(Exception):
    """Nobody waits for the sample any more."""


class _Sampling:
    """One sample on its way; `is_mapped`: it has gone through the mappers."""

    def __init__(
        self, spec: JobSpec, opened: Mapping[str, OpenedInput], seconds: float, is_ready: Callable[[], bool]
    ) -> None:
        """The job waits for `seconds` once `is_ready` says that its tasks could start."""
        self.found: dict[str, Planned] = {}
        self.is_mapped = False
        self._spec = spec
        self._opened = opened
        self._seconds = seconds
        self._is_ready = is_ready
        self._ready_since: float | None = None
        self._rows = dict.fromkeys(opened, 0)
        self._is_whole = False

    def waited(self) -> float:
        """Seconds since tasks could start; 0 before."""
        now = time.monotonic()
        if self._ready_since is None and self._is_ready():
            self._ready_since = now
        return 0.0 if self._ready_since is None else now - self._ready_since

    @property
    def allowed(self) -> float:
        """Seconds for which somebody who is ready waits for it."""
        return max(self._seconds, _PLANNING_SECONDS) if self.is_mapped else self._seconds

    def run(self, wanted: frozenset[str]) -> None:
        """Plan the tables of these stages. What goes wrong here is found again when the job runs, and blamed there; a
        Ctrl-C, which polars raises in any thread, ends the job in the main one."""
        try:
            self._plan(wanted)
        except _TooLateError:
            return
        except BaseException as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            for name in wanted - self.found.keys():
                self.found[name] = Planned(f"{PLAIN_RING}: the sample failed: {why}")

    def _plan(self, wanted: frozenset[str]) -> None:
        schemas = {name: found.schema for name, found in self._opened.items()}
        steps = [replace(step, combine=False) for step in self._spec.steps]  # a combiner is a reducer's code
        compiled = Compilation(steps, schemas).compiled({})
        walk = Walk(replace(compiled, tasks=copied(compiled.tasks)), self._require_time)
        self._read(walk)
        self.is_mapped = True
        weights = {
            name: (found.rows or self._rows[name]) / self._rows[name] if self._rows[name] else 0.0
            for name, found in self._opened.items()
        }
        steps_of = {step.name: step for step in self._spec.steps}
        for stage in compiled.graph.queue_fed():
            unknown = [sender.name for sender in compiled.graph.upstream(stage.name) if sender.name not in weights]
            if unknown:
                if stage.name in wanted:
                    self.found[stage.name] = Planned(
                        f"{PLAIN_RING}: what {unknown[0]} emits is not known before it runs"
                    )
                continue
            reached = [
                (weights[compiled.graph.edges[number].source], block) for number, block in walk.reached(stage.name)
            ]
            step = steps_of[stage.name]
            if stage.name in wanted:
                is_few = step.combine == "auto" and sum(self._rows.values()) < FEW_RECORDS
                batch = step.flow.batch_records if step.combine and not is_few else None
                self.found[stage.name] = self._planned(stage, reached, batch)
            elif not step.receiver.keeps_states:
                walk.pass_on(stage.name, [block for _, block in reached])
                records = sum(block.rows for _, block in reached)
                weights[stage.name] = sum(weight * block.rows for weight, block in reached) / (records or 1)

    def _read(self, walk: Walk) -> None:
        """Emit what the sources make of their samples, some rows of each at a time, for as long as there is time."""
        drawn = {}
        for number, (name, found) in enumerate(self._opened.items(), start=1):
            until = self._seconds * _READING * number / len(self._opened)
            rows = found.sample(_ROWS, lambda until=until: self.waited() > until)[1]
            # In random order the first rows, which may be all that there is time for, are a sample too.
            drawn[name] = rows.take(pa.array(np.random.default_rng(0).permutation(rows.num_rows)))
        self._require_time()
        largest = max(table.num_rows for table in drawn.values())
        bounds, taken = [0, min(1, largest), min(_FIRST_ROWS, largest)], 0.0
        while bounds[-1] < largest:
            bounds.append(min(bounds[-1] * _MORE, largest))
        for start, stop in pairwise(bounds):
            growth = _MORE if start > _FIRST_ROWS else 1  # the first rows take longer, as code is loaded
            if start and (waited := self.waited()) and waited + taken * growth > self._seconds * _MAPPING:
                return
            turn = time.monotonic()
            for name, table in drawn.items():
                first, last = (round(table.num_rows * bound / (largest or 1)) for bound in (start, stop))
                if last > first:
                    walk.sample(name, table.slice(first, last - first))
                    self._rows[name] = last
            taken = time.monotonic() - turn
        self._is_whole = all(self._rows[name] == found.rows for name, found in self._opened.items())

    def _require_time(self) -> None:
        if self.waited() > self.allowed:
            raise _TooLateError

    def _planned(self, stage: Stage, reached: list[tuple[float, Block]], batch: int | None) -> Planned:
        """The first table of a stage that gets these blocks; a record stands for as many as its weight. If senders
        combine, blocks have `batch` records."""
        rows = sum(self._rows.values())
        random = np.random.default_rng(0)
        found = ((weight * block.rows, block.sample(block.rows, random)[0]) for weight, block in reached)
        keys = KeySample.union(sample.scaled(records) for records, sample in found)
        keys = replace(keys, rows=min(keys.rows, float(rows)))  # several records of one row are not independent
        if not keys.rows:
            return Planned(f"{PLAIN_RING}: the sample has no records")
        if not self._is_whole and keys.rows * _PRECISE**2 < stage.tasks - 1:
            return Planned(f"{PLAIN_RING}: a sample of {rows:,} rows says too little of {stage.tasks} tasks")
        if batch is not None:
            keys = replace(keys, records=1 - (1 - keys.records / keys.total) ** batch)
        names: dict[int, Key] = {}
        for _, block in reached:
            often = np.flatnonzero(block.counts() >= _NAMED * block.rows)
            names |= zip(block.hashes[often].tolist(), to_python(block.keys.take(pa.array(often))), strict=True)
        table = stage.balance.planned(stage.tasks, keys, names, may_split=not stage.migrates)
        splits = 0 if table is None else table.splits
        split = "no hot key" if not splits else "1 hot key" if splits == 1 else f"{splits} hot keys"
        return Planned(f"from a sample of {rows:,} rows, {split} split", table)
