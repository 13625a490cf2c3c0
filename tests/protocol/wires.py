"""Wires that play all other tasks to one machine, and the machines that most tests of the protocol look at."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from builders import block_of, limits_of, map_task, records_of, table_giving

from dpa.balance.delegation import Delegation
from dpa.balance.options import LoadReportOptions, NoBalancingOptions
from dpa.execution.mapping import Emitted
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import ObjectPart
from dpa.measure.latency import LatencySketch
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.flow_control import CreditLimits
from dpa.protocol.graph import MAPPER, REDUCER, Graph, Stage
from dpa.protocol.machine import Machine
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.channel import Outbox
from dpa.protocol.wire.epochs import EpochPhase
from dpa.protocol.wire.events import ProcessDone, Start, StepDone, TaskStarted
from dpa.protocol.wire.instructions import Instruction, ProcessBlocks, Send
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.end import Finished, LastTable, Progress
from dpa.protocol.wire.messages.splits import Begin, SplitGrant, SplitRequest
from dpa.protocol.wire.messages.tables import TableUpdate
from dpa.protocol.wire.metrics import TaskStats
from dpa.routing.change import TableChange
from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.options import KeyOptions, RingOptions
from dpa.routing.groupings.plain import RingGrouping
from dpa.routing.hashing import hash_column
from dpa.routing.keys import Key
from dpa.routing.table import RoutingTable
from dpa.sources.splits import MemorySplit, memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce, map_reduce_job
from experiments.simulated_jobs.random_jobs import Collect
from experiments.simulation.job import SimulatedJob, SimulatedRun

M = TypeVar("M")

IN_CUT = (
    EpochPhase.SOURCES,
    EpochPhase.QUEUES,
    EpochPhase.TABLES,
    EpochPhase.WINDOWS,
    EpochPhase.RESULTS,
    EpochPhase.SNAPSHOTS,
)
"""The phases for which sources wait."""


def mapper(index: int = 0) -> Address:
    """A task of the source stage of the smallest graph."""
    return Address(MAPPER, index)


def reducer(index: int = 0) -> Address:
    """A task of its reduce stage."""
    return Address(REDUCER, index)


class Wire:
    """Plays all other tasks to one machine: numbers what they send to it, in order, and hands it over."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._outboxes: dict[Address, Outbox] = {}

    def __call__(self, sender: Address, message: Message, now: float = 0.0) -> list[Instruction]:
        outbox = self._outboxes.setdefault(sender, Outbox(sender))
        return self.machine.handle(outbox.envelope(self.machine.address, message), now)


def sent(instructions: Iterable[Instruction], kind: type[M]) -> list[tuple[Address, M]]:
    """The messages of one kind that are to be sent, each with its receiver."""
    envelopes = [instruction.envelope for instruction in instructions if isinstance(instruction, Send)]
    return [(envelope.receiver, envelope.message) for envelope in envelopes if isinstance(envelope.message, kind)]


def instructed(instructions: Iterable[Instruction], kind: type[M]) -> list[M]:
    """The instructions of one kind."""
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def last_table(stage: str, version: int) -> LastTable:
    """The load balancer's answer to a freeze, with any table of this version."""
    return LastTable(stage, table_giving({"any": 0}, version=version))


def last_versions(instructions: Iterable[Instruction]) -> list[tuple[Address, str, int]]:
    """The answers to freezes among the instructions: to whom, the stage, and the version of its table."""
    return [(to, last.stage, last.table.version) for to, last in sent(instructions, LastTable)]


def update_between(old: RoutingTable, new: RoutingTable, stage: str = REDUCER) -> TableUpdate:
    """The message that makes the second table of a stage of the first."""
    return TableUpdate(stage, TableChange.between(old, new))


def push(of_keys: Sequence[Key], *, origin: Address | None = None, **changes: Any) -> Push:
    """A push of records with these keys, made by mapper 0 at 0 s by table 0; `changes` replace fields."""
    fields = {"version": 0, "edge": 0, "read_at": 0.0, "emitted_at": 0.0, "hops": 0, **changes}
    return Push(block_of(of_keys), origin=origin or mapper(), **fields)


def keys_of(pushed: Push) -> str:
    """The keys of pushed records, one letter each."""
    return "".join(key for key, _ in records_of(pushed.block))


# --- tasks that emit

SPLIT = MemorySplit(pa.table({"key": ["a"]}))


@dataclass(frozen=True, kw_only=True)
class _Reporting(NoBalancingOptions):
    """Asks for these reports."""

    asked: LoadReportOptions
    eager: bool

    @property
    def reports(self) -> LoadReportOptions:
        return self.asked

    @property
    def forwards_eagerly(self) -> bool:
        return self.eager


@dataclass(frozen=True, kw_only=True)
class _TabledStage(Stage):
    """Begins with a table that stands for the ring's."""

    table: RoutingTable

    def ring_table(self) -> RoutingTable:
        return self.table


