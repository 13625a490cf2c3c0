"""A run as one JSON document, the *view*: of a running job from its snapshots, of a finished one from its report.

Both have the same form. Names mean what `dpa.result.Report` means by them, except that `rate`, `load`, and `busy`,
`blocked` and `waiting` of tasks are of the last few seconds while the job runs. Things of which there are several are
objects by name or number, so that the difference of two views is small. Keys and messages of users are texts without
control characters; a page must still escape them.

No clock and no output: times are those of the snapshots.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from dpa._util.as_yaml import as_yaml
from dpa.balance.decision import Decision, Outcome
from dpa.door._live import STATES, LiveTasks, lag, open_epoch, plain, tries
from dpa.door.layout import Sizes, layout
from dpa.measure.skew import part_of, skew
from dpa.protocol.wire.epochs import EpochStats
from dpa.protocol.wire.metrics import TaskChange
from dpa.result import EdgeReport, Report, StageReport, run_content, stage_content
from dpa.result.text import Bar, Fact, Table, key_text, lines, one_line, seconds
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot, TrackedStage, edges_of, skew_of

View: TypeAlias = dict[str, Any]

SCHEMA = 1

_MOST_POINTS = 240  # of a series: more are thinned to half as many
_POINT_SECONDS = 0.5  # points of the series of a running job are at least this far apart
_MOST_QUEUES = 16  # with more tasks, a point has quantiles of their queues
_MOST_DECISIONS, _MOST_WARNINGS = 300, 50  # the newest of a stage, and of a run
_BOX = Sizes(width=0.0, height=1.0, gap=1.0, port=0.15, label_height=0.0, space=0.25)

_OUTCOMES = {
    Outcome.APPLIED: "Keys of task {} went to other tasks",
    Outcome.BELOW_THRESHOLD: "Task {} kept its keys: its load is below the threshold",
    Outcome.ROUNDS_USED_UP: "Task {} kept its keys: all of its rounds are used up",
    Outcome.COOL_DOWN: "Task {} kept its keys: the last redistribution has yet to take effect",
    Outcome.NO_TARGET: "Task {} kept its keys: no other task can take them",
    Outcome.UNSPLITTABLE: "Task {} kept its keys: what makes its load cannot be split",
}


class RunView(Observer):
    """Observes a running job: `document` is the newest view.

    `job` says at least its `name`, and may have the directory of its `run` and its `backend`; `began` is when it began,
    in seconds since 1970.
    """

    def __init__(self, job: Mapping[str, Any], began: float) -> None:
        self._job, self._began = job, began
        self._phase = "load"
        self._newest = TrackedSnapshot("", 0.0, 0, ())
        self._series: dict[str, Series] = {}
        self._tasks = LiveTasks()
        self._warnings: list[str] = []
        self._layout: View = {}

    def phase(self, name: str) -> None:
        self._phase = name

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.generation != self._newest.generation:
            self._series, self._tasks = {}, LiveTasks()  # all numbers begin again
        if snapshot.edges != self._newest.edges or not self._layout:
            self._layout = _layout([stage.name for stage in snapshot.stages], snapshot.edges)
        self._newest, self._phase = snapshot, snapshot.phase
        for stage in snapshot.stages:
            there = stage.present_tasks
            self._series.setdefault(stage.name, Series()).add(
                snapshot.at,
                {task.index: task.queue for task in there},
                {task.index: task.read if stage.is_source else task.processed for task in there},
                {"busy": plain(stage.load.busy), "blocked": plain(stage.load.blocked)},
            )

    def warn(self, message: str) -> None:
        self._warnings.append(message)

    @property
    def document(self) -> View:
        now = self._newest
        tasks = self._tasks.shown(now)
        return {
            **_of_both(now, edges_of(now, [stage.load for stage in now.stages]), self._warnings),
            "job": {**self._job, "generation": now.generation, "status": "running"},
            "phase": self._phase,
            "at": plain(now.at),
            "began": self._began,
            "rows": now.rows,
            "is_open": now.is_open,
            "rates": {"mapped": plain(now.mapped_rate), "processed": plain(now.processed_rate)},
            "stages": {stage.name: _running(stage, tasks[stage.name], now.steps) for stage in now.stages},
            "layout": self._layout,
            "decisions": _decisions((stage.name, found) for stage in now.stages for found in stage.decisions),
            "changes": _changes(now.steps),
            "checkpoints": None if now.checkpoints is None else plain(now.checkpoints) | tries(now),
            "epochs": _epochs(now.epochs) | open_epoch(now),
            "dead_letters": None,
            "series": {name: series.points for name, series in self._series.items()},
        }


def view_of_report(report: Report) -> View:
    spent, names = report.seconds.stream, [stage.name for stage in report.stages]
    decisions = [(stage.name, found) for stage in report.stages for found in {*stage.redistributions, *stage.decisions}]
    return {
        **_of_both(report, report.edges, report.warnings),
        "job": {
            "name": one_line(report.name),
            "generation": max((found.generation + 1 for found in report.recoveries), default=0),
            "status": report.status,
            "backend": report.backend,
            "error": None if report.error is None else "\n".join(lines(report.error)),
        },
        "phase": "failed" if report.status == "failed" else "done",
        "at": plain(spent),
        "began": None,
        "rows": report.records.read,
        "is_open": False,
        "rates": {
            "mapped": plain(report.records_per_second),
            "processed": plain(report.records.processed / spent) if spent else 0.0,
        },
        "stages": {stage.name: _finished(stage, report) for stage in report.stages},
        "layout": _layout(names, [(edge.source, edge.target) for edge in report.edges]),
        "decisions": _decisions(decisions),
        "changes": _changes(change for stage in report.stages for change in stage.changes),
        "checkpoints": plain(report.checkpoints),
        "dead_letters": None if report.dead_letters is None else one_line(report.dead_letters),
        "series": {stage.name: _series_of(stage).points for stage in report.stages if stage.samples},
        "facts": _facts(run_content.facts(report)),
        "tables": list(_tables(report)),
        "differences": [one_line(found) for found in report.reference.differences],
        "config": as_yaml(report.config, width=120),
        "versions": {one_line(name): one_line(version) for name, version in report.versions.items()},
    }


def view_of_tables(name: str, facts: Iterable[Fact], tables: Mapping[str, Table]) -> View:
    """Of what is no run: facts, and tables by their titles."""
    parts = [{**_table(found), "title": title, "caption": title} for title, found in tables.items()]
    return {"schema": SCHEMA, "job": {"name": name, "status": "compared"}, "facts": _facts(facts), "tables": parts}


def _of_both(found: TrackedSnapshot | Report, edges: Sequence[EdgeReport], warnings: Sequence[str]) -> View:
    """What a run and its report know in the same way."""
    newest = max(len(warnings) - _MOST_WARNINGS, 0)
    return {
        "schema": SCHEMA,
        "records": plain(found.records),
        "bottleneck": plain(found.bottleneck),
        "recoveries": {str(each.generation): plain(each) for each in found.recoveries},
        "errors": {f"{each.step} {each.error}": plain(each) for each in found.errors},
        "placement": dict(found.placement_counts),
        "edges": {str(number): plain(edge) for number, edge in enumerate(edges)},
        "epochs": _epochs(found.epochs),
        "warnings": {str(number): plain(text) for number, text in enumerate(warnings[newest:], newest)},
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
        point = {"rate": plain(sum(new) / elapsed) if elapsed > 0 else 0.0, "queue": sum(queue), **(more or {})}
        point["skew"] = plain(skew(new))
        if len(queue) <= _MOST_QUEUES:
            point["queues"] = {str(task): length for task, length in queues.items()}
        else:
            point["spread"] = [queue[round(part * (len(queue) - 1))] for part in (0.0, 0.25, 0.5, 0.75, 1.0)]
        self.points = {**self.points, f"{at:.2f}": point}
        self._at, self._counted = at, counted
        if len(self.points) > _MOST_POINTS:
            self.points = dict(list(self.points.items())[::2])
            self._every *= 2


def _of_stage(stage: TrackedStage | StageReport) -> View:
    """What a running stage and a finished one know in the same way."""
    reached = stage.event_time
    return {
        "began": plain(stage.began),
        "ended": plain(stage.ended),
        "records": plain(stage.records),
        "event_time": None if reached is None else {**plain(reached), "holder": one_line(reached.holder)},
        "decision_counts": dict(stage.decision_counts),
        "redistributions": stage.decision_counts.get(Outcome.APPLIED.value, 0),
        "scaling_counts": dict(stage.scaling_counts),
    }


def _running(stage: TrackedStage, tasks: View, steps: Sequence[TaskChange]) -> View:
    return {
        **_of_stage(stage),
        "phase": stage.phase,
        "is_source": stage.is_source,
        "rate": plain(stage.rate),
        "load": {name: plain(getattr(stage.load, name)) for name in (*STATES, "busiest")},
        "queue": stage.queue,
        "queue_seconds": plain(stage.queue / stage.rate) if stage.rate and not stage.is_source else None,
        "skew": None if stage.is_source else plain(skew_of(stage, steps)),
        "tasks": tasks,
        "lag": lag(stage.lag),
        "hot_keys": None if stage.hottest is None else [plain(key) for key in stage.hottest],
        "latency": plain(stage.recent_latency),
    }


def _finished(stage: StageReport, report: Report) -> View:
    is_source, spent = stage.kind == "source", report.seconds.stream
    facts = stage_content.facts(stage, report.status) if report.is_graph and not is_source else ()
    lasted = (spent if stage.ended is None else stage.ended) - (stage.began or 0.0)
    counted = stage.records.read if is_source else stage.records.handled
    hot = stage.hot
    return {
        **_of_stage(stage),
        "phase": "done",
        "is_source": is_source,
        "rate": plain(counted / lasted) if lasted > 0 else 0.0,
        "load": plain(stage.load),
        "queue": 0,
        "queue_seconds": None,
        "skew": None if stage.skew is None else plain(stage.skew.dpa),
        "tasks": {
            str(task.id): {
                **plain(task),
                **{name: plain(part_of(getattr(task, f"{name}_seconds"), task.lived_seconds)) for name in STATES},
            }
            for task in stage.tasks
        },
        "hot_keys": [plain(found) | {"key": key_text(found.key), "is_hot": found in hot} for found in stage.hot_keys],
        "latency": plain(stage.latency),
        "stage_latency": plain(stage.stage_latency),
        "key_distribution": plain(stage.key_distribution),
        "facts": _facts(facts),
    }


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


def _decisions(found: Iterable[tuple[str, Decision]]) -> View:
    """The newest, by stage, moment and task."""
    newest = sorted(found, key=lambda each: (each[1].at, each[0], each[1].reducer))[-_MOST_DECISIONS:]
    return {
        f"{stage} {decision.at:.3f} {decision.reducer}": {
            "at": plain(decision.at),
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
    return {str(change.number): {**plain(change), "words": f"tasks: {change.who}"} for change in found}


def _epochs(ended: EpochStats) -> View:
    return {
        **plain(ended),
        "visible_after": plain(ended.visible_after),
        "phases": {
            found.phase.value: {**plain(found), "row": plain(ended.of_row(found)), "mean": plain(found.mean)}
            for found in ended.phases
        },
    }


def _series_of(stage: StageReport) -> Series:
    made, tasks = Series(stage.samples[-1].at / _MOST_POINTS), [task.id for task in stage.tasks]
    for sample in stage.samples:
        queues, processed = (dict(zip(tasks, found, strict=False)) for found in (sample.queues, sample.processed))
        made.add(sample.at, queues, processed)
    return made
