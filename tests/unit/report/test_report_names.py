"""The names and the structure of `report.json`, as they are written down in `report_names.txt`.

Programs read them: a name that is added gets a line there, none is removed or renamed under the same schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dpa.report import schema
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
