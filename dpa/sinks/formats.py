"""The formats of results: those of files are `ENCODINGS`, and each other one is a line here and a file."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dpa._util.words import alternatives
from dpa.errors import TableError
from dpa.sinks import _iceberg, _kafka, delta
from dpa.sinks._layout import FileLayout
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.encodings import ENCODINGS, PARQUET, Encoding
from dpa.sinks.objects import ResultFiles
from dpa.sinks.reading import FileEpochs, Format, Results
from dpa.sinks.sink import Sink, Target
from dpa.sources.paths import prefix_of, without_file_scheme


def _file_sink(encoding: Encoding, to: Target) -> Sink:
    if "://" in to.path and not to.path.startswith("s3://"):
        right = "a directory, local or shared by all machines; a result may also go to s3://BUCKET/PREFIX"
        raise TableError(f"{prefix_of(to.path)} is a URI; name {right}")
    layout = FileLayout(encoding, **to.files)
    if to.publishes is not None or to.path.startswith("s3://"):
        return ResultFiles(to, layout)
    return ResultDirectory(to, layout)


def _of_files(encoding: Encoding) -> Format:
    return Format(
        encoding.name,
        partial(_file_sink, encoding),
        modes=("error", "overwrite"),
        epochs=lambda to: FileEpochs(to.path),
        encoding=encoding,
    )


FORMATS: dict[str, Format] = {
    each.name: each for each in (*map(_of_files, ENCODINGS), delta.FORMAT, _iceberg.FORMAT, _kafka.FORMAT)
}
"""By name."""

__all__ = ["FORMATS", "Format", "Target", "results"]


def results(path: str | Path, *, format: str | None = None, options: Mapping[str, Any] | None = None) -> Results:
    """Read what a job has published up to its newest complete epoch.

    Args:
        path: as the job file has it, in `output.path`.
        format: `delta`, `iceberg`, or that of files; None: `delta` where there is such a table, else that of the files.
        options: of a Delta table's storage, or of an Iceberg table's catalog, as the job's `output.args`.

    Raises:
        TableError: no epoch is complete yet, or it cannot be read.
    """
    place, readable = without_file_scheme(str(path)), {each.name: each for each in FORMATS.values() if each.epochs}
    if format is None:
        format = next((name for name, each in readable.items() if each.is_at(place)), PARQUET.name)
    if format not in readable:
        raise TableError(f"there is no format {format!r}: it is {alternatives(readable)}")
    found = readable[format].epochs
    assert found is not None
    return found(Target(place, args=options or {})).read()
