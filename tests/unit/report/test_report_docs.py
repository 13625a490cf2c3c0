"""docs/report.md names every field of report.json, and no other."""

import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
from forecast_samples import bargains, word_count

from dpa.driver.forecast_stages import Basis, EdgeForecast, Estimate, StageForecast
from dpa.report import plan_json, schema, show_plan

PAGE = (Path(__file__).parents[3] / "docs" / "report.md").read_text(encoding="utf-8")
SCHEMA = schema()
OBJECTS = {name: found for name, found in SCHEMA["$defs"].items() if "properties" in found} | {"Report": SCHEMA}


def documented(name: str) -> list[str]:
    section = re.search(rf"^### `{name}`.*?(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `(\w+)` \|", section.group(), re.MULTILINE) if section else []


@pytest.mark.parametrize("name", OBJECTS)
def test_the_page_documents_exactly_the_fields_of(name: str) -> None:
    assert documented(name) == [field for field in OBJECTS[name]["properties"] if field != "schema"]


@pytest.mark.parametrize("part", [StageForecast, EdgeForecast], ids=lambda part: part.__name__)
def test_the_page_documents_exactly_the_fields_of_a_plans(part: type) -> None:
    assert documented(part.__name__) == [*(field.name for field in dataclasses.fields(part)), "estimate"]


def test_the_page_documents_exactly_the_fields_of_a_plan_and_of_its_estimates() -> None:
    section = re.search(r"^## The plan\n.*?(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert re.findall(r"^\| `(\w+)` \|", section.group(), re.MULTILINE) == list(json.loads(plan_json(bargains())))
    assert documented("Estimate") == [field.name for field in dataclasses.fields(Estimate)]
    for basis in Basis:
        assert f"`{basis.value}`: " in PAGE


def test_the_page_shows_plans_as_they_are_printed() -> None:
    for forecast, last in ((word_count(), "the  7.8%  9,300"), (bargains(), "-> matched, above")):
        stream = io.StringIO()
        show_plan(forecast, stream, width=80)
        shown = stream.getvalue().partition("\n\n")[2]
        assert f"```\n{shown[: shown.index(last)]}{last}\n```" in PAGE


def test_the_page_names_every_outcome_of_a_decision() -> None:
    for outcome in SCHEMA["$defs"]["Outcome"]["enum"]:
        assert f"`{outcome}`" in PAGE


def test_the_page_states_the_exit_statuses() -> None:
    assert re.findall(r"^\| ([0-9]+) \|", PAGE, re.MULTILINE) == ["0", "1", "2", "3", "130"]
