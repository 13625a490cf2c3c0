"""Micro-batches that Spark stages as Parquet while a job reads them: an open feed that does not need Spark.

`dpa.spark` runs a query of Structured Streaming, and writes each micro-batch to a numbered directory, which is complete
once it has the file that Spark writes last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from dpa.errors import TableError
from dpa.sources.feed import PAGE_SPLITS, Feed, Page
from dpa.sources.files import FileTable
from dpa.sources.parquet import parquet_table
from dpa.sources.paths import locate
from dpa.sources.splits import NumberedSplit, ParquetSplit, Split

COMPLETE = "_SUCCESS"
ENDED = "_ended"
"""Stands beside the batches when none follows; holds Spark's failure, if any."""


def place_of_batch(place: str, number: int) -> str:
    """Where a batch is staged."""
    return f"{place}/{number:010d}"


@dataclass(frozen=True)
class MicroBatches(Feed):
    """What Spark has staged, and will stage. A position is the number of a batch, and of the next split in it.

    Attributes:
        place: the batches' directory, a path or URI; empty: nothing is staged, only columns are wanted.
        staged: their columns.
        columns: those to read; None: all.
        dictionary: columns to decode as dictionaries.
    """

    place: str
    staged: pa.Schema
    columns: tuple[str, ...] | None = None
    dictionary: tuple[str, ...] = ()
    is_open = True

    @property
    def schema(self) -> pa.Schema:
        return self.staged

    def poll(self, split_rows: int, position: Any = None) -> Page:
        number, skipped = position or (0, 0)
        if not self.place:
            return Page((), (number, skipped))
        ended = self._ended()  # looked at before the batches: none comes after it
        splits: list[Split] = []
        while len(splits) < PAGE_SPLITS:
            batch = locate(place_of_batch(self.place, number))
            if not batch.below(COMPLETE).exists:
                return Page(splits, None if ended and not splits else (number, skipped))
            table = parquet_table([batch.name])
            made = FileTable(table.files, self.columns, self.dictionary).splits(split_rows)[skipped:]
            some = made[: PAGE_SPLITS - len(splits)]
            splits += some
            number, skipped = (number, skipped + len(some)) if len(some) < len(made) else (number + 1, 0)
        return Page(splits, (number, skipped))

    def release(self, position: Any, unread: Sequence[Split]) -> None:
        number, _ = position or (0, 0)
        inner = (split.split if isinstance(split, NumberedSplit) else split for split in unread)
        needed = [split.path for split in inner if isinstance(split, ParquetSplit)]
        root = locate(self.place)
        for info in root.filesystem.get_file_info(fs.FileSelector(root.path, allow_not_found=True)):
            batch = root.at(info.path)
            is_read = info.base_name.isdecimal() and int(info.base_name) < number
            if is_read and not any(path.startswith(f"{batch.name}/") for path in needed):
                batch.remove_directory()

    def _ended(self) -> bool:
        """Whether nothing more will be staged."""
        mark = locate(f"{self.place}/{ENDED}")
        if not mark.exists:
            return False
        with mark.filesystem.open_input_file(mark.path) as file:
            why = file.read().decode()
        if why:
            raise TableError(why)
        return True
