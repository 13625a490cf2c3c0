"""`report.html`: one run on one page that needs nothing else, neither network nor scripts, and prints well.

The page words and draws a `Report`; it computes no metric. Every value passes through `_escape` on its way in: only
`Raw`, which this module alone makes, is taken for HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from dpa.balance.decision import Decision
from dpa.report import plots
from dpa.report._plain import resolved
from dpa.report._style import CSS
from dpa.report._text import (
    count,
    key_text,
    latency,
    lines,
    one_line,
    outcomes,
    per_record,
    percent,
    plural,
    refusals,
    seconds,
    skew,
)
from dpa.report.table import reference_line
from dpa.result import Report
from dpa.routing.groupings.options import RING

MOST_ROWS = 500
"""Longest table on the page; `report.json` has all rows."""
MOST_LOADS = 8
"""Up to this many reducers a decision's loads are listed; beyond, summed up."""

# Belt and braces: even if something unescaped slipped in, a browser would neither run nor fetch it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Raw(str):
    """Text that is HTML already."""


def render(report: Report) -> str:
    """The page of `report`, a complete HTML document."""
    name = _escape(one_line(report.name))
    body = "\n".join(part for part in _body(report) if part)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{name}: {_escape(report.status)}</title>
<style>{CSS}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _body(report: Report) -> Iterator[str]:
    good = " ok" if report.status == "ok" else ""
    yield f'<header><h1>{_escape(one_line(report.name))}</h1><span class="status{good}">{_escape(report.status)}</span>'
    yield f'<span class="note">{_escape(reference_line(report.reference))}</span></header>'
    if report.error is not None:
        yield _block("\n".join(lines(report.error)), bad=True)
    yield _cards(report)
    if report.reference.differences:
        yield _heading("Differences from the reference")
        yield _block("\n".join(one_line(difference) for difference in report.reference.differences), bad=True)
    yield _heading("Load of the reducers")
    yield _picture(report, "records-per-reducer", "Records that each reducer processed, against an even share.")
    yield _reducers(report)
    yield _heading("Queues and redistributions")
    yield _picture(report, "queue-lengths", "Queue length of each reducer over time; triangles mark redistributions.")
    yield _redistributions(report)
    yield _decisions(report)
    yield _heading("Keys")
    yield _picture(report, "key-distribution", "Share of all records held by the most frequent keys together.")
    yield _hot_keys(report)
    yield _heading("Time")
    yield _times(report)
    yield _heading("Configuration")
    yield _block(resolved(report))
    if report.versions:
        yield _heading("Versions")
        yield _table(("", ""), ((one_line(name), one_line(version)) for name, version in report.versions.items()))


def _cards(report: Report) -> str:
    records, reference, output = report.records, report.reference, report.output
    known = records.processed > 0
    made = "as last told, " if report.is_stale else ""
    made += f"of {count(records.mapped)} mapped from {plural(records.read, 'row')}"
    where = "in memory" if output.path is None else f"{one_line(output.path)}, {plural(len(output.files), 'file')}"
    if report.status == "failed":
        where = "nothing was published" + ("" if output.unpublished is None else f" in {one_line(output.unpublished)}")
    throughput = "n/a" if report.status == "failed" and not records.mapped else f"{count(report.records_per_second)}/s"
    compared = "" if reference.rows is None else f"{plural(reference.rows, 'row')}, computed by Spark"
    cards = (
        ("Skew S, this run", skew(report.skew.dpa if known else None, "n/a"), "0 is even, 1 is all on one reducer"),
        ("Skew S, static", skew(report.static_skew, "n/a"), "the same ring without balancing"),
        ("Skew S, Spark", skew(report.skew.spark), "hash partitioning of the same records"),
        ("Throughput", throughput, "records mapped by seconds of the stream"),
        ("Latency p99", "n/a" if report.latency is None else latency(report.latency.p99), _latencies(report)),
        ("Records processed", count(records.processed), made),
        (
            "Redistributions",
            count(len(report.redistributions)),
            f"decided against: {refusals(report.decision_counts) or 'none'}",
        ),
        ("Forwards", count(records.forwarded), per_record(records.forwarded, records.processed)),
        *_optional_cards(report),
        ("Result", plural(output.rows, "row"), where),
        ("Reference", reference_line(reference).removeprefix("reference: "), compared),
    )
    items = (
        f"<div><dt>{_escape(name)}</dt><dd>{_escape(value)}<small>{_escape(note)}</small></dd></div>"
        for name, value, note in cards
    )
    return f'<dl class="cards">{"".join(items)}</dl>'


def _optional_cards(report: Report) -> Iterator[tuple[str, str, str]]:
    """Of a grouping other than the ring, and of rounds of aggregation."""
    grouping, rounds = report.grouping, report.aggregation
    if grouping.kind != RING:
        held = grouping.replication
        on = "" if held is None else f"a key on {held:.2f} reducers on average, "
        yield "Grouping", grouping.kind, f"{on}{plural(grouping.moved, 'part')} of the keys moved"
    if rounds is not None:
        note = f"{plural(rounds.states, 'state')} handed over, {seconds(rounds.seconds)} of user code"
        yield "Aggregation", plural(rounds.rounds, "round"), note


