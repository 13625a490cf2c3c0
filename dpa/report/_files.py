"""The files of a report: its data as JSON, and the page. They are written to a temporary name, and then renamed.

docs/report.md and `schema()` describe `report.json`, and the JSON of a plan."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from dpa._secrets import without_secrets
from dpa._util.as_yaml import as_yaml
from dpa._util.disk import is_there, why, without_links, write_file
from dpa._util.version import REPORT
from dpa.door.page import page_of
from dpa.door.view import View, view_of_report
from dpa.errors import ConfigError, DpaError
from dpa.result import Report
from dpa.result.text import key_text

if TYPE_CHECKING:
    from dpa.driver.forecast import Estimate, Forecast

_LINE_COLUMNS = 120


class ReportError(DpaError):
    """The report, or the picture of a plan, cannot be written where it was wanted."""


def check_directory(directory: Path, taken: Mapping[str, str]) -> None:
    """ConfigError if a job's report cannot be written into `directory`, or `directory` lies in one of `taken`: those of
    its results and partial results, by the key that names each. Nothing is left behind."""
    place = without_links(directory)
    for key, path in taken.items():
        if without_links(path) in (place, *place.parents):
            raise ConfigError(f"--report: {directory} lies in {key}, {path}, which holds results alone")
    try:
        while not is_there(place):
            place = place.parent
        TemporaryFile(dir=place).close()
    except OSError as error:
        beneath = f" ({place})" if place != without_links(directory) else ""
        raise ConfigError(
            f"--report: cannot write to {directory}: {error.strerror}{beneath}; name another directory"
        ) from None


def write(report: Report, directory: Path, events: Mapping[str, bytes] | None = None) -> list[Path]:
    """Write the report into `directory`, which is created if it does not exist; return the files' paths, the page last.
    `events` are files by name for the directory `events` in it; those of an earlier job are removed.

    A file appears complete or not at all, and replaces an older one of its name. ReportError if one cannot be written.
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # The data first: the page is made of it.
        data = write_file(directory / "report.json", to_json(report) + "\n")
        resolved = write_file(directory / "resolved.yaml", as_yaml(report.config, width=120))
        recorded = _write_events(directory / "events", events or {})
        page = write_file(directory / "report.html", page_of(view_of_report(report)))
        return [data, resolved, *([recorded] if events else []), page]
    except OSError as error:
        raise ReportError(f"{directory}: cannot write the report: {why(error)}") from error


def write_page(path: Path, view: View) -> None:
    """Write the page of a view. ReportError if it cannot be written."""
    try:
        write_file(path, page_of(view))
    except OSError as error:
        raise ReportError(f"{path}: cannot write the page: {why(error)}; name another file") from error


def _write_events(directory: Path, events: Mapping[str, bytes]) -> Path:
    """Make a directory's files of events these and no others. An empty directory is removed."""
    for old in directory.glob("*.events"):
        old.unlink()
    if events:
        directory.mkdir(exist_ok=True)
    elif directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
    for name, content in events.items():
        write_file(directory / name, content, mode=0o600)
    return directory


def to_json(report: Report) -> str:
    """Strict JSON in ASCII, fit for any pipe; docs/report.md describes each field."""
    return document(report.to_dict())


def plan_json(forecast: Forecast) -> str:
    """Strict JSON in ASCII; docs/report.md describes each field."""
    return document(
        {
            "schema": "dpa-plan-2",
            "config": forecast.config,
            "stages": _with_estimates(forecast.stages, [forecast.estimates[stage.name] for stage in forecast.stages]),
            "edges": _with_estimates(forecast.edges, forecast.edge_estimates),
            "joins": [dataclasses.asdict(join) for join in forecast.joins],
            "placement": None if forecast.placement is None else dataclasses.asdict(forecast.placement),
        }
    )


def _with_estimates(parts: Sequence[Any], estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    return [
        {**dataclasses.asdict(part), "estimate": dataclasses.asdict(estimate)}
        for part, estimate in zip(parts, estimates, strict=True)
    ]


def schema() -> dict[str, Any]:
    """The JSON schema of `report.json`."""
    made = TypeAdapter(Report).json_schema(mode="serialization")
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["properties"] = {"schema": {"const": REPORT, "title": "Schema"}, **made["properties"]}
    made["required"] = ["schema", *made["required"]]
    return made


def document(data: dict[str, Any]) -> str:
    """`data` as strict JSON in ASCII, without the secrets of its configuration.

    Numbers that JSON lacks (NaN, infinities) are null, enums are their values, bytes a Python literal (`b'\\xff'`).
    """
    tree: dict[str, Any] = jsonable(data)
    return _dumped({**tree, "config": without_secrets(tree["config"])})


def _dumped(value: Any, indent: str = "") -> str:
    """JSON with each value that fits on one line, and each list of numbers, on one line."""
    compact = json.dumps(value, allow_nan=False)
    if len(indent) + len(compact) <= _LINE_COLUMNS or not value or not isinstance(value, (dict, list)):
        return compact
    deeper = indent + "  "
    if isinstance(value, dict):
        items = [f"{deeper}{json.dumps(name)}: {_dumped(item, deeper)}" for name, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if all(isinstance(item, (int, float)) for item in value):
        return compact
    return "[\n" + ",\n".join(deeper + _dumped(item, deeper) for item in value) + f"\n{indent}]"


def jsonable(value: Any) -> Any:
    """`value` in JSON's types alone. docs/report.md, "How values are written", states the rule for each other type."""
    if isinstance(value, Enum):
        return jsonable(value.value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates are no Unicode text
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return repr(bytes(value))
    if isinstance(value, Mapping):
        named = ((str(jsonable(of)) if isinstance(of, str) else key_text(of), item) for of, item in value.items())
        return {name: jsonable(item) for name, item in named}
    if isinstance(value, Set):
        return sorted((jsonable(item) for item in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if hasattr(value, "item"):  # a numpy scalar
        return jsonable(value.item())
    return str(value)  # a path, a date, a decimal
