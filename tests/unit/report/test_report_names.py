"""The names and the structure of `report.json`, as they are written down in `report_names.txt` and in its classes.

Programs read them: a name that is added gets a line there, none is removed or renamed under the same schema. And
docs/report.md shows plans as they are printed.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from forecast_samples import bargains
from pydantic import TypeAdapter

from dpa import result
from dpa.driver.forecast import Forecast
from dpa.report import schema, show_plan
from dpa.report._files import jsonable
from dpa.result import Report

NAMES = Path(__file__).with_name("report_names.txt")
RECORDING = Path(__file__).parents[1] / "report_screens.json"


def names(found: Mapping[str, Any], objects: Mapping[str, Any], of: str = "") -> Iterator[str]:
    """Each name of a document with the types of its value, those inside of it below it."""
    found = {**found, **objects.get(found.get("$ref", "").rpartition("/")[2], {})}
    choices = found.get("anyOf", [found])
    if of:
        kinds = (objects.get(each.get("$ref", "").rpartition("/")[2], each) for each in choices)
        yield f"{of}: {' or '.join(each.get('type', 'anything') for each in kinds)}"
    for each in choices:
        whole = {**each, **objects.get(each.get("$ref", "").rpartition("/")[2], {})}
        for name, inner in whole.get("properties", {}).items():
            yield from names(inner, objects, f"{of}.{name}".lstrip("."))
        for part in ("items", "additionalProperties"):
            if isinstance(whole.get(part), dict) and whole[part]:
                yield from names(whole[part], objects, f"{of}[]")


def test_the_document_has_the_names_that_are_written_down() -> None:
    made = schema()
    assert sorted(names(made, made["$defs"])) == NAMES.read_text(encoding="utf-8").splitlines()


def test_a_report_of_a_run_is_written_as_it_was_read() -> None:
    recorded = json.loads(RECORDING.read_text(encoding="utf-8"))["report"]
    report = TypeAdapter(Report).validate_python(recorded)
    assert jsonable(report.to_dict()) == recorded


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
    """Among them a stage that several feed, which is drawn once and referred to elsewhere."""
    stream, last = io.StringIO(), "-> matched, above"
    show_plan(bargains(), stream, width=80)
    shown = stream.getvalue()
    assert f"```\n{shown[: shown.index(last)]}{last}\n```" in PAGE