def _latencies(report: Report) -> str:
    found = report.latency
    if found is None:
        return "from source to processed"
    parts = (f"{name} {latency(getattr(found, name))}" for name in ("p50", "p95", "max", "mean"))
    return f"from source to processed; {', '.join(parts)}"


def _reducers(report: Report) -> str:
    if not report.reducers:
        return _note("No reducer had started.")
    most = max(reducer.share for reducer in report.reducers) or 1.0
    rows = [
        (
            reducer.id,
            count(reducer.processed),
            percent(reducer.share),
            _bar(reducer.share / most),
            count(reducer.forwarded),
            count(reducer.peak_queue),
            count(reducer.keys),
            seconds(reducer.busy_seconds),
            latency(reducer.latency_p99),
        )
        for reducer in report.reducers
    ]
    head = ("#reducer", "#records", "#share", "", "#forwards", "#peak queue", "#keys", "#in user code", "#latency p99")
    return _folded(head, rows, "reducers")


def _redistributions(report: Report) -> str:
    if not report.redistributions:
        return _note("No redistribution.")
    rows = [
        (f"{found.at:.2f}", found.reducer, found.round, _number(found.epoch), one_line(found.reason), _loads(found))
        for found in report.redistributions
    ]
    head = ("#at (s)", "#reducer", "#round", "#table", "reason", "loads reported (records)")
    return _folded(head, rows, "redistributions", open_up_to=16)


def _decisions(report: Report) -> str:
    if not report.decision_counts:
        return ""
    rows = [
        (f"{found.at:.2f}", found.reducer, found.outcome.value.replace("_", " "), one_line(found.reason), _loads(found))
        for found in report.decisions
    ]
    note = _note(f"Decisions: {outcomes(report.decision_counts) or 'none'}.")
    head = ("#at (s)", "#reducer", "outcome", "reason", "loads reported (records)")
    return note + (_folded(head, rows, "decisions kept", open_up_to=0) if rows else "")


def _loads(decision: Decision) -> str:
    loads = decision.loads
    if len(loads) <= MOST_LOADS:
        return ", ".join(count(load) for load in loads)
    return f"{count(max(loads))} at most, {count(sum(loads) / len(loads))} on average"


def _hot_keys(report: Report) -> str:
    if not report.hot:
        return _note("No key is hot: none makes a reducer uneven.")
    most = max(hot.share for hot in report.hot) or 1.0
    rows = [
        (
            Raw(f"<code>{_escape(key_text(hot.key, 200))}</code>"),
            percent(hot.share),
            _bar(hot.share / most),
            count(hot.records),
            "exact" if hot.lower == hot.upper else f"{count(hot.lower)} to {count(hot.upper)}",
        )
        for hot in report.hot
    ]
    return _folded(("key", "#share", "", "#records", "#between"), rows, "hot keys")


def _times(report: Report) -> str:
    spent = report.seconds
    names = {
        "startup": "Ray and actors",
        "load": "Spark and splits",
        "stream": "mapping and reducing",
        "merge": "merge of the states",
        "reference": "reference and baseline",
    }
    total = spent.total or sum(getattr(spent, name) for name in names) or 1.0
    rows: list[tuple[object, ...]] = [
        (name, what, seconds(getattr(spent, name)), _bar(getattr(spent, name) / total)) for name, what in names.items()
    ]
    rows.append(("total", "", seconds(spent.total), ""))
    first = _note(f"First record processed {seconds(spent.first_record)} after the start of the job.")
    return _table(("phase", "", "#time", ""), rows) + ("" if spent.first_record is None else first)


def _picture(report: Report, name: str, caption: str) -> str:
    drawing = plots.svg(plots.PICTURES[name](report), name)
    return f'<figure role="img" aria-label="{_escape(caption)}">{drawing}</figure>'


def _folded(head: Sequence[str], rows: Sequence[Sequence[object]], what: str, open_up_to: int = 64) -> str:
    """A table, folded away if it has more than `open_up_to` rows, cut at `MOST_ROWS`."""
    table = _table(head, rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        table += _note(f"The first {MOST_ROWS:,} of {len(rows):,}; all are in report.json.")
    if len(rows) <= open_up_to:
        return table
    return f"<details><summary>{len(rows):,} {_escape(what)}</summary>{table}</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a heading that begins with `#` makes its column one of numbers."""
    kinds = [' class="n"' if title.startswith("#") else "" for title in head]
    cells = (f"<th{kind}>{_escape(title.lstrip('#'))}</th>" for kind, title in zip(kinds, head, strict=True))
    first = f"<thead><tr>{''.join(cells)}</tr></thead>" if any(head) else ""
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{_escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>\n"
        for row in rows
    )
    return f'<div class="scroll"><table>{first}<tbody>\n{body}</tbody></table></div>'


def _bar(share: float) -> Raw:
    return Raw(f'<span class="bar"><i style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></i></span>')


def _number(value: int | None) -> str:
    return "" if value is None else count(value)


def _heading(text: str) -> str:
    return f"<h2>{_escape(text)}</h2>"


def _note(text: str) -> str:
    return f'<p class="note">{_escape(text)}</p>'


def _block(text: str, bad: bool = False) -> str:
    kind = ' class="bad"' if bad else ""
    return f"<pre{kind}>{_escape(text)}</pre>"


def _escape(value: object) -> str:
    return value if isinstance(value, Raw) else escape(str(value))
