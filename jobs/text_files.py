"""A feed of one's own: the lines of text files, read without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpa import Feed, Page

SCHEMA = pa.schema({"line": pa.string()})


@dataclass(frozen=True)
class Lines:
    """Some lines of a file, beginning with number `start`."""

    path: str
    rows: int
    start: int = 0

    def after(self, rows: int) -> Lines:
        """What is left once the first `rows` lines have been read."""
        return replace(self, rows=self.rows - rows, start=self.start + rows)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the lines."""
        with Path(self.path).open(encoding="utf-8") as file:
            lines = islice(file, self.start, self.start + self.rows)
            while part := [line.rstrip("\n") for line in islice(lines, batch_rows)]:
                yield pa.record_batch([part], schema=SCHEMA)


class TextFiles(Feed):
    """The lines of the files in a directory whose names match a pattern: a split each, and so a page."""

    schema = SCHEMA

    def __init__(self, directory: str, pattern: str = "*.txt") -> None:
        self.files = sorted(map(str, Path(directory).absolute().glob(pattern)))
        if not self.files:
            raise ValueError(f"{directory} has no file {pattern}")

    def poll(self, split_rows: int, position: Any = None) -> Page:
        """One file; the position is the number of the next."""
        number = position or 0
        with Path(self.files[number]).open(encoding="utf-8") as file:
            rows = sum(1 for _ in file)
        following = number + 1
        return Page([Lines(self.files[number], rows)], following if following < len(self.files) else None)
