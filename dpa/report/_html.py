"""`report.html`: one run on one page that needs no network and no scripts, and prints well.

The page draws what `dpa.result.run_content` and `stage_content` say of a `Report`, with pictures. Every value is
escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from dpa._util.as_yaml import as_yaml
from dpa.report import _graph, plots
from dpa.report._style import CSS
from dpa.result import Report, StageReport, epoch_content, run_content, stage_content
from dpa.result.content import Cell, Fact, Table
from dpa.result.text import lines, one_line, seconds

MAX_ROWS = 500
"""Rows of the longest table on the page; `report.json` has all."""

# A second defence: a browser neither runs nor fetches anything that was not escaped.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(report: Report) -> str:
    """The page of `report`, a complete HTML document."""
    name = escape(one_line(report.name))
    body = "\n".join(_body(report))
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
    yield f'<span class="note">reference: {stage_content.compared(report.reference).value}</span></header>'
    if report.error is not None:
        yield _block(lines(report.error), bad=True)
    yield _cards(run_content.facts(report))
    if report.reference.differences:
        yield _heading("Differences from the reference")
        yield _block(map(one_line, report.reference.differences), bad=True)
    yield _heading("Graph")
    yield _note(one_line(report.bottleneck.reason))
    if report.stages:
        caption = "The stages with what they do with their time, and the records between them."
        yield _picture(plots.svg(_graph.picture(report), "graph"), caption)
        yield _heading("Stages")
        yield _table(run_content.stages(report)) + _note(run_content.STAGES_NOTE)
    for stage in report.stages:
        yield _heading(f"Stage {one_line(stage.name)}")
        if report.is_graph and stage.kind == "operator":
            yield _cards(stage_content.facts(stage, report.status))
        yield from _sections(stage)
    if report.placement_looks:
        yield _heading("Placement") + _table(run_content.looks(report))
    yield _heading("Time") + _table(run_content.phases(report))
    if report.seconds.first_record is not None:
        yield _note(f"First record processed {seconds(report.seconds.first_record)} after the start of the job.")
    if report.epochs.phases:
        found = epoch_content.phases(report.epochs)
        yield _heading(f"Epochs: {found.title}") + _table(found) + _note(epoch_content.NOTE)
    if report.recoveries:
        yield _heading("Recoveries") + _table(run_content.recoveries(report))
    if report.errors:
        yield _heading("Records that were left out") + _table(run_content.errors(report))
    yield _heading("Configuration") + _block([as_yaml(report.config, width=120)])
    if report.warnings:
        yield _heading("Warnings") + _block(map(one_line, report.warnings))
    if report.versions:
        rows = [(one_line(name), one_line(version)) for name, version in report.versions.items()]
        yield _heading("Versions") + _table(Table("versions", ("package", "version"), rows))


def _sections(stage: StageReport) -> Iterator[str]:
    for section in stage_content.sections(stage, stage_content.ALL):
        yield _heading(section.title, 3)
        if section.picture:
            drawing = plots.svg(plots.PICTURES[section.picture](stage), f"{stage.name}-{section.picture}")
            yield _picture(drawing, section.caption)
        yield from map(_table, section.tables)


def _cards(facts: Iterable[Fact]) -> str:
    items = (
        f"<div><dt>{escape(fact.name)}</dt><dd>{escape(fact.value)}<small>{escape(fact.remark)}</small></dd></div>"
        for fact in facts
    )
    return f'<dl class="cards">{"".join(items)}</dl>'


def _table(table: Table) -> str:
    """A table, folded away if it has many rows, cut at `MAX_ROWS`."""
    if not table.rows:
        return _note(table.absent) if table.absent else ""
    kinds = [' class="n"' if title.startswith("#") else "" for title in table.head]
    names = [escape(title.lstrip("#")) for title in table.head]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, names, strict=True))
    kinds = [f'{kind} data-name="{name}"' for kind, name in zip(kinds, names, strict=True)]  # read on narrow screens
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{_cell(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>\n"
        for row in [*table.rows[:MAX_ROWS], *[table.total] * bool(table.total)]
    )
    shown = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
    if len(table.rows) > MAX_ROWS:
        shown += _note(f"The first {MAX_ROWS:,} of {len(table.rows):,}; all are in report.json.")
    if len(table.rows) <= table.open_up_to:
        return shown
    return f"<details><summary>{escape(table.title)}</summary>{shown}</details>"


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return escape(cell)
    first, last = (100 * min(max(part, 0.0), 1.0) for part in (cell.first or 0.0, cell.last))
    begins = f"margin-left:{first:.1f}%;" if first else ""
    return f'<span class="bar"><i style="{begins}width:{max(last - first, 0.5):.1f}%"></i></span>'


def _heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{escape(text)}</h{level}>"


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _block(found: Iterable[str], *, bad: bool = False) -> str:
    """Lines as they stand, marked if they are `bad` news."""
    kind = ' class="bad"' if bad else ""
    return f"<pre{kind}>{escape(chr(10).join(found))}</pre>"


def _picture(drawing: str, caption: str) -> str:
    return f'<figure class="scroll" role="img" aria-label="{escape(caption)}">{drawing}</figure>'
