"""The files of a report: `report.json`, `resolved.yaml` and `report.html`, each written beside and then renamed.

What is in `report.json` is described by docs/report.md and by `schema()`; how the page looks is `html.py`'s.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pydantic import TypeAdapter

from dpa.disk import why
from dpa.errors import ConfigError, DpaError
from dpa.report import html
from dpa.report._plain import plain, resolved
from dpa.result import Report

LINE_COLUMNS = 120


class ReportError(DpaError):
    """The report cannot be written where it was asked for."""


def check_directory(directory: Path, *, output: str | None, rounds: str | None = None) -> None:
    """Check, before a job runs, that its report can be written into `directory`; `output` is where its result goes, and
    `rounds` where its results so far do. Leaves nothing there.

    Raises:
        ConfigError: the directory cannot be made or written to, or lies in one of those.
    """
    place = directory.resolve()
    for key, path, what in (("output", output, "the result"), ("aggregation", rounds, "the results so far")):
        if path is not None and Path(path).resolve() in (place, *place.parents):
            raise ConfigError(f"--report: {directory} lies in {key}.path, {path}, which holds nothing but {what}")
    try:
        while not place.exists():
            place = place.parent
        TemporaryFile(dir=place).close()
    except OSError as error:
        beneath = f" ({place})" if place != directory.resolve() else ""
        raise ConfigError(
            f"--report: cannot write to {directory}: {error.strerror}{beneath}; name another directory"
        ) from None


def write(report: Report, directory: Path) -> list[Path]:
    """Write the report into `directory`, which is made if need be; return the files' paths, the page last.

    A file appears complete or not at all, and replaces an older one of its name. The data comes first, so that a
    picture that cannot be drawn costs nobody the numbers.

    Raises:
        ReportError: the directory cannot be made or written to.
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [
            _write(directory / "report.json", to_json(report) + "\n"),
            _write(directory / "resolved.yaml", resolved(report)),
            _write(directory / "report.html", html.render(report)),
        ]
    except OSError as error:
        raise ReportError(f"{directory}: cannot write the report: {why(error)}") from error


def to_json(report: Report) -> str:
    """The report as strict JSON in ASCII, fit for any pipe; docs/report.md describes each field.

    Numbers that JSON lacks (NaN, infinities) are null, enums their values, bytes a Python literal (`b'\\xff'`).
    """
    return pretty(plain(report))


def schema() -> dict[str, Any]:
    """The JSON schema of `report.json`."""
    made = TypeAdapter(Report).json_schema(mode="serialization")
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["properties"] = {"schema": {"const": "dpa-report-1", "title": "Schema"}, **made["properties"]}
    made["required"] = ["schema", *made["required"]]
    return made


def pretty(value: Any, indent: str = "") -> str:
    """JSON in which what fits on a line is on one line, and numbers of a list always are."""
    compact = json.dumps(value, allow_nan=False)
    if len(indent) + len(compact) <= LINE_COLUMNS or not value or not isinstance(value, (dict, list)):
        return compact
    deeper = indent + "  "
    if isinstance(value, dict):
        items = [f"{deeper}{json.dumps(name)}: {pretty(item, deeper)}" for name, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if all(isinstance(item, (int, float)) for item in value):
        return compact
    return "[\n" + ",\n".join(deeper + pretty(item, deeper) for item in value) + f"\n{indent}]"


def _write(path: Path, text: str) -> Path:
    # Named by process, not by `tempfile`, whose files only their owner may read.
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path
