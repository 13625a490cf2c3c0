"""The part of the page that shows one stage: its numbers, tasks, queues, decisions and keys."""

from __future__ import annotations

from collections.abc import Iterator

from dpa.balance.decision import Decision
from dpa.report import plots
from dpa.report._markup import Raw, bar, cards, escape, folded, heading, note, picture
from dpa.report._text import (
    change_in_words,
    count,
    key_text,
    latency,
    mebibytes,
    one_line,
    outcomes,
    per_record,
    percent,
    plural,
    refusals,
    seconds,
    skew,
)
from dpa.result import LatencyReport, OutputReport, RecordCounts, ReferenceReport, StageReport
from dpa.routing.groupings.options import RING

MAX_LOADS = 8
"""A decision's loads are listed for up to this many tasks, and summed up for more."""

Card = tuple[str, str, str]


def source_section(stage: StageReport) -> Iterator[str]:
    """The tasks of a source."""
    rows = [
        (
            task.id,
            count(task.read),
            count(task.mapped),
            count(task.emitted),
            seconds(task.busy_seconds),
            seconds(task.blocked_seconds),
            mebibytes(task.peak_memory),
        )
        for task in stage.tasks
    ]
    yield folded(("#task", "#rows read", "#mapped", "#emitted", "#in user code", "#blocked", "#MiB"), rows, "tasks", 16)


def operator_section(stage: StageReport, level: int = 2) -> Iterator[str]:
    """Load, queues, decisions and keys of an operator stage, with headings of a level."""
    yield heading("Load of the tasks", level)
    yield _picture(stage, "records-per-task", "Records that each task processed, against an even share.")
    yield _tasks(stage)
    yield heading("Queues and redistributions", level)
    yield _picture(stage, "queue-lengths", "Queue length of each task over time; triangles mark redistributions.")
    yield _redistributions(stage)
    yield _changes(stage)
    yield _decisions(stage)
    yield heading("Keys", level)
    yield _picture(stage, "key-distribution", "Share of all records held by the most frequent keys together.")
    yield _hot_keys(stage)


def stage_cards(stage: StageReport) -> str:
    """The numbers of one operator stage of several."""
    made = f"{plural(stage.records.emitted, 'record')} emitted"
    found = [*skew_cards(stage), latency_card(stage), *stage_latency_card(stage)]
    found += [("Records processed", count(stage.records.processed), made), redistributions_card(stage)]
    found += [forwards_card(stage.records), *optional_cards(stage)]
    if stage.output is not None:
        found.append(output_card(stage.output, "ok"))
    if stage.reference.checked:
        verdict = "match" if stage.reference.matches else "MISMATCH"
        found.append(("Reference", verdict, reference_note(stage.reference)))
    return cards(found)


def skew_cards(stage: StageReport) -> Iterator[Card]:
    """Skew of this run, static, and of Spark."""
    known = stage.skew is not None and stage.records.processed > 0
    yield (
        "Skew S, this run",
        skew(stage.skew.dpa if stage.skew and known else None, "n/a"),
        "0 is even, 1 is all on one task",
    )
    yield (
        "Skew S, static",
        skew(stage.static_skew, "n/a"),
        "the first routing table throughout: the same ring without balancing",
    )
    yield "Skew S, Spark", skew(stage.skew.spark if stage.skew else None), "hash partitioning of the same records"


def latency_card(stage: StageReport) -> Card:
    """Latency from source to processed."""
    return _latency("Latency p99", stage.latency, "from source to processed")


def stage_latency_card(stage: StageReport) -> Iterator[Card]:
    """Latency from emitted to processed, where it was measured."""
    if stage.stage_latency is not None:
        yield _latency("Stage latency p99", stage.stage_latency, "from emitted to processed")


def _latency(name: str, found: LatencyReport | None, what: str) -> Card:
    if found is None:
        return name, "n/a", what
    parts = (f"{part} {latency(getattr(found, part))}" for part in ("p50", "p95", "max", "mean"))
    return name, latency(found.p99), f"{what}; {', '.join(parts)}"


def redistributions_card(stage: StageReport) -> Card:
    """How many there were, and the decisions against one."""
    against = f"decided against: {refusals(stage.decision_counts) or 'none'}"
    return "Redistributions", count(len(stage.redistributions)), against


def forwards_card(records: RecordCounts) -> Card:
    """How many there were, and for each record."""
    return "Forwards", count(records.forwarded), per_record(records.forwarded, records.processed)


