"""Large text files as splits, read in place without Spark. Making splits reads everything once, to count lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.errors import TableError
from dpa.sources.columns import require_columns
from dpa.sources.feed import Feed, Page, never
from dpa.sources.lines import COMPRESSED, LinesFile, lines_file
from dpa.sources.paths import Location, data_files, is_hidden, is_surely_local
from dpa.sources.records import TEXT, LineFormat
from dpa.sources.splits import Split

_LARGE_BYTES = 8 * 2**20
"""Mean size from which files are read in place: of many small ones Spark makes few."""

_SPLIT_BYTES = 32 * 2**20
"""About the most bytes of a split, unless a single line has more. In a larger one keys repeat more often, and each is
sent once."""

_PARTS_AT_A_TIME = 4
"""Parts whose lines are counted at once."""

_SAMPLED, _SAMPLED_BYTES = 64, 2**20
"""How many places of a large text a sample is drawn from, and the bytes of each."""


@dataclass(frozen=True)
class TextTable(Feed):
    """Text files, each line of which is a record, as for Spark."""

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
        parts = [(file, at) for file in self.files for at in range(file.begin, file.size, _SPLIT_BYTES)]
        is_over = threading.Event()

        def look_through(part: tuple[LinesFile, int]) -> list[tuple[int, int]]:
            file, start = part
            stop = min(start + _SPLIT_BYTES, file.size)
            return [] if is_over.is_set() else file.cuts_within(start, stop, split_rows)

        splits: list[Split] = []
        with ThreadPoolExecutor(_PARTS_AT_A_TIME) as pool:
            try:
                found = pool.map(look_through, parts)
                for file in self.files:
                    begin = file.begin
                    for _ in range(file.begin, file.size, _SPLIT_BYTES):
                        for end, rows in next(found):
                            splits.append(file.split(begin, end, rows, self.columns))
                            begin = end  # a line may begin in one part, and end in another
            finally:
                is_over.set()
        return Page(splits)

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        """Draw lines from some places of the text. Lines are only counted if the text is small, or has no line that
        fits such a place."""
        random, sizes = np.random.default_rng(seed), np.cumsum([file.size - file.begin for file in self.files])
        places = int(sizes[-1]) // _SAMPLED_BYTES
        if places <= _SAMPLED:
            return super().sample(max_rows, seed, enough)
        drawn = np.sort(random.choice(places, _SAMPLED, replace=False)) * _SAMPLED_BYTES
        found: dict[int, pa.Table] = {}
        for place in random.permutation(_SAMPLED).tolist():
            number = int(np.searchsorted(sizes, drawn[place], side="right"))
            file, before = self.files[number], int(sizes[number - 1]) if number else 0
            lines = file.lines_within(file.begin + int(drawn[place]) - before, _SAMPLED_BYTES)
            if lines.num_rows:
                found[place] = lines
            if found and enough():
                break
        if not found:
            return super().sample(max_rows, seed, enough)
        table = pa.concat_tables(found[place] for place in sorted(found))
        rows = random.choice(table.num_rows, min(max_rows, table.num_rows), replace=False, shuffle=False)
        return table.take(pa.array(np.sort(rows)))


def text_table(files: Sequence[Location]) -> TextTable:
    """Look at text files. Raises TableError if one cannot be read."""
    try:
        return TextTable(tuple(lines_file(file, LineFormat("text"), None) for file in files))
    except FileNotFoundError as error:
        raise TableError(f"the input was removed while it was looked at: {error}") from None


def large_text(
    paths: Sequence[str], *, glob: str | None = None, recursive: bool = False, exclude: Sequence[str] = ()
) -> list[Location]:
    """The text files that paths name, as `dpa.sources.paths.data_files` finds them, if reading in place is worthwhile,
    and all are local, not compressed, and visible to Spark; else none."""
    if not all(is_surely_local(path) for path in [*paths, glob or ""]):
        return []
    try:
        files = [file for path in paths for file in data_files(path, glob, recursive, exclude)]
    except (TableError, OSError, UnicodeDecodeError):
        return []  # Spark says what is wrong, or makes an empty table of nothing
    if not files or not all(map(_is_plain, files)) or len({file.name for file in files}) < len(files):
        return []
    sizes = (file.filesystem.get_file_info(file.path).size or 0 for file in files)
    return files if sum(sizes) >= len(files) * _LARGE_BYTES else []


def _is_plain(file: Location) -> bool:
    """Whether Spark reads a file, and reads it as it is."""
    path = PurePosixPath(file.path)
    return not (is_hidden(path.name) or path.name.endswith("._COPYING_") or path.suffix.lower() in COMPRESSED)
