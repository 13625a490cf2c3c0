"""A job as the protocol sees it: stages of equal tasks, and the edges along which records travel between them.

A stage that no edge enters is a source: its tasks read splits. All other stages take records from queues. A graph says
how many tasks there are and how records find them, not what tasks do with records: that is `task.user_code`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Literal, TypeAlias

from dpa.balance.adaptive.rebalance import FirstTable
from dpa.balance.elastic import ElasticOptions
from dpa.balance.options import AdaptiveOptions, BalanceOptions
from dpa.errors import ConfigError
from dpa.protocol.flow_control import CreditLimits, FlowControl
from dpa.protocol.wire.addresses import RESERVED, Address
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.snapshots import NOTHING_REACHED, TimeReached
from dpa.routing.groupings.options import GroupingOptions, RingOptions
from dpa.routing.table import RoutingTable
from dpa.sources.event_time import SourceTime
from dpa.sources.feed import Position, Until
from dpa.sources.splits import Split, total_rows
from dpa.tolerance import NONE_FAILED, Failed

_REPORTING_TASKS = 32  # a job of no more reports at every tick

_REPORTS_A_SECOND = 128
"""Of the tasks of a larger one together: a tick brings up to three messages, two of them to the load balancer, and Ray
carries 2,500 a second of one caller."""

_LONGEST_REPORT_SECONDS = 10.0

Consistency: TypeAlias = Literal["merge", "migrate"]
"""Where the state of a key is while keys are redistributed. `merge`: on every task that has processed records of it,
until these states are merged. `migrate`: on one task at a time; it moves with the key."""


@dataclass(frozen=True)
class ClosingWindows:
    """When a stage closes its windows and fires its timers: at the ends of epochs, up to the watermark. A timer
    works as the end of a window of one key.

    Attributes:
        lateness: microseconds of event time for which they stay open when the watermark has passed their ends.
        back: microseconds by which its rows may be earlier than the time by which windows are closed already: 0 where
            they have the time of the window's end, 1 of sessions, whose end does not close them, and the window's size
            where rows have the time of its beginning.
        every: seconds from an epoch that closes windows to the next one.
    """

    lateness: int = 0
    back: int = 0
    every: float = 1.0


def why_fixed(grouping: GroupingOptions, consistency: Consistency, *, can_merge: bool) -> str | None:
    """Why the tasks of a stage cannot be changed while it runs, in a sentence; None if they can."""
    if consistency == "merge" and not can_merge:
        return "two states of a key cannot be merged; set `consistency: migrate`"
    if consistency == "migrate" and not grouping.is_ring:
        return f"states are where the grouping `{grouping.kind}` sends records; use `ring`"
    return None


@dataclass(frozen=True)
class StageInput:
    """What a source reads.

    Attributes:
        splits: in the order in which they are handed out.
        position: where the first poll for more begins, if the input is open; None: `splits` is all.
        given: what polls of an open input have given so far; None: that is not kept.
        is_logged: whether what is read is noted, epoch by epoch.
        time: its event time; None: it has none.
    """

    splits: tuple[Split, ...] = ()
    position: Position | None = None
    given: tuple[Split, ...] | None = None
    is_logged: bool = False
    time: SourceTime | None = None


NO_INPUT = StageInput()


@dataclass(frozen=True)
class Publishing:
    """How an output of a stage is published by epoch.

    Attributes:
        every: seconds from results of an epoch to the next; infinite: there are none before the end.
        with_checkpoints: whether they are published with each checkpoint instead, and never without one.
        once: whether they are committed at once though no row is published again in a later epoch: so they are
            published with each checkpoint too, which names them until they are committed.
        closed: whether they are the rows of closed windows alone: so no epoch is needed before one can be closed.
    """

    every: float = math.inf
    with_checkpoints: bool = False
    once: bool = False
    closed: bool = False

    @property
    def is_by_epoch(self) -> bool:
        return self.every < math.inf

    @property
    def is_named(self) -> bool:
        """Whether checkpoints name what is staged and not committed. Whoever resumes from one takes all other rows for
        published and committed."""
        return self.with_checkpoints or self.once


@dataclass(frozen=True)
class Stage:
    """Tasks that do the same to different records. A source has an input. The other options say how records come to the
    tasks of an operator, and what it publishes; a source has no use for them.

    Attributes:
        name: unique in the graph; error messages and reports name tasks by it.
        grouping: how senders choose the task of a record.
        balance: when keys are redistributed, and how.
        flow: how far senders may be ahead of it, and how its tasks portion their work.
        expected_seconds: about how long a record takes, before any is measured; None: it may be anything.
        publishing: how each of its outputs is published by epoch, in the order of their numbers.
        published: rows that were published by the cut with which the job begins.
        consistency: where states are while keys are redistributed; `migrate` needs a grouping and a policy that give
            each key one task.
        elastic: how the number of its tasks follows its work; None: not at all.
        has_processors: whether Ray keeps processors for each of its tasks.
        can_merge: whether two states of a key can be merged.
        ordered_for: the stage that needs the records of a key in the order in which the one task of this emits them;
            None: there is none, or there are several tasks.
        piece_keys: where states migrate, about the most keys whose states are extracted, sent and installed at a time.
        first: the first routing table, where one was planned; None: that of the ring.
        scattered: whether it continues from a cut at which states were not where its grouping sends their keys.
        windows: when its windows close and its timers fire; None: it has none.
        emits_at_end: whether it gives its rows when all its records are processed, and none before.
        reached: the event time that it has reached at the cut with which the job begins.
    """

    name: str
    tasks: int
    input: StageInput = NO_INPUT
    grouping: GroupingOptions = field(default_factory=RingOptions)
    balance: BalanceOptions = field(default_factory=AdaptiveOptions)
    flow: FlowControl = field(default_factory=FlowControl)
    expected_seconds: float | None = None
    publishing: tuple[Publishing, ...] = ()
    published: int = 0
    consistency: Consistency = "merge"
    piece_keys: int = 8_192
    can_merge: bool = True
    elastic: ElasticOptions | None = None
    has_processors: bool = False
    ordered_for: str | None = None
    first: FirstTable | None = None
    scattered: bool = False
    windows: ClosingWindows | None = None
    emits_at_end: bool = False
    reached: TimeReached = NOTHING_REACHED

    def __post_init__(self) -> None:
        if self.migrates and self.first is not None and self.first.splits:
            raise ConfigError(f"the states of stage {self.name!r} cannot migrate by a first table that splits keys")
        if self.migrates and self.grouping.splits_keys:
            why = "a key's state must be on one task, which such a grouping does not allow"
            raise ConfigError(f"the states of stage {self.name!r} cannot migrate by {self.grouping.kind!r}: {why}")

    @property
    def migrates(self) -> bool:
        return self.consistency == "migrate"

    @property
    def why_fixed(self) -> str | None:
        return why_fixed(self.grouping, self.consistency, can_merge=self.can_merge)

    @property
    def why_one(self) -> str | None:
        if self.ordered_for is None:
            return None
        order = f"{self.ordered_for} takes the records of a key in the order in which one task emits them"
        return f"{order}; where that does not matter, begin with `parallelism: 2` or more"

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(Address(self.name, index) for index in range(self.tasks))

    def first_table(self) -> RoutingTable:
        return self.ring_table() if self.first is None else self.first.table

    def ring_table(self) -> RoutingTable:
        """That of the plain ring, by which the static skew is counted."""
        return _ring_table(self.balance, self.tasks)

    def moves_states(self, version: int = 0) -> bool:
        """Whether a state may be elsewhere than with the owner of its key by the table of this version, the newest."""
        splits = self.first is not None and self.first.splits > 0
        return not self.migrates and (version > 0 or splits or self.grouping.splits_keys)


@lru_cache(maxsize=4)
def _ring_table(balance: BalanceOptions, tasks: int) -> RoutingTable:
    """Kept, as every task and every sender in a process begins with it: in the simulator these are all of a job's."""
    return balance.ring(tasks).snapshot(0)


