"""The pictures of a stage: queue lengths over time, records of each task, and the distribution of keys.

Each function makes a matplotlib `Figure` of its own, without pyplot: no window, no global figure, no setting left
behind. `svg` makes it a fragment of a page; `figure.savefig(path)` writes any other format. Nothing is measured here.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpa.balance.decision import Decision
from dpa.errors import ConfigError
from dpa.result import HotKey, KeyDistribution, StageReport, TaskReport
from dpa.result.text import key_text, one_line, percent, plural, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES = 16
"""Beyond this many tasks, queues are drawn as bands of quantiles, and bars have no numbers."""
MAX_BARS = 64
"""Beyond this many tasks, their records are drawn as one stepped outline, in descending order."""
MAX_MARKS = 40
"""Up to this many redistributions are labelled with their task; more are only marked."""
MAX_NAMED_KEYS = 8

# Okabe and Ito's colours without black and yellow, which are invisible on dark or on light paper, and two of Tol's.
# Lines beyond the eighth are dashed.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#aa4499")
INK, GRID = "#333333", "#cccccc"
"""Text and axes; grid and faint marks."""
PAPER = "#fefefe"
"""What lies behind a picture. `svg` turns these three into the colours of the page."""
SIZE = (7.2, 3.0)  # inches

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": ["DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    **dict.fromkeys(
        ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "text.color", "xtick.color", "ytick.color"), INK
    ),
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a key is a dollar sign
}


def check_pictures() -> None:
    """ConfigError if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise ConfigError("pictures need matplotlib: pip install 'dpa[pictures]'")


def queue_lengths(stage: StageReport) -> Figure:
    """Queue length of each task over the seconds of the stream, redistributions marked at their moment."""
    with _figure() as (figure, axes):
        axes.set_xlabel("time since the stream began (s)")
        axes.set_ylabel("queue length (records)")
        if not stage.samples or not stage.samples[0].queues:
            return _nothing(figure, axes, "no samples: the stream ended before the first was taken")
        at = np.array([sample.at for sample in stage.samples])
        queues = np.array([sample.queues for sample in stage.samples], dtype=float)
        if queues.shape[1] <= MAX_LINES:
            known = [task.id for task in stage.tasks]
            names = [str(known[place] if place < len(known) else place) for place in range(queues.shape[1])]
            axes.plot(at, queues, linewidth=1.3, label=names)
            _legend(axes, one_line(stage.name, 20))
        else:
            _bands(axes, at, queues)
            _legend(axes, f"of {queues.shape[1]} queues")
        axes.set_ylim(bottom=0, top=max(queues.max() * 1.12, 1))
        axes.set_xlim(0, max(at[-1], *(decision.at for decision in stage.redistributions), 1e-3))
        axes.yaxis.set_major_formatter(_thousands)
        _mark(axes, stage.redistributions)
        return figure


def records_per_task(stage: StageReport) -> Figure:
    """Records that each task processed, against its even share: one line, unless tasks came or went."""
    with _figure() as (figure, axes):
        axes.set_xlabel(one_line(stage.name, 40))
        axes.set_ylabel("records processed")
        tasks = list(stage.tasks)
        if not any(task.processed for task in tasks):
            return _nothing(figure, axes, "no records were processed")
        if len(tasks) <= MAX_BARS:
            _bars(axes, [task.id for task in tasks], [task.processed for task in tasks])
        else:
            tasks.sort(key=lambda task: -task.processed)
            axes.set_xlabel("tasks, the busiest first")
            axes.stairs(
                [task.processed for task in tasks], np.arange(len(tasks) + 1) - 0.5, fill=True, color=COLOURS[0]
            )
            axes.set_xlim(-0.5, len(tasks) - 0.5)
            axes.set_xticks([])
        axes.grid(visible=False, axis="x")
        top = max(_even_shares(axes, tasks), *(task.processed for task in tasks))
        axes.set_ylim(0, top * 1.12)
        axes.yaxis.set_major_formatter(_thousands)
        return figure


