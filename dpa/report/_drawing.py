"""Graphs as SVG: the steps of a flow for notebooks, and the stages of a plan as a file. Pages of 400 pixels have room.

A box is drawn below those that feed it: the layout of graphs (`dpa.door.layout`), turned by a right angle. All
characters of the font are as wide, so the size of words is known without drawing them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

from dpa._util.disk import is_full, write_file
from dpa.door.layout import Point, Sizes, bends, layout
from dpa.driver.forecast import Forecast, StageForecast
from dpa.report._files import ReportError
from dpa.report._plan_content import Level, facts, level, verdict, volume
from dpa.result.text import one_line

BLUE, GREY = "#0072b2", "#808080"
LEVEL_COLOURS = {Level.EVEN: "#009e73", Level.SLIGHTLY_UNEVEN: "#e69f00", Level.UNEVEN: "#d55e00"}
_CHARACTER, _LINE, _PADDING = 6.65, 15.0, 10.0
"""In pixels: the width of a character in a font of 11, the height of a line, and the space around words."""
_ARROW, _GAP = 6.0, 30.0
_THINNEST, _WIDEST = 1.5, 8.0
_FONT = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:11px"
_BOX_CHARACTERS, _LABEL_CHARACTERS = 30, 24  # of a plan: where lines are broken
_TIED = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Box:
    """A stage or step: its lines, the first of them bold, and its frame in pixels."""

    lines: Sequence[str]
    colour: str = BLUE
    frame: float = 1.0


@dataclass(frozen=True)
class Arrow:
    """An edge with the lines of its label; `share` of the greatest width."""

    source: str
    target: str
    lines: Sequence[str] = ()
    share: float = 0.0


def graph_svg(boxes: Mapping[str, Box], arrows: Sequence[Arrow], said: str) -> str:
    """The picture of a graph, `said` in words; each of `boxes` comes after those that feed it."""
    sizes = Sizes(
        width=max((len(box.lines) for box in boxes.values()), default=0) * _LINE + _PADDING,
        height=_width_of(line for box in boxes.values() for line in box.lines),
        gap=_GAP + max((len(arrow.lines) for arrow in arrows), default=0) * _LINE,
        port=24.0,
        label_height=_width_of(line for arrow in arrows for line in arrow.lines),
        space=12.0,
    )
    placed = layout(list(boxes), [(arrow.source, arrow.target) for arrow in arrows], sizes)
    drawn = [_arrow(arrow, path, sizes.gap) for arrow, path in zip(arrows, placed.paths, strict=True)]
    drawn += [_box(box, placed.stages[name], sizes) for name, box in boxes.items()]
    drawn += [_words(arrow.lines, at) for arrow, at in zip(arrows, placed.labels, strict=True)]
    size = f'width="{placed.height:.0f}" height="{placed.width:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{_FONT}" role="img" aria-label="{escape(said)}">'
    return f"{head}{''.join(drawn)}</svg>"


def draw_plan(forecast: Forecast, path: str | Path) -> None:
    """Draw the graph of a forecast as an SVG file, which appears complete or not at all, and replaces an older one.
    ReportError if it cannot be written."""
    most = max((edge.records for edge in forecast.edges), default=0) or 1
    arrows = [
        Arrow(edge.source, edge.target, _wrapped([*edge.operators, volume(estimate)], _LABEL_CHARACTERS), share)
        for edge, estimate in zip(forecast.edges, forecast.edge_estimates, strict=True)
        for share in [edge.records / most]
    ]
    boxes = {stage.name: _plan_box(stage, forecast) for stage in forecast.stages}
    said = f"{one_line(str(forecast.config.get('name') or 'plan'))}: forecast from a sample; wide arrows: many records"
    try:
        write_file(Path(path), graph_svg(boxes, arrows, said))
    except OSError as error:
        why = "the disk is full" if is_full(error) else error.strerror
        raise ReportError(f"{path}: cannot write the picture of the plan: {why}; name another file") from error


def _plan_box(stage: StageForecast, forecast: Forecast) -> Box:
    found = level(stage)
    said = [stage.name, stage.does, ", ".join(facts(stage, forecast)), *verdict(stage)]
    return Box(_wrapped(said, _BOX_CHARACTERS), GREY if found is None else LEVEL_COLOURS[found], 1.5)


def _wrapped(said: Iterable[str], characters: int) -> list[str]:
    """Lines of at most `characters`; a part between commas is broken only if it does not fit on a line."""
    lines = []
    for each in map(one_line, said):
        parts = (part.replace(" ", _TIED) if len(part) < characters else part for part in each.split(", "))
        lines += [line.replace(_TIED, " ") for line in wrap(", ".join(parts), characters)]
    return lines


def _width_of(lines: Iterable[str]) -> float:
    # Most scripts beyond Latin, Greek and Cyrillic have characters of twice the width.
    longest = max((sum(1 + (character > "\u1100") for character in line) for line in lines), default=0)
    return longest * _CHARACTER + 2 * _PADDING if longest else 0.0


def _arrow(arrow: Arrow, path: Sequence[Point], gap: float) -> str:
    (down, across), curves = path[0], bends(path, gap, _ARROW)
    line = f"M{across:.1f},{down:.1f}" + "".join(
        " C" + " ".join(f"{x:.1f},{y:.1f}" for y, x in bend) for bend in curves
    )
    tip, middle = path[-1]
    width = _THINNEST + (_WIDEST - _THINNEST) * arrow.share
    half = _ARROW / 2 + width / 2 - _THINNEST / 2
    head = f"M{middle:.1f},{tip:.1f} l-{half:.1f},-{_ARROW:.1f} h{2 * half:.1f} z"
    return (
        f'<path d="{line}" fill="none" stroke="{BLUE}" stroke-opacity="0.6" stroke-width="{width:g}"/>'
        f'<path d="{head}" fill="{BLUE}"/>'
    )


def _box(box: Box, corner: Point, sizes: Sizes) -> str:
    top, left = corner
    size = f'width="{sizes.height:.0f}" height="{sizes.width:.0f}"'
    look = f'fill="{box.colour}" fill-opacity="0.12" stroke="{box.colour}" stroke-width="{box.frame}"'
    words = _words(box.lines, (top + sizes.width / 2, left + sizes.height / 2), is_headed=True)
    return f'<g><rect x="{left:.1f}" y="{top:.1f}" rx="5" {size} {look}/>{words}</g>'


def _words(lines: Sequence[str], centre: Point, *, is_headed: bool = False) -> str:
    down, across = centre
    first = down - len(lines) * _LINE / 2 + 11
    look, bold = f'x="{across:.1f}" text-anchor="middle" fill="currentColor"', ' font-weight="bold"'
    return "".join(
        f'<text {look}{bold * (is_headed and place == 0)} y="{first + place * _LINE:.1f}">{escape(line)}</text>'
        for place, line in enumerate(lines)
    )
