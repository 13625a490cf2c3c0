"""What is offered to each stage, and what its tasks could process: true rates by the model of DS2 (Kalavri et al., OSDI
2018, section 3.2), from what tasks report.

A stage that cannot keep up holds back those that feed it, so what comes is no measure of what is offered. That is what
sources make while nothing holds them back, times the records that each stage on the way makes of one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpa.balance.elastic import StageWork
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import Graph, Stage

_MEMORY = 0.99  # how much counts, from one look to the next, what has been made of a record


@dataclass(frozen=True)
class _Totals:
    """What all tasks of a stage have done: records processed, or made of rows, and seconds; emitted records by edge."""

    taken: int
    ready: float
    busy: float
    running: float
    emitted: Mapping[int, int]


_NOTHING = _Totals(0, 0.0, 0.0, 0.0, {})


class TrueRates:
    """Of all stages of a job."""

    def __init__(self, graph: Graph, stages: Mapping[str, StageProgress]) -> None:
        self._graph = graph
        self._stages = stages
        self._before: dict[str, _Totals] = {}
        self._rates: dict[str, float] = {}
        self._sums: dict[int, tuple[float, float]] = {}
        self._made: dict[int, float] = {}
        self._reading: set[str] = set()
        self._looked_at = 0.0

    def look(self, now: float) -> dict[str, StageWork]:
        """What each stage has to do, as far as tasks report it."""
        rates: dict[str, float | None] = {}
        running: dict[str, float] = {}
        processed: dict[str, float] = {}
        seconds, self._looked_at = now - self._looked_at, now
        for stage in self._graph.stages:
            if self._reads(stage.name) and stage.name not in self._reading:
                self._begin_to_read(stage.name)
            before, after = self._before.get(stage.name, _NOTHING), self._totals(stage.name)
            self._before[stage.name] = after
            rates[stage.name], running[stage.name] = self._measure(stage.name, before, after)
            processed[stage.name] = (after.taken - before.taken) / seconds if seconds > 0 else 0.0
        self._rates |= {name: rate for name, rate in rates.items() if rate is not None}
        capacity = self._capacities()
        offered: dict[str, float] = {}
        for stage in self._graph.in_order:
            offered[stage.name] = self._offered(stage, offered, capacity)
        return {
            name: StageWork(
                len(self._stages[name].roster.members),
                offered[name],
                rates[name],
                self._backlog(name),
                processed[name],
                running=running[name],
            )
            for name in offered
        }

    def _totals(self, name: str) -> _Totals:
        stage = self._stages[name]
        reads, tasks = self._reads(name), stage.roster.every_task
        return _Totals(
            sum(task.mapped if reads else task.processed for task in tasks),
            sum(task.ready_seconds for task in tasks),
            sum(task.busy_seconds for task in tasks),
            sum(task.running_seconds for task in tasks),
            {number: stage.ledger.emitted_on(place) for place, (number, _) in enumerate(self._graph.out_of(name))},
        )

    def _reads(self, name: str) -> bool:
        """Whether a stage makes records of rows that it reads: a source, or one that emits its own result."""
        return self._graph.is_source(name) or not self._stages[name].is_running

    def _begin_to_read(self, name: str) -> None:
        """A stage makes records of rows from now on: what it made of those that came to it says nothing of these."""
        self._reading.add(name)
        self._before[name] = replace(self._before.get(name, _NOTHING), taken=0)
        for number, _ in self._graph.out_of(name):
            self._sums.pop(number, None)
            self._made.pop(number, None)

    def _measure(self, name: str, before: _Totals, after: _Totals) -> tuple[float | None, float]:
        """The true rate of a task, and the share of its busy time that user code ran. Notes what records become."""
        taken, busy = after.taken - before.taken, after.busy - before.busy
        for number, emitted in after.emitted.items():
            into, out = self._sums.get(number, (0.0, 0.0))
            into, out = _MEMORY * into + max(taken, 0), _MEMORY * out + emitted - before.emitted.get(number, 0)
            self._sums[number], self._made[number] = (into, out), out / into if into > 0 else 0.0
        running = min((after.running - before.running) / busy, 1.0) if busy > 0 else 0.0
        if self._reads(name):
            supplies = self._supplies(name)
            return (sum(supplies) / len(supplies) if supplies else None), running
        ready = after.ready - before.ready
        return (taken / ready if taken > 0 and ready > 0 else None), running

    def _supplies(self, name: str) -> list[float]:
        """What each task that reads would make, records a second."""
        stage, roster = self._stages[name], self._stages[name].roster
        found = (roster.tasks[index].supply for index in roster.members if index not in roster.ended)
        return [] if stage.is_done else [supply for supply in found if supply is not None]

    def _capacities(self) -> dict[str, float]:
        """What each stage could take if it had its most tasks, records a second, those that it feeds considered."""
        found: dict[str, float] = {}
        for stage in reversed(self._graph.in_order):
            tasks = stage.elastic.max_tasks if stage.elastic else len(self._stages[stage.name].roster.members)
            own = self._rates.get(stage.name)
            own = math.inf if own is None or self._reads(stage.name) else own * tasks
            found[stage.name] = min(own, self._taken_of(stage.name, found))
        return found

    def _taken_of(self, name: str, capacity: Mapping[str, float]) -> float:
        """The records a second that those whom a stage feeds could take, in records of its input."""
        edges = ((capacity[edge.target], self._made.get(number, 0.0)) for number, edge in self._graph.out_of(name))
        return min((could / made for could, made in edges if made > 0), default=math.inf)

    def _offered(self, stage: Stage, offered: Mapping[str, float], capacity: Mapping[str, float]) -> float:
        if self._graph.is_source(stage.name):
            taken = self._taken_of(stage.name, capacity)
            share = 1.0 if stage.elastic is None else stage.elastic.target  # those whom it feeds have room then
            return share * taken if taken < math.inf else 0.0
        total = 0.0
        for number, edge in self._graph.into(stage.name):
            if self._reads(edge.source):
                taken = sum(self._supplies(edge.source))
            else:
                taken = min(offered[edge.source], capacity[edge.source])
            total += taken * self._made.get(number, 0.0)
        return total

    def _backlog(self, name: str) -> int:
        ledger = self._stages[name].ledger
        return max(ledger.emitted_to - ledger.processed, 0)
