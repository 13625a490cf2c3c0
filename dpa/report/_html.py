"""The files of a report, above all `report.html`: one run on one page that needs no network and no scripts, and prints
well.

The page draws what `dpa.result.run_content` and `stage_content` say of a `Report`, with pictures. Every value is
escaped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from dpa._util.as_yaml import as_yaml
from dpa._util.disk import why
from dpa.errors import ConfigError
from dpa.report import plots
from dpa.report._files import ReportError, to_json, write_file
from dpa.report._pictures import picture
from dpa.result import Report, StageReport, run_content, stage_content
from dpa.result.text import Cell, Fact, Table, lines, one_line, seconds

MAX_ROWS = 500
"""Rows of the longest table on the page; `report.json` has all."""

# A second defence: a browser neither runs nor fetches anything that was not escaped.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write(report: Report, directory: Path, events: Mapping[str, bytes] | None = None) -> list[Path]:
    """Write the report into `directory`, which is created if it does not exist; return the files' paths, the page last.
    `events` are files by name for the directory `events` in it; those of an earlier job are removed.

    A file appears complete or not at all, and replaces an older one of its name. ReportError if one cannot be written.
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # The data first, so that it exists even if a picture cannot be drawn.
        data = write_file(directory / "report.json", to_json(report) + "\n")
        resolved = write_file(directory / "resolved.yaml", as_yaml(report.config, width=120))
        recorded = _write_events(directory / "events", events or {})
        page = write_file(directory / "report.html", render(report))
        return [data, resolved, *([recorded] if events else []), page]
    except OSError as error:
        raise ReportError(f"{directory}: cannot write the report: {why(error)}") from error


def _write_events(directory: Path, events: Mapping[str, bytes]) -> Path:
    """Make a directory's files of events these and no others. An empty directory is removed."""
    for old in directory.glob("*.events"):
        old.unlink()
    if events:
        directory.mkdir(exist_ok=True)
    elif directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
    for name, content in events.items():
        write_file(directory / name, content, mode=0o600)
    return directory


def render(report: Report) -> str:
    name = escape(one_line(report.name))
    body = "\n".join(_body(report))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{name}: {escape(report.status)}</title>
<style>{_CSS}</style>
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
        yield _picture(partial(picture, report), "graph", caption)
        yield _heading("Stages")
        yield table_html(run_content.stages(report)) + _note(run_content.STAGES_NOTE)
    for stage in report.stages:
        yield _heading(f"Stage {one_line(stage.name)}")
        if report.is_graph and stage.kind == "operator":
            yield _cards(stage_content.facts(stage, report.status))
        yield from _sections(stage)
    epochs, first = run_content.epochs(report.epochs), report.seconds.first_record
    began = "" if first is None else f"First record processed {seconds(first)} after the start of the job."
    of_the_run = [
        ("Placement", run_content.looks(report), ""),
        ("Time", run_content.phases(report), began),
        (f"Epochs: {epochs.title}", epochs, run_content.EPOCHS_NOTE),
        ("Joins", run_content.joins(report.joins), ""),
        ("Recoveries", run_content.recoveries(report), ""),
        ("Records that were left out", run_content.errors(report), ""),
    ]
    for title, found, note in of_the_run:
        if found.rows:
            yield _heading(title) + table_html(found) + (_note(note) if note else "")
    yield _heading("Configuration") + _block([as_yaml(report.config, width=120)])
    if report.warnings:
        yield _heading("Warnings") + _block(map(one_line, report.warnings))
    if report.versions:
        rows = [(one_line(name), one_line(version)) for name, version in report.versions.items()]
        yield _heading("Versions") + table_html(Table("versions", ("package", "version"), rows))


def _sections(stage: StageReport) -> Iterator[str]:
    for section in stage_content.sections(stage, stage_content.ALL):
        yield _heading(section.title, 3)
        if section.picture:
            draw = partial(plots.PICTURES[section.picture], stage)
            yield _picture(draw, f"{stage.name}-{section.picture}", section.caption)
        yield from map(table_html, section.tables)


def _cards(facts: Iterable[Fact]) -> str:
    items = (
        f"<div><dt>{escape(fact.name)}</dt><dd>{escape(fact.value)}<small>{escape(fact.remark)}</small></dd></div>"
        for fact in facts
    )
    return f'<dl class="cards">{"".join(items)}</dl>'


def table_html(table: Table) -> str:
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
    kind = ' class="bad"' if bad else ""
    return f"<pre{kind}>{escape(chr(10).join(found))}</pre>"


def _picture(draw: Callable[[], Any], name: str, caption: str) -> str:
    try:
        plots.check_pictures()
    except ConfigError as error:
        return _note(f"Left out: {error}")
    drawing = plots.svg(draw(), name)
    return f'<figure class="scroll" role="img" aria-label="{escape(caption)}">{drawing}</figure>'


_CSS = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f8; --ink: #1f2328; --faint: #656d76; --grid: #d9dde1;
  --bar: #0072b2; --good: #1a7f37; --bad: #c62828;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --card: #1d2125; --ink: #e4e7ea; --faint: #9aa4ad; --grid: #3a4148;
    --bar: #4aa3d9; --good: #57c26b; --bad: #ff7b72;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--grid); }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
header { display: flex; align-items: baseline; gap: .8rem; flex-wrap: wrap; margin-bottom: 1.2rem; }
.status { font-weight: 600; color: var(--bad); }
.status.ok { color: var(--good); }
.note { color: var(--faint); margin: .4rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .7rem; margin: 0; }
.cards div { background: var(--card); border-radius: 6px; padding: .6rem .8rem; }
.cards dt { color: var(--faint); font-size: .85rem; }
.cards dd { margin: 0; font-size: 1.25rem; font-weight: 600; overflow-wrap: anywhere; }
.cards dd small { display: block; font-size: .82rem; font-weight: 400; color: var(--faint); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th { text-align: left; font-weight: 600; color: var(--faint); }
th, td { padding: .22rem .9rem .22rem 0; vertical-align: top; border-bottom: 1px solid var(--grid); }
td.n, th.n { text-align: right; white-space: nowrap; }
td code { font: .95em ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.bar { display: inline-block; width: 7rem; height: .7em; background: var(--card); }
.bar i { display: block; height: 100%; background: var(--bar); }
figure { margin: 1rem 0; color: var(--ink); }
figure svg { width: 100%; height: auto; display: block; }
pre {
  background: var(--card); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto; margin: .6rem 0;
  font: .85rem/1.45 ui-monospace, Menlo, Consolas, monospace;
}
pre.bad { border-left: 3px solid var(--bad); white-space: pre-wrap; overflow-wrap: anywhere; }
details > summary { cursor: pointer; color: var(--faint); margin: .5rem 0; }
@media screen and (max-width: 40rem) { /* a row is a paragraph in which each value has its name before it */
  thead, td:empty { display: none; }
  tr { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .3rem 0; border-bottom: 1px solid var(--grid); }
  td { border: 0; padding: 0; }
  td::before { content: attr(data-name) " "; color: var(--faint); }
}
@media print { body { max-width: none; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""
