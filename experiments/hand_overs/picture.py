"""A story as a space-time diagram: a line for each that takes part, time downwards, an arrow for each message."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.patheffects import withStroke

from experiments.charts import COLOURS, INK
from experiments.hand_overs.story import Arrow, Kind, Story

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    from dpa.protocol.wire.addresses import Address

KIND_COLOURS = {Kind.CONTROL: COLOURS[0], Kind.RECORDS: COLOURS[2], Kind.STATES: COLOURS[5]}
"""Of arrows, and of user code at work."""

_WIDTH = 6.0
"""Of the figure, in inches: GitHub shows it about 800 pixels wide."""

_INCHES_A_SECOND = 440.0
_TOP, _BOTTOM = 0.35, 0.65
"""Room above the first moment that is shown, for names, and below the last, for the legend; in inches."""

_BEFORE, _AFTER = 0.0015, 0.0015
"""Time shown before the first step and after the last, in seconds."""

_LABEL, _TEXT = 7.5, 8.5
"""Sizes of letters, in points."""

_ASIDE_COLOUR, _ASIDE_WIDTH, _WORK_WIDTH = COLOURS[1], 0.34, 0.1
"""Of the stretches in which records are kept aside; widths in inches."""

_TIME = {"arrowstyle": "->", "color": INK, "linewidth": 0.8}


def draw(story: Story) -> Figure:
    """The picture of a story."""
    start, end = story.steps[0].at - _BEFORE, story.steps[-1].at + _AFTER
    height = _TOP + (end - start) * _INCHES_A_SECOND + _BOTTOM
    figure = Figure(figsize=(_WIDTH, height), dpi=144)
    area = (0.02, _BOTTOM / height, 0.96, 1 - (_TOP + _BOTTOM) / height)
    axes = figure.add_axes(area, xlim=(-0.45, len(story.cast) - 0.55), ylim=(end, start))
    axes.set_axis_off()
    places = {who: place for place, who in enumerate(story.cast)}
    _lines(axes, story, places)
    _stretches(axes, story, places)
    arrows = [arrow for arrow in story.arrows if arrow.sent < end and arrow.came > start]
    for arrow in arrows:
        _arrow(axes, arrow, places)
    taken = [_mark(axes, number, places[step.who], step.at) for number, step in enumerate(story.steps, 1)]
    _legend(figure, story)
    _labels(axes, arrows, places, [mark.get_window_extent() for mark in taken])
    return figure


def _lines(axes: Axes, story: Story, places: dict[Address, int]) -> None:
    """A line for each that takes part, while it is there, and its name."""
    end, start = axes.get_ylim()
    for who, name in story.cast.items():
        birth, death = story.lives.get(who, (start, end))
        axes.plot([places[who]] * 2, [max(birth, start), min(death, end)], color=INK, linewidth=0.9, zorder=2)
        axes.text(places[who], start, name, ha="center", va="bottom", size=_TEXT, weight="bold", color=INK)
        if death < end:
            axes.plot(places[who], death, marker="x", color=INK, markersize=7, zorder=5)
    left, middle = axes.get_xlim()[0], start + 0.001
    axes.annotate("", (left, middle + 0.003), (left, middle), arrowprops=_TIME)
    axes.text(left, middle + 0.0015, "time ", size=_LABEL, ha="right", va="center", rotation=90, color=INK)


def _stretches(axes: Axes, story: Story, places: dict[Address, int]) -> None:
    """User code at work, and records kept aside."""
    for stretch in story.stretches:
        width = (_ASIDE_WIDTH if stretch.kind is None else _WORK_WIDTH) / _inches(axes)
        colour = _ASIDE_COLOUR if stretch.kind is None else KIND_COLOURS[stretch.kind]
        corner, length = (places[stretch.who] - width / 2, stretch.start), stretch.end - stretch.start
        alpha, order = (0.35, 1) if stretch.kind is None else (1.0, 3)
        axes.add_patch(Rectangle(corner, width, length, color=colour, alpha=alpha, linewidth=0, zorder=order))


def _inches(axes: Axes) -> float:
    """From one line to the next."""
    left, right = axes.get_xlim()
    return axes.get_position().width * _WIDTH / (right - left)


def _arrow(axes: Axes, arrow: Arrow, places: dict[Address, int]) -> None:
    ends = (places[arrow.sender], arrow.sent), (places[arrow.receiver], arrow.came)
    style = {"arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 0, "shrinkB": 72 * _WORK_WIDTH / 2, "linewidth": 1.0}
    axes.add_patch(FancyArrowPatch(*ends, color=KIND_COLOURS[arrow.kind], zorder=4, **style))


def _mark(axes: Axes, number: int, x: float, y: float) -> Text:
    """The number of a step, in a circle."""
    circle = {"boxstyle": "circle,pad=0.2", "facecolor": INK, "edgecolor": "white", "linewidth": 0.6}
    fixed = {"ha": "center", "va": "center", "color": "white", "weight": "bold", "zorder": 6}
    return axes.text(x, y, str(number), size=_LABEL, bbox=circle, **fixed)


def _labels(axes: Axes, arrows: Iterable[Arrow], places: dict[Address, int], taken: list[Bbox]) -> None:
    """What each arrow is, along it, at the first spot that is free; where none is, at the one with the least there."""
    for arrow in arrows:
        tried: list[tuple[int, Bbox, Text]] = []
        for spot in _spots(axes, arrow, places):
            text = _label(axes, arrow, places, *spot)
            box = text.get_window_extent().padded(-1)
            tried.append((sum(box.overlaps(other) for other in taken), box, text))
            if tried[-1][0] == 0:
                break
        tried.sort(key=lambda found: found[0])
        taken += [box for _, box, _ in tried[:1]]
        for _, _, text in tried[1:]:
            text.remove()


def _spots(axes: Axes, arrow: Arrow, places: dict[Address, int]) -> Iterator[tuple[float, float, str]]:
    """Points of an arrow that are shown, and which side of the label is there, the best ones first: above the arrow,
    between two lines, near its end."""
    end, start = axes.get_ylim()
    first, last = places[arrow.sender], places[arrow.receiver]
    side = 1 if last > first else -1
    for vertical, shift in itertools.product(("bottom", "top"), (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8)):
        for x in range(last, first, -side):
            at = arrow.came - (last - x + side * shift) / (last - first) * (arrow.came - arrow.sent)
            if start < at < end:
                yield x - side * shift, at, vertical


def _label(axes: Axes, arrow: Arrow, places: dict[Address, int], x: float, y: float, vertical: str) -> Text:
    """The arrow's label at this point of it."""
    shown = axes.transData.transform
    (x1, y1), (x2, y2) = (shown((places[arrow.sender], arrow.sent)), shown((places[arrow.receiver], arrow.came)))
    angle = math.degrees(math.atan((y2 - y1) / (x2 - x1)))
    return axes.text(
        x,
        y,
        arrow.label,
        size=_LABEL,
        color=KIND_COLOURS[arrow.kind],
        rotation=angle,
        rotation_mode="anchor",
        ha="center",
        va=vertical,
        path_effects=[withStroke(linewidth=2, foreground="white")],
        zorder=5,
    )


def _legend(figure: Figure, story: Story) -> None:
    """What the colours mean."""
    names = {Kind.CONTROL: "control", Kind.RECORDS: "records", Kind.STATES: "states"}
    arrows = [Line2D([], [], color=KIND_COLOURS[kind], label=name) for kind, name in names.items()]
    work = [
        Patch(color=KIND_COLOURS[kind], label=f"user code works on {names[kind]}")
        for kind in (Kind.RECORDS, Kind.STATES)
    ]
    if any(stretch.kind is None for stretch in story.stretches):
        work.append(Patch(color=_ASIDE_COLOUR, alpha=0.35, label="records are kept aside"))
    figure.legend(handles=[*arrows, *work], loc="lower center", ncols=3, frameon=False, fontsize=_LABEL)