def output_card(output: OutputReport, status: str) -> Card:
    """Rows of the result, and where it is."""
    where = "in memory" if output.path is None else one_line(output.path)
    where += f", {plural(len(output.files), 'file')}" if output.files else ""
    if status == "failed":
        where = "nothing was published" + ("" if output.unpublished is None else f" in {one_line(output.unpublished)}")
    return "Result", plural(output.rows, "row"), where


def reference_note(reference: ReferenceReport) -> str:
    """What was compared."""
    return "" if reference.rows is None else f"{plural(reference.rows, 'row')}, computed by Spark"


def optional_cards(stage: StageReport) -> Iterator[Card]:
    """The cards of a grouping other than the ring, and of rounds of aggregation."""
    grouping, rounds = stage.grouping, stage.aggregation
    if grouping is not None and grouping.kind != RING:
        held = grouping.replication
        on = "" if held is None else f"a key on {held:.2f} tasks on average, "
        yield "Grouping", grouping.kind, f"{on}{plural(grouping.moved, 'part')} of the keys moved"
    if rounds is not None:
        note = f"{plural(rounds.states, 'state')} handed over, {seconds(rounds.seconds)} of user code"
        yield "Aggregation", plural(rounds.rounds, "round"), note


def _tasks(stage: StageReport) -> str:
    if not stage.tasks:
        return note("No task had started.")
    most = max(task.share for task in stage.tasks) or 1.0
    rows = [
        (
            task.id,
            count(task.processed),
            percent(task.share),
            bar(task.share / most),
            count(task.forwarded),
            count(task.peak_queue),
            count(task.keys),
            seconds(task.busy_seconds),
            seconds(task.blocked_seconds),
            latency(task.latency_p99),
            mebibytes(task.peak_memory),
        )
        for task in stage.tasks
    ]
    head = (
        "#task",
        "#records",
        "#share",
        "",
        "#forwards",
        "#peak queue",
        "#keys",
        "#in user code",
        "#blocked",
        "#latency p99",
        "#MiB",
    )
    return folded(head, rows, "tasks")


def _redistributions(stage: StageReport) -> str:
    if not stage.redistributions:
        return note("No redistribution.")
    rows = [
        (f"{found.at:.2f}", found.reducer, found.round, _number(found.version), one_line(found.reason), _loads(found))
        for found in stage.redistributions
    ]
    head = ("#at (s)", "#task", "#round", "#table", "reason", "loads reported (records)")
    return folded(head, rows, "redistributions", open_up_to=16)


def _changes(stage: StageReport) -> str:
    if not stage.changes:
        return ""
    rows = [
        (f"{step.at:.2f}", change_in_words(step), f"{step.seconds:.2f}", one_line(step.reason))
        for step in stage.changes
    ]
    return folded(("#at (s)", "change", "#took (s)", "reason"), rows, "changes of tasks", open_up_to=16)


def _decisions(stage: StageReport) -> str:
    began = "" if stage.first_table is None else note(f"First table: {one_line(stage.first_table)}.")
    if not stage.decision_counts:
        return began
    rows = [
        (f"{found.at:.2f}", found.reducer, found.outcome.value.replace("_", " "), one_line(found.reason), _loads(found))
        for found in stage.decisions
    ]
    counted = note(f"Decisions: {outcomes(stage.decision_counts) or 'none'}.")
    head = ("#at (s)", "#task", "outcome", "reason", "loads reported (records)")
    return began + counted + (folded(head, rows, "decisions kept", open_up_to=0) if rows else "")


def _loads(decision: Decision) -> str:
    loads = decision.loads
    if len(loads) <= MAX_LOADS and decision.reducers:
        return ", ".join(f"task {reducer}: {count(load)}" for reducer, load in decision.load_of.items())
    if len(loads) <= MAX_LOADS:
        return ", ".join(count(load) for load in loads)
    return f"{count(max(loads))} at most, {count(sum(loads) / len(loads))} on average"


def _hot_keys(stage: StageReport) -> str:
    if not stage.hot:
        return note("No key is hot: none makes a task uneven.")
    most = max(hot.share for hot in stage.hot) or 1.0
    rows = [
        (
            Raw(f"<code>{escape(key_text(hot.key, 200))}</code>"),
            percent(hot.share),
            bar(hot.share / most),
            count(hot.records),
            "exact" if hot.lower == hot.upper else f"{count(hot.lower)} to {count(hot.upper)}",
        )
        for hot in stage.hot
    ]
    return folded(("key", "#share", "", "#records", "#between"), rows, "hot keys")


def _picture(stage: StageReport, name: str, caption: str) -> str:
    return picture(plots.svg(plots.PICTURES[name](stage), f"{stage.name}-{name}"), caption)


def _number(value: int | None) -> str:
    return "" if value is None else count(value)
