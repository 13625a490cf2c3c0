"""`report.html`: one run on one page that needs no network and no scripts, and prints well.

The page shows a `Report` and computes no metric: the numbers of the run, its graph (`_graph.py`), and each stage
(`_stage_html.py`). Of the smallest graph the only operator stage has no heading of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpa.protocol.wire.metrics import PlacementLook
from dpa.report import _graph
from dpa.report._data import resolved_yaml
from dpa.report._markup import bar, block, cards, escape, folded, heading, note, picture, table
from dpa.report._show import reference_line
from dpa.report._stage_html import (
    Card,
    forwards_card,
    latency_card,
    operator_section,
    optional_cards,
    output_card,
    redistributions_card,
    reference_note,
    skew_cards,
    source_section,
    stage_cards,
)
from dpa.report._style import CSS
from dpa.report._text import count, lines, mebibytes, megabytes, one_line, percent, plural, recovery_words, seconds
from dpa.result import OutputReport, Report

# A second defence: a browser neither runs nor fetches anything that was not escaped.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(report: Report) -> str:
    """The page of `report`, a complete HTML document."""
    name = escape(one_line(report.name))
    body = "\n".join(part for part in _body(report) if part)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{name}: {escape(report.status)}</title>
<style>{CSS}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _body(report: Report) -> Iterator[str]:
    good = " ok" if report.status == "ok" else ""
    yield f'<header><h1>{escape(one_line(report.name))}</h1><span class="status{good}">{escape(report.status)}</span>'
    yield f'<span class="note">{escape(reference_line(report.reference))}</span></header>'
    if report.error is not None:
        yield block("\n".join(lines(report.error)), bad=True)
    yield _cards(report)
    if report.reference.differences:
        yield heading("Differences from the reference")
        yield block("\n".join(one_line(difference) for difference in report.reference.differences), bad=True)
    yield heading("Graph")
    yield note(one_line(report.bottleneck.reason))
    yield picture(_graph.draw(report), "The stages with what they do with their time, and the records between them.")
    if report.stages:
        yield heading("Stages")
        yield _timeline(report)
    if report.is_graph:
        yield from _stages(report)
    else:
        yield from operator_section(report.main)
        for stage in report.sources:
            yield heading("Tasks of the source")
            yield from source_section(stage)
    if report.placement_looks:
        yield heading("Placement")
        yield _looks(report.placement_looks)
    yield heading("Time")
    yield _times(report)
    yield heading("Configuration")
    yield block(resolved_yaml(report))
    if report.recoveries:
        yield heading("Recoveries")
        yield block("\n".join(f"{recovery_words(found)}: {one_line(found.cause)}" for found in report.recoveries))
    if report.warnings:
        yield heading("Warnings")
        yield block("\n".join(one_line(warning) for warning in report.warnings))
    if report.versions:
        yield heading("Versions")
        yield table(("", ""), ((one_line(name), one_line(version)) for name, version in report.versions.items()))


def _timeline(report: Report) -> str:
    """When in the stream each stage processed, and the memory that a task of it took."""
    whole = report.seconds.stream
    rows = []
    for stage in report.stages:
        began, ended = stage.began, whole if stage.ended is None else min(stage.ended, whole)
        spanned = "" if began is None or whole <= 0 else bar(max(ended - began, 0.005 * whole) / whole, began / whole)
        ends = (seconds(moment, "") for moment in (began, stage.ended))
        rows.append((one_line(stage.name), stage.present, *ends, spanned, mebibytes(stage.peak_memory)))
    head = ("stage", "#tasks", "#began", "#ended", f"stream of {seconds(whole)}", "#MiB a task")
    words = "From the first record of a stage to its last; tasks at the end; MiB: the largest process of a task."
    return table(head, rows) + note(words)


def _stages(report: Report) -> Iterator[str]:
    """A section for each stage."""
    for stage in report.stages:
        yield heading(f"Stage {one_line(stage.name)}")
        if stage.kind == "source":
            yield from source_section(stage)
        else:
            yield stage_cards(stage)
            yield from operator_section(stage, level=3)


def _cards(report: Report) -> str:
    """The numbers of the run; of the smallest graph with those of its only operator stage."""
    records, stage = report.records, report.main
    made = "as last reported, " if report.is_stale else ""
    made += f"of {count(records.mapped)} mapped from {plural(records.read, 'row')}"
    throughput = "n/a" if report.status == "failed" and not records.mapped else f"{count(report.records_per_second)}/s"
    rate = ("Throughput", throughput, "records mapped by seconds of the stream")
    processed = ("Records processed", count(records.processed), made)
    verdict = reference_line(report.reference).removeprefix("reference: ")
    reference = ("Reference", verdict, reference_note(report.reference))
    if report.is_graph:
        return cards((rate, processed, forwards_card(records), reference))
    found: list[Card] = [*skew_cards(stage), rate, latency_card(stage), processed, redistributions_card(stage)]
    output = output_card(stage.output or OutputReport(), report.status)
    found += [forwards_card(records), *optional_cards(stage), output, reference]
    return cards(found)


def _looks(looks: Sequence[PlacementLook]) -> str:
    """What each look at the placement found, and did."""
    rows = [
        (f"{look.at:.1f}", percent(look.busiest), megabytes(look.crossing), look.moves, one_line(look.reason))
        for look in looks
    ]
    return folded(("#at (s)", "#busiest node", "#MB/s between", "#moves", "reason"), rows, "looks", open_up_to=16)


def _times(report: Report) -> str:
    spent = report.seconds
    names = {
        "startup": "waiting for Ray and actors",
        "load": "Spark and splits",
        "stream": "mapping and reducing",
        "merge": "merge of the states",
        "reference": "reference and baseline",
    }
    total = spent.total or sum(getattr(spent, name) for name in names) or 1.0
    rows: list[tuple[object, ...]] = [
        (name, what, seconds(getattr(spent, name)), bar(getattr(spent, name) / total)) for name, what in names.items()
    ]
    rows.append(("total", "", seconds(spent.total), ""))
    first = note(f"First record processed {seconds(spent.first_record)} after the start of the job.")
    return table(("phase", "", "#time", ""), rows) + ("" if spent.first_record is None else first)
