"""The Parquet files of a result by epoch: what a file has of which epoch, also where files were merged."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpa.errors import TableError

PART = re.compile(r"(?:part-\d{5}|merged-(?P<level>\d))-(?P<writer>[0-9a-f]{32})(?:-(?P<epoch>\d{6,}))?\.parquet")
"""Their names: without an epoch where it is what came last; a merged file has epochs up to the one that it names."""

_EPOCHS = b"dpa.epochs"
"""What a merged file keeps beside its columns: of which epochs, in their order, it has how many rows; those of many
early ones are counted together, behind a first epoch without rows."""

_MOST_EPOCHS = 4_096
"""Epochs that are counted apart."""

_LAST = 2**62
"""The epoch of what came last."""


def with_epochs(objects: Any, names: Sequence[str], rows: pa.Table) -> pa.Table:
    """The rows of some files, as a table that says of which epochs they are, if the files say it."""
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


def begin_of(objects: Any, name: str, until: int, *, is_trial: bool) -> list[str]:
    """The file that has what a file has until an epoch: itself, a new one, or none; if `is_trial`, nothing is written.

    Raises:
        TableError: the file does not say which rows these are.
    """
    match = PART.fullmatch(name)
    assert match is not None
    last = int(match["epoch"] or _LAST)
    if last <= until:
        return [name]
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


def table_in(objects: Any, name: str) -> pa.Table:
    """The table in one of some objects.

    Raises:
        FileNotFoundError: it is not there.
    """
    with objects.reading(name) as file:
        table = None if file is None else pq.read_table(file)
    if table is None:
        raise FileNotFoundError(f"{objects.place}/{name}")
    about = table.schema.metadata or {}
    if _EPOCHS not in about:
        return table
    return table.replace_schema_metadata({key: value for key, value in about.items() if key != _EPOCHS} or None)


def together(tables: Iterable[pa.Table]) -> pa.Table:
    """The rows of some tables; a column that one lacks is null there.

    Raises:
        TableError: a column has types that go into no one type.
    """
    found = [table for table in tables if table.num_columns]
    if not found:
        return pa.table({})
    try:
        return pa.concat_tables(found, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"the rows of several epochs or tasks are no table: {error}") from None


def _epochs_in(objects: Any, name: str) -> list[tuple[int, int]]:
    """The epochs of a file, and how many rows each has; none if it does not say."""
    match = PART.fullmatch(name)
    with objects.reading(name) as file:
        about = pq.read_metadata(file)
    if match is not None and match["level"] is None:
        return [(int(match["epoch"] or _LAST), about.num_rows)]
    return [(int(epoch), int(rows)) for epoch, rows in json.loads((about.metadata or {}).get(_EPOCHS, "[]"))]


def _noted(rows: pa.Table, epochs: Sequence[tuple[int, int]]) -> pa.Table:
    return rows.replace_schema_metadata({**(rows.schema.metadata or {}), _EPOCHS: json.dumps(epochs)})
