"""What is said of a whole run: facts, and tables of its stages, its time, its epochs, and looks at its placement."""

from collections.abc import Iterator, Sequence

from dpa.measure.skew import UNEVEN
from dpa.protocol.wire.epochs import EpochStats
from dpa.protocol.wire.metrics import CheckpointStats
from dpa.result import stage_content
from dpa.result._report import JoinReport, Report
from dpa.result._stage import StageReport
from dpa.result.text import (
    PLAIN_RING,
    Bar,
    Cell,
    Fact,
    Table,
    count,
    key_text,
    latency,
    mebibytes,
    megabytes,
    one_line,
    outcomes,
    percent,
    plural,
    seconds,
    short,
    skew,
)

STAGES_NOTE = "S: skew of the records, 0 is even, 1 is all on one task; MiB: a task at most; bar: when it processed"
_MAX_RESULTS, _MAX_HOT, _HOT_COLUMNS = 2, 3, 34  # results and hot keys that the summary names
_PHASES = {
    "startup": "waiting for Ray and actors",
    "load": "Spark and splits",
    "stream": "mapping and reducing",
    "merge": "merge of the states",
    "reference": "reference and baseline",
}
TELLING = 1.0  # seconds of a stream from which on what limited it is worth a line
_LEAST_PART = 0.005  # of the time of a row: shorter phases are left out of the sentence


def facts(report: Report) -> Iterator[Fact]:
    """Of the run, and for the smallest graph those of its only operator stage."""
    records = report.records
    stages = () if report.is_graph else report.operators
    found = {fact.name: fact for stage in stages for fact in stage_content.facts(stage, report.status)}
    if records.read or report.status != "failed":
        read = "as last reported: " * report.is_stale + f"{plural(records.read, 'row')} read"
        mapped = f"{count(records.mapped)} mapped, {count(records.emitted)} emitted"
        found["records"] = Fact("records", count(records.processed), f"processed; {read}, {mapped}")
        found["forwards"] = stage_content.forwards(records)
        rate = f"{count(report.records_per_second)}/s"
        found["throughput"] = Fact("throughput", rate, "records mapped, in the mean of the stream")
    if report.checkpoints is not None:
        found["checkpoints"] = _checkpoints(report.checkpoints, report.seconds.stream)
    if report.errors:
        found["left out"] = _left_out(report)
    found |= {fact.name: fact for fact in _epochs(report.epochs)}
    found["reference"] = stage_content.compared(report.reference)
    return iter(found.values())


def _checkpoints(made: CheckpointStats, stream: float) -> Fact:
    failed = f", {made.failed} not written" if made.failed else ""
    share = f", {percent(made.waited / stream)} of the stream" if stream > 0 else ""
    of = f"{megabytes(made.size)} MB; sources waited {seconds(made.waited)}{share}"
    return Fact("checkpoints", f"{made.written} written{failed}", of)


def _left_out(report: Report) -> Fact:
    kept = sum(found.records for found in report.errors if found.kept)
    skipped = sum(found.records for found in report.errors if not found.kept)
    there = "" if report.dead_letters is None else f" in {one_line(report.dead_letters)}"
    parts = [f"{plural(kept, 'dead letter')}{there}" if kept else "", f"{count(skipped)} skipped" if skipped else ""]
    return Fact("left out", count(kept + skipped), "; ".join(filter(None, parts)))


def _epochs(ended: EpochStats) -> Iterator[Fact]:
    if not ended.number:
        return
    words = [f"sources waited {seconds(ended.seconds / ended.number)} each, {seconds(ended.longest)} at most"]
    if ended.waited_for is not None:
        words.append(f"then until {ended.waited_for.task} had {ended.waited_for.what}")
    yield Fact("epochs", f"{ended.number} ended", ", ".join(words))
    after = ended.visible_after
    if after is not None:
        parts = [
            f"{latency(ended.of_row(found))} {found.phase.value}"
            for found in ended.phases
            if ended.of_row(found) >= _LEAST_PART * after
        ]
        yield Fact("visible", f"{latency(after)} after a row was read", ", ".join(parts))