@dataclass(frozen=True)
class CheckpointTimes:
    """When checkpoints are made.

    Attributes:
        every: seconds from one that is written, or the start, to the cut of the next.
        slot: of the store's chain, for the first one.
        read: rows of the input that were read before the checkpoint with which the job begins.
        epoch: the one that this checkpoint ended; 0: there is none.
        staged: results that it names for a commit that may not have happened.
    """

    every: float
    slot: int = 0
    read: int = 0
    epoch: int = 0
    staged: tuple[Commit, ...] = ()


@dataclass(frozen=True)
class Tolerated:
    """Errors of user code that end no job.

    Attributes:
        most: how many; None: any number.
        before: those that there were before the checkpoint with which the job begins.
    """

    most: int | None = None
    before: Failed = NONE_FAILED


@dataclass(frozen=True)
class Edge:
    """Records travel from every task of one stage to the tasks of another. Two stages may have several edges."""

    source: str
    target: str


@dataclass(frozen=True)
class Graph:
    """Stages and edges without a cycle. An edge's number is its position in `edges`. Raises ConfigError if a stage is
    named twice or by a reserved name, an edge names no stage, or edges form a cycle.

    Attributes:
        stages, edges: in an order of their own.
        checkpoints: when they are made; None: there are none.
    """

    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]
    checkpoints: CheckpointTimes | None = None
    tolerated: Tolerated = Tolerated()
    until: Until = field(default_factory=Until)

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        for name in names:
            if name in RESERVED:
                raise ConfigError(f"a stage must not be named {name!r}: that name is taken by tasks of dpa itself")
            if names.count(name) > 1:
                raise ConfigError(f"two stages are named {name!r}")
        for edge in self.edges:
            for name in (edge.source, edge.target):
                if name not in names:
                    raise ConfigError(f"there is no stage {name!r}; the stages are {', '.join(names)}")
        try:
            _ = self.in_order
        except CycleError as error:
            _, cycle = error.args
            raise ConfigError(f"the stages {' -> '.join(cycle)} form a cycle") from None

    def __getitem__(self, name: str) -> Stage:
        return self._by_name[name]

    @cached_property
    def in_order(self) -> tuple[Stage, ...]:
        """The stages, each after all that feed it; of those that could come next, in the order of `stages`."""
        position = {stage.name: number for number, stage in enumerate(self.stages)}
        sorter = TopologicalSorter({name: [edge.source for _, edge in self.into(name)] for name in position})
        sorter.prepare()
        ordered: list[Stage] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=position.__getitem__)
            ordered += [self[name] for name in ready]
            sorter.done(*ready)
        return tuple(ordered)

    @cached_property
    def _by_name(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def _into(self) -> dict[str, list[tuple[int, Edge]]]:
        return {
            stage.name: [(number, edge) for number, edge in enumerate(self.edges) if edge.target == stage.name]
            for stage in self.stages
        }

    def into(self, name: str) -> list[tuple[int, Edge]]:
        return self._into[name]

    def out_of(self, name: str) -> list[tuple[int, Edge]]:
        return [(number, edge) for number, edge in enumerate(self.edges) if edge.source == name]

    def is_source(self, name: str) -> bool:
        return not self.into(name)

    @cached_property
    def rows(self) -> int:
        return sum(total_rows(stage.input.splits) for stage in self.stages)

    def upstream(self, name: str) -> list[Stage]:
        """The stages that feed a stage, each once."""
        return [self[source] for source in dict.fromkeys(edge.source for _, edge in self.into(name))]

    def senders(self, name: str) -> list[Address]:
        return [address for stage in self.upstream(name) for address in stage.addresses]

    def emitters(self, name: str) -> int:
        """How many emitters send to a stage: one of each task for each edge."""
        return sum(self[edge.source].tasks for _, edge in self.into(name))

    def credit(self, name: str) -> CreditLimits:
        stage = self[name]
        first = stage.flow.window(stage.expected_seconds, self.emitters(name))
        return CreditLimits(stage.flow, first, divided=self.is_cut)

    @cached_property
    def is_cut(self) -> bool:
        """Whether its stream is cut into epochs, for checkpoints or for results."""
        outputs = (each for stage in self.stages for each in stage.publishing)
        return self.checkpoints is not None or any(each.is_by_epoch or each.closed for each in outputs)

    def queue_bound(self, name: str) -> int:
        return self.emitters(name) * self[name].flow.in_flight_records

    def queue_fed(self) -> Iterator[Stage]:
        return (stage for stage in self.in_order if not self.is_source(stage.name))

    @cached_property
    def report_seconds(self) -> float:
        """Least time between two reports of a task; 0: it reports at every tick. It grows with the number of tasks."""
        tasks = sum(stage.tasks for stage in self.stages)
        return min(tasks / _REPORTS_A_SECOND, _LONGEST_REPORT_SECONDS) if tasks > _REPORTING_TASKS else 0.0

    def without_splits(self) -> Graph:
        """The same graph without input, and without dead letters."""
        stages = tuple(replace(stage, input=replace(stage.input, splits=(), given=None)) for stage in self.stages)
        return replace(self, stages=stages, tolerated=Tolerated())

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(address for stage in self.in_order for address in stage.addresses)


MAPPER, REDUCER = "mapper", "reducer"
"""The stages of the smallest graph."""
