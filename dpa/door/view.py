"""A run as one JSON document, the *view*: of a running job from its snapshots, of a finished one from its report.

Both have the same form. Names mean what `dpa.result.Report` means by them, except that `rate`, `load`, and `busy`,
`blocked` and `waiting` of tasks are of the last few seconds while the job runs. Things of which there are several are
objects by name or number, so that the difference of two views is small. Keys and messages of users are texts without
control characters; a page must still escape them.

No clock and no output: times are those of the snapshots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeAlias

from dpa._util.as_yaml import as_yaml
from dpa.balance.decision import Decision, Outcome
from dpa.door.layout import Sizes, layout
from dpa.measure.bottleneck import held_up
from dpa.measure.skew import even_shares, skew
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.epochs import EpochStats
from dpa.protocol.wire.metrics import EventTimeStats, TaskChange, TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.result import HotKey, LatencyReport, Report, StageReport, TaskReport, run_content, stage_content
from dpa.result.text import Bar, Fact, Table, key_text, lines, one_line, seconds
from dpa.telemetry.observers import Unobserved
from dpa.telemetry.tracker import TrackedSnapshot, TrackedStage
from dpa.tolerance import ErrorCount

View: TypeAlias = dict[str, Any]

SCHEMA = 1

_MOST_POINTS = 240
"""Of a series: more are thinned to half as many."""
_POINT_SECONDS = 0.5
"""Points of the series of a running job are at least this far apart."""
_MOST_QUEUES = 16
"""With more tasks, a point has quantiles of their queues."""
_MOST_DECISIONS, _MOST_WARNINGS = 300, 50
"""The newest of a stage, and of a run."""

_BOX = Sizes(width=0.0, height=1.0, gap=1.0, port=0.15, label_height=0.0, space=0.25)

_OF_A_TASK = (
    *("read", "mapped", "processed", "forwarded", "queue", "peak_queue", "keys", "states", "even_share"),
    *("busy_seconds", "blocked_seconds", "waiting_seconds", "latency_p99"),
    *("cpu_seconds", "peak_memory", "state_memory", "spilled", "node"),
)
_OUTCOMES = {
    Outcome.APPLIED: "Keys of task {} went to other tasks",
    Outcome.BELOW_THRESHOLD: "Task {} kept its keys: its load is below the threshold",
    Outcome.ROUNDS_USED_UP: "Task {} kept its keys: all of its rounds are used up",
    Outcome.COOL_DOWN: "Task {} kept its keys: the last redistribution has yet to take effect",
    Outcome.NO_TARGET: "Task {} kept its keys: no other task can take them",
    Outcome.UNSPLITTABLE: "Task {} kept its keys: what makes its load cannot be split",
}


class RunView(Unobserved):
    """Observes a running job: `document` is the newest view.

    `job` says at least its `name`, and may have the directory of its `run` and its `backend`; `began` is when it began,
    in seconds since 1970.
    """

    def __init__(self, job: Mapping[str, Any], began: float) -> None:
        self._job, self._began = job, began
        self._phase = "load"
        self._newest = TrackedSnapshot("", 0.0, 0, ())
        self._series: dict[str, Series] = {}
        self._warnings: list[str] = []
        self._restarts: View = {}
        self._layout: View = {}

    def phase(self, name: str, detail: str = "") -> None:
        self._phase = name

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.generation != self._newest.generation and self._newest.phase:
            last = {"generation": self._newest.generation, "at": _figure(self._newest.at)}
            self._restarts[str(self._newest.generation)] = last
            self._series = {}  # all numbers begin again
        if snapshot.edges != self._newest.edges or not self._layout:
            self._layout = _layout([stage.name for stage in snapshot.stages], snapshot.edges)
        self._newest, self._phase = snapshot, snapshot.phase
        for stage in snapshot.stages:
            present = _present(stage)
            self._series.setdefault(stage.name, Series()).add(
                snapshot.at,
                {task.index: task.queue for task in present},
                {task.index: task.read if stage.is_source else task.processed for task in present},
                {"busy": _figure(stage.load.busy), "blocked": _figure(stage.load.blocked)},
            )

    def warn(self, message: str) -> None:
        self._warnings.append(message)

    @property
    def document(self) -> View:
        now = self._newest
        return {
            "schema": SCHEMA,
            "job": {**self._job, "generation": now.generation, "status": "running"},
            "phase": self._phase,
            "at": _figure(now.at),
            "began": self._began,
            "rows": now.rows,
            "is_open": now.is_open,
            "records": asdict(now.records),
            "rates": {"mapped": _figure(now.mapped_rate), "processed": _figure(now.processed_rate)},
            "bottleneck": asdict(now.bottleneck),
            "stages": {stage.name: _running(stage, now) for stage in now.stages},
            "edges": _edges(now),
            "layout": self._layout,
            "decisions": _decisions((stage.name, found) for stage in now.stages for found in stage.decisions),
            "changes": _changes(now.steps),
            "recoveries": dict(self._restarts),
            "checkpoints": None if now.checkpoints is None else asdict(now.checkpoints),
            "epochs": _epochs(now.epochs),
            "errors": _errors(now.errors),
            "dead_letters": None,
            "placement": dict(now.placement_counts),
            "warnings": _newest(self._warnings),
            "series": {name: series.points for name, series in self._series.items()},
        }


def view_of_report(report: Report) -> View:
    spent = report.seconds.stream
    recoveries = {
        str(found.generation): {**asdict(found), "cause": one_line(found.cause)} for found in report.recoveries
    }
    return {
        "schema": SCHEMA,
        "job": {
            "name": one_line(report.name),
            "generation": max((found.generation + 1 for found in report.recoveries), default=0),
            "status": report.status,
            "backend": report.backend,
            "error": None if report.error is None else "\n".join(lines(report.error)),
        },
        "phase": "failed" if report.status == "failed" else "done",
        "at": _figure(spent),
        "began": None,
        "rows": report.records.read,
        "is_open": False,
        "records": asdict(report.records),
        "rates": {
            "mapped": _figure(report.records_per_second),
            "processed": _figure(report.records.processed / spent) if spent else 0.0,
        },
        "bottleneck": asdict(report.bottleneck),
        "stages": {stage.name: _finished(stage, report) for stage in report.stages},
        "edges": {str(number): asdict(edge) for number, edge in enumerate(report.edges)},
        "layout": _layout(
            [stage.name for stage in report.stages], [(edge.source, edge.target) for edge in report.edges]
        ),
        "decisions": _decisions((stage.name, found) for stage in report.stages for found in _decided(stage)),
        "changes": _changes(change for stage in report.stages for change in stage.changes),
        "recoveries": recoveries,
        "checkpoints": None if report.checkpoints is None else asdict(report.checkpoints),
        "epochs": _epochs(report.epochs),
        "errors": _errors(report.errors),
        "dead_letters": None if report.dead_letters is None else one_line(report.dead_letters),
        "placement": dict(report.placement_counts),
        "warnings": _newest(report.warnings),
        "series": {stage.name: _series_of(stage).points for stage in report.stages if stage.samples},
        "facts": _facts(run_content.facts(report)),
        "tables": list(_tables(report)),
        "differences": [one_line(found) for found in report.reference.differences],
        "config": as_yaml(report.config, width=120),
        "versions": {one_line(name): one_line(version) for name, version in report.versions.items()},
    }


def _facts(found: Iterable[Fact]) -> list[list[str]]:
    return [[fact.name, fact.value, fact.remark] for fact in found]


def _tables(report: Report) -> Iterator[View]:
    """What only a report knows, in words."""
    first = report.seconds.first_record
    began = "" if first is None else f"First record processed {seconds(first)} after the start of the job."
    for title, found, note in (
        ("Time", run_content.phases(report), began),
        ("Joins", run_content.joins(report.joins), ""),
        ("Placement", run_content.looks(report), ""),
    ):
        if found.rows:
            yield {"title": title, "note": note, **_table(found)}


def _table(found: Table) -> View:
    """A bar is the part (0 to 1) from which on it is filled, and that up to which it is."""
    rows = [*found.rows, found.total] if found.total else found.rows
    drawn = [[[cell.first or 0.0, cell.last] if isinstance(cell, Bar) else cell for cell in row] for row in rows]
    return {"caption": found.title, "head": list(found.head), "rows": drawn}


class Series:
    """A stage over time: at most `_MOST_POINTS` points, evenly spaced, by the seconds of the stream. A point has the
    rate of records and the skew of those since the point before, and the queues."""

    def __init__(self, every: float = _POINT_SECONDS) -> None:
        self.points: dict[str, Any] = {}
        self._every = every
        self._at: float | None = None
        self._counted: Mapping[int, int] = {}

    def add(
        self, at: float, queues: Mapping[int, int], counted: Mapping[int, int], more: Mapping[str, Any] | None = None
    ) -> None:
        """`counted`: records that each task has read or processed by now."""
        if self._at is not None and at - self._at < self._every:
            return
        elapsed = at - (self._at or 0.0)
        new = [max(number - self._counted.get(task, 0), 0) for task, number in counted.items()]
        queue = sorted(queues.values())
        point = {"rate": _figure(sum(new) / elapsed) if elapsed > 0 else 0.0, "queue": sum(queue), **(more or {})}
        point["skew"] = _figure(skew(new))
        if len(queue) <= _MOST_QUEUES:
            point["queues"] = {str(task): length for task, length in queues.items()}
        else:
            point["spread"] = [queue[round(part * (len(queue) - 1))] for part in (0.0, 0.25, 0.5, 0.75, 1.0)]
        self.points = {**self.points, f"{at:.2f}": point}
        self._at, self._counted = at, counted
        if len(self.points) > _MOST_POINTS:
            self.points = dict(list(self.points.items())[::2])
            self._every *= 2


def _running(stage: TrackedStage, now: TrackedSnapshot) -> View:
    present = _present(stage)
    done = [task.processed for task in stage.tasks]
    even = even_shares([stage.life(task.index) for task in stage.tasks], stage.records.handled)
    return {
        "phase": stage.phase,
        "is_source": stage.is_source,
        "began": _figure(stage.began),
        "ended": _figure(stage.ended),
        "records": asdict(stage.records),
        "rate": _figure(stage.rate),
        "load": {name: _figure(getattr(stage.load, name)) for name in ("busy", "blocked", "waiting", "busiest")},
        "queue": stage.queue,
        "queue_seconds": _figure(stage.queue / stage.rate) if stage.rate and not stage.is_source else None,
        "skew": None if stage.is_source else _figure(skew(done, even)),
        "tasks": {str(task.index): _task(task, stage, now) for task in present},
        "event_time": _event_time(stage.event_time),
        "decision_counts": dict(stage.decision_counts),
        "scaling_counts": dict(stage.scaling_counts),
        "redistributions": stage.redistributions,
        "latency": {"p99": max((task.latency_p99 for task in present if task.latency_p99 is not None), default=None)},
    }


def _present(stage: TrackedStage) -> list[TaskStats]:
    numbers = set(stage.present)
    return [task for task in stage.tasks if task.index in numbers]


def _task(task: TaskStats, stage: TrackedStage, now: TrackedSnapshot) -> View:
    known = _known(task, now.use.get(Address(task.stage, task.index), TaskUse()))
    busy, blocked, waiting = stage.parts.get(task.index, (0.0, 0.0, 0.0))
    shares = {"busy": _figure(busy), "blocked": _figure(blocked), "waiting": _figure(waiting)}
    return {**known, "emitted": sum(task.emitted), **shares}


def _finished(stage: StageReport, report: Report) -> View:
    is_source, spent = stage.kind == "source", report.seconds.stream
    facts = stage_content.facts(stage, report.status) if report.is_graph and not is_source else ()
    lasted = (spent if stage.ended is None else stage.ended) - (stage.began or 0.0)
    counted = stage.records.read if is_source else stage.records.handled
    hot = stage.hot
    return {
        "phase": "done",
        "is_source": is_source,
        "began": _figure(stage.began),
        "ended": _figure(stage.ended),
        "records": asdict(stage.records),
        "rate": _figure(counted / lasted) if lasted > 0 else 0.0,
        "load": {name: _figure(value) for name, value in asdict(stage.load).items()},
        "queue": 0,
        "queue_seconds": None,
        "skew": None if stage.skew is None else _figure(stage.skew.dpa),
        "tasks": {
            str(task.id): {
                **_known(task),
                "emitted": task.emitted,
                **{name: _part(getattr(task, f"{name}_seconds"), task.lived_seconds) for name in _STATES},
            }
            for task in stage.tasks
        },
        "event_time": _event_time(stage.event_time),
        "hot_keys": [_hot_key(found, found in hot) for found in stage.hot_keys],
        "decision_counts": dict(stage.decision_counts),
        "scaling_counts": dict(stage.scaling_counts),
        "redistributions": stage.decision_counts.get(Outcome.APPLIED.value, len(stage.redistributions)),
        "latency": _latency(stage.latency),
        "stage_latency": _latency(stage.stage_latency),
        "key_distribution": {name: _listed(value) for name, value in asdict(stage.key_distribution).items()},
        "facts": _facts(facts),
    }


_STATES = ("busy", "blocked", "waiting")


def _known(*records: Any) -> View:
    """What a task's records know, by the names of `TaskReport`."""
    return {name: _figure(getattr(record, name)) for record in records for name in _KNOWN[type(record)]}


