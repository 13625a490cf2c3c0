"""docs/report.md names every field of report.json, and no other."""

import dataclasses
import re
from pathlib import Path

import pytest

from dpa.driver.forecast import Forecast
from dpa.report import schema

PAGE = (Path(__file__).parents[3] / "docs" / "report.md").read_text(encoding="utf-8")
SCHEMA = schema()
OBJECTS = {name: found for name, found in SCHEMA["$defs"].items() if "properties" in found} | {"Report": SCHEMA}


def documented(name: str) -> list[str]:
    section = re.search(rf"^### `{name}`.*?(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `(\w+)` \|", section.group(), re.MULTILINE) if section else []


@pytest.mark.parametrize("name", OBJECTS)
def test_the_page_documents_exactly_the_fields_of(name: str) -> None:
    assert documented(name) == [field for field in OBJECTS[name]["properties"] if field != "schema"]


def test_the_page_documents_exactly_the_fields_of_a_plan() -> None:
    section = re.search(r"^## The plan\n.*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    named = re.findall(r"^\| `(\w+)` \|", section.group(), re.MULTILINE)
    assert named == ["schema", *(field.name for field in dataclasses.fields(Forecast))]


def test_the_page_names_every_outcome_of_a_decision() -> None:
    for outcome in SCHEMA["$defs"]["Outcome"]["enum"]:
        assert f"`{outcome}`" in PAGE


def test_the_page_states_the_exit_statuses() -> None:
    assert re.findall(r"^\| ([0-9]+) \|", PAGE, re.MULTILINE) == ["0", "1", "2", "3", "130"]