def key_distribution(stage: StageReport) -> Figure:
    """Share of all records that the most frequent keys hold together, by their number; the hot keys are named."""
    with _figure() as (figure, axes):
        found = stage.key_distribution
        axes.set_xlabel("most frequent keys (number, log scale)")
        axes.set_ylabel("share of records (%)")
        if not found.ranks:
            return _nothing(figure, axes, "no key distribution was taken")
        axes.set_xscale("log")
        ranks = np.array(found.ranks, dtype=float)
        shares = 100 * np.array(found.cumulative_share)
        axes.plot(ranks, shares, color=COLOURS[0], linewidth=1.6, label=plural(found.distinct, "key"))
        last = max(found.distinct, int(ranks[-1]), 2)
        equal = np.geomspace(1, last, 200)
        equal_style: dict[str, Any] = {"color": COLOURS[5], "linewidth": 1.1, "linestyle": (0, (4, 2))}
        axes.plot(equal, 100 * equal / last, label="if all were equal", **equal_style)
        _name_hot_keys(axes, found, stage.hot_keys)
        axes.set_xlim(0.9, last * 1.1)
        axes.set_ylim(0, 103)
        axes.xaxis.set_major_formatter(_thousands)
        axes.xaxis.set_minor_formatter("")
        _legend(axes, None)
        return figure


PICTURES = {
    "queue-lengths": queue_lengths,
    "records-per-task": records_per_task,
    "key-distribution": key_distribution,
}
"""The pictures of an operator stage by name."""


def svg(figure: Figure, name: str) -> str:
    """`figure` as an `<svg>` element in the colours of the page around it; `name` keeps its identifiers apart.

    The page sets `color` and the font for text and axes, and the custom properties `--grid` and `--paper`. The same
    figure always gives the same text.
    """
    text = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with settings({"svg.hashsalt": name}), warnings.catch_warnings():
        # The reader's fonts draw the text, not matplotlib's, so what the latter lack does not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    drawing = text.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    colours = {INK: "currentColor", GRID: "var(--grid)", PAPER: "var(--paper)", "'DejaVu Sans'": "inherit"}
    for ours, theirs in colours.items():
        drawing = drawing.replace(ours, theirs)
    width = figure.get_size_inches()[0] * 96
    least = 0.7 * width if width > 96 * SIZE[0] else 0.0  # what is wider than a page is scrolled, not made tiny
    return drawing.replace("<svg ", f'<svg style="max-width:{1.2 * width:.0f}px;min-width:{least:.0f}px" ', 1)


@contextmanager
def settings(changes: dict[Any, Any]) -> Iterator[None]:
    """matplotlib's defaults with `changes`; the user's own style is restored afterwards."""
    import matplotlib
    from matplotlib.rcsetup import cycler

    lines = cycler(linestyle=["-", (0, (3, 1.5))]) * cycler(color=COLOURS)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, "axes.prop_cycle": lines, **changes})
        yield


@contextmanager
def _figure() -> Iterator[tuple[Figure, Axes]]:
    with settings({}):
        from matplotlib.figure import Figure

        figure = Figure(figsize=SIZE, layout="constrained")
        yield figure, figure.add_subplot()


def _thousands(value: float, position: float | None = None) -> str:
    """`0`, `0.5`, `20k`, `3.5M`."""
    if value < 1000:
        return f"{value:g}"
    number, unit = short(value)[:-1], short(value)[-1]
    return f"{float(number.replace(',', '')):g}{unit}"


def _nothing(figure: Figure, axes: Axes, why: str) -> Figure:
    figure.set_size_inches(SIZE[0], 0.4)
    axes.set_axis_off()
    axes.text(0, 0.5, why, transform=axes.transAxes, va="center")
    return figure


def _legend(axes: Axes, title: str | None) -> None:
    columns = math.ceil(len(axes.get_legend_handles_labels()[1]) / 12)
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02), "borderaxespad": 0.4}
    axes.legend(title=title, ncols=columns, columnspacing=1.0, alignment="left", **beside)