_KNOWN = {
    kind: [field.name for field in fields(kind) if field.name in _OF_A_TASK]
    for kind in (TaskStats, TaskUse, TaskReport)
}


def _figure(value: Any) -> Any:
    """A float to four digits after the point, None for one that JSON lacks; anything else as it is."""
    if not isinstance(value, float):
        return value
    return round(value, 4) if math.isfinite(value) else None


def _listed(value: Any) -> Any:
    return list(map(_figure, value)) if isinstance(value, tuple) else value


def _part(spent: float, lived: float) -> Any:
    return _figure(min(spent / lived, 1.0)) if lived > 0 else 0.0


def _layout(stages: Sequence[str], edges: Sequence[tuple[str, str]]) -> View:
    """Where a page draws the graph: the layer and the height of each stage's corner, in boxes, and likewise of the
    points that each edge passes."""
    placed = layout(stages, edges, _BOX)

    def at(point: tuple[float, float]) -> tuple[int, float]:
        return round(point[0] - _BOX.space), round(point[1] - _BOX.space, 3)

    return {
        "stages": {name: list(at(corner)) for name, corner in placed.stages.items()},
        "edges": {
            str(number): [list(point) for point in dict.fromkeys(map(at, path))]
            for number, path in enumerate(placed.paths)
        },
    }


