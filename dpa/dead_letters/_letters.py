"""The table of dead letters in a directory, or in object storage."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpa.driver.outputs import SCHEMA, as_table
from dpa.errors import TableError
from dpa.sinks.formats import FORMATS, Target
from dpa.sinks.reading import result_at
from dpa.sources.paths import prefix_of
from dpa.storage import Purpose
from dpa.tolerance import Letter

_AFTER = "# left by the replay of "


@dataclass(frozen=True)
class FoundLetters:
    """The letters in a directory, or at a prefix of object storage, with a digest of them and of what precedes them;
    `mark`: what the job, and the replay before, have left beside them."""

    path: str
    letters: tuple[Letter, ...]
    digest: str
    mark: str

    @staticmethod
    def read(path: str, *, trusted: bool = False) -> FoundLetters:
        """Raises TableError if there are none. With `trusted` the caller unpickles the records, so it also raises
        TableError if another user could have written the files."""
        if Path(path).is_file():
            raise TableError(f"{path} is a file: name the directory of dead letters that it is in")
        digest, letters = hashlib.sha256(), []
        try:
            files, found = result_at(path, Purpose("dead letters", TableError, TableError, is_private=trusted))
            digest.update(found.config.encode())
            for name in found.files or ():
                content = files.read(name)
                if content is None:
                    raise FileNotFoundError(f"{name} is gone")
                digest.update(content)
                rows = pq.read_table(pa.BufferReader(content)).select(SCHEMA.names).cast(SCHEMA)
                letters += [Letter(**row) for row in rows.to_pylist()]
        except (pa.ArrowException, KeyError, ValueError, OSError) as error:
            raise TableError(f"{prefix_of(path)}: no table of dead letters: {str(error).splitlines()[0]}") from None
        return FoundLetters(path, tuple(letters), digest.hexdigest(), found.config)

    def rewrite(self, letters: Sequence[Letter]) -> None:
        # Those that fail alike again and again are the same letters, but not the same replay.
        mark = f"{self.mark.partition(_AFTER)[0]}{_AFTER}{self.digest}\n"
        sink = FORMATS["parquet"].sink(Target(self.path, "overwrite", mark=lambda: mark, private=True))
        sink.begin()
        try:
            sink.commit((sink.stage(as_table(letters), 0, 1),), 1, 0.0, is_last=True)
        finally:
            sink.abort()
