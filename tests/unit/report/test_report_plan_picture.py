"""The picture of a plan: all words can be read, colours and widths say what the numbers say, and the file is whole."""

import errno
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import forecast_samples as samples
import pytest

from dpa.driver.forecast import Forecast
from dpa.report import ReportError, draw_plan
from dpa.report._drawing import GREY, LEVEL_COLOURS
from dpa.report._plan_content import Level

SVG = "{http://www.w3.org/2000/svg}"


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
    "one stage": lambda: samples.chain(1),
    "no stages": lambda: samples.forecast([]),
}

every_sample = pytest.mark.parametrize("made", SAMPLES.values(), ids=SAMPLES)


def drawn(forecast: Forecast, directory: Path) -> ET.Element:
    draw_plan(forecast, directory / "plan.svg")
    return ET.fromstring((directory / "plan.svg").read_text(encoding="utf-8"))


def number(element: ET.Element, name: str) -> float:
    return float(element.get(name, "nan"))


def extent(text: ET.Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a line of words, whose characters are as wide, or twice as wide."""
    half = sum(1 + (character > "\u1100") for character in text.text or "") * 6.65 / 2
    return number(text, "x") - half, number(text, "y") - 10, number(text, "x") + half, number(text, "y") + 3


def left_behind(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@every_sample
def test_words_lie_whole_in_the_box_of_their_stage_and_over_no_others_and_arrows_are_as_wide_as_their_records(
    made: Callable[[], Forecast], tmp_path: Path
) -> None:
    forecast = made()
    picture = drawn(forecast, tmp_path)
    extents = [extent(text) for text in picture.iter(f"{SVG}text")]
    size = number(picture, "width") + 1, number(picture, "height") + 1
    assert all(left >= 0 and top >= 0 and right <= size[0] and low <= size[1] for left, top, right, low in extents)
    for one, other in combinations(extents, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    for group in picture.iter(f"{SVG}g"):
        [box] = group.iter(f"{SVG}rect")
        left, top = number(box, "x"), number(box, "y")
        right, bottom = left + number(box, "width") + 1, top + number(box, "height") + 1
        found = [extent(text) for text in group.iter(f"{SVG}text")]
        assert len(found) >= 3
        assert all(left <= x and top <= y and end <= right and low <= bottom for x, y, end, low in found)
    lines = [path for path in picture.iter(f"{SVG}path") if path.get("fill") == "none"]
    widths, records = [number(line, "stroke-width") for line in lines], [edge.records for edge in forecast.edges]
    assert [width for _, width in sorted(zip(records, widths, strict=True))] == sorted(widths)
    assert len(set(widths)) == len(set(records))


def test_a_stage_says_its_tasks_records_and_skew_and_an_edge_its_operators_and_records(tmp_path: Path) -> None:
    found = [text.text or "" for text in drawn(samples.trending(), tmp_path).iter(f"{SVG}text")]
    assert found[:10] == [
        *("tweets", "read Tweets", "2 tasks, 50.0k records/s,", "20,000,000 rows,", "100,000 sampled"),
        *("counts", "reduce Count by tag", "4 tasks, ~55.3k records/s", "S 0.523: uneven", "hot key tag0"),
    ]
    label = found.index("flat_map hashtags")
    assert found[label : label + 3] == ["flat_map hashtags", "key by tag", "~55.3k records/s"]
    # a box has the colour of how even its stage is
    frames = [box.get("stroke") for box in drawn(samples.bargains(), tmp_path).iter(f"{SVG}rect")]
    slightly, even = LEVEL_COLOURS[Level.SLIGHTLY_UNEVEN], LEVEL_COLOURS[Level.EVEN]
    assert frames == [GREY, GREY, slightly, slightly, even]
    assert len(set(LEVEL_COLOURS.values())) == len(Level)


def test_a_picture_fetches_nothing_and_stays_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_plan(nasty(), tmp_path / "plan.svg")
    text = (tmp_path / "plan.svg").read_text(encoding="utf-8")
    assert not re.search(r"href|url\(|<script|<b>", text)
    assert left_behind(tmp_path) == ["plan.svg"]

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError, match="the disk is full; name another file"):
        draw_plan(samples.word_count(), tmp_path / "plan.svg")
    assert left_behind(tmp_path) == ["plan.svg"]
    assert (tmp_path / "plan.svg").read_text(encoding="utf-8") == text


def test_a_file_that_cannot_be_written_is_named_with_the_cause(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    for name, why in (
        ("missing/plan.svg", "No such file or directory"),
        ("directory", "Is a directory"),
        ("file/plan.svg", "Not a dir"),
    ):
        with pytest.raises(ReportError, match=f"{tmp_path / name}: cannot write the picture of the plan: {why}"):
            draw_plan(samples.word_count(), tmp_path / name)
    assert left_behind(tmp_path) == ["directory", "file"]
    assert left_behind(tmp_path / "directory") == []