def _edges(now: TrackedSnapshot) -> View:
    made: View = {}
    places: dict[str, int] = {}
    for number, (source, target) in enumerate(now.edges):
        place = places[source] = (
            places.get(source, -1) + 1
        )  # senders count by the place among the edges that leave them
        records = sum(task.emitted[place] for task in now[source].every_task if task.emitted)
        made[str(number)] = {"source": source, "target": target, "records": records}
    blocked = held_up([stage.load for stage in now.stages], now.edges)
    return {number: {**edge, "blocked": held} for (number, edge), held in zip(made.items(), blocked, strict=True)}


def _decided(stage: StageReport) -> Iterable[Decision]:
    return sorted({*stage.redistributions, *stage.decisions}, key=lambda found: found.at)


def _decisions(found: Iterable[tuple[str, Decision]]) -> View:
    """The newest, by stage, moment and task."""
    newest = sorted(found, key=lambda each: each[1].at)[-_MOST_DECISIONS:]
    return {
        f"{stage} {decision.at:.3f} {decision.reducer}": {
            "at": _figure(decision.at),
            "stage": stage,
            "task": decision.reducer,
            "outcome": decision.outcome.value,
            "words": _OUTCOMES[decision.outcome].format(decision.reducer),
            "reason": one_line(decision.reason),
            "version": decision.version,
            "round": decision.round,
            "loads": stage_content.loads(decision),
        }
        for stage, decision in newest
    }


