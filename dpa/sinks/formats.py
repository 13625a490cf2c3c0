"""The formats of results: one line here, and one file each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpa._util.words import alternatives
from dpa.errors import TableError
from dpa.sinks import _iceberg, _kafka, delta, directory
from dpa.sinks.reading import Format, Results, Target
from dpa.sources.paths import without_file_scheme

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        directory.FORMAT,
        delta.FORMAT,
        _iceberg.FORMAT,
        _kafka.FORMAT,
    )
}
"""By name."""

__all__ = ["FORMATS", "Format", "Target", "results"]


def results(path: str | Path, *, format: str | None = None, options: Mapping[str, Any] | None = None) -> Results:
    """Read what a job has published up to its newest complete epoch.

    Args:
        path: as the job file has it, in `output.path` or `aggregation.path`.
        format: `parquet`, `delta` or `iceberg`; None: `delta` where there is such a table, else `parquet`.
        options: of a Delta table's storage, or of an Iceberg table's catalog, as the job's `output.args`.

    Raises:
        TableError: no epoch is complete yet, or it cannot be read.
    """
    place, readable = without_file_scheme(str(path)), {each.name: each for each in FORMATS.values() if each.epochs}
    if format is None:
        format = next((name for name, each in readable.items() if each.is_at(place)), directory.FORMAT.name)
    if format not in readable:
        raise TableError(f"there is no format {format!r}: it is {alternatives(readable)}")
    found = readable[format].epochs
    assert found is not None
    return found(place, options or {}).read()
