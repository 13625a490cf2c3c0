"""The pictures: what is drawn of which run, and that nothing global changes."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
import report_samples as samples
from matplotlib import rcParams
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from dpa.report import plots
from dpa.result import HotKey, KeyDistribution, StageReport


def stage(reducers: int = 4, rounds: int = 4, **changes: Any) -> StageReport:
    """The reduce stage of the usual run."""
    return samples.report(reducers, rounds, **changes).main


STAGES = {
    "four reducers": stage,
    "sixteen reducers": lambda: stage(16, rounds=12),
    "two hundred reducers": lambda: stage(200, rounds=100),
    "one sample": lambda: stage(samples=stage().samples[:1]),
    "nasty keys": lambda: stage(hot_keys=samples.hot_keys(samples.NASTY_KEYS)),
    "one key": lambda: stage(hot_keys=(HotKey("a", 5, 1.0, 5, 5),), key_distribution=KeyDistribution(1, (1,), (1.0,))),
    "nothing": lambda: StageReport("", "operator"),
}


def texts(figure: Figure) -> list[str]:
    (axes,) = figure.axes
    legend = axes.get_legend()
    named = [text.get_text() for text in legend.get_texts()] if legend else []
    return [*named, *(text.get_text() for text in axes.texts), axes.get_title(loc="left")]


@pytest.mark.parametrize("name", plots.PICTURES)
@pytest.mark.parametrize("made", STAGES.values(), ids=STAGES)
def test_every_run_gives_a_picture_without_a_warning(name: str, made: Callable[[], StageReport]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = plots.svg(plots.PICTURES[name](made()), name)
    assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("queue-lengths", "time since the stream began (s)", "queue length (records)"),
        ("records-per-task", "reducer", "records processed"),
        ("key-distribution", "most frequent keys (number, log scale)", "share of records (%)"),
    ],
)
def test_axes_name_their_units(name: str, x: str, y: str) -> None:
    (axes,) = plots.PICTURES[name](stage()).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == (x, y)


def test_up_to_sixteen_reducers_each_have_a_line_of_their_own() -> None:
    figure = plots.queue_lengths(stage(16, rounds=0))
    lines = figure.axes[0].get_lines()
    assert texts(figure)[:16] == [str(reducer) for reducer in range(16)]
    assert len({(line.get_color(), str(line.get_linestyle())) for line in lines}) == 16


def test_more_reducers_are_drawn_as_bands() -> None:
    figure = plots.queue_lengths(stage(17, rounds=0))
    assert texts(figure)[:4] == ["longest", "all", "middle half", "median"]


def test_each_redistribution_is_marked_with_its_reducer() -> None:
    figure = plots.queue_lengths(stage(rounds=3))
    assert texts(figure)[4:7] == ["1", "3", "0"]
    assert texts(figure)[-1] == "3 redistributions, marked with the task whose load caused it"


def test_many_redistributions_are_marked_without_numbers() -> None:
    figure = plots.queue_lengths(stage(rounds=300))
    assert texts(figure)[4:] == ["300 redistributions, each marked"]


def test_the_even_share_is_a_line_with_its_number() -> None:
    assert "even share: 6.00M" in texts(plots.records_per_task(stage()))


def test_tasks_that_came_late_have_a_line_at_the_even_share_of_each() -> None:
    made = stage()
    tasks = tuple(replace(task, even_share=0.1 if task.id == 3 else 0.3) for task in made.tasks)
    figure = plots.records_per_task(replace(made, tasks=tasks))
    (lines,) = (found for found in figure.axes[0].collections if isinstance(found, LineCollection))
    assert [round(segment[0][1] / 2.4e6) for segment in lines.get_segments()] == [3, 3, 3, 1]
    assert "even share while it\ntook part, at most: 7.20M" in texts(figure)


def test_hot_keys_are_named_on_the_curve_and_dollars_stay_dollars() -> None:
    named = texts(plots.key_distribution(stage(hot_keys=samples.hot_keys(("$x^2$", "of", None)))))
    assert named[2:5] == ["1  $x^2$  7.8%", "2  of  3.9%", "3  null  2.6%"]
    assert "$x^2$" in plots.svg(
        plots.key_distribution(stage(hot_keys=samples.hot_keys(("$x^2$",)))), "keys"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("queue-lengths", "no samples: the stream ended before the first was taken"),
        ("records-per-task", "no records were processed"),
        ("key-distribution", "no key distribution was taken"),
    ],
)
def test_a_picture_of_nothing_says_why(name: str, why: str) -> None:
    assert why in texts(plots.PICTURES[name](StageReport("", "operator")))


@pytest.mark.parametrize(
    ("value", "label"), [(0, "0"), (0.5, "0.5"), (20, "20"), (200_000, "200k"), (3_500_000, "3.5M"), (1e7, "10M")]
)
def test_axis_labels_are_short(value: float, label: str) -> None:
    assert plots._thousands(value) == label


def test_the_same_run_gives_the_same_drawing() -> None:
    drawings = {plots.svg(plots.queue_lengths(stage()), "queues") for _ in range(2)}
    assert len(drawings) == 1


def test_a_drawing_takes_its_colours_from_the_page() -> None:
    drawing = plots.svg(plots.queue_lengths(stage()), "queues")
    assert "currentColor" in drawing
    assert "var(--grid)" in drawing
    assert plots.INK not in drawing


def test_the_users_style_neither_shows_nor_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = plots.svg(plots.queue_lengths(stage()), "queues")
    monkeypatch.setitem(rcParams, "lines.linewidth", 9.0)
    monkeypatch.setitem(rcParams, "axes.facecolor", "red")
    before: dict[Any, Any] = dict(rcParams)
    assert plots.svg(plots.queue_lengths(stage()), "queues") == usual
    assert dict(rcParams) == before


def test_drawing_needs_no_pyplot_and_importing_no_matplotlib() -> None:
    program = (
        "import sys, dpa.report, dpa.report.plots\n"
        "assert 'matplotlib' not in sys.modules and 'rich' not in sys.modules\n"
        "import report_samples\n"
        "dpa.report.plots.queue_lengths(report_samples.report().main)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
