"""Derives from the snapshots of a run what its observers look at: rates, loads, sums, and what is new; for the report,
what tasks did with all of their time; and the answer to `status`, with the nodes and processes of tasks.

No clock and no output: times are those of the snapshots."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeAlias

from dpa.balance.decision import Decision, Outcome
from dpa.measure.bottleneck import Bottleneck, EdgeReport, StageLoad, bottleneck, held_up
from dpa.measure.skew import part_of, skew
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot, TaskChange, TaskStats
from dpa.protocol.wire.nodes import BackendNode, TaskProcess

RATE_SECONDS = 3.0  # rates are means over about this many seconds of the stream


@dataclass(frozen=True)
class Redistribution:
    """A decision that published a routing table of a stage."""

    stage: str
    decision: Decision


News: TypeAlias = "Redistribution | TaskChange"
"""What is shown as it happens: keys go to other tasks, or tasks come, go or move."""


@dataclass(frozen=True)
class TrackedStage(StageSnapshot):
    """A stage with what follows from its snapshot and earlier ones.

    Attributes:
        is_source: whether no stage feeds it.
        load: of the last few seconds.
        parts: likewise, of each present task by number: the parts (0 to 1) of its time in which it was busy, blocked
            and waiting.
        rate: `counted` records a second, likewise.
    """

    is_source: bool = False
    load: StageLoad = field(kw_only=True)
    parts: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    rate: float = 0.0

    @property
    def counted(self) -> int:
        """Records processed or left out; of a source, which processes nothing, rows read."""
        return self.records.read if self.is_source else self.records.handled


@dataclass(frozen=True)
class TrackedSnapshot(Snapshot):
    """A snapshot with what follows from it and those before it.

    Attributes:
        mapped_rate, processed_rate: records a second over the last few seconds.
        news: what no earlier snapshot held: redistributions, stage by stage in order, and changes of tasks.
        recoveries: as `dpa.result.Report` has them, by now; empty unless the driver of the run says them.
    """

    stages: tuple[TrackedStage, ...]
    mapped_rate: float = 0.0
    processed_rate: float = 0.0
    news: tuple[News, ...] = ()
    recoveries: tuple[Any, ...] = ()

    @property
    def tasks(self) -> list[TaskStats]:
        return [task for stage in self.stages for task in stage.every_task]

    @property
    def left_out(self) -> int:
        return sum(found.records for found in self.errors)

    @property
    def redistributions(self) -> int:
        """How many there were, with those that snapshots no longer hold."""
        return self.decisions.get(Outcome.APPLIED.value, 0)

    @property
    def decisions(self) -> Mapping[str, int]:
        return sum((Counter(stage.decision_counts) for stage in self.stages), Counter())

    @property
    def latency_p99(self) -> float | None:
        """Of the slowest task, in seconds from source to processed; None before the first record."""
        return max((task.latency_p99 for task in self.tasks if task.latency_p99 is not None), default=None)

    @property
    def longest(self) -> TaskStats | None:
        """The task with the longest queue; None if all are empty."""
        found = max(self.tasks, key=lambda task: task.queue, default=None)
        return found if found is not None and found.queue else None

    @cached_property
    def bottleneck(self) -> Bottleneck:
        return bottleneck([stage.load for stage in self.stages], self.edges)

    @property
    def is_graph(self) -> bool:
        return len(self.stages) > 2

    @property
    def focus(self) -> str | None:
        """The operator stage whose queues are shown: the one that limits the run, else the one with the most records
        queued; None if there is none."""
        if self.bottleneck.kind == "stage":
            return self.bottleneck.stage
        operators = [stage for stage in self.stages if not stage.is_source]
        return max(operators, key=lambda stage: stage.queue).name if operators else None

    @property
    def share_read(self) -> float | None:
        """Of the input rows (0 to 1); None while their number is unknown."""
        return min(self.records.read / self.rows, 1.0) if self.rows else None

    @property
    def all_read(self) -> bool:
        """False while the number of input rows is unknown."""
        return 0 < self.rows <= self.records.read

    @property
    def share_processed(self) -> float:
        """Of the records emitted so far (0 to 1)."""
        return min(self.records.handled / self.records.emitted, 1.0) if self.records.emitted else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until all records are processed; None before there is an estimate.

        The longer of two times: of the rows left at the mean rate of reading, and of the records left (with those of
        unread rows) at the latest rate of processing. With several operator stages it is the time of reading alone: how
        many records later stages will get is not known."""
        share = self.share_read
        if not share or self.at < 1 or not self.processed_rate:
            return None
        reading = self.at * (1 / share - 1)
        if self.is_graph:
            return reading or None
        processing = (self.records.emitted / share - self.records.handled) / self.processed_rate
        return max(reading, processing)