@dataclass(frozen=True, kw_only=True)
class _Given(RingOptions):
    """Gives a grouping, or else that of the ring."""

    grouping: Grouping | None

    def create(self, table: RoutingTable, source: int) -> Grouping:
        return self.grouping or RingGrouping(table, source)


def emitter_for(
    table: RoutingTable,
    credit: int = 10,
    *,
    edge: int = 0,
    stage: str = REDUCER,
    origin: Address | None = None,
    grouping: Grouping | None = None,
    limits: CreditLimits | None = None,
    migrates: bool = False,
    measures: bool = False,
) -> Emitter:
    """An emitter of mapper 0, unless another `origin` is given; without a grouping, records go by the table. `limits`
    are instead of credit for `credit` records; `migrates`: whether the receiving stage's states do; `measures`: whether
    it measures what is offered."""
    to = _TabledStage(
        stage,
        table.reducers,
        grouping=_Given(grouping=grouping),
        balance=_Reporting(asked=LoadReportOptions(measures_keys=measures), eager=True),
        consistency="migrate" if migrates else "merge",
        table=table,
    )
    return Emitter(edge, origin or mapper(), to, limits or limits_of(credit), 0)


def step_of(*blocks: str, read: int | None = None) -> Emitted:
    """A step that made a block for each edge of these keys, one letter each; an empty one is left out."""
    made = tuple((position, block_of(list(keys))) for position, keys in enumerate(blocks) if keys)
    records = sum(block.rows for _, block in made)
    return Emitted(made, records if read is None else read, records)


class SourceWire(Wire):
    """Mapper 0, with a split open unless it is to be `fresh`."""

    def __init__(self, *emitters: Emitter, fresh: bool = False) -> None:
        self.task = SourceMachine(mapper(), emitters)
        super().__init__(self.task)
        if not fresh:
            self(COORDINATOR, Begin())
            self(COORDINATOR, SplitGrant(SPLIT))

    def stepped(
        self, *blocks: str, read: int | None = None, now: float = 0.0, seconds: float = 0.0
    ) -> list[Instruction]:
        """A step is done: a block for each edge, of these keys."""
        return self.task.handle(StepDone(step_of(*blocks, read=read), seconds), now)

    def exhausted(self, now: float = 0.0, seconds: float = 0.0) -> list[Instruction]:
        """Nothing is left of the split."""
        return self.task.handle(StepDone(None, seconds), now)


# --- a task with a queue

REDUCER_TABLES = [
    table_giving({"a": 0, "b": 0, "c": 0, "x": 1, "y": 2}),
    table_giving({"a": 0, "b": 1, "c": 2, "x": 1, "y": 2}, version=1),
    table_giving({"a": 0, "b": 1, "c": 0, "x": 1, "y": 2}, version=2),
]


class OperatorWire(Wire):
    """Reducer 0 of three, which owns a, b and c by table 0, a by table 1, and a and c by table 2."""

    def __init__(
        self,
        *emitters: Emitter,
        eager: bool = True,
        most: int = 1000,
        goes_by_table: bool = True,
        every: int | None = None,
        idle: bool = False,
        report_seconds: float | None = 0.5,
        measure: bool = False,
        delegation: Delegation | None = None,
        queue_seconds: float | None = None,
        in_flight: int = 1_000,
        tables: Sequence[RoutingTable] = REDUCER_TABLES,
        migrates_with: Sequence[Address] | None = None,
        merges_with: Sequence[Address] = (),
        drain_seconds: float = 0.0,
    ) -> None:
        """`most`: records in a quantum; `every` to `measure`: what it reports of its load, nothing by default;
        `migrates_with`: the senders, where states migrate, and `merges_with` where they do not; `drain_seconds`: as in
        `FlowControl`."""
        reports = LoadReportOptions(
            report_every=every, report_seconds=report_seconds, report_when_idle=idle, measures_keys=measure
        )
        self.tables = tables
        stage = _TabledStage(
            REDUCER,
            3,
            grouping=RingOptions() if goes_by_table else KeyOptions(),
            balance=_Reporting(asked=reports if measure or every is not None else LoadReportOptions(), eager=eager),
            flow=replace(
                limits_of(in_flight, seconds=queue_seconds).flow, quantum_records=most, drain_seconds=drain_seconds
            ),
            consistency="merge" if migrates_with is None else "migrate",
            piece_keys=100,
            table=tables[0],
        )
        self.task = OperatorMachine(reducer(), emitters, stage, tuple(migrates_with or merges_with), delegation)
        super().__init__(self.task)

    def push(self, keys: str, *, origin: Address | None = None, now: float = 0.0, **changes: Any) -> list[Instruction]:
        """A mapper pushes records with these keys."""
        message = push(list(keys), origin=origin, **changes)
        return self(message.origin, message, now)

    def update(self, version: int) -> list[Instruction]:
        """All tables up to this one come, in order."""
        steps = itertools.pairwise(self.tables[self.task.table.version : version + 1])
        return [instruction for old, new in steps for instruction in self(BALANCER, update_between(old, new))]

    def done(self, seconds: float = 0.0, *, waited: float = 0.0, now: float | None = None) -> list[Instruction]:
        """The records given to user code have been processed, by default as if it had begun at 0 s."""
        return self.task.handle(ProcessDone(seconds, waited=waited), seconds if now is None else now)


