"""The picture of a plan: all words can be read, colours and widths say what the numbers say, and the file is whole."""

import errno
import os
import warnings
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path

import forecast_samples as samples
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import FancyBboxPatch, PathPatch

from dpa.driver.forecast import Forecast
from dpa.report import ReportError, draw_plan
from dpa.report._pictures import LEVEL_COLOURS, _figure, _sharpness
from dpa.report._plan_content import Level
from dpa.report.plots import GRID, settings


def nasty() -> Forecast:
    """Names that are no identifiers, and a fan-out of nine."""
    names = ["$x^2$", "東京特許許可局", "two\nlines", "x" * 64, "a-b-c", "%s {0}", "<b>", "\u202eleft", "\ud800"]
    stages = [samples.source("a", "read A"), *(samples.keyed(name, name, (9, 1), name, 9) for name in names)]
    return samples.forecast(stages, *(("a", name, [f"map {name}", "key by b"], 10) for name in names))


def parallel() -> Forecast:
    """Three edges between the same stages, with more words than there is room for beside the line."""
    edges = [("a", "b", [f"filter f{place}", "map g", "flat_map h", "key by c"], 10) for place in range(3)]
    return samples.forecast([samples.source("a", "read A"), samples.keyed("b", "union", (20, 10))], *edges)


SAMPLES = {
    **samples.SAMPLES,
    "parallel edges": parallel,
    "nasty names": nasty,
    "placed": samples.placed,
    "placed on one node": lambda: samples.placed(1),
    "placed on many nodes": lambda: samples.placed(40),
    "one stage": lambda: samples.chain(1),
    "no stages": lambda: samples.forecast([]),
}

every_sample = pytest.mark.parametrize("made", SAMPLES.values(), ids=SAMPLES)


def drawn(forecast: Forecast) -> Figure:
    with settings({}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = _figure(forecast)
        FigureCanvasAgg(figure).draw()
        return figure


@cache
def sample(made: Callable[[], Forecast]) -> tuple[Forecast, Figure]:
    """A plan, and its picture, which several tests look at."""
    forecast = made()
    return forecast, drawn(forecast)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def left_behind(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@every_sample
def test_no_words_are_cut_and_none_lie_over_others(made: Callable[[], Forecast]) -> None:
    _, figure = sample(made)
    extents = [text.get_window_extent() for text in figure.axes[0].texts]
    width, height = figure.get_size_inches() * figure.dpi
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height for box in extents)
    assert not any(one.shrunk(0.98, 0.8).overlaps(other.shrunk(0.98, 0.8)) for one, other in combinations(extents, 2))


@every_sample
def test_words_of_a_stage_lie_in_its_box(made: Callable[[], Forecast]) -> None:
    forecast, figure = sample(made)
    extents = [text.get_window_extent() for text in figure.axes[0].texts]
    boxes = [patch.get_window_extent() for patch in figure.axes[0].patches if isinstance(patch, FancyBboxPatch)]
    inside = [sum(box.contains(*end.min) and box.contains(*end.max) for box in boxes[::3]) for end in extents]
    crossing = [sum(box.overlaps(end) for box in boxes[::3]) for end in extents]
    assert crossing == inside
    assert sum(inside) >= 3 * len(forecast.stages)


def test_a_stage_says_its_tasks_records_and_skew_and_an_edge_its_operators_and_records() -> None:
    assert texts(drawn(samples.trending()))[:17] == [
        "sample: forecast from a sample; arrows are as wide as its records",
        "tweets",
        "read Tweets",
        "2 tasks, 50.0k records/s,",
        "20,000,000 rows,",
        "100,000 sampled",
        "counts",
        "reduce Count by tag",
        "4 tasks, ~55.3k records/s",
        "S 0.523: uneven",
        "hot key tag0",
        "partial",
        "reduce Ranking by letter",
        "2 tasks,",
        "sample: 18,300 records",
        "S 0.082: slightly uneven",
        "ranking",
    ]
    assert texts(drawn(samples.trending()))[-8:-5] == ["flat_map hashtags", "key by tag", "~55.3k records/s"]


def test_below_the_graph_stand_the_nodes_and_what_allocators_would_give() -> None:
    rows = texts(drawn(samples.placed()))
    assert any(row.startswith("placement: allocator top_down, costs declared; ") for row in rows)
    node = rows.index("a (4)")
    assert rows[node : node + 5] == ["a (4)", "40.0%", "0.00", "1.00k", "2 mapper, 3 reducer"]
    chosen = rows.index("top_down")
    assert rows[chosen : chosen + 6] == ["top_down", "64.0%", "2.00", "80.0%", "1.00", "chosen"]
    assert [row for row in rows if row in ("top_down", "even", "exact", "refuses")] == [
        "top_down",
        "even",
        "exact",
        "refuses",
    ]
    assert "and 8 more nodes" in texts(drawn(samples.placed(40)))
    assert not any("allocators" in row for row in texts(drawn(samples.placed(1))))


def test_a_box_has_the_colour_of_how_even_its_stage_is() -> None:
    patches = [patch for patch in drawn(samples.bargains()).axes[0].patches if isinstance(patch, FancyBboxPatch)]
    frames = [to_hex(patch.get_edgecolor()) for patch in patches[2::3]]
    slightly, even = LEVEL_COLOURS[Level.SLIGHTLY_UNEVEN], LEVEL_COLOURS[Level.EVEN]
    assert frames == [GRID, GRID, slightly, slightly, even]
    assert len(set(LEVEL_COLOURS.values())) == len(Level)


@every_sample
def test_arrows_are_as_wide_as_their_records(made: Callable[[], Forecast]) -> None:
    forecast, figure = sample(made)
    lines = [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]
    widths = [line.get_linewidth() for line in lines]
    records = [edge.records for edge in forecast.edges]
    assert [width for _, width in sorted(zip(records, widths, strict=True))] == sorted(widths)
    assert len(set(widths)) == len(set(records))


@pytest.mark.parametrize(
    ("size", "sharpness"), [((500, 300), 2.0), ((40_000, 500), 0.8), ((20_000, 8_000), 0.5)], ids=str
)
def test_very_large_graphs_are_drawn_coarsely(size: tuple[float, float], sharpness: float) -> None:
    assert _sharpness(*size) == pytest.approx(sharpness)


@every_sample
def test_every_graph_is_drawn_to_a_file_without_a_warning(made: Callable[[], Forecast], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_plan(made(), tmp_path / "plan.png")
    assert imread(tmp_path / "plan.png").shape[2] == 4
    assert left_behind(tmp_path) == ["plan.png"]


def test_the_same_plan_is_the_same_file(tmp_path: Path) -> None:
    for name in ("one.png", "other.png"):
        draw_plan(samples.bargains(), str(tmp_path / name))
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "other.png").read_bytes()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing/plan.png", "No such file or directory"),
        ("directory", "Is a directory"),
        ("file/plan.png", "Not a dir"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_with_the_cause(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match=f"{tmp_path / name}: cannot write the picture of the plan: {why}"):
        draw_plan(samples.word_count(), tmp_path / name)
    assert left_behind(tmp_path) == ["directory", "file"]
    assert left_behind(tmp_path / "directory") == []


def test_on_a_full_disk_an_older_picture_stays_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "plan.png").write_bytes(b"older")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError, match="the disk is full; name another file"):
        draw_plan(samples.word_count(), tmp_path / "plan.png")
    assert left_behind(tmp_path) == ["plan.png"]
    assert (tmp_path / "plan.png").read_bytes() == b"older"
