"""Large files of text as splits, read in place: without Spark. To make splits, all is read once, to count lines."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from dpa.errors import TableError
from dpa.sources.columns import require_columns
from dpa.sources.feed import Feed, Page
from dpa.sources.lines import TEXT, LineFormat, LinesFile, lines_file
from dpa.sources.paths import Location, data_files, is_surely_local
from dpa.sources.splits import Split

_LARGE_BYTES = 8 * 2**20
"""From this mean size on, files are read in place: of many small ones Spark makes few."""

_SPLIT_BYTES = 32 * 2**20
"""Most bytes of a split, unless a single line has more. In a larger one keys come more often, and each is sent once."""

_FILES_AT_A_TIME = 4
"""Files whose lines are counted at the same time."""

_COMPRESSED = {".bz2", ".deflate", ".gz", ".lz4", ".snappy", ".xz", ".zst", ".zstd"}
"""How names end of files that Spark decompresses."""


@dataclass(frozen=True)
class TextTable(Feed):
    """Some files of text, each line of which is a record, as Spark reads them.

    Attributes:
        files: at least one.
        columns: the columns to read, of the only one there is; all if None.
    """

    files: tuple[LinesFile, ...]
    columns: tuple[str, ...] | None = None

    @property
    def schema(self) -> pa.Schema:
        return TEXT

    @property
    def paths(self) -> list[str]:
        """The files' paths, in the order of their lines."""
        return [file.location.name for file in self.files]

    def poll(self, split_rows: int, position: Any = None) -> Page:
        require_columns(TEXT.names, self.columns or (), f"the input {self.paths[0]}")
        with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
            found = pool.map(partial(self._splits, split_rows), self.files)
            return Page([split for splits in found for split in splits])

    def _splits(self, split_rows: int, file: LinesFile) -> list[Split]:
        return [split for split, _ in file.splits(split_rows, 0, self.columns, split_bytes=_SPLIT_BYTES)]


def text_table(files: Sequence[Location]) -> TextTable:
    """Look at files of text.

    Raises:
        TableError: one cannot be read.
    """
    try:
        return TextTable(tuple(lines_file(file, LineFormat("text"), None) for file in files))
    except FileNotFoundError as error:
        raise TableError(f"the input was removed while it was looked at: {error}") from None


def large_text(
    paths: Sequence[str], *, glob: str | None = None, recursive: bool = False, exclude: Sequence[str] = ()
) -> list[Location]:
    """The files of text that paths name, as `dpa.sources.paths.data_files` finds them, if it is worth while to read
    them in place, and all are on this machine and not compressed; else none."""
    if not all(is_surely_local(path) for path in paths):
        return []
    try:
        found = [file for path in paths for file in data_files(path, glob, recursive, exclude)]
    except TableError:
        return []  # Spark says what is wrong, or makes an empty table of nothing
    files = list({file.name: file for file in found}.values())
    sizes = [file.filesystem.get_file_info(file.path).size or 0 for file in files]
    if not files or sum(sizes) < len(files) * _LARGE_BYTES:
        return []
    return [] if any(PurePosixPath(file.path).suffix.lower() in _COMPRESSED for file in files) else files