class RunTracker:
    """Follows a run through its snapshots, oldest first. `newest` is the last one, and empty before the first."""

    def __init__(self) -> None:
        self.newest = TrackedSnapshot("", 0.0, 0, ())
        self._steps = 0
        self._versions: dict[str, int] = {}
        self._history: deque[TrackedSnapshot] = deque()

    def update(self, snapshot: Snapshot) -> TrackedSnapshot:
        news: list[News] = []
        news += [Redistribution(stage.name, decision) for stage in snapshot.stages for decision in self._new(stage)]
        news += [step for step in snapshot.steps if step.number > self._steps]
        self._steps = max((step.number for step in snapshot.steps), default=self._steps)
        last, before = self.newest, self._history[0] if self._history else self.newest
        records, since, elapsed = snapshot.records, before.records, snapshot.at - before.at
        known = {
            **_fields(Snapshot, snapshot),
            "stages": tuple(self._stage(snapshot, stage, before) for stage in snapshot.stages),
            "mapped_rate": _rate(records.mapped - since.mapped, elapsed, last.mapped_rate),
            "processed_rate": _rate(records.handled - since.handled, elapsed, last.processed_rate),
        }
        self.newest = TrackedSnapshot(**known, news=tuple(news))
        self._history.append(self.newest)
        # The oldest that stays is RATE_SECONDS old or older, so that rates are over no less; only a young run has less.
        while len(self._history) > 2 and snapshot.at - self._history[1].at >= RATE_SECONDS:
            self._history.popleft()
        return self.newest

    def _new(self, stage: StageSnapshot) -> list[Decision]:
        # A snapshot repeats decisions that earlier ones held, and may have dropped some that they held.
        last = self._versions.get(stage.name, -1)
        applied = [
            decision
            for decision in stage.decisions
            if decision.outcome is Outcome.APPLIED and decision.version is not None and decision.version > last
        ]
        self._versions[stage.name] = max([last, *(decision.version or 0 for decision in applied)])
        return applied

    def _stage(self, snapshot: Snapshot, stage: StageSnapshot, before: TrackedSnapshot) -> TrackedStage:
        none = TrackedStage(stage.name, "", (), load=StageLoad(stage.name, 0.0, 0.0, 0.0))
        last = next((found for found in self.newest.stages if found.name == stage.name), none)
        earlier = next((found for found in before.stages if found.name == stage.name), none)
        elapsed, load, parts = snapshot.at - before.at, last.load, last.parts
        if elapsed > 0:
            load, parts = _since(stage, earlier, snapshot.at, elapsed, last.parts)
        is_source = stage in snapshot.sources
        made = TrackedStage(**_fields(StageSnapshot, stage), is_source=is_source, load=load, parts=parts)
        return replace(made, rate=_rate(made.counted - earlier.counted, elapsed, last.rate))


def _fields(kind: type, record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(kind)}


def _rate(more: int, elapsed: float, last: float) -> float:
    """Records/s; the `last` rate if no time has passed."""
    # A recovery may roll counts back from one snapshot to the next.
    return max(more, 0) / elapsed if elapsed > 0 else last


def edges_of(snapshot: Snapshot, loads: Sequence[StageLoad]) -> tuple[EdgeReport, ...]:
    """The edges of a graph whose stages have these loads."""
    places: Counter[str] = Counter()
    found = []
    for (source, target), is_blocked in zip(snapshot.edges, held_up(loads, snapshot.edges), strict=True):
        # Senders count by the position of an edge among those that leave them.
        records = sum(task.emitted[places[source]] for task in snapshot[source].every_task if task.emitted)
        places[source] += 1
        found.append(EdgeReport(source, target, records, is_blocked))
    return tuple(found)


def skew_of(stage: StageSnapshot, steps: Sequence[TaskChange]) -> float:
    """S of the processed records. A task that moved and its successor count as one."""
    found = {task.index: (task.processed, even) for task, even in zip(stage.tasks, stage.even_shares, strict=True)}
    for old, new in (moved for step in steps if step.stage == stage.name for moved in step.moved):
        if old in found and new in found:
            (before, share), (records, even) = found.pop(old), found[new]
            found[new] = before + records, share + even
    return skew([records for records, _ in found.values()], [even for _, even in found.values()])