def _changes(found: Iterable[TaskChange]) -> View:
    return {
        str(change.number): {
            "at": _figure(change.at),
            "stage": change.stage,
            "words": f"tasks: {change.who}",
            "reason": one_line(change.reason),
            "seconds": _figure(change.seconds),
        }
        for change in found
    }


def _newest(warnings: Sequence[str]) -> View:
    """By number, from 0."""
    first = max(len(warnings) - _MOST_WARNINGS, 0)
    return {str(number): one_line(text) for number, text in enumerate(warnings[first:], first)}


def _event_time(reached: EventTimeStats | None) -> View | None:
    return None if reached is None else {**asdict(reached), "holder": one_line(reached.holder)}


def _epochs(ended: EpochStats) -> View:
    return {
        **{name: _figure(getattr(ended, name)) for name in ("number", "seconds", "longest", "rows", "visible_after")},
        "waited_for": None if ended.waited_for is None else asdict(ended.waited_for),
        "phases": {
            found.phase.value: {"row": _figure(ended.of_row(found)), "mean": _figure(found.mean)}
            | {"longest": _figure(found.longest)}
            for found in ended.phases
        },
    }


def _errors(found: Iterable[ErrorCount]) -> View:
    return {f"{each.step} {each.error}": {**asdict(each), "example": one_line(each.example)} for each in found}


def _latency(found: LatencyReport | None) -> View | None:
    return None if found is None else {name: _figure(value) for name, value in asdict(found).items()}


def _hot_key(found: HotKey, is_hot: bool) -> View:
    known = {"share": _figure(found.share), "records": found.records, "lower": found.lower, "upper": found.upper}
    return {"key": key_text(found.key), "is_hot": is_hot, **known}


def _series_of(stage: StageReport) -> Series:
    made, tasks = Series(stage.samples[-1].at / _MOST_POINTS), [task.id for task in stage.tasks]
    for sample in stage.samples:
        queues, processed = (dict(zip(tasks, found, strict=False)) for found in (sample.queues, sample.processed))
        made.add(sample.at, queues, processed)
    return made
