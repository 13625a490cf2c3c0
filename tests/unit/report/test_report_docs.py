"""docs/report.md shows plans as they are printed, and names what its tables of classes do not hold."""

import io
import json
import re
from pathlib import Path

from forecast_samples import bargains

from dpa.report import plan_json, show_plan

PAGE = (Path(__file__).parents[3] / "docs" / "report.md").read_text(encoding="utf-8")


def test_the_page_names_the_fields_that_a_plan_has_beside_its_classes() -> None:
    plan = json.loads(plan_json(bargains()))
    fields = {*plan, *(f"edges.{name}" for name in plan["edges"][0])} - {"schema"}
    for name, expected in (("Forecast", fields), ("StageForecast", {*plan["stages"][0]})):
        section = re.search(rf"^### `{name}`.*?(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
        assert section is not None
        assert expected <= {*re.findall(r"^\| `([\w.]+)` \|", section.group(), re.MULTILINE)}


def test_the_page_shows_plans_as_they_are_printed() -> None:
    stream, last = io.StringIO(), "-> matched, above"
    show_plan(bargains(), stream, width=80)
    shown = stream.getvalue().partition("\n\n")[2]
    assert f"```\n{shown[: shown.index(last)]}{last}\n```" in PAGE


def test_the_page_states_the_exit_statuses() -> None:
    assert re.findall(r"^\| ([0-9]+) \|", PAGE, re.MULTILINE) == ["0", "1", "2", "3", "130"]