def _bars(axes: Axes, tasks: Sequence[int], records: Sequence[int]) -> None:
    """A bar for each task. Few bars have their counts, at the foot, clear of the line of the even share."""
    places = np.arange(len(records))
    axes.bar(places, records, width=0.72, color=COLOURS[0])
    step = math.ceil(len(records) / 32)
    axes.set_xticks(places[::step], [str(task) for task in tasks[::step]])
    axes.set_xlim(-0.6, len(records) - 0.4)
    axes.tick_params(axis="x", length=0)
    for place, number in enumerate(records if len(records) <= MAX_LINES else ()):
        inside = number > max(records) / 5
        upright = inside and len(records) > MAX_LINES // 2
        look: dict[str, Any] = {
            "ha": "center",
            "size": 8,
            "color": "white" if inside else INK,
            "rotation": 90 if upright else 0,
        }
        axes.annotate(short(number), (place, 0 if inside else number), (0, 3), textcoords="offset points", **look)


def _even_shares(axes: Axes, tasks: Sequence[TaskReport]) -> float:
    """One line at the even share of all bars, or one for each if shares differ; returns the greatest."""
    total = sum(task.processed for task in tasks)
    shares = [task.even_share * total for task in tasks]
    top, what = max(shares), "even share"
    look: dict[str, Any] = {"color": COLOURS[5], "linewidth": 1.3}
    if min(shares) == top:
        axes.axhline(top, **look)
    else:
        places = np.arange(len(shares))
        axes.hlines(shares, places - 0.5, places + 0.5, **look)
        what = "even share while it\ntook part, at most"
    edge: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(f"{what}: {short(top)}", (1, top), (6, 0), va="center", **edge)
    return top


def _bands(axes: Axes, at: npt.NDArray[np.float64], queues: npt.NDArray[np.float64]) -> None:
    low, first, middle, third, high = np.quantile(queues, (0, 0.25, 0.5, 0.75, 1), axis=1)
    axes.plot(at, high, color=COLOURS[5], linewidth=1.1, label="longest")
    axes.fill_between(at, low, high, color=COLOURS[0], alpha=0.18, linewidth=0, label="all")
    axes.fill_between(at, first, third, color=COLOURS[0], alpha=0.4, linewidth=0, label="middle half")
    axes.plot(at, middle, color=COLOURS[0], linewidth=1.5, label="median")


def _mark(axes: Axes, redistributions: Sequence[Decision]) -> None:
    """A dashed line under a triangle at each redistribution. Few of them have the task's number."""
    if not redistributions:
        return
    few = len(redistributions) <= MAX_MARKS
    for decision in redistributions:
        axes.axvline(decision.at, color=INK, linewidth=0.8, alpha=0.8 if few else 0.25, linestyle=(0, (2, 2)))
    moments = [decision.at for decision in redistributions]
    top = axes.get_xaxis_transform()
    axes.plot(moments, [1.0] * len(moments), "v", markersize=4, color=INK, transform=top, clip_on=False)
    whose = ", marked with the task whose load caused it" if few else ", each marked"
    axes.set_title(plural(len(redistributions), "redistribution") + whose, pad=14)
    room, free_from = axes.get_xlim()[1] / 60, -math.inf
    for decision in redistributions if few else ():
        if decision.at >= free_from:
            place: dict[str, Any] = {"xycoords": top, "textcoords": "offset points", "ha": "center"}
            axes.annotate(str(decision.reducer), (decision.at, 1.0), (0, 4), size=7, **place)
            free_from = decision.at + room


def _name_hot_keys(axes: Axes, found: KeyDistribution, hot_keys: Sequence[HotKey]) -> None:
    ordered = sorted(hot_keys, key=lambda hot: -hot.records)[:MAX_NAMED_KEYS]
    for rank, hot in enumerate(ordered, start=1):
        share = float(np.interp(math.log(rank), np.log(found.ranks), found.cumulative_share))
        name = key_text(hot.key, 200)
        label = f"{rank}  {name if len(name) <= 20 else name[:19] + '…'}  {percent(hot.share)}"
        axes.plot([rank], [100 * share], "o", markersize=4, color=COLOURS[0], label=label)
