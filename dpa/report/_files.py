"""The files of a report: `report.json`, `resolved.yaml` and `report.html`, and the last events of the tasks of a failed
job, each written to a temporary name and then renamed.

docs/report.md and `schema()` describe `report.json`; `_html.py` draws the page.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pydantic import TypeAdapter

from dpa._util.as_yaml import as_yaml
from dpa._util.disk import why
from dpa._util.links import is_there, without_links
from dpa._util.version import REPORT
from dpa.errors import ConfigError, DpaError
from dpa.report import _html
from dpa.report._data import document
from dpa.result import Report


class ReportError(DpaError):
    """The report, or the picture of a plan, cannot be written where it was wanted."""


def check_directory(directory: Path, taken: Mapping[str, str]) -> None:
    """Check, before a job runs, that its report can be written into `directory`; `taken` are the directories of its
    results and partial results, by the key that names each. Leaves nothing behind.

    Raises:
        ConfigError: the directory cannot be created or written to, or lies in one of the others.
    """
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

    A file appears complete or not at all, and replaces an older one of its name. The data is written first, so
    that it exists even if a picture cannot be drawn.

    Args:
        report: what is written.
        directory: where to.
        events: files of events by name, for the directory `events` in it; those of an earlier job are removed.

    Raises:
        ReportError: the directory cannot be created or written to.
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        data = write_file(directory / "report.json", to_json(report) + "\n")
        resolved = write_file(directory / "resolved.yaml", as_yaml(report.config, width=120))
        recorded = _write_events(directory / "events", events or {})
        page = write_file(directory / "report.html", _html.render(report))
        return [data, resolved, *([recorded] if events else []), page]
    except OSError as error:
        raise ReportError(f"{directory}: cannot write the report: {why(error)}") from error


def to_json(report: Report) -> str:
    """The report as strict JSON in ASCII, fit for any pipe; docs/report.md describes each field."""
    return document(report.to_dict())


def schema() -> dict[str, Any]:
    """The JSON schema of `report.json`."""
    made = TypeAdapter(Report).json_schema(mode="serialization")
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["properties"] = {"schema": {"const": REPORT, "title": "Schema"}, **made["properties"]}
    made["required"] = ["schema", *made["required"]]
    return made


def _write_events(directory: Path, events: Mapping[str, bytes]) -> Path:
    """Leave these files of events in a directory, and no others; no directory for none."""
    for old in directory.glob("*.events"):
        old.unlink()
    if events:
        directory.mkdir(exist_ok=True)
    elif directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
    for name, content in events.items():
        write_file(directory / name, content, mode=0o600)
    return directory


def write_file(path: Path, content: str | bytes, mode: int = 0o666) -> Path:
    """Write a file, which appears complete or not at all; returns its path. `mode`: who may read it, if the umask lets
    them.

    Raises:
        OSError: it cannot be written.
    """
    # Named by process, not by `tempfile`, whose files only their owner may read.
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb", opener=partial(os.open, mode=mode)) as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path