def processing(instructions: list[Instruction]) -> list[str]:
    """The keys of the records that user code is to process."""
    given = instructed(instructions, ProcessBlocks)
    return ["".join(key for block in each.blocks for key, _ in records_of(block)) for each in given]


def pushed(instructions: list[Instruction]) -> list[tuple[int, str]]:
    """The keys of the records that are pushed or forwarded, with the number of their receiver."""
    return [(to.index, keys_of(message)) for to, message in sent(instructions, Push)]


def part(*keys: str) -> ObjectPart:
    """States of these keys, of a record each."""
    ones, column = np.ones(len(keys), np.int64), pa.array(keys)
    return ObjectPart(column, [1] * len(keys), ones, ones, hash_column(column))


# --- a coordinator

INPUT = tuple(MemorySplit(pa.table({"n": range(rows)})) for rows in (3, 2, 1))


class CoordinatorWire(Wire):
    """The coordinator of two mappers and two reducers, or of another graph, whose tasks have all started."""

    def __init__(self, at: float = 0.0, graph: Graph | None = None, **options: Any) -> None:
        """The stream begins at `at` seconds; `options` are those of the reduce stage."""
        self.graph = graph or map_reduce(INPUT, 2, 2, **options)
        self.coordinator = CoordinatorMachine(self.graph)
        super().__init__(self.coordinator)
        self.began = self.coordinator.handle(Start(), at)
        for address in (*self.graph.addresses, BALANCER):
            self.began += self.coordinator.handle(TaskStarted(address), at)

    def progress(self, task: Address, *, done: bool = False, now: float = 0.0, **stats: Any) -> list[Instruction]:
        """A task reports these statistics. One of a source that is done has asked for splits until there was none."""
        while done and self.graph.is_source(task.stage):
            grants = sent(self(task, SplitRequest(), now), SplitGrant)
            if not any(grant.split for _, grant in grants):
                break
        return self(task, Progress(TaskStats(task.stage, task.index, **stats), done), now)

    def mapped(self, index: int, emitted: int, *, done: bool = False) -> list[Instruction]:
        """A mapper has emitted so much."""
        return self.progress(mapper(index), emitted=(emitted,), done=done)

    def reduced(self, index: int, processed: int, *, queue: int = 0) -> list[Instruction]:
        """A reducer has processed so much."""
        return self.progress(reducer(index), processed=processed, queue=queue)

    def finished(
        self,
        task: Address,
        processed: int,
        schema: ShareSchema | None = None,
        latency: LatencySketch | None = None,
        **fields: Any,
    ) -> list[Instruction]:
        """A task has finished its share of the result."""
        stats = TaskStats(task.stage, task.index, processed=processed)
        return self(task, Finished(stats, latency or LatencySketch(), LatencySketch(), schema, **fields))


def kinds_of(base: type) -> set[type]:
    """The events, messages or instructions that there are: what derives from `base` and is no base itself."""
    below = base.__subclasses__()
    return set().union(*map(kinds_of, below)) if below else {base}


def check_waits(run: SimulatedRun) -> None:
    """The phases of cuts are what sources have waited, whatever has happened."""
    found = run.snapshot.epochs
    phases = {each.phase: each for each in found.phases}
    in_cuts = [phases[phase].seconds for phase in IN_CUT if phase in phases]
    assert sum(in_cuts) == pytest.approx(found.seconds, abs=1e-9)
    assert all(each.row_seconds >= 0 and each.longest <= each.seconds for each in phases.values())
    assert found.rows <= sum(task.read for stage in run.snapshot.stages for task in stage.every_task)
    assert found.visible_after is None or found.visible_after <= run.seconds


# --- simulated jobs


def job_of(
    keys: Sequence[Key], split_rows: int, batch: int, reducer: Any = None, *, seed: int = 0, **options: Any
) -> SimulatedJob:
    """A job of records with these keys whose reducer, by default, collects their numbers; `seed`: of hashes; `options`
    are those of `map_reduce_job`."""
    rows = pa.table({"key": pa.array(keys), "number": range(len(keys))})
    task = map_task(None, reducer or Collect(), values=("number",), batch_records=batch, seed=seed)
    return map_reduce_job(memory_splits(rows, split_rows), task, **options)