def load_of(stage: StageSnapshot, seconds: float) -> StageLoad:
    """The load in a stream of `seconds` seconds, of present and former tasks. Forgotten tasks count as one, which is
    never named as the busiest."""
    lived = [stage.life(task.index).seconds(seconds) for task in stage.tasks]
    if stage.forgotten is not None:
        lived.append(stage.forgotten.seconds)
    return _load(stage.name, stage.every_task, lived, len(stage.tasks))


def _since(
    stage: StageSnapshot, before: StageSnapshot, at: float, elapsed: float, last: Mapping[int, tuple[float, ...]]
) -> tuple[StageLoad, dict[int, tuple[float, ...]]]:
    """The load of the present tasks in the last `elapsed` seconds, `at` seconds after the stream began, and its parts.
    `before` is the stage `elapsed` seconds earlier, without tasks if it had not begun; `last`: the parts so far, which
    stay those of tasks that have not reported meanwhile."""
    known, there = {task.index: task for task in before.tasks}, stage.present_tasks
    lived = [min(stage.life(task.index).seconds(at), elapsed) for task in there]
    tasks = [
        _spent(task, known.get(task.index), seconds, last.get(task.index, _NOTHING))
        for task, seconds in zip(there, lived, strict=True)
    ]
    parts = {
        task.index: tuple(part_of(getattr(task, name), seconds) for name in _SPENT)
        for task, seconds in zip(tasks, lived, strict=True)
    }
    return _load(stage.name, tasks, lived, len(tasks)), parts


_SPENT = ("busy_seconds", "blocked_seconds", "waiting_seconds")

_NOTHING = (0.0, 0.0, 0.0)


def _spent(task: TaskStats, before: TaskStats | None, lived: float, last: tuple[float, ...]) -> TaskStats:
    """What a task spent in the `lived` seconds, as it did between two of its reports: many tasks report seldom."""
    if before is None:
        return task
    between = task.at - before.at
    if task.at and between <= 0:
        spent: dict[str, Any] = {name: part * lived for name, part in zip(_SPENT, last, strict=True)}
    else:
        factor = lived / between if task.at else 1.0
        spent = {name: factor * max(getattr(task, name) - getattr(before, name), 0.0) for name in _SPENT}
    return replace(task, **spent)


def _load(stage: str, tasks: Sequence[TaskStats], lived: Sequence[float], named: int) -> StageLoad:
    """The load of tasks that took part for `lived` seconds. The busiest is one of the first `named`."""
    parts, whole = [part_of(task.busy_seconds, own) for task, own in zip(tasks, lived, strict=True)], sum(lived)
    return StageLoad(
        stage,
        busy=part_of(sum(task.busy_seconds for task in tasks), whole),
        blocked=part_of(sum(task.blocked_seconds for task in tasks), whole),
        waiting=part_of(sum(task.waiting_seconds for task in tasks), whole),
        busiest=max(parts, default=0.0),
        task=tasks[max(range(named), key=parts.__getitem__)].index if named else 0,
    )


@dataclass(frozen=True)
class ProcessStatus:
    """The process of a task: the name of its node, and its number there; empty and None if the task is not up."""

    node: str = ""
    pid: int | None = None


@dataclass(frozen=True)
class StageStatus:
    """A stage of a running job: its tasks by number, the records in their queues, and the processes of these tasks."""

    name: str
    phase: str
    tasks: tuple[int, ...]
    queued: int
    processes: tuple[ProcessStatus, ...]


@dataclass(frozen=True)
class Status:
    """A running job, `at` seconds after its stream began, on nodes with `processors` processors in all. `generation`
    counts how often the job was restarted after the death of a process."""

    job: str
    phase: str
    at: float
    stages: tuple[StageStatus, ...]
    processors: float
    generation: int = 0

    @staticmethod
    def of(
        job: str, snapshot: Snapshot, processes: Mapping[Address, TaskProcess], nodes: Sequence[BackendNode]
    ) -> Status:
        """`processes` may hold those of tasks that have gone; `nodes` are all of the cluster."""
        names = {node.id: node.name for node in nodes}
        where = {
            address: ProcessStatus(names.get(found.node, found.node), found.pid) for address, found in processes.items()
        }

        def stage(found: StageSnapshot) -> StageStatus:
            of_tasks = tuple(where.get(Address(found.name, task), ProcessStatus()) for task in found.present)
            return StageStatus(found.name, found.phase, found.present, found.queue, of_tasks)

        stages, processors = tuple(map(stage, snapshot.stages)), sum(node.processors for node in nodes)
        return Status(job, snapshot.phase, snapshot.at, stages, processors, snapshot.generation)
