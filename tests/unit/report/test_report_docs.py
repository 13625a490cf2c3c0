"""docs/report.md shows plans as they are printed, and the class of each field of a report describes it."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from forecast_samples import bargains
from pydantic import TypeAdapter

from dpa import result
from dpa.driver.forecast import Forecast
from dpa.report import schema, show_plan

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", [schema(), TypeAdapter(Forecast).json_schema()])
def test_the_class_of_each_field_describes_it_and_is_in_the_reference(document: dict[str, Any]) -> None:
    for made in [document, *document["$defs"].values()]:
        attributes = made.get("description", "").partition("\nAttributes:\n")[2]
        named = {
            name for names in re.findall(r"^    (\w[\w, ]*): ", attributes, re.MULTILINE) for name in names.split(", ")
        }
        fields = {name for name, found in made.get("properties", {}).items() if "description" not in found}
        assert fields - {"schema"} <= named, made["title"]
    api = (ROOT / "docs" / "site" / "api.rst").read_text(encoding="utf-8")
    assert [name for name in document["$defs"] if name not in result.__all__ and f".{name}\n" not in api] == []


def test_the_page_shows_plans_as_they_are_printed() -> None:
    stream, last = io.StringIO(), "-> matched, above"
    show_plan(bargains(), stream, width=80)
    shown = stream.getvalue()
    assert f"```\n{shown[: shown.index(last)]}{last}\n```" in PAGE