def ended(report: Report) -> str:
    """How the run ended, after how long, and what it survived."""
    is_checked = report.status != "unverified"
    parts = [f"{one_line(report.status, 60) if is_checked else 'ran'} in {seconds(report.seconds.total)}"]
    parts += [] if is_checked else ["not checked by Spark yet"]
    parts += ["in this process, without Ray"] if report.backend == "local" else []
    if report.recoveries:
        parts.append(f"after {plural(len(report.recoveries), 'restart')}")
    if report.checkpoints is not None and report.checkpoints.failed:
        parts.append(f"{plural(report.checkpoints.failed, 'checkpoint')} not written")
    return ", ".join(parts)


def summary(report: Report) -> Iterator[Fact]:
    """What a run is judged by: what came out and where, whether it is right, and how it went."""
    results = [fact for stage in report.operators for fact in _results(report, stage)]
    if len(results) > _MAX_RESULTS:
        more = len(results) - _MAX_RESULTS + 1
        results[_MAX_RESULTS - 1 :] = [Fact("", f"and {more} more results")]
    yield from results
    if report.errors:
        yield _left_out(report)
    yield stage_content.compared(report.reference)
    if report.records.read or report.status != "failed":
        read = "as last reported: " * report.is_stale + f"{plural(report.records.read, 'row')} read"
        yield Fact(
            "rate", f"{count(report.records_per_second)} records/s", f"{read} in {seconds(report.seconds.stream)}"
        )
    yield from _balance(report)
    if report.main.latency is not None:
        found, after = report.main.latency, report.epochs.visible_after
        seen = "" if after is None else f"; readers see a row {latency(after)} after it is read"
        yield Fact("latency", f"p99 {latency(found.p99)}", f"median {latency(found.p50)}{seen}")


def _results(report: Report, stage: StageReport) -> Iterator[Fact]:
    name = f"{one_line(stage.name, 40)}: " if report.is_graph else ""
    for output in filter(None, (stage.output, *stage.more_outputs)):
        for fact in stage_content.result(stage, output, report.status):
            yield fact._replace(value=f"{name}{fact.value}")


def _balance(report: Report) -> Iterator[Fact]:
    """Of the stage that would be the most uneven without balancing."""
    stages = [(stage.skew, stage) for stage in report.operators if stage.skew is not None]
    if not report.records.processed or not stages:
        return
    found, stage = max(stages, key=lambda each: each[1].static_skew or each[0].dpa)
    name = f"{one_line(stage.name, 40)}: " if report.is_graph else ""
    others = [(stage.static_skew, "without balancing"), (found.spark, "with Spark's hash")]
    words = ", ".join(f"{skew(value)} {how}" for value, how in others if value is not None)
    yield Fact("skew", f"{name}{skew(found.dpa)}", f"(0 is even){'; ' * bool(words)}{words}")
    changes = sum(len(each.redistributions) for each in report.operators)
    decided = f"no redistribution: {outcomes(stage.decision_counts)}"
    words = decided if not changes and stage.decision_counts else plural(changes, "redistribution")
    start = stage.first_table or ""
    if found.dpa > UNEVEN and start.startswith(PLAIN_RING):
        words = f"{words.partition(':')[0]}; started {one_line(start)}"
    texts = [f"{key_text(hot.key)} ({percent(hot.share)})" for hot in stage.hot[:_MAX_HOT]]
    while len(texts) > 1 and len(", ".join(texts)) > _HOT_COLUMNS:  # keys in windows are long
        texts.pop()
    yield Fact("balancing", words, f"hot keys: {', '.join(texts)}" if texts else "")


def times(report: Report) -> Fact:
    spent = report.seconds
    parts = [f"{phase} {seconds(getattr(spent, phase))}" for phase in _PHASES if getattr(spent, phase)]
    if spent.first_record is not None:
        parts.append(f"first record after {seconds(spent.first_record)}")
    return Fact("time", seconds(spent.total), ", ".join(parts))


def phases(report: Report) -> Table:
    spent = report.seconds
    total = spent.total or sum(getattr(spent, name) for name in _PHASES) or 1.0
    rows = [
        (name, what, seconds(getattr(spent, name)), Bar(getattr(spent, name) / total)) for name, what in _PHASES.items()
    ]
    return Table("phases", ("phase", "what", "#time", ""), rows, total=("total", "", seconds(spent.total), ""))


