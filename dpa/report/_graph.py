"""The graph of a run as an SVG drawing: one look finds the stage that limits it.

A stage is filled from the left by its busy share; the one that limits the run has a heavy border. An edge is as wide as
its share of the records, and in the warning colour if its sender was blocked because of it. The page gives the colours.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dpa.measure.bottleneck import BLOCKED
from dpa.report._layout import PAGE, Layout, Point, bends, layout
from dpa.report._text import one_line, plural, short, skew
from dpa.result import EdgeReport, Report, StageReport

NAME_CHARACTERS = 18
_THINNEST, _WIDEST = 1.5, 7.0
_LINE = 17.0
_ARROW = 7.0


def draw(report: Report) -> str:
    """The graph of a report as an `<svg>` element; empty if nothing is known of any stage."""
    if not report.stages:
        return ""
    pairs = [(edge.source, edge.target) for edge in report.edges]
    placed = layout([stage.name for stage in report.stages], pairs)
    body = "\n".join((*_edges(report, placed), *_stages(report, placed)))
    size = f"{placed.width:.0f} {placed.height:.0f}"
    limits = f"max-width:{placed.width:.0f}px;min-width:{0.75 * placed.width:.0f}px"
    return f'<svg viewBox="0 0 {size}" style="{limits}" class="graph">\n{body}\n</svg>'


def _stages(report: Report, placed: Layout) -> Iterator[str]:
    for stage in report.stages:
        x, y = placed.stages[stage.name]
        limits = ' class="limit"' if stage.name == report.bottleneck.stage else ""
        name = one_line(stage.name)
        short_name = name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"
        yield f'<g transform="translate({x:.1f} {y:.1f})"{limits}><title>{escape(name)}</title>'
        yield f'<rect class="back" width="{PAGE.width:.0f}" height="{PAGE.height:.0f}" rx="6"/>'
        yield f'<rect class="busy" width="{PAGE.width * stage.load.busy:.1f}" height="{PAGE.height:.0f}" rx="6"/>'
        yield f'<rect class="frame" width="{PAGE.width:.0f}" height="{PAGE.height:.0f}" rx="6"/>'
        yield f'<text x="10" y="20" class="name">{escape(short_name)}</text>'
        for number, (words, warns) in enumerate(_facts(stage), start=1):
            kind = ' class="warns"' if warns else ""
            yield f'<text x="10" y="{20 + _LINE * number:.0f}"{kind}>{escape(words)}</text>'
        yield "</g>"


def _facts(stage: StageReport) -> Iterator[tuple[str, bool]]:
    """The lines below a stage's name, each with whether it warns."""
    load = stage.load
    rows = f", {short(stage.records.read)} rows" if stage.kind == "source" else ""
    if stage.skew is not None and stage.records.processed:
        rows = f", S {skew(stage.skew.dpa)}"
    yield f"{plural(stage.present, 'task')}{rows}", False
    yield f"busy {load.busy:.0%}, busiest {load.busiest:.0%}", False
    yield f"blocked {load.blocked:.0%}", load.blocked >= BLOCKED
    if stage.kind == "operator":
        yield f"queue {short(load.mean_queue)}, peak {short(load.peak_queue)}", False


def _edges(report: Report, placed: Layout) -> Iterator[str]:
    """All lines, and above them all labels."""
    most = max((edge.records for edge in report.edges), default=0) or 1
    for edge, path in zip(report.edges, placed.paths, strict=True):
        width = _THINNEST + (_WIDEST - _THINNEST) * edge.records / most
        kind = "edge warns" if edge.blocked else "edge"
        yield f'<path class="{kind}" d="{_curve(path)}" stroke-width="{width:.1f}"/>'
        x, y = path[-1]
        yield f'<path class="head{kind.removeprefix("edge")}" d="M{x:.1f} {y:.1f}l{-_ARROW} {-_ARROW}v{2 * _ARROW}z"/>'
    for edge, (x, y) in zip(report.edges, placed.labels, strict=True):
        yield _label(edge, x, y)


def _label(edge: EdgeReport, x: float, y: float) -> str:
    left, top = x - PAGE.label_width / 2, y - PAGE.label_height / 2
    kind = "label warns" if edge.blocked else "label"
    size = f'width="{PAGE.label_width:.0f}" height="{PAGE.label_height:.0f}"'
    back = f'<rect class="paper" x="{left:.1f}" y="{top:.1f}" {size}/>'
    return f'{back}<text class="{kind}" x="{x:.1f}" y="{y + 4:.1f}">{short(edge.records)}</text>'


def _curve(path: tuple[Point, ...]) -> str:
    words = [" ".join(f"{x:.1f} {y:.1f}" for x, y in bend) for bend in bends(path, PAGE.gap, _ARROW)]
    return f"M{path[0][0]:.1f} {path[0][1]:.1f}" + "".join(f"C{each}" for each in words)
