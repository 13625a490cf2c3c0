"""The table of dead letters in a directory, or in object storage."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpa._util.owned import UntrustedError, read_trusted
from dpa.driver.outputs import SCHEMA, as_table
from dpa.errors import TableError
from dpa.sinks.directory import COLUMNS
from dpa.sinks.formats import FORMATS, Target
from dpa.sinks.objects import ResultFiles
from dpa.sources.paths import prefix_of
from dpa.tolerance import Letter

_REMOTE = "s3://"


def mark_of(directory: Path) -> str:
    """What the job has left beside a result, without its writer's number and the columns."""
    lines = (directory / "_job.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("# job ", COLUMNS)))


@dataclass(frozen=True)
class FoundLetters:
    """The letters in a directory, or at a prefix of object storage, with a digest of their files; `mark`: what the job
    has left beside those in object storage."""

    path: str
    letters: tuple[Letter, ...]
    digest: str
    mark: str = ""

    @staticmethod
    def read(path: str, *, trusted: bool = False) -> FoundLetters:
        """Raises TableError if there are none. With `trusted` the caller unpickles the records, so it also raises
        TableError if another user could have written the files."""
        if path.startswith(_REMOTE):
            found, manifest = ResultFiles(path).result()
            digest, mark = hashlib.sha256(repr(manifest.files).encode()).hexdigest(), manifest.config
        else:
            found, digest = _of_files(Path(path), is_trusted=trusted)
            mark = ""
        try:
            rows = found.select(SCHEMA.names).cast(SCHEMA).to_pylist()
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise TableError(f"{prefix_of(path)}: no table of dead letters: {str(error).splitlines()[0]}") from None
        return FoundLetters(path, tuple(Letter(**row) for row in rows), digest, mark)

    def rewrite(self, letters: Sequence[Letter]) -> None:
        mark = self.mark or mark_of(Path(self.path))
        sink = FORMATS["parquet"].sink(Target(self.path, "overwrite", mark=lambda: mark, private=True))
        sink.begin()
        try:
            sink.commit((sink.stage(as_table(letters), 0, 1),), 1, 0.0, is_last=True)
        finally:
            sink.abort()


def _of_files(path: Path, *, is_trusted: bool) -> tuple[pa.Table, str]:
    files = sorted(path.glob("part-*.parquet"))
    if not files:
        raise TableError(f"{path} holds no dead letters: name the directory of `dead_letters`")
    digest, tables = hashlib.sha256(), []
    try:
        for file in files:
            content = read_trusted(file) if is_trusted else file.read_bytes()
            digest.update(content)
            tables.append(pq.read_table(pa.BufferReader(content)))
        return pa.concat_tables(tables), digest.hexdigest()
    except UntrustedError as error:
        right = "records are unpickled if only their owner, who does it, can write them"
        raise TableError(f"{file} {error}; {right}") from None
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path}: no table of dead letters: {str(error).splitlines()[0]}") from None
