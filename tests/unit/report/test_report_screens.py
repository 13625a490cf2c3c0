"""The README's pictures of a terminal are what the code draws of a recorded run."""

import re
from pathlib import Path

import pytest
import report_screens


@pytest.mark.parametrize("path", report_screens.screens(), ids=lambda path: path.name)
def test_a_picture_of_a_screen_is_what_the_code_draws(path: Path) -> None:
    drawn = report_screens.screens()[path]
    assert path.read_text(encoding="utf-8") == drawn, "draw it again: python tests/unit/report_screens.py"


def test_the_readme_shows_the_pictures_which_fetch_nothing() -> None:
    readme = (report_screens.ROOT / "README.md").read_text(encoding="utf-8")
    for path, drawn in report_screens.screens().items():
        assert f"({path.relative_to(report_screens.ROOT).as_posix()})" in readme
        assert "url(http" not in drawn
        assert "@font-face" not in drawn


def test_the_picture_of_the_panel_shows_one_snapshot_after_the_other() -> None:
    [film] = [drawn for path, drawn in report_screens.screens().items() if path.name == "run-live.svg"]
    frames = re.findall(r"([\d.]+)% \{ transform: translateY\(([-\d.]+)px\) \}", film)
    shares, places = [float(share) for share, _ in frames], [float(place) for _, place in frames]
    assert 5 < len(frames) == film.count("╭─")  # each has the corner of a frame
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] < 100
    assert places == sorted(places, reverse=True) and len(set(places)) == len(places)
    assert "prefers-reduced-motion" in film