def epochs(ended: EpochStats) -> Table:
    """The phases of a row and of an epoch, drawn as parts of the time of a row."""
    after = ended.visible_after
    rows: list[tuple[Cell, ...]] = []
    passed = 0.0
    for found in ended.phases:
        own = ended.of_row(found)
        bar: Cell = Bar((passed + own) / after, passed / after) if after and own else ""
        passed += own
        spent = latency(own) if own else ""
        rows.append((found.phase.value, found.phase.words, spent, latency(found.mean), latency(found.longest), bar))
    title = "until readers see what a row has changed" if after is not None else "the ends of epochs"
    total = ("visible", "", latency(after), "", "", "") if after is not None else ()
    return Table(title, ("phase", "what", "#a row", "#an epoch", "#longest", ""), rows, narrow=5, wide=6, total=total)


def stages(report: Report) -> Table:
    whole, names = report.seconds.stream, [stage.name for stage in report.stages]

    def row(stage: StageReport) -> tuple[Cell, ...]:
        load, began = stage.load, stage.began
        known = stage.skew is not None and stage.records.processed > 0
        ended = whole if stage.ended is None else stage.ended
        return (
            one_line(stage.name),
            _tasks(stage),
            short(report.taken_in(stage.name)),
            short(report.given_out(stage.name)),
            f"{load.busy:.0%}",
            f"{load.blocked:.0%}",
            skew(stage.skew.dpa if stage.skew and known else None, ""),
            mebibytes(stage.peak_memory),
            "" if began is None or whole <= 0 else Bar(ended / whole, began / whole),
            f"{load.waiting:.0%}" if stage.kind == "source" else "",
            "" if stage.kind == "source" else short(load.peak_queue),
            "" if stage.latency is None else latency(stage.latency.p99),
        )

    head = ("stage", "#tasks", "#in", "#out", "#busy", "#blocked", "#S", "#MiB", f"0 s  {seconds(whole):>7}")
    return Table(
        plural(len(names), "stage"),
        (*head, "#waiting", "#queue", "#p99"),
        [row(stage) for stage in report.stages],
        narrow=9,
        wide=12,
        marked=names.index(report.bottleneck.stage) if report.bottleneck.stage in names else None,
    )


def recoveries(report: Report) -> Table:
    rows = [
        (
            seconds(found.at),
            one_line(found.task),
            one_line(found.node),
            "unknown" if found.rows is None else count(found.rows),
            *(seconds(after, "never") for after in (found.begun, found.restored, found.seconds)),
        )
        for found in report.recoveries
    ]
    head = ("#after", "died", "node", "#rows again", "#begun after", "#restored", "#flowed")
    return Table(plural(len(rows), "death"), head, rows)


def joins(found: Sequence[JoinReport]) -> Table:
    """Of a report or a plan."""
    rows = [
        (
            *(one_line(text, 40) for text in (join.step, join.form, join.side or "-")),
            *("-" if size is None else count(size) for size in (join.rows, join.bytes)),
            one_line(join.why),
        )
        for join in found
    ]
    return Table(plural(len(rows), "join"), ("step", "form", "side", "#rows", "#bytes", "because"), rows)


def errors(report: Report) -> Table:
    rows = [
        (one_line(found.step), one_line(found.error), count(found.records), "dead letters" if found.kept else "skipped")
        for found in report.errors
    ]
    return Table(plural(len(rows), "kind"), ("step", "error", "#records", "kept as"), rows)


def looks(report: Report) -> Table:
    rows = [
        (f"{look.at:.1f}", percent(look.busiest), megabytes(look.crossing), str(look.moves), one_line(look.reason))
        for look in report.placement_looks
    ]
    head = ("#at (s)", "#busiest node", "#MB/s between", "#moves", "reason")
    return Table(plural(len(rows), "look"), head, rows)


def _tasks(stage: StageReport) -> str:
    first = len(stage.tasks) - sum(len(step.started) for step in stage.changes)
    return str(first) if first == stage.present else f"{first}→{stage.present}"
