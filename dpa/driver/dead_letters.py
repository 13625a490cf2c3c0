"""Dead letters as a table, and where a run puts them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from itertools import islice

import pyarrow as pa

from dpa.driver.outputs import Publication
from dpa.tolerance import Letter

_NUMBERS = ("split", "offset", "rows", "edge", "block", "epoch", "generation")

SCHEMA = pa.schema(
    pa.field(
        field.name,
        pa.int64() if field.name in _NUMBERS else pa.binary() if field.name == "data" else pa.string(),
        nullable="None" in str(field.type),
    )
    for field in fields(Letter)
)
"""The columns of the table: those of a `Letter`."""


_AT_ONCE = 10_000
"""Letters that are in memory together while they are written."""


def as_table(letters: Iterable[Letter]) -> pa.Table:
    """A row for each letter."""
    return pa.Table.from_pylist([asdict(letter) for letter in letters], SCHEMA)


def publish(to: Publication, letters: Iterable[Letter]) -> None:
    """Put dead letters in their place, which has none of an earlier job then.

    Raises:
        JobFailedError: they cannot be written.
    """
    rest = iter(letters)
    staged = [to.stage(as_table(islice(rest, _AT_ONCE)), 0)]
    while some := [*islice(rest, _AT_ONCE)]:
        staged.append(to.stage(as_table(some), len(staged)))
    to.commit(staged)
