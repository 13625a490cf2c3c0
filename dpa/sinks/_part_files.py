"""The files of a result: their names, the rows in one, and which of these are of which epoch."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dpa.errors import TableError
from dpa.sinks._hive import columns_of_file, with_partitions
from dpa.sinks._replacement import ENDING
from dpa.sinks.encodings import encoding_of
from dpa.storage import Files

PART = re.compile(
    r"(?:[^/=]+=[^/]+/)*(?:(?:part|share)-\d{5}|merged-(?P<level>\d))"
    r"-(?P<writer>[0-9a-f]{32})(?:-(?P<epoch>\d{6,}))?" + ENDING
)
"""Their names. What came last has no epoch; a merged file has epochs up to the one in its name."""

_EPOCHS = b"dpa.epochs"
"""Metadata of a merged file: its epochs in order, each with its number of rows. Many early epochs are counted together,
after an entry for the first of them with no rows."""

_MOST_EPOCHS = 4_096
"""Epochs that are counted apart."""

_LAST = 2**62
"""Stands for the epoch of what came last."""


def with_epochs(objects: Files, names: Sequence[str], rows: pa.Table) -> pa.Table:
    """The rows of some files, with their epochs as metadata if all the files have them."""
    known = [_epochs_in(objects, name) for name in names]
    if not all(known):
        return rows
    counts: Counter[int] = Counter()
    for of in known:
        counts.update(dict(of))
    found = [*counts.items()]
    if len(found) > _MOST_EPOCHS:
        early, late = found[:-_MOST_EPOCHS], found[-_MOST_EPOCHS:]
        found = [(early[0][0], 0), (early[-1][0], sum(rows for _, rows in early)), *late]
    return _noted(rows, found)


def begin_of(objects: Files, name: str, until: int, *, is_trial: bool) -> list[str]:
    """A file with the rows of a file up to an epoch: itself, a new one, or none. If `is_trial`, nothing is written.

    Going back to a checkpoint may have to cut a merged file: where old checkpoints are put back, any number of epochs
    may have been merged since.

    Raises:
        TableError: the file does not say which rows these are.
    """
    match = PART.fullmatch(name)
    assert match is not None
    last = int(match["epoch"] or _LAST)
    if last <= until or match["level"] is None:
        return [name] if last <= until else []
    epochs = _epochs_in(objects, name)
    kept = [each for each in epochs if each[0] <= until]
    if not epochs or (kept != epochs and kept and not kept[-1][1]):
        raise TableError(f"{objects.place}/{name} has rows of epochs up to {last}, and does not say which")
    if kept in ([], epochs):
        return [name] if kept else []
    new = f"merged-{match['level']}-{uuid.uuid4().hex}-{until:06d}.parquet"
    if not is_trial:
        with objects.writing(new) as stream:
            pq.write_table(_noted(table_in(objects, name).slice(0, sum(rows for _, rows in kept)), kept), stream)
    return [new]


def table_in(objects: Files, name: str, columns: pa.Schema | None = None) -> pa.Table:
    """The table in a file, which must be there, without its epochs. `columns`: those of the result, where the file does
    not say them all."""
    inside = None if columns is None else columns_of_file(name, columns)
    with objects.reading(name) as file:
        table = None if file is None else encoding_of(name).read(file, inside)
    if table is None:
        raise FileNotFoundError(f"{objects.place}/{name}")
    if columns is not None:
        return with_partitions(table, name, columns)
    about = table.schema.metadata or {}
    if _EPOCHS not in about:
        return table
    return table.replace_schema_metadata({key: value for key, value in about.items() if key != _EPOCHS} or None)


def _epochs_in(objects: Files, name: str) -> list[tuple[int, int]]:
    """The epochs of a file, each with its number of rows; empty if they are not known."""
    match = PART.fullmatch(name)
    with objects.reading(name) as file:
        about = pq.read_metadata(file)
    if match is not None and match["level"] is None:
        return [(int(match["epoch"] or _LAST), about.num_rows)]
    return [(int(epoch), int(rows)) for epoch, rows in json.loads((about.metadata or {}).get(_EPOCHS, "[]"))]


def _noted(rows: pa.Table, epochs: Sequence[tuple[int, int]]) -> pa.Table:
    return rows.replace_schema_metadata({**(rows.schema.metadata or {}), _EPOCHS: json.dumps(epochs)})
